"""Families of other kinds than those reported, to tune memory on: tables, commit messages, queries, settings.

Of each family of tasks, two of six briefs say what the others leave to the checks. Tables made of them are no
proof, and are never published.
"""

from __future__ import annotations

import re

from _tasks import BenchTask
from families import FamilyTask
from note_families import NoteFamily, criterion
from small_tasks import Check, lines_of
from tuning_tasks import TUNING_TASKS

from redraft.text.replies import unfenced


def of_family(
    name: str, prompt: str, check: object, solution: str, mistake: str, *, told: str = ""
) -> FamilyTask:
    """Ask for a text that one check reads; `told` is what a brief adds that says what it wants."""
    criteria = (criterion("form", "function", function=check),)
    task = BenchTask(name, f"{prompt} {told}".strip(), criteria)
    return FamilyTask(task, solution, mistake, bool(told))


# --- tables: semicolons between the cells, below a line with their names ------------------------------------


def semicolons(output: str) -> Check:
    rows = [line.split(";") for line in lines_of(unfenced(output)[0])]
    good = len(rows) > 1 and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1
    names = good and not re.search(r"\d", "".join(rows[0]))
    return names, "It must be a line with the names of the columns, then the rows, with ; between the cells."


def rows(name: str, prompt: str, names: str, *cells: str, told: str = "") -> FamilyTask:
    lines = [names, *cells]
    markdown = [f"| {line.replace(';', ' | ')} |" for line in lines]
    return of_family(f"rows-{name}", prompt, semicolons, "\n".join(lines), "\n".join(markdown), told=told)


SEMICOLONS = "Put ; between the cells, and the names of the columns into the first line."
ROWS = (
    rows("rivers", "Tabulate: the Rhine is 1230 km long, the Elbe 1094 km.", "river;km", "Rhine;1230",
         "Elbe;1094"),
    rows("ages", "Make a table of name and age: Ada is 36, Bob is 41.", "name;age", "Ada;36", "Bob;41"),
    rows("goals", "Write a table of the goals: Rovers 3, United 1.", "team;goals", "Rovers;3", "United;1",
         told=SEMICOLONS),
    rows("fares", "Turn this into a table: a child pays 4 euros, an adult 9.", "who;euros", "child;4",
         "adult;9"),
    rows("floors", "Tabulate the floors: sales is on 2, support on 5.", "team;floor", "sales;2", "support;5"),
    rows("trees", "Make a table: 12 oaks, 30 birches.", "tree;count", "oak;12", "birch;30", told=SEMICOLONS),
)  # fmt: skip


# --- commit messages: the part of the program, a colon, and few characters ----------------------------------


def scoped(output: str) -> Check:
    found = lines_of(unfenced(output)[0])
    good = len(found) == 1 and re.fullmatch(r"[a-z]+: .{3,50}", found[0]) is not None
    return (
        good,
        "It must be one line: the part of the program in lower case, a colon, and at most 50 characters.",
    )


def commit(name: str, change: str, scope: str, *, told: str = "") -> FamilyTask:
    prompt = f"Write a commit message for this change: {change}"
    return of_family(
        f"commit-{name}", prompt, scoped, f"{scope}: say it shortly", f"Fix the {scope}", told=told
    )


SCOPED = 'Write one line such as "parser: accept tabs", of at most 50 characters.'
COMMITS = (
    commit("login", "the login page no longer reloads after a wrong password.", "login"),
    commit("cache", "cached pages expire after an hour.", "cache"),
    commit("mail", "emails have a plain text part.", "mail", told=SCOPED),
    commit("search", "search ignores accents.", "search"),
    commit("export", "the export to CSV quotes commas.", "export", told=SCOPED),
    commit("upload", "uploads above 10 MB are refused.", "upload"),
)


# --- queries: never without a limit -------------------------------------------------------------------------


def limited(output: str) -> Check:
    query = " ".join(unfenced(output)[0].split())
    good = re.fullmatch(r"SELECT .* LIMIT 100;", query, re.IGNORECASE) is not None
    return good, "It must be one SELECT statement that ends with LIMIT 100;"


def query(name: str, ask: str, solution: str, *, told: str = "") -> FamilyTask:
    prompt = f"Write an SQL query: {ask}"
    return of_family(f"limit-{name}", prompt, limited, f"{solution} LIMIT 100;", f"{solution};", told=told)


LIMITED = "End it with LIMIT 100;"
LIMITS = (
    query("users", "all names in the table users.", "SELECT name FROM users"),
    query("orders", "the ids of the orders of more than 500 cents.",
          "SELECT id FROM orders WHERE cents > 500"),
    query("books", "title and year in the table books, by year.",
          "SELECT title, year FROM books ORDER BY year", told=LIMITED),
    query("cities", "the names of the cities in Spain.", "SELECT name FROM cities WHERE country = 'Spain'"),
    query("songs", "the titles in songs that begin with A.", "SELECT title FROM songs WHERE title LIKE 'A%'"),
    query("pets", "all kinds in pets, each once.", "SELECT DISTINCT kind FROM pets", told=LIMITED),
)  # fmt: skip

TUNING_FAMILIES: dict[str, tuple[FamilyTask, ...]] = {"rows": ROWS, "commits": COMMITS, "limits": LIMITS}


# --- notes --------------------------------------------------------------------------------------------------

SETTINGS = NoteFamily(
    "settings",
    "Write down the settings in this text.\n\nThe text: {text}",
    "The settings, and nothing else.",
    (
        criterion("lines", "lines", at_least=2, at_most=2),
        criterion("keys", "regex", pattern="(?m)^[A-Z]+=", min_matches=2),
        criterion("spaces", "regex", pattern=" ", must_match=False),
    ),
    tuple(
        {"text": text}
        for text in (
            "the port is 8080 and the host is local",
            "use a timeout of 30 and 5 retries",
            "colour on, width 120",
            "it logs to disk, at the level info",
            "four workers, and a queue of 200",
            "the language is Welsh, the zone UTC",
        )
    ),
)

TUNING_NOTES = {SETTINGS.name: SETTINGS}

TUNING_RETRIES: dict[str, tuple[BenchTask, ...]] = {"tuning": TUNING_TASKS}
