"""The notes on one task as a person reads them: what is put before it, every revision, what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft.cli.changes import changes
from redraft.cli.notes_rows import SHORT_ID, curve, state_text, version_text
from redraft.cli.run_rows import when
from redraft.cli.show import QUIET
from redraft.core.summary import render_score
from redraft.core.texts import shortened
from redraft.loop.compared import counted
from redraft.notes.task_notes import mean_of
from redraft.text.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redraft.notes.note import Note
    from redraft.notes.task_notes import TaskNotes

INDENT = (0, 0, 0, 2)
LONGEST_TITLE = 90
LONGEST_CURVE = 12


def notes_view(task: TaskNotes, *, is_utf8: bool = True) -> RenderableType:
    """Render the note in force as it is put before the task, and all revisions."""
    parts: list[RenderableType] = [_head(task), *_scores(task, is_utf8=is_utf8), ""]
    if (note := task.in_force) is not None:
        parts += [Padding(Text(visible(task.block(note))), INDENT), ""]
    parts += [_revisions(task), Text("* in force", QUIET)]
    if older := task.noted.run_count - len(task.revisions):
        parts.append(Text(f"and {counted(older, 'older version')}: `redraft notes export` has all", QUIET))
    return Group(*parts)


def standing_line(task: TaskNotes) -> Text:
    """Say in a line which note is in force."""
    noted = task.noted
    which = f"version {noted.in_force} of {noted.run_count} is" if noted.in_force else "no note is"
    why = f" ({visible(noted.why_off)})" if noted.why_off else ""
    return Text(f"{shortened(visible(task.title), LONGEST_TITLE)}: {which} in force{why}.")


def notes_diff(task: TaskNotes, older: Note, newer: Note, *, coloured: bool) -> RenderableType:
    """Render what differs between two revisions, word by word."""
    head = Text(
        f"version {older.version}{_scored(task, older)} > version {newer.version}{_scored(task, newer)}"
    )
    before, after = task.block(older), task.block(newer)
    if before == after:
        return Group(Text(head.plain, "bold"), "", Text("The notes are the same."))
    return Group(Text(head.plain, "bold"), "", changes(before, after, coloured=coloured, longest=None))


def _scored(task: TaskNotes, note: Note) -> str:
    mean = mean_of(task.scores(note.version))
    return "" if mean is None else f" ({render_score(mean)})"


def _head(task: TaskNotes) -> Text:
    noted = task.noted
    line = Text.assemble(
        (noted.identity[:SHORT_ID], "bold"), f"  {shortened(visible(task.title), LONGEST_TITLE)}"
    )
    line.append("\n").append_text(Text.assemble("Notes: ", state_text(task)))
    line.append(f", {version_text(noted.in_force)} of {noted.run_count} in force" if noted.in_force else "")
    return line.append(f" ({visible(noted.why_off)})" if noted.why_off else "")


def _scores(task: TaskNotes, *, is_utf8: bool) -> list[RenderableType]:
    if not any(use.score is not None for use in task.uses):
        return []
    line = f"Score of a run's first version: {render_score(task.before).strip()} before notes, "
    line += f"{render_score(task.now).strip()} in the latest runs with one"
    lines: list[RenderableType] = [Text(f"{line}   {curve(task, LONGEST_CURVE)}" if is_utf8 else line)]
    if (effect := task.effect) is not None:
        interval = f"95 % interval {effect.low:+.2f} to {effect.high:+.2f}"
        lines.append(Text(f"Trial: {effect.mean:+.2f} with notes ({interval})"))
    return lines


def _revisions(task: TaskNotes) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET)
    for name in ("version", "made", "based on", "tokens", "runs with it", "score", "by run"):
        right = name in ("tokens", "runs with it", "score")
        table.add_column(name, no_wrap=True, justify="right" if right else "left")
    for note in reversed(task.revisions):
        mark = "*" if note.version == task.noted.in_force else " "
        runs = sum(use.version == note.version for use in task.uses)
        table.add_row(
            f"{mark} v{note.version}",
            when(note.reflection.reflected_at),
            version_text(note.based_on),
            str(note.tokens),
            str(runs),
            render_score(mean_of(task.scores(note.version))).strip(),
            visible(note.run_id),
        )
    return table
