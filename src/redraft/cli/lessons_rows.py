"""Lessons as rows: what each is about, whether it is in force, and whether it helps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from redraft.cli.notes_rows import GAP
from redraft.cli.show import BAD, GOOD, QUIET
from redraft.core.texts import shortened
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.cli.kept_lessons import KeptLesson
    from redraft.lessons.counting import Counters
    from redraft.lessons.lesson import Status

LEAST_SUMMARY = 20
LONGEST_NAME = 16
STATES: dict[Status, str] = {"active": GOOD, "quarantined": BAD, "retired": QUIET, "superseded": QUIET}
DROPPED = ("day", "summary", "kind", "agent", "task type")
"""What goes first where there is no room: an id has the day and most of the summary in it."""


def lessons_rows(lessons: Sequence[KeptLesson], width: int) -> Table:
    """Render lessons as a table, a line each; the id is what other commands take, so it is always whole."""
    these = [one.lesson for one in lessons]
    columns: dict[str, list[str | Text]] = {
        "id": [*shown_ids([one.id for one in these])],
        "agent": [shortened(visible(one.agent), LONGEST_NAME) for one in these],
        "kind": [one.kind for one in these],
        "status": [Text(one.status, STATES[one.status]) for one in these],
        "day": [str(one.day) for one in these],
        "task type": [shortened(visible(one.task_type), LONGEST_NAME) for one in these],
        "used": [used(one.counters) for one in lessons],
        "sure": [f"{one.confidence:.2f}" for one in these],
        "summary": [" " * LEAST_SUMMARY],
    }
    if len({one.agent for one in these}) == 1:
        del columns["agent"]
    for name in DROPPED:
        if name in columns and _taken(columns) > width:
            del columns[name]
    if "summary" in columns:
        room = width - _taken(columns) + LEAST_SUMMARY
        columns["summary"] = [shortened(visible(one.summary), room) for one in these]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in columns:
        right = name in ("used", "sure")
        table.add_column(name, no_wrap=name != "id", overflow="fold", justify="right" if right else "left")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def shown_ids(ids: Sequence[str]) -> list[str]:
    """Return ids as they are shown: without the agent where no two of them are the same then."""
    names = [one.partition("/")[2] for one in ids]
    return list(map(visible, names if len(set(names)) == len(names) else ids))


def used(counters: Counters) -> str:
    """Render counters: runs with the lesson, and for how many of them it helped and hurt; none as a dash."""
    if counters == type(counters)():
        return "-"
    return f"{counters.uses} +{counters.helped} -{counters.hurt}"


def lessons_line(lessons: Sequence[KeptLesson], *, broken: int, archived: int) -> str:
    """Say in a line what there is beside the rows."""
    standing = Counter(one.lesson.status for one in lessons)
    parts = [f"{count} {status}" for status, count in standing.items()]
    parts += [f"{archived} in the archive"] if archived else []
    line = f"{len(lessons)} lessons: {', '.join(parts)}." if parts and len(lessons) != 1 else ""
    line += f" {broken} broken: redraft lessons doctor" if broken else ""
    return line.strip()


def no_lessons(place: str, *, filtered: bool) -> Text:
    """Say that there is nothing, where it was looked for, and what would change that."""
    if filtered:
        return Text(f"No lesson in {place} fits.")
    return Text(
        f"There are no lessons in {place} yet.\n"
        "An Agent with lessons=Lessons(agent=...) learns from what fails; `redraft lessons add` takes yours."
    )


def _taken(columns: dict[str, list[str | Text]]) -> int:
    return sum(max(map(len, (name, *cells))) + GAP for name, cells in columns.items())
