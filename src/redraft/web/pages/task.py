"""Task: the notes on one task, how the runs with them did, and which of them is in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError
from redraft.loop.record import RUN
from redraft.notes.history import (
    FEW_REVISIONS,
    TaskNotes,
    diff_document,
    named_revision,
    notes_document,
    version_named,
)
from redraft.notes.note import Note, NotedTask, NoteUse
from redraft.notes.store import NoteStore
from redraft.web.change import Change, Wanted
from redraft.web.note_view import notes_view
from redraft.web.page import Asked, NotFoundError, Page

if TYPE_CHECKING:
    from redraft.stores.base import Store

LATEST = 20
"""Runs that are listed one by one."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """Hold the notes on a task, two versions to compare where there are two, and its latest runs.

    `kept` are those of these runs that have a page; `is_whole` says whether all runs were looked through.
    """

    task: TaskNotes
    older: Note | None
    newer: Note | None
    latest: tuple[NoteUse, ...]
    kept: frozenset[str]
    is_whole: bool


async def task(asked: Asked) -> TaskView:
    """Read the notes on a task; version `a` is compared with `b` (default: what is in force, and before)."""
    store, uses = NoteStore(asked.project.store), asked.project.note_uses
    noted = await _noted(store, asked.path["identity"])
    await uses.chronicle.read()
    notes = await store.revisions(noted.identity, latest=FEW_REVISIONS)
    if noted.in_force is not None and notes and noted.in_force < notes[0].version:
        current = await store.revision(noted.identity, noted.in_force)
        notes = notes if current is None else [current, *notes]
    older, newer = await _compared(asked, store, noted)
    used = uses.latest(noted.identity)
    latest = used[: -LATEST - 1 : -1]
    kept = frozenset([use.run_id for use in latest if await _is_kept(asked.project.store, use.run_id)])
    noted, notes, older, newer, latest, used = await asked.project.shown(
        (noted, notes, older, newer, latest, used if asked.whole else ()), whole=asked.whole
    )
    # A chart of them shows no text of theirs.
    runs = used or uses.latest(noted.identity)
    return TaskView(TaskNotes(noted, tuple(notes), runs), older, newer, latest, kept, uses.chronicle.is_whole)


async def _noted(store: NoteStore, identity: str) -> NotedTask:
    noted = await store.noted(identity)
    if noted is None:
        raise NotFoundError(f"There are no notes on the task {identity!r}.")
    return noted


async def _compared(asked: Asked, store: NoteStore, noted: NotedTask) -> tuple[Note | None, Note | None]:
    if noted.run_count == 0:
        return None, None
    try:
        newer = await named_revision(
            store, noted, asked.query.get("b") or str(noted.in_force or noted.run_count)
        )
        before = newer.based_on or newer.version - 1
        wanted = asked.query.get("a") or (str(before) if before else "")
        return (await named_revision(store, noted, wanted) if wanted else None), newer
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


async def _is_kept(store: Store, run_id: str) -> bool:
    return bool(run_id) and await store.get(RUN, run_id) is not None


def _document(view: TaskView) -> dict[str, Any]:
    change = None
    if view.older is not None and view.newer is not None:
        change = diff_document(view.task, view.older, view.newer)
    return {**notes_document(view.task), "change": change, "is_whole": view.is_whole}


async def _roll_back(wanted: Wanted) -> str:
    store = NoteStore(wanted.project.store)
    noted = await _noted(store, wanted.path["identity"])
    version = version_named(noted, wanted.text("version"))
    await store.rollback(noted.identity, version)
    return f"Version {version} is in force, until a run with it has taught the next."


async def _switch_off(wanted: Wanted) -> str:
    store = NoteStore(wanted.project.store)
    noted = await _noted(store, wanted.path["identity"])
    await store.switch(noted.identity, off=True, why=wanted.text("why", "").strip())
    return "The notes on this task are off. What its runs teach is kept all the same."


async def _switch_on(wanted: Wanted) -> str:
    store = NoteStore(wanted.project.store)
    noted = await _noted(store, wanted.path["identity"])
    noted = await store.switch(noted.identity, off=False)
    return f"The notes on this task are on; version {noted.in_force} is in force."


PATH = "/tasks/{identity:path}"
PAGE = Page(PATH, "task.html", task, _document, arrange=notes_view)
CHANGES = (
    Change(f"{PATH}/rollback", _roll_back),
    Change(f"{PATH}/off", _switch_off),
    Change(f"{PATH}/on", _switch_on),
)
