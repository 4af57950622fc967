"""The notes on tasks as plain data, and as a text to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.codec import to_json
from redraft.core.summary import render_score
from redraft.loop.compared import counted
from redraft.notes.task_notes import mean_of
from redraft.text.diff import word_diff

if TYPE_CHECKING:
    from redraft.notes.note import Note
    from redraft.notes.task_notes import TaskNotes


def notes_row(task: TaskNotes) -> dict[str, Any]:
    """Describe how the notes on a task stand."""
    return {
        **to_json(task.noted),
        "state": task.state,
        "score_before": task.before,
        "score_now": task.now,
        "trend": task.trend,
        "effect": task.effect,
    }


def notes_document(task: TaskNotes) -> dict[str, Any]:
    """Describe the notes on a task with the revisions and runs that were read."""
    note = task.in_force
    return {
        **notes_row(task),
        "block": None if note is None else task.block(note),
        "revisions": [
            {**to_json(each), "score": mean_of(task.scores(each.version))} for each in task.revisions
        ],
        "uses": task.uses,
    }


def diff_document(task: TaskNotes, older: Note, newer: Note) -> dict[str, Any]:
    """Describe what differs between two revisions."""
    words = word_diff(task.block(older), task.block(newer))
    return {
        "identity": task.noted.identity,
        "from": {"version": older.version, "score": mean_of(task.scores(older.version))},
        "to": {"version": newer.version, "score": mean_of(task.scores(newer.version))},
        "words": [{"op": op, "text": text} for op, text in words],
    }


def notes_markdown(task: TaskNotes) -> str:
    """Render the notes on a task for people: each revision as it is put before the task, the newest first."""
    noted = task.noted
    force = "none is in force" if noted.in_force is None else f"version {noted.in_force} is in force"
    why = f" ({noted.why_off})" if noted.why_off else ""
    parts = [f"# Notes: {task.title}", f"`{noted.identity}`: {noted.run_count} revisions, {force}{why}."]
    for note in reversed(task.revisions):
        scores = task.scores(note.version)
        runs = (
            f"{counted(len(scores), 'scored run')}, mean {render_score(mean_of(scores)).strip()}"
            if scores
            else "no scored run"
        )
        parts.append(f"## Version {note.version} ({note.reflection.reflected_at:%Y-%m-%d %H:%M}, {runs})")
        parts.append("\n".join(f"> {line}".rstrip() for line in task.block(note).splitlines()))
    return "\n\n".join(parts) + "\n"
