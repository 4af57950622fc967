"""Lessons to file, find and show."""

from datetime import date
from typing import Any

from redraft.lessons.lesson import Decision, Failure, Lesson, Partial, Procedure

FAILURE = Failure(
    "The price list was to be fetched; nothing came back.",
    "http_get gave E4031 on page 3.",
    "The API wants a cursor, not a page number.",
    "Ask for `next_cursor` and pass it on.",
    "Always read how an API pages before asking for the second page.",
)
PARTIAL = Partial("Two of three files were written.", "The last had no name.", "Name files first.")
PROCEDURE = Procedure("1. Ask for the cursor.\n2. Pass it on.", "The API says where it goes on.")
DECISION = Decision("SQLite", "A file of JSON lines: simpler, but no search.", "Search is what it is for.")
CONTENTS = (FAILURE, PARTIAL, PROCEDURE, DECISION)


def lesson(content: Any = FAILURE, **changed: Any) -> Lesson:
    given: dict[str, Any] = {
        "agent": "researcher-agent",
        "day": date(2026, 3, 1),
        "summary": "API timeout handling",
        "task": "Fetch the price list of the shop.",
        "task_type": "web scraping",
        "tools": ("http_get",),
        "error": "HTTPError: E4031",
        "source": "20260301-101500-ab12",
    }
    return Lesson(content, **(given | changed))
