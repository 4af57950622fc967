"""NoteChange: what differs between two versions of a note, as it stands before a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.notes.note import Note
from redraft.text.diff import Line, hunks, similarity, word_diff
from redraft.web.comparison import ALIKE, CONTEXT, LARGEST

if TYPE_CHECKING:
    from redraft.notes.history import TaskNotes


@dataclass(frozen=True, slots=True)
class NoteChange:
    """Hold two versions of a note, and what differs: `hunks` of lines, or both texts `whole`."""

    older: Note
    newer: Note
    is_same: bool = False
    hunks: tuple[list[Line] | int, ...] = ()
    whole: tuple[str, str] | None = None


def note_change(task: TaskNotes, older: Note, newer: Note) -> NoteChange:
    """Compare two versions of a note."""
    before, after = task.block(older), task.block(newer)
    if before == after:
        return NoteChange(older, newer, is_same=True)
    if len(before) + len(after) > LARGEST or similarity(before, after) < ALIKE:
        return NoteChange(older, newer, whole=(before, after))
    return NoteChange(older, newer, hunks=tuple(hunks(word_diff(before, after), CONTEXT)))
