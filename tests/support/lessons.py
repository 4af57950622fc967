"""Lessons for tests: contents of each kind, and seven files of three agents."""

import asyncio
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from redraft.lessons.folder import LessonFolder
from redraft.lessons.impact import Impact, ScoredRun
from redraft.lessons.lesson import Decision, Failure, Lesson, Partial, Procedure
from redraft.stores.base import Store

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
    defaults: dict[str, Any] = {
        "agent": "researcher-agent",
        "day": date(2026, 3, 1),
        "summary": "API timeout handling",
        "task": "Fetch the price list of the shop.",
        "task_type": "web scraping",
        "tools": ("http_get",),
        "error": "HTTPError: E4031",
        "source": "20260301-101500-ab12",
    }
    return Lesson(content, **(defaults | changed))


CHANGE = Failure(
    "A flight change was refused.",
    "update_reservation was called without a yes.",
    "The policy asks for a yes before each change.",
    "List the change and its price, then wait for a yes.",
    "IF a reservation is to be changed THEN list the price and wait for a yes.",
)
API, FILES, SEARCH, CURSOR = (
    "researcher-agent/2026-03-01-api-timeout-handling",
    "researcher-agent/2026-03-02-write-three-files",
    "researcher-agent/2026-03-03-where-to-keep-search",
    "researcher-agent/2026-03-04-page-through-a-list",
)
FLIGHT, REFUND, LINTER = (
    "booking/2026-05-04-change-a-flight",
    "booking/2026-05-06-refund-a-flight",
    "reviewer/2026-06-01-which-linter",
)
SEVEN = (API, FILES, SEARCH, CURSOR, FLIGHT, REFUND, LINTER)


def file_lesson(
    content: Any, agent: str, summary: str, day: date, path: Path = Path("memory"), **changed: Any
) -> str:
    """Write the file of a lesson, even of a duplicate, and return its id."""
    made = lesson(content, agent=agent, summary=summary, task=f"{summary}.", day=day, **changed)
    return LessonFolder(path, agent).add(made).id


def file_seven() -> None:
    """Write seven lessons of three agents, of each kind and status, into the folder `memory`."""
    file_lesson(FAILURE, "researcher-agent", "API timeout handling", date(2026, 3, 1))
    file_lesson(PARTIAL, "researcher-agent", "Write three files", date(2026, 3, 2), task_type="file work")
    file_lesson(DECISION, "researcher-agent", "Where to keep search", date(2026, 3, 3), confidence=0.9)
    file_lesson(PROCEDURE, "researcher-agent", "Page through a list", date(2026, 3, 4), status="quarantined")
    file_lesson(
        CHANGE, "booking", "Change a flight", date(2026, 5, 4), task_type="airline", tools=("change",)
    )
    file_lesson(FAILURE, "booking", "Refund a flight", date(2026, 5, 6), status="retired", why="it hurts")
    file_lesson(
        DECISION, "reviewer", "Which linter", date(2026, 6, 1), status="superseded", superseded_by=SEARCH
    )


def disobey_flight(store: Store) -> None:
    """Count six runs of an agent that were given the lesson on flights: the first one alone obeyed."""

    async def main() -> None:
        for number in range(6):
            at = datetime(2026, 5, 11, number, tzinfo=UTC)
            run = ScoredRun(f"told-{number}", "booking", at, None, "airline", (FLIGHT,))
            await Impact(store, "booking").count(run, {FLIGHT: number == 0})

    asyncio.run(main())


async def count_flight(store: Store) -> None:
    """Count runs of an agent: five with the lesson on flights, the last two of which show that it helps."""
    counting = Impact(store, "booking")
    for number in range(17):
        at = datetime(2026, 5, 10, number, tzinfo=UTC)
        lessons = (FLIGHT,) if number > 11 else ()
        score = 0.9 if lessons else 0.4
        await counting.count(ScoredRun(f"run-{number}", "booking", at, score, "airline", lessons))
