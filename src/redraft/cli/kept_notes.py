"""The kept notes, as commands read and change them: whatever a command shows of them comes through here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from redraft.core.errors import ConfigError
from redraft.core.settings import without_password
from redraft.notes.postgres import PostgresReflectionStore
from redraft.notes.project_notes import project_notes
from redraft.notes.sqlite import SqliteReflectionStore
from redraft.notes.task_notes import (
    FEW,
    FEW_REVISIONS,
    MANY,
    TaskNotes,
    named_revision,
    task_notes,
    the_one,
)
from redraft.redact.environment import redactor_of_environment
from redraft.stores.place import project_place
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.notes.note import Note, NotedTask
    from redraft.notes.note_store import NoteStore

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
        if project_place() is None:
            raise ConfigError("The setting `home` (REDRAFT_HOME) is empty, so no notes are kept here.")
        return project_notes()
    if database.startswith(URLS):
        return PostgresReflectionStore(database)
    if not Path(database).is_file():
        raise ConfigError(f"There is no database {database!r}; give a file, or a URL that begins {URLS[0]}.")
    return SqliteReflectionStore(database)
