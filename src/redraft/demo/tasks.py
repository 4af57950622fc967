"""The tasks of `redraft demo`, and their checks, which compare every value of an answer."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any, cast

from redraft._texts import shortened
from redraft.errors import OutputError
from redraft.text.replies import json_of
from redraft.types import QualityCriterion

if TYPE_CHECKING:
    from collections.abc import Callable


def function_check(name: str, check: Callable[[str], Any], description: str = "") -> QualityCriterion:
    """Criterion that is met if a function finds nothing wrong."""
    config = {"function": check}
    return QualityCriterion(name, description, threshold=1.0, evaluator="function", evaluator_config=config)


def verdict(wrong: list[str], score: float) -> dict[str, Any]:
    """What a check returns: what is wrong, and the share of what is right."""
    return {"valid": not wrong, "score": max(0.0, score), "errors": wrong}


ORDER = (
    "Extract the order from this message as one JSON object with the keys lamps (integer), trays (integer), "
    "total_cents (integer) and paid (true or false). Reply with JSON only.\n\n"
    '"Please send three desk lamps and a cable tray. That was 84.50 altogether, I\'ll pay on delivery."'
)
ORDER_VALUES: dict[str, tuple[Any, str]] = {
    "lamps": (3, "the number of lamps"),
    "trays": (1, "the number of trays"),
    "total_cents": (8450, "the total in cents"),
    "paid": (False, "true only if the money was paid already"),
}


# A docstring would be the description of the criterion, which the prompt states.
def _check_order(output: str) -> dict[str, Any]:
    # Other fields, and values of another type, are wrong.
    try:
        value = json_of(output)
    except OutputError as error:
        return verdict([str(error)], 0.0)
    actual = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    wrong = [
        f"{key} must be {hint}, not {actual.get(key)!r}"
        for key, (right, hint) in ORDER_VALUES.items()
        if actual.get(key) != right or type(actual.get(key)) is not type(right)
    ]
    wrong += [f"{key} was not asked for" for key in actual if key not in ORDER_VALUES]
    return verdict(wrong, 1 - len(wrong) / len(ORDER_VALUES))


ORDER_FIELDS = function_check("fields", _check_order)

TITLE_CASE = (
    'Write a Python function `title_case(text)` that keeps an apostrophe: "it\'s late" becomes "It\'s Late". '
    "Reply with the function alone."
)
TITLE_CASE_CALLS = QualityCriterion(
    "calls",
    threshold=1.0,
    evaluator="command",  # the code runs in the jail
    evaluator_config={
        "calls": [
            ["title_case('ada lovelace')", "Ada Lovelace"],
            ['title_case("it\'s late")', "It's Late"],
            ['title_case("dogs\' home")', "Dogs' Home"],
        ],
        "timeout": 5,
    },
)

MEETING = (
    "On which day is the meeting? Reply with the date only.\n\n"
    '"Let us meet on 3 May 2027 at half past two in room 12."'
)
DATE_FORM = "a date is written as YYYY-MM-DD"


def date_check(description: str) -> QualityCriterion:
    """The one right date in its form. The prompt states the `description`, and nothing without one."""

    def check(output: str) -> dict[str, Any]:
        is_right = output.strip() == "2027-05-03"
        wrong = [] if is_right else [f"The date must be written as YYYY-MM-DD, not {shortened(output, 40)!r}"]
        return verdict(wrong, float(is_right))

    return function_check("answer", check, description)


SQL_TASK = "Write one SQLite query for the database of our shop. {} Reply with the query alone."
TABLE = "CREATE TABLE t_art (a_no INTEGER, bez TEXT, prs_ct INTEGER, lgr INTEGER);"
ROWS = (
    "INSERT INTO t_art VALUES (1, 'lamp', 4500, 3), (2, 'desk', 19900, 0), (3, 'tray', 900, 40);",
    "INSERT INTO t_art VALUES (4, 'chair', 7900, 2), (5, 'rug', 12000, 9);",
)
"""Two databases: a query that is right on one by chance is wrong."""
READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)


def allowed(action: int, *_names: str | None) -> int:
    """Let a query read, and do nothing else."""
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY


def query_check(right: str) -> QualityCriterion:
    """The query finds in both databases what the right one finds; the database's own error is the reason."""
    expected = [rows_of(right, rows) for rows in ROWS]

    def check(output: str) -> tuple[bool, str]:
        try:
            found = [rows_of(output.strip().rstrip(";"), rows) for rows in ROWS]
        except (sqlite3.Error, sqlite3.Warning) as error:
            return False, f"{error}. The tables are t_art(a_no, bez, prs_ct, lgr)."
        return found == expected, "The query returns other rows than asked for."

    return function_check("query", check)


def rows_of(query: str, rows: str) -> list[tuple[Any, ...]]:
    """The rows that a query finds. It may only read, within limits; raises `sqlite3.Error`."""
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(TABLE + rows)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
        database.set_authorizer(allowed)
        database.set_progress_handler(lambda: 1, 1_000_000)
        return sorted(database.execute(query).fetchall(), key=repr)
    finally:
        database.close()


PRIMES = "List the prime numbers between 30 and 50, separated by commas. Reply with the numbers alone."
PRIME_NUMBERS = {"31", "37", "41", "43", "47"}


def _check_primes(output: str) -> dict[str, Any]:
    # A word is wrong, and so is what is missing.
    stated = list(dict.fromkeys(re.findall(r"[^\s,]+", output)))
    wrong = [f"{one} is no prime number from 30 to 50" for one in stated if one not in PRIME_NUMBERS]
    if missing := PRIME_NUMBERS - {*stated}:
        wrong.append(f"{len(missing)} of the {len(PRIME_NUMBERS)} numbers missing")
    return verdict(wrong, len(PRIME_NUMBERS & {*stated}) / len(PRIME_NUMBERS | {*stated}))


PRIMES_LISTED = function_check("numbers", _check_primes)
