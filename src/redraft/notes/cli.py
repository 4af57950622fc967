"""`redraft notes`: what earlier runs taught about tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._texts import counted, shortened
from redraft.errors import ConfigError
from redraft.loop.run_text import when
from redraft.notes.history import (
    FEW,
    FEW_REVISIONS,
    MANY,
    TaskNotes,
    mean_of,
    named_revision,
    task_notes,
    the_one,
)
from redraft.notes.store import PostgresReflectionStore, SqliteReflectionStore, project_notes
from redraft.redact.redactor import redactor_of_environment
from redraft.settings import without_password
from redraft.stores.location import project_place, required_project_store
from redraft.terminal import options
from redraft.terminal.console import BAD, GAP, GOOD, QUIET, sparkline
from redraft.terminal.exits import surface
from redraft.terminal.word_diff import changes
from redraft.text.characters import visible
from redraft.types import render_score

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rich.console import RenderableType

    from redraft.notes.note import Note, NotedTask
    from redraft.notes.store import NoteStore

VERSION = "2 or v2, first, last, now (the one in force)."
Which = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="Its name, a part of its description, or how its id begins.", show_default=False
    ),
]
Database = Annotated[
    str | None,
    typer.Option("--database", metavar="PATH_OR_URL", help="Look there, and not in the project's."),
]

notes = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})


@notes.callback(invoke_without_command=True)
def listed(
    context: typer.Context,
    database: Database = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the notes on tasks. What earlier runs taught, which of it is in force, and if it helps."""
    with surface(debug=debug):
        if context.invoked_subcommand is not None:
            if database is not None or as_json:
                from redraft.errors import ConfigError

                raise ConfigError(
                    f"Give options behind the command: redraft notes {context.invoked_subcommand} ..."
                )
            return
        from redraft.notes.history import notes_row
        from redraft.terminal.console import CalmConsole, emit_json

        found, place = list_tasks(database), place_of_notes(database)
        if as_json:
            emit_json({"database": place, "tasks": [notes_row(task) for task in found]})
            return
        console = CalmConsole()
        console.show(notes_rows(found, console.width, is_utf8=console.is_utf8) if found else no_notes(place))


@notes.command()
def show(
    task: Which, database: Database = None, as_json: options.Json = False, debug: options.Debug = False
) -> None:
    """Show the note on a task. As it is put before the task, with its latest versions and their runs."""
    with surface(debug=debug):
        from redraft.notes.history import notes_document
        from redraft.terminal.console import CalmConsole, emit_json

        found = read_task(database, task)
        if as_json:
            emit_json(notes_document(found))
            return
        console = CalmConsole()
        console.show(notes_view(found, is_utf8=console.is_utf8))


@notes.command()
def diff(
    task: Which,
    older: Annotated[str, typer.Argument(metavar="V1", help=VERSION)] = "first",
    newer: Annotated[str, typer.Argument(metavar="V2", help=VERSION)] = "last",
    database: Database = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Compare two versions of a note. Word by word."""
    with surface(debug=debug):
        from redraft.notes.history import diff_document
        from redraft.terminal.console import CalmConsole, emit_json

        found, before, after = read_two(database, task, older, newer)
        if as_json:
            emit_json(diff_document(found, before, after))
            return
        console = CalmConsole()
        console.show(notes_diff(found, before, after, coloured=console.is_coloured))


@notes.command()
def rollback(
    task: Which,
    version: Annotated[str, typer.Argument(metavar="V", help=VERSION)],
    database: Database = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Put an older version in force. Until a run with it has taught the next."""

    async def change(store: NoteStore, noted: NotedTask) -> NotedTask:
        from redraft.notes.history import version_named

        return await store.rollback(noted.identity, version_named(noted, version))

    _change(task, change, database, as_json=as_json, debug=debug)


@notes.command()
def off(
    task: Which,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for who looks later.")] = "",
    database: Database = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Give no notes to a task. What its runs teach is kept all the same."""

    async def change(store: NoteStore, noted: NotedTask) -> NotedTask:
        return await store.switch(noted.identity, off=True, why=why)

    _change(task, change, database, as_json=as_json, debug=debug)


@notes.command()
def on(
    task: Which, database: Database = None, as_json: options.Json = False, debug: options.Debug = False
) -> None:
    """Give notes to a task again. What was in force, else the newest."""

    async def change(store: NoteStore, noted: NotedTask) -> NotedTask:
        return await store.switch(noted.identity, off=False)

    _change(task, change, database, as_json=as_json, debug=debug)


@notes.command()
def export(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="As for show; all without it.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a text to read.")] = False,
    database: Database = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document; the default.")] = False,
    debug: options.Debug = False,
) -> None:
    """Print all of it. Every version of every note with its runs, as JSON or as a text to read."""
    with surface(debug=debug):
        from redraft.errors import ConfigError
        from redraft.notes.history import notes_document, notes_markdown
        from redraft.terminal.console import emit_json, emit_made

        if markdown and as_json:
            raise ConfigError("notes export takes one of --markdown and --json.")
        found = read_all(database, task)
        if not markdown:
            emit_json({"tasks": [notes_document(each) for each in found]})
            return
        emit_made("\n".join(notes_markdown(each) for each in found))


def _change(
    task: str,
    change: Callable[[NoteStore, NotedTask], Awaitable[NotedTask]],
    database: str | None,
    *,
    as_json: bool,
    debug: bool,
) -> None:
    with surface(debug=debug):
        from redraft.notes.history import notes_row
        from redraft.terminal.console import CalmConsole, emit_json

        found = change_task(database, task, change)
        if as_json:
            emit_json(notes_row(found))
        else:
            CalmConsole().show(standing_line(found), soft_wrap=True)


LEAST_TITLE = 12
LONGEST_CURVE = 10
SHORT_ID = 8
STATES = {"on": "", "off": BAD, "rolled back": BAD}
NUMBERS = ("notes", "before", "now")


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


INDENT = (0, 0, 0, 2)
LONGEST_TITLE = 90
LONGEST_HISTORY = 12


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
    lines: list[RenderableType] = [Text(f"{line}   {curve(task, LONGEST_HISTORY)}" if is_utf8 else line)]
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


T = TypeVar("T")

URLS = ("postgresql://", "postgres://")


def list_tasks(database: str | None) -> list[TaskNotes]:
    """Read how the notes on all tasks stand and how their latest runs did, with their secrets withheld."""

    async def read(notes: NoteStore) -> list[TaskNotes]:
        return [await task_notes(notes, noted, runs=FEW, revisions=0) for noted in await notes.tasks()]

    return redactor_of_environment().redact_object(_reading(database, read))


def read_task(database: str | None, wanted: str) -> TaskNotes:
    """Read the latest of the notes on the task that is meant, with their secrets withheld."""

    async def read(notes: NoteStore) -> TaskNotes:
        noted = await _meant(notes, wanted)
        return await task_notes(notes, noted, runs=MANY, revisions=FEW_REVISIONS)

    return redactor_of_environment().redact_object(_reading(database, read))


def read_two(database: str | None, wanted: str, older: str, newer: str) -> tuple[TaskNotes, Note, Note]:
    """Read two versions of the note on the task that is meant, with their secrets withheld."""

    async def read(notes: NoteStore) -> tuple[TaskNotes, Note, Note]:
        noted = await _meant(notes, wanted)
        two = [await named_revision(notes, noted, version) for version in (older, newer)]
        return await task_notes(notes, noted, runs=MANY, revisions=0), two[0], two[1]

    return redactor_of_environment().redact_object(_reading(database, read))


def read_all(database: str | None, wanted: str | None = None) -> list[TaskNotes]:
    """Read everything about all tasks, or the one that is meant, with their secrets withheld."""

    async def read(notes: NoteStore) -> list[TaskNotes]:
        tasks = await notes.tasks() if wanted is None else [await _meant(notes, wanted)]
        return [await task_notes(notes, noted) for noted in tasks]

    return redactor_of_environment().redact_object(_reading(database, read))


def change_task(
    database: str | None, wanted: str, change: Callable[[NoteStore, NotedTask], Awaitable[NotedTask]]
) -> TaskNotes:
    """Change how the notes on a task stand; return them as they stand then, with their secrets withheld."""

    async def changing(notes: NoteStore) -> TaskNotes:
        changed = await change(notes, await _meant(notes, wanted))
        return await task_notes(notes, changed, runs=FEW, revisions=0)

    return redactor_of_environment().redact_object(_reading(database, changing))


def place_of_notes(database: str | None) -> str:
    """Say where the notes are kept; without a password."""
    if database is None:
        return str(project_place())
    return without_password(database) if database.startswith(URLS) else database


async def _meant(notes: NoteStore, wanted: str) -> NotedTask:
    try:
        return the_one(await notes.tasks(), wanted)
    except ConfigError as error:  # which names tasks
        raise ConfigError(visible(redactor_of_environment().redact(str(error)).text)) from error


def _reading(database: str | None, read: Callable[[NoteStore], Awaitable[T]]) -> T:
    async def reading() -> T:
        async with _opened(database) as notes:
            return await read(notes)

    return asyncio.run(reading())


def _opened(database: str | None) -> NoteStore:
    if database is None:
        required_project_store("notes")
        return project_notes()
    if database.startswith(URLS):
        return PostgresReflectionStore(database)
    if not Path(database).is_file():
        raise ConfigError(f"There is no database {database!r}; give a file, or a URL that begins {URLS[0]}.")
    return SqliteReflectionStore(database)
