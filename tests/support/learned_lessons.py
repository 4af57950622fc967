"""Lessons for tests of the dashboard: one agent's, of each kind and status, with rules and playbooks."""

import asyncio
from datetime import UTC, date, datetime, timedelta

from redraft.lessons.folder import LessonFolder
from redraft.lessons.impact import Impact, ScoredRun
from redraft.lessons.lesson import Decision, Failure, Lesson, Partial, Procedure
from redraft.lessons.playbooks import Playbook, Playbooks
from redraft.lessons.rules import Rules

DAY = date(2026, 11, 20)
AGENT = "writer"


def failure(text="the export stopped at row 1000"):
    """A reflection on a failed export."""
    return Failure(
        f"Exporting the orders failed: {text}.",
        f"Step 3 asked the API for one page only: {text}.",
        "The reply's next_cursor was not looked at.",
        "Ask again with next_cursor until it is empty.",
        "IF a reply has next_cursor THEN ask for the next page.",
    )


def lesson(content, summary, **fields):
    """A lesson of the agent."""
    known = {"task": "Export all orders as CSV.", "task_type": "export", "tools": ("api",)}
    return Lesson(content, fields.pop("agent", AGENT), fields.pop("day", DAY), summary, **known | fields)


def lessons_of(path, agent=AGENT):
    """Write an agent's lessons of each kind and status; return them by a short name."""
    folder = LessonFolder(path, agent)
    partial = Partial("The report lacks a chart.", "The figures of May were missing.", "Ask for them first.")
    procedure = Procedure("1. Read the schema.\n2. Ask for one page.\n3. Go on.", "Nothing was guessed.")
    decision = Decision("Use the export API.", "Scraping the pages; both give all rows.", "It is stable.")
    made = {
        "active": lesson(failure(), "Exporting orders", source="a-run", agent=agent),
        "waiting": lesson(partial, "Charting the figures", status="quarantined", agent=agent),
        "procedure": lesson(procedure, "Exporting customers", confidence=0.9, agent=agent),
        "retired": lesson(decision, "Choosing an API", status="retired", why="It hurt.", agent=agent),
    }
    filed = {name: folder.add(one) for name, one in made.items()}
    double = lesson(failure(), "Exporting all orders", agent=agent, day=DAY + timedelta(days=1))
    filed["double"] = folder.add(double)
    old = lesson(failure("it timed out"), "Exporting slowly", agent=agent, status="superseded")
    filed["superseded"] = folder.add(
        Lesson(
            **{**{name: getattr(old, name) for name in old.__slots__}, "superseded_by": filed["active"].id}
        )
    )
    return filed


def rules_and_playbooks(path, of, agent=AGENT):
    """Add a tactical rule and a playbook of a lesson."""
    today = datetime.now(UTC).date()
    Rules(path, agent).add("IF a reply has next_cursor THEN ask for the next page.", of.id)
    steps = ("Read the schema.", "Ask for one page.", "Ask again with next_cursor.")
    Playbooks(path, agent).add(
        Playbook("Export orders", steps, "Page by page.", agent, today, "export", lesson=of.id)
    )


def used(store, of, scores=(0.8,) * 5, ratings=(), others=(0.5,) * 12, agent=AGENT):
    """Count runs with a lesson, after others without it, and ratings; by default, two show that it helps."""

    async def main():
        counting, start = Impact(store, agent), datetime(2026, 11, 21, tzinfo=UTC)
        for number, (score, having) in enumerate(
            [*((one, ()) for one in others), *((one, (of.id,)) for one in scores)]
        ):
            at = start + timedelta(minutes=number)
            await counting.count(ScoredRun(f"run-{number}", agent, at, score, "export", having))
        for helped in ratings:
            await counting.rate(of.id, helped=helped, at=at)

    asyncio.run(main())
