"""Small tasks of other kinds than those reported, to tune on: tables, queries and conversions.

A query's visible check is its result on the rows that the task shows; it is scored on other rows, too. A
table or a conversion is checked for its form; its exact text scores.
"""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any

from _tasks import BenchTask
from small_tasks import lines_of

from redraft import QualityCriterion
from redraft.text.replies import unfenced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from small_tasks import Check

STEPS = 1_000_000
"""SQLite instructions after which a query is ended."""


def shape(name: str, prompt: str, checks: dict[str, Callable[[str], Check]], expected: str) -> BenchTask:
    """Ask for a text in some form; its lines score, without their outer white space."""
    criteria = tuple(
        QualityCriterion(key, threshold=1.0, evaluator="function", evaluator_config={"function": check})
        for key, check in checks.items()
    )

    async def hidden(output: str) -> bool:
        return _plain(unfenced(output)[0]) == _plain(expected)

    return BenchTask(name, prompt, criteria, hidden)


def _plain(text: str) -> list[str]:
    """Return the lines, without what is free in a Markdown table: spaces, and how long a rule is."""
    return [re.sub(" |:?-{2,}:?", "", line) for line in lines_of(text)]


def each_line(pattern: str, form: str) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        bad = [line for line in lines_of(output) if not re.fullmatch(pattern, line)]
        return not bad, f"{bad[:1]} does not have the form {form!r}."

    return check


def line_count(count: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = len(lines_of(output))
        return found == count, f"It has {found} lines; it must have exactly {count}."

    return check


def in_order(key: Callable[[str], Any], what: str) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = lines_of(output)
        try:
            expected = sorted(found, key=key)
        except (ValueError, IndexError):
            return False, f"Its lines can't be put in order by {what}."
        first = next((got for got, want in zip(found, expected, strict=True) if got != want), None)
        return first is None, f"It is not in order of {what}: {first!r} is out of place."

    return check


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def markdown(columns: Sequence[str], rows: int) -> Callable[[str], Check]:
    def check(output: str) -> Check:
        found = lines_of(output)
        if not all(line.startswith("|") and line.endswith("|") for line in found):
            return False, 'Each line must start and end with "|", and there must be no other line.'
        if not found or cells(found[0]) != list(columns):
            return False, f"The header must be {' | '.join(columns)}, not {' | '.join(cells(found[0]))!r}."
        if len(found) < 2 or not all(re.fullmatch(":?-+:?", cell) for cell in cells(found[1])):
            return False, "The second line must be the separator: | --- | for each column."
        if len(found) != rows + 2:
            return False, f"It has {len(found) - 2} rows below the header; it must have exactly {rows}."
        wrong = [line for line in found if len(cells(line)) != len(columns)]
        return not wrong, f"{wrong[:1]} does not have {len(columns)} cells."

    return check


TABLES = (
    shape(
        "table-planets",
        "Make a Markdown table with the columns Planet and Moons, and nothing else, in the order of the "
        "text: Earth has one moon, Mars has two, Mercury has none (0).",
        {"table": markdown(("Planet", "Moons"), 3)},
        "| Planet | Moons |\n| --- | --- |\n| Earth | 1 |\n| Mars | 2 |\n| Mercury | 0 |",
    ),
    shape(
        "table-prices",
        "Make a Markdown table with the columns Item, Price and Stock, and nothing else, sorted by price "
        "from low to high: lamp 30 euros, 4 left; chair 75 euros, 2 left; vase 12 euros, 9 left. Prices are "
        "bare numbers.",
        {"table": markdown(("Item", "Price", "Stock"), 3)},
        "| Item | Price | Stock |\n| --- | --- | --- |\n| vase | 12 | 9 |\n| lamp | 30 | 4 |\n"
        "| chair | 75 | 2 |",
    ),
    shape(
        "table-shifts",
        "Make a Markdown table with the columns Day and Who, and nothing else, Monday to Wednesday: Ida "
        "works on Monday and Wednesday, Jon on Tuesday.",
        {"table": markdown(("Day", "Who"), 3)},
        "| Day | Who |\n| --- | --- |\n| Monday | Ida |\n| Tuesday | Jon |\n| Wednesday | Ida |",
    ),
    shape(
        "table-csv",
        "Write this as CSV with the header name,age,city and nothing else: Lou is 31 and lives in Bern; Kim "
        "is 27 and lives in Turin.",
        {"rows": line_count(3), "columns": each_line("[^,]+,[^,]+,[^,]+", "name,age,city")},
        "name,age,city\nLou,31,Bern\nKim,27,Turin",
    ),
    shape(
        "table-semicolons",
        "Write one line for each river as name;length in km, the longest first, without a header: Rhine "
        "1230, Danube 2850, Elbe 1094.",
        {
            "lines": line_count(3),
            "form": each_line(r"\w+;\d+", "name;length"),
            "order": in_order(lambda line: -int(line.split(";")[1]), "length, from long to short"),
        },
        "Danube;2850\nRhine;1230\nElbe;1094",
    ),
    shape(
        "table-pivot",
        "Make a Markdown table with the columns Month, North and South, and nothing else. Sales in the "
        "north: January 5, February 7. Sales in the south: January 3, February 4.",
        {"table": markdown(("Month", "North", "South"), 2)},
        "| Month | North | South |\n| --- | --- | --- |\n| January | 5 | 3 |\n| February | 7 | 4 |",
    ),
    shape(
        "table-totals",
        "Make a Markdown table with the columns Name and Points, and nothing else: Ada has 3 and 4 points, "
        "Bob has 5 and 1. Give the sum for each, and a last row named Total.",
        {"table": markdown(("Name", "Points"), 3)},
        "| Name | Points |\n| --- | --- |\n| Ada | 7 |\n| Bob | 6 |\n| Total | 13 |",
    ),
    shape(
        "table-tsv",
        "Write each country and its capital in a line with a slash between them, in alphabetical order of "
        "the capitals, and nothing else: Spain, Italy, Norway, Greece.",
        {
            "lines": line_count(4),
            "form": each_line("[A-Z][a-z]+/[A-Z][a-z]+", "Country/Capital"),
            "order": in_order(lambda line: line.split("/")[1], "the capitals"),
        },
        "Greece/Athens\nSpain/Madrid\nNorway/Oslo\nItaly/Rome",
    ),
)


def query(name: str, question: str, setup: str, expected: list[tuple[object, ...]],
          other: str, of_other: list[tuple[object, ...]]) -> BenchTask:  # fmt: skip
    """Ask for a SQLite query; the task shows the database of `setup`, and `other` adds rows to score on."""

    def check(output: str) -> Check:
        return _returns(output, setup, expected)

    async def hidden(output: str) -> bool:
        text = unfenced(output)[0]
        return check(text)[0] and _returns(text, f"{setup}\n{other}", of_other)[0]

    shown = "\n".join(map(str, expected))
    prompt = (
        "Write one SQLite query, as bare SQL without Python, for this database:\n\n"
        f"```sql\n{setup}\n```\n\n{question}\n\n"
        f"Here it should return:\n{shown}"
    )
    criterion = QualityCriterion(
        "result", threshold=1.0, evaluator="function", evaluator_config={"function": check}
    )
    return BenchTask(f"query-{name}", prompt, (criterion,), hidden)


def _returns(text: str, setup: str, expected: list[tuple[object, ...]]) -> Check:
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(setup)
        database.execute("PRAGMA query_only = 1")
        database.set_progress_handler(lambda: 1, STEPS)
        found = database.execute(text).fetchmany(len(expected) + 5)
    except (sqlite3.Error, sqlite3.Warning) as error:
        return False, f"SQLite says: {error}."
    finally:
        database.close()
    return found == expected, f"It returns {found}, not {expected}."


PEOPLE = """CREATE TABLE people (name TEXT, city TEXT, age INTEGER);
INSERT INTO people VALUES ('Ann', 'Oslo', 41), ('Ben', 'Rome', 29), ('Cleo', 'Oslo', 35);"""
MORE_PEOPLE = "INSERT INTO people VALUES ('Dov', 'Rome', 35), ('Eva', 'Paris', 18), ('Finn', 'Rome', 60);"
ORDERS = """CREATE TABLE customers (id INTEGER, name TEXT);
CREATE TABLE orders (customer INTEGER, day TEXT, cents INTEGER);
INSERT INTO customers VALUES (1, 'Gus'), (2, 'Hal'), (3, 'Ivy');
INSERT INTO orders VALUES (1, '2025-01-03', 500), (2, '2025-01-09', 900), (1, '2025-02-01', 250);"""
MORE_ORDERS = (
    "INSERT INTO orders VALUES (3, '2025-02-02', 900), (3, '2024-12-31', 100), (2, '2025-02-07', 5);"
)

QUERIES = (
    query("cities", "Return each city and how many people live there, the most first, then by name.",
          PEOPLE, [("Oslo", 2), ("Rome", 1)], MORE_PEOPLE, [("Rome", 3), ("Oslo", 2), ("Paris", 1)]),
    query("oldest", "Return the name of the oldest person of each city, with the city, ordered by city.",
          PEOPLE, [("Ann", "Oslo"), ("Ben", "Rome")], MORE_PEOPLE,
          [("Ann", "Oslo"), ("Eva", "Paris"), ("Finn", "Rome")]),
    query("above", "Return the names of those who are older than the average, in alphabetical order.",
          PEOPLE, [("Ann",)], MORE_PEOPLE, [("Ann",), ("Finn",)]),
    query("spent", "Return each customer's name and the sum of the cents, 0 without an order, by name.",
          ORDERS, [("Gus", 750), ("Hal", 900), ("Ivy", 0)], MORE_ORDERS,
          [("Gus", 750), ("Hal", 905), ("Ivy", 1000)]),
    query("months", "Return each month as YYYY-MM and its number of orders, in order of time.",
          ORDERS, [("2025-01", 2), ("2025-02", 1)], MORE_ORDERS,
          [("2024-12", 1), ("2025-01", 2), ("2025-02", 3)]),
    query("none", "Return the names of the customers without an order in January 2025, by name.",
          ORDERS, [("Ivy",)], MORE_ORDERS, [("Ivy",)]),
    query("latest", "Return each name with the day of the latest order, by name; only who has one.",
          ORDERS, [("Gus", "2025-02-01"), ("Hal", "2025-01-09")], MORE_ORDERS,
          [("Gus", "2025-02-01"), ("Hal", "2025-02-07"), ("Ivy", "2025-02-02")]),
    query("largest", "Return the name and the cents of the largest order; of equal ones, all, by name.",
          ORDERS, [("Hal", 900)], MORE_ORDERS, [("Hal", 900), ("Ivy", 900)]),
)  # fmt: skip

CONVERSIONS = (
    shape(
        "convert-dates",
        "Write these dates as YYYY-MM-DD, one a line, and nothing else: 4 July 2023, March 15th 2021, "
        "1 Nov 2019.",
        {"lines": line_count(3), "form": each_line(r"\d{4}-\d{2}-\d{2}", "YYYY-MM-DD")},
        "2023-07-04\n2021-03-15\n2019-11-01",
    ),
    shape(
        "convert-slugs",
        "Turn each title into a slug (lower case, hyphens between words, no other punctuation), one a line, "
        "and nothing else: Hello, World! / What's New in 2024? / Tea & Cake",
        {"lines": line_count(3), "form": each_line("[a-z0-9]+(-[a-z0-9]+)*", "lower-case-slug")},
        "hello-world\nwhats-new-in-2024\ntea-cake",
    ),
    shape(
        "convert-settings",
        "Write these settings as KEY=value lines in alphabetical order of the keys, keys in upper case, and "
        "nothing else: timeout 30, host example.org, retries 3, debug off",
        {
            "lines": line_count(4),
            "form": each_line(r"[A-Z]+=\S+", "KEY=value"),
            "order": in_order(lambda line: line.split("=")[0], "the keys"),
        },
        "DEBUG=off\nHOST=example.org\nRETRIES=3\nTIMEOUT=30",
    ),
    shape(
        "convert-names",
        "Write each name as SURNAME, Given name, one a line, sorted by surname, and nothing else: Maria "
        "Lopez, John Smith, Aiko Abe",
        {
            "lines": line_count(3),
            "form": each_line("[A-Z]+, [A-Z][a-z]+", "SURNAME, Given"),
            "order": in_order(lambda line: line.split(",")[0], "surnames"),
        },
        "ABE, Aiko\nLOPEZ, Maria\nSMITH, John",
    ),
    shape(
        "convert-todo",
        "Write this as a Markdown task list, done items checked, in this order, and nothing else: buy milk "
        "(done), call Sam (open), pay rent (done)",
        {"lines": line_count(3), "form": each_line(r"- \[[ x]\] [a-zA-Z ]+", "- [x] item or - [ ] item")},
        "- [x] buy milk\n- [ ] call Sam\n- [x] pay rent",
    ),
    shape(
        "convert-links",
        "Write each as a Markdown link in a bullet, in this order, and nothing else: Python https://python.org,"
        " SQLite https://sqlite.org",
        {
            "lines": line_count(2),
            "form": each_line(r"- \[\w+\]\(https://[a-z.]+/?\)", "- [Name](https://...)"),
        },
        "- [Python](https://python.org)\n- [SQLite](https://sqlite.org)",
    ),
    shape(
        "convert-durations",
        "Write each duration as H:MM, one a line, and nothing else: 95 minutes, 2 hours, 45 minutes, 3 hours "
        "and 5 minutes",
        {"lines": line_count(4), "form": each_line(r"\d:[0-5]\d", "H:MM")},
        "1:35\n2:00\n0:45\n3:05",
    ),
    shape(
        "convert-camel",
        "Turn each variable name into snake_case, one a line, and nothing else: userName, totalCount2, "
        "HTTPServer, isReady",
        {"lines": line_count(4), "form": each_line("[a-z]+[0-9]?(_[a-z0-9]+)*", "snake_case")},
        "user_name\ntotal_count2\nhttp_server\nis_ready",
    ),
)

TUNING_TASKS: tuple[BenchTask, ...] = (*TABLES, *QUERIES, *CONVERSIONS)
