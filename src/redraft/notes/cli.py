"""`redraft notes`: what earlier runs taught about tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._texts import counted, shortened
from redraft.errors import ConfigError
from redraft.notes.notes import Notes, TaskNotes
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors
from redraft.terminal.console import (
    BAD,
    GAP,
    GOOD,
    QUIET,
    CalmConsole,
    emit_json,
    emit_untrusted,
    sparkline,
    when,
)
from redraft.terminal.word_diff import changes
from redraft.text.characters import visible
from redraft.types import render_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from redraft.notes.note import Note

VERSION = "2 or v2, first, last, now (the one in force)."
TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="The task's name, part of its description, or the beginning of its id.",
        show_default=False,
    ),
]
Database = Annotated[
    str | None,
    typer.Option("--database", metavar="PATH_OR_URL", help="Use this database, not the project's."),
]

notes = command_group(default="list", help="List the notes on tasks, and choose what is in force.")


@notes.command("list")
@handles_errors
async def list_notes(database: Database = None, as_json: options.Json = False) -> None:
    """List the notes on tasks. Shows what is in force, and whether it helps."""
    async with Notes(database) as opened:
        tasks = await opened.list()
    if as_json:
        emit_json({"database": opened.location, "tasks": [task.row() for task in tasks]})
        return
    console = CalmConsole()
    if tasks:
        console.show(notes_table(tasks, console.width, is_utf8=console.is_utf8))
    else:
        place = f"No notes are kept in {opened.location} yet."
        console.show(
            Text(f"{place}\nA task of an Ensemble has some after its first accepted run with reflect=True.")
        )


@notes.command()
@handles_errors
async def show(task: TaskName, database: Database = None, as_json: options.Json = False) -> None:
    """Show the note on a task. Prints it as it is put before the task, with its latest versions."""
    async with Notes(database) as opened:
        shown = await opened.get(task)
    if as_json:
        emit_json(shown.document())
        return
    console = CalmConsole()
    console.show(notes_view(shown, is_utf8=console.is_utf8))


@notes.command()
@handles_errors
async def diff(
    task: TaskName,
    older: Annotated[str, typer.Argument(metavar="V1", help=VERSION)] = "first",
    newer: Annotated[str, typer.Argument(metavar="V2", help=VERSION)] = "last",
    database: Database = None,
    as_json: options.Json = False,
) -> None:
    """Compare two versions of a note, word by word."""
    async with Notes(database) as opened:
        compared, before, after = await opened.compare(task, older, newer)
    if as_json:
        emit_json(compared.diff_document(before, after))
        return
    console = CalmConsole()
    console.show(notes_diff(compared, before, after, coloured=console.is_coloured))


@notes.command()
@handles_errors
async def rollback(
    task: TaskName,
    version: Annotated[str, typer.Argument(metavar="V", help=VERSION)],
    database: Database = None,
    as_json: options.Json = False,
) -> None:
    """Put an older version in force. It stays until a run with it has taught the next one."""
    async with Notes(database) as opened:
        show_state(await opened.roll_back(task, version), as_json=as_json)


@notes.command()
@handles_errors
async def off(
    task: TaskName,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, kept with the notes.")] = "",
    database: Database = None,
    as_json: options.Json = False,
) -> None:
    """Stop giving a task its notes. Its runs still add to them."""
    async with Notes(database) as opened:
        show_state(await opened.switch(task, off=True, why=why), as_json=as_json)


@notes.command()
@handles_errors
async def on(task: TaskName, database: Database = None, as_json: options.Json = False) -> None:
    """Give a task its notes again. Those that were in force, else the newest."""
    async with Notes(database) as opened:
        show_state(await opened.switch(task, off=False), as_json=as_json)


@notes.command()
@handles_errors
async def export(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="As for show; without it, all tasks.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    database: Database = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (the default).")] = False,
) -> None:
    """Export the notes. Prints every version with its runs, as JSON or Markdown."""
    if markdown and as_json:
        raise ConfigError("notes export takes either --markdown or --json.")
    async with Notes(database) as opened:
        tasks = await opened.read_all(task)
    if markdown:
        emit_untrusted("\n".join(each.markdown() for each in tasks))
    else:
        emit_json({"tasks": [each.document() for each in tasks]})


def show_state(task: TaskNotes, *, as_json: bool) -> None:
    """Print which note is in force now."""
    if as_json:
        emit_json(task.row())
    else:
        CalmConsole().show(state_line(task), soft_wrap=True)


MIN_TITLE = 12
ROW_CURVE = 10
SHORT_ID = 8
STATES = {"on": "", "off": BAD, "rolled back": BAD}
NUMBERS = ("notes", "before", "now")


def notes_table(tasks: Sequence[TaskNotes], width: int, *, is_utf8: bool = True) -> Table:
    """Return a table with a line for each task."""
    columns: dict[str, list[str | Text]] = {
        "id": [task.noted.identity[:SHORT_ID] for task in tasks],
        "notes": [str(task.noted.run_count) for task in tasks],
        "in force": [version_text(task.noted.in_force) for task in tasks],
        "state": [state_text(task) for task in tasks],
        "before": [render_score(task.before).strip() for task in tasks],
        "now": [now_text(task) for task in tasks],
    }
    if is_utf8:
        columns[""] = [curve(task, ROW_CURVE) for task in tasks]
    taken = sum(max(map(len, (name, *cells))) + GAP for name, cells in columns.items())
    room = max(MIN_TITLE, width - taken)
    columns["task"] = [shortened(visible(task.title), room) for task in tasks]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in columns:
        table.add_column(name, no_wrap=True, justify="right" if name in NUMBERS else "left")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def version_text(version: int | None) -> str:
    """Return a version as text; a dash for none."""
    return "-" if version is None else f"v{version}"


def state_text(task: TaskNotes) -> Text:
    """Return the state of the notes, coloured."""
    return Text(task.state, STATES[task.state])


def now_text(task: TaskNotes) -> Text:
    """Return the mean score with the note in force, coloured by whether it is above the one before notes."""
    before, now = task.before, task.now
    known = before is not None and now is not None and round(before, 2) != round(now, 2)
    return Text(render_score(now).strip(), (GOOD if (now or 0) > (before or 0) else BAD) if known else "")


def curve(task: TaskNotes, longest: int) -> str:
    """Return a sparkline of the scores; empty if no run was scored."""
    return sparkline(task.trend, longest) if any(score is not None for score in task.trend) else ""


INDENT = (0, 0, 0, 2)
MAX_TITLE = 90
HISTORY_CURVE = 12


def notes_view(task: TaskNotes, *, is_utf8: bool = True) -> RenderableType:
    """Return the note in force as it is put before the task, and the revisions."""
    parts: list[RenderableType] = [_head(task), *_scores(task, is_utf8=is_utf8), ""]
    if (note := task.in_force) is not None:
        parts += [Padding(Text(visible(task.block(note))), INDENT), ""]
    parts += [_revisions(task), Text("* in force", QUIET)]
    if older := task.noted.run_count - len(task.revisions):
        parts.append(Text(f"and {counted(older, 'older version')}: `redraft notes export` has all", QUIET))
    return Group(*parts)


def state_line(task: TaskNotes) -> Text:
    """Return one line on which note is in force."""
    noted = task.noted
    which = f"version {noted.in_force} of {noted.run_count} is" if noted.in_force else "no note is"
    why = f" ({visible(noted.why_off)})" if noted.why_off else ""
    return Text(f"{shortened(visible(task.title), MAX_TITLE)}: {which} in force{why}.")


def notes_diff(task: TaskNotes, older: Note, newer: Note, *, coloured: bool) -> RenderableType:
    """Return the differences between two revisions, word by word."""
    head = Text(
        f"version {older.version}{_scored(task, older)} > version {newer.version}{_scored(task, newer)}"
    )
    before, after = task.block(older), task.block(newer)
    if before == after:
        return Group(Text(head.plain, "bold"), "", Text("The notes are the same."))
    return Group(Text(head.plain, "bold"), "", changes(before, after, coloured=coloured, longest=None))


def _scored(task: TaskNotes, note: Note) -> str:
    mean = task.mean_score(note)
    return "" if mean is None else f" ({render_score(mean)})"


def _head(task: TaskNotes) -> Text:
    noted = task.noted
    line = Text.assemble(
        (noted.identity[:SHORT_ID], "bold"), f"  {shortened(visible(task.title), MAX_TITLE)}"
    )
    line.append("\n").append_text(Text.assemble("Notes: ", state_text(task)))
    line.append(f", {version_text(noted.in_force)} of {noted.run_count} in force" if noted.in_force else "")
    return line.append(f" ({visible(noted.why_off)})" if noted.why_off else "")


def _scores(task: TaskNotes, *, is_utf8: bool) -> list[RenderableType]:
    if not any(use.score is not None for use in task.uses):
        return []
    line = f"Score of a run's first version: {render_score(task.before).strip()} before notes, "
    line += f"{render_score(task.now).strip()} in the latest runs with one"
    lines: list[RenderableType] = [Text(f"{line}   {curve(task, HISTORY_CURVE)}" if is_utf8 else line)]
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
            render_score(task.mean_score(note)).strip(),
            visible(note.run_id),
        )
    return table
