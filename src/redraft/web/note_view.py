"""The notes on a task, worked out for its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.notes.history import TaskNotes, mean_of
from redraft.notes.note import Note, NoteUse
from redraft.stats import Effect
from redraft.web.note_change import NoteChange, note_change
from redraft.web.note_chart import NoteChart, note_chart

if TYPE_CHECKING:
    from redraft.web.pages.task import TaskView


@dataclass(frozen=True, slots=True)
class NoteRow:
    """Hold a version of the note as the table has it: how many runs had it, and what they scored."""

    note: Note
    runs: int
    score: float | None


@dataclass(frozen=True, slots=True)
class NotesView:
    """Hold what the page of a task shows; the latest of `rows` and `runs` come first."""

    task: TaskNotes
    rows: tuple[NoteRow, ...]
    earlier: int
    runs: tuple[tuple[NoteUse, bool], ...]
    chart: NoteChart
    effect: Effect | None
    control: tuple[float, ...]
    block: str
    change: NoteChange | None
    is_whole: bool


def notes_view(view: TaskView) -> NotesView:
    """Work out what the page shows."""
    task, note = view.task, view.task.in_force
    rows = tuple(
        NoteRow(one, sum(use.version == one.version for use in task.uses), mean_of(task.scores(one.version)))
        for one in reversed(task.revisions)
    )
    change = None
    if view.older is not None and view.newer is not None:
        change = note_change(task, view.older, view.newer)
    return NotesView(
        task,
        rows,
        task.noted.run_count - len(task.revisions),
        tuple((use, use.run_id in view.kept) for use in view.latest),
        note_chart(task.uses),
        task.effect,
        tuple(use.score for use in task.uses if use.arm == "control" and use.score is not None),
        "" if note is None else task.block(note),
        change,
        view.is_whole,
    )
