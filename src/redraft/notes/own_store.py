"""A store of a program's own, with two methods, as the notebook of an ensemble."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft.core.calls import awaited
from redraft.core.errors import ConfigError, StoreError
from redraft.notes.identity import TaskIdentity
from redraft.notes.note import Note, NotedTask
from redraft.notes.note_store import NoteStore, note_tokens
from redraft.notes.reflection import TaskReflection
from redraft.notes.turns import turns_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from redraft.core.task import Task
    from redraft.notes.config import Trial
    from redraft.notes.note import NoteUse, Rollback
    from redraft.notes.notebook import Notebook
    from redraft.notes.store import ReflectionStore


def notebook_of(store: ReflectionStore) -> Notebook:
    """Return the notebook that a store is, or make one of its two methods.

    Raises `ConfigError` for a class, and for what has no `store` and `retrieve`.
    """
    if isinstance(store, type):
        raise ConfigError(
            f"reflection_store must be a store, got the class: make one, {store.__name__}(...)."
        )
    return store if isinstance(store, NoteStore) else OwnStore(store)


class OwnStore:
    """Keep the latest note on each task in a store of a program's own: a `Notebook` without revisions.

    The runs of a process take turns at a task, whichever event loops and threads they are in; what other
    processes write at the same moment is for the store to guard. Methods that are not async run in threads.
    What the store raises comes through.
    """

    keeps_revisions = False

    def __init__(self, store: ReflectionStore) -> None:
        self._store = awaited(_method(store, "store"))
        self._retrieve = awaited(_method(store, "retrieve"))

    async def current(self, identity: str, /) -> Note | None:
        """Return the note that is kept; its version is the count of runs that have informed it."""
        found = await self._retrieve(identity)
        if found is None:
            return None
        if not isinstance(found, TaskReflection):
            raise StoreError(f"retrieve must return a TaskReflection or None, got {found!r}.")
        return Note(found.run_count, found, tokens=note_tokens(found))

    async def revision(self, identity: str, version: int, /) -> Note | None:
        """Return the note that is kept if it is this one."""
        note = await self.current(identity)
        return note if note is not None and note.version == version else None

    async def revisions(self, identity: str, /) -> list[Note]:
        """Return the note that is kept."""
        note = await self.current(identity)
        return [] if note is None else [note]

    async def append(
        self,
        task: Task,
        reflection: TaskReflection,
        /,
        *,
        run_id: str = "",
        based_on: int | None = None,
        name: str = "",  # noqa: ARG002 (there is no place for it)
        trial: Trial | None = None,
    ) -> tuple[Note, bool]:
        """Keep a note in place of the one before; return it, and whether there was none."""
        if trial is not None:
            _refuse("A trial")
        identity = TaskIdentity.of(task)
        async with turns_of(identity):
            before = await self.current(identity)
            version = 1 if before is None else before.version + 1
            counted = replace(reflection, run_count=version)
            await self._store(identity, counted)
        return Note(version, counted, run_id, based_on, note_tokens(counted, task)), before is None

    async def used(self, identity: str, use: NoteUse, /) -> None:
        """Write nothing down: there is no place for it."""

    async def uses(self, identity: str, /, *, latest: int | None = None) -> list[NoteUse]:  # noqa: ARG002 (none are kept)
        """Return nothing: no uses are kept."""
        return []

    async def noted(self, identity: str, /) -> NotedTask | None:
        """Tell what is known: how many runs have informed the note."""
        note = await self.current(identity)
        if note is None:
            return None
        return NotedTask(identity, "", run_count=note.version, in_force=note.version)

    async def rollback(self, identity: str, version: int | None, /) -> NotedTask:  # noqa: ARG002 (a notebook's)
        """Raise `ConfigError`: nothing older is kept."""
        _refuse("A rollback")

    async def settle(self, identity: str, trial: Trial, /) -> Rollback | None:  # noqa: ARG002 (a notebook's)
        """Raise `ConfigError`: how the runs did is not kept."""
        _refuse("A trial")


def _refuse(what: str) -> NoReturn:
    raise ConfigError(
        f"{what} needs a store that keeps every revision: SqliteReflectionStore, PostgresReflectionStore or "
        "InMemoryReflectionStore."
    )


def _method(store: Any, name: str) -> Callable[..., Any]:
    method = getattr(store, name, None)
    if not callable(method):
        raise ConfigError(
            f"reflection_store must have the methods store(task_identity, reflection) and "
            f"retrieve(task_identity); {store!r} has no {name!r}."
        )
    return method
