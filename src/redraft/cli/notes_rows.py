"""Tasks with notes as rows: how often each ran, which note is in force, and where its scores go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from redraft.cli.show import BAD, GOOD, QUIET
from redraft.cli.sparkline import sparkline
from redraft.core.summary import render_score
from redraft.core.texts import shortened
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.notes.task_notes import TaskNotes

LEAST_TITLE = 12
LONGEST_CURVE = 10
SHORT_ID = 8
STATES = {"on": "", "off": BAD, "rolled back": BAD}
NUMBERS = ("notes", "before", "now")
GAP = 2


def notes_rows(tasks: Sequence[TaskNotes], width: int, *, is_utf8: bool = True) -> Table:
    """Render tasks as a table, a line each."""
    columns: dict[str, list[str | Text]] = {
        "id": [task.noted.identity[:SHORT_ID] for task in tasks],
        "notes": [str(task.noted.run_count) for task in tasks],
        "in force": [version_text(task.noted.in_force) for task in tasks],
        "state": [state_text(task) for task in tasks],
        "before": [render_score(task.before).strip() for task in tasks],
        "now": [now_text(task) for task in tasks],
    }
    if is_utf8:
        columns[""] = [curve(task, LONGEST_CURVE) for task in tasks]
    taken = sum(max(map(len, (name, *cells))) + GAP for name, cells in columns.items())
    room = max(LEAST_TITLE, width - taken)
    columns["task"] = [shortened(visible(task.title), room) for task in tasks]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in columns:
        table.add_column(name, no_wrap=True, justify="right" if name in NUMBERS else "left")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def no_notes(place: str) -> Text:
    """Say that there is nothing, where it was looked for, and what would change that."""
    return Text(
        f"No notes are kept in {place} yet.\n"
        "A task of an Ensemble has some after its first accepted run with reflect=True."
    )


def version_text(version: int | None) -> str:
    """Render a version; none as a dash."""
    return "-" if version is None else f"v{version}"


def state_text(task: TaskNotes) -> Text:
    """Render whether notes are given."""
    return Text(task.state, STATES[task.state])


def now_text(task: TaskNotes) -> Text:
    """Render the mean score with the note in force, coloured by whether it is above the one before notes."""
    before, now = task.before, task.now
    known = before is not None and now is not None and round(before, 2) != round(now, 2)
    return Text(render_score(now).strip(), (GOOD if (now or 0) > (before or 0) else BAD) if known else "")


def curve(task: TaskNotes, longest: int) -> str:
    """Draw where the scores go; nothing where no run was scored."""
    return sparkline(task.trend, longest) if any(score is not None for score in task.trend) else ""
