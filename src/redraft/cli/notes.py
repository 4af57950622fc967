"""`redraft notes`: what earlier runs taught about the tasks of this project, and which of it is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.notes.note import NotedTask
    from redraft.notes.note_store import NoteStore

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
                from redraft.core.errors import ConfigError

                raise ConfigError(
                    f"Give options behind the command: redraft notes {context.invoked_subcommand} ..."
                )
            return
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_notes import list_tasks, place_of_notes
        from redraft.cli.notes_rows import no_notes, notes_rows
        from redraft.notes.notes_document import notes_row

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
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_notes import read_task
        from redraft.cli.notes_view import notes_view
        from redraft.notes.notes_document import notes_document

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
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_notes import read_two
        from redraft.cli.notes_view import notes_diff
        from redraft.notes.notes_document import diff_document

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
        from redraft.notes.task_notes import version_named

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
        from redraft.cli.console import emit_json, emit_made
        from redraft.cli.kept_notes import read_all
        from redraft.core.errors import ConfigError
        from redraft.notes.notes_document import notes_document, notes_markdown

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
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_notes import change_task
        from redraft.cli.notes_view import standing_line
        from redraft.notes.notes_document import notes_row

        found = change_task(database, task, change)
        if as_json:
            emit_json(notes_row(found))
        else:
            CalmConsole().show(standing_line(found), soft_wrap=True)
