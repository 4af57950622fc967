"""Note stores: every revision of every note, and which one is in force."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from redraft._calls import awaited
from redraft._clock import is_future
from redraft._codec import from_record, to_record
from redraft._hints import keyword_hints
from redraft._texts import estimate_tokens
from redraft.errors import ConfigError, DamagedRecordError, StoreError
from redraft.memory.effects import LATEST
from redraft.notes.note import (
    MOST_REPLACED,
    Arm,
    Note,
    NotedTask,
    NoteUse,
    Rollback,
    TaskReflection,
    is_return,
    lines_said,
    note_block,
    size_of,
)
from redraft.notes.task import TaskIdentity
from redraft.notes.trial import Trial, evidence_of, is_settled, may_replace, reason_of
from redraft.stores.base import Record, intact, listed, values_of
from redraft.stores.location import project_store, server_space
from redraft.stores.run_index import NOTE_USE, RunUse, run_index
from redraft.stores.sqlite import MemoryStore
from redraft.types import PlainTask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from redraft.stores.base import Store

NOTED_TASK, NOTE = "noted_task", "note"
"""The kinds of the records."""
CURRENT = "note"
"""The key of the note in force in a task's record, so that a run reads a single record."""


class ReflectionStore(Protocol):
    """Keeps the latest reflection on each task, by `TaskIdentity`. Both methods may be sync or async.

    Redraft's own stores also keep every revision. With a custom store, the runs of a process take turns;
    guarding against other processes is up to the store.
    """

    def store(self, task_identity: str, reflection: TaskReflection, /) -> Awaitable[None] | None:
        """Store a reflection in place of the previous one."""
        ...

    def retrieve(self, task_identity: str, /) -> Awaitable[TaskReflection | None] | TaskReflection | None:
        """The latest reflection on a task; None if there is none."""
        ...


class NoteStore:
    """A `ReflectionStore` that keeps the notes on tasks in a `Store`.

    Every revision stays, with the run that wrote it and the scores of the runs with it. It is as safe for
    concurrent tasks, threads and processes as its store: two simultaneous runs of a task make two revisions.
    Texts are stored as they are, so the writer withholds secrets. All methods raise `StoreError` if the store
    can't be read or written.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index = run_index(store)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close files and connections; the next call opens them again."""
        await self._store.aclose()

    async def store(self, task_identity: str, reflection: TaskReflection, /) -> None:
        """Store a reflection as the next revision, with its own run count.

        It comes into force unless notes are off or a version is pinned.
        """
        note = await self._write(task_identity, Note(0, reflection, tokens=note_tokens(reflection)))

        def changed(noted: NotedTask) -> NotedTask:
            # Stored by hand, so it follows the note in force.
            return noted.with_revision(replace(note, based_on=noted.in_force))

        await self._change(task_identity, changed, NotedTask(task_identity, ""), note)

    async def retrieve(self, task_identity: str, /) -> TaskReflection | None:
        """The reflection of the note in force."""
        note = await self.current(task_identity)
        return None if note is None else note.reflection

    async def current(self, identity: str, /) -> Note | None:
        """The note in force: the newest, or the choice of a trial or a rollback; None while off."""
        record = await self._store.get(NOTED_TASK, _key(identity))
        if record is None or record.data.get("off") or record.data.get(CURRENT) is None:
            return None
        return from_record(Note, record.data[CURRENT])

    async def revision(self, identity: str, version: int, /) -> Note | None:
        """A revision, in force or not; None if it does not exist."""
        record = await self._store.get(NOTE, _note_key(identity, version))
        return None if record is None else from_record(Note, record.data)

    async def revisions(self, identity: str, /, *, latest: int | None = None) -> list[Note]:
        """The revisions, the oldest first; `latest` (from 1) bounds their number."""
        noted = None if latest is None else await self._stored(identity)
        before = 0 if noted is None or latest is None else max(0, noted.run_count - latest)
        # By number: sorting 100,000 revisions by time would take a store long.
        after = await listed(self._store, NOTE, _note_key(identity, before)) if before else None
        records = await self._store.find(NOTE, prefix=f"{_key(identity)}/", after=after)
        notes = sorted(values_of(records, Note), key=attrgetter("version"))
        return notes if latest is None else notes[-latest:]

    async def append(
        self,
        task: PlainTask,
        reflection: TaskReflection,
        /,
        *,
        run_id: str = "",
        based_on: int | None = None,
        name: str = "",
        trial: Trial | None = None,
        arm: Arm = "note",
        line: int | None = None,
    ) -> tuple[Note, bool]:
        """Store the reflection of an accepted run as the next revision; also return whether it is the first.

        `task` is the definition as written, since its description identifies the notes; `name` is for people.
        The revision's number is its run count. `based_on` is the version that was in force when the run
        began, also for a control run; `arm` is the arm of the run, and `line` the value of `NotedTask.since`
        when its note was chosen (None: unknown).

        The revision comes into force unless `trial` keeps the present note (call `record_use` first: the run
        counts), a version is pinned, notes are off, or were rolled back since the run began. After a
        rollback, only a run with the version in force can replace it. A revision that only returns to a note
        that was replaced does not come into force (see `is_settled`). A second call for the same `run_id`, as
        when a run is resumed, returns the existing revision.
        """
        identity = TaskIdentity.of(task)
        new = Note(0, reflection, run_id, based_on, note_tokens(reflection, task))
        async with turn(identity):  # or concurrent runs would compete for the next number
            note = await self._write(identity, new, count_runs=True)
            replaceable, stays, same = None, False, False
            if (state := await self._trial_state(identity)) is not None:
                before, uses, present = state
                # No run gets an empty note, so it would wait for scores that never come.
                is_empty = size_of(present.reflection, task) == 0
                if trial is not None and (is_empty or may_replace(trial, before, uses, present.based_on)):
                    replaceable = present.version
                replaced = [await self.revision(identity, version) for version in before.replaced]
                stays = is_settled(note, present, [old for old in replaced if old is not None], uses)
                same = lines_said(note.reflection) == lines_said(present.reflection)

            def changed(noted: NotedTask) -> NotedTask:
                defined = replace(
                    noted,
                    description=task.description,
                    expected_output=task.expected_output,
                    name=name or noted.name,
                )
                held = stays or (trial is not None and noted.in_force not in (None, replaceable))
                return defined.with_revision(note, held=held, arm=arm, line=line, same=same)

            await self._change(identity, changed, NotedTask(identity, task.description), note)
        return note, note.version == 1

    async def record_use(self, identity: str, use: NoteUse, /) -> None:
        """Record the note that a run had, and its score, in place of an earlier record."""
        await self._store.put(use_record(identity, use))

    async def uses(
        self, identity: str, /, *, latest: int | None = None, arm: Arm | None = None
    ) -> list[NoteUse]:
        """The notes that the runs of a task had, the earliest run first.

        `latest` limits their number, `arm` limits them to one arm of a trial.
        """
        uses = await self._index.uses(NOTE_USE, _key(identity), outcome=arm, limit=latest)
        return [
            NoteUse(use.run_id, use.version, cast("Arm", use.outcome), use.score, use.at)
            for use in reversed(uses)
        ]

    async def run_counts(self) -> dict[str, int]:
        """The number of recorded runs of each task, by its identity."""
        counts = await self._index.count_uses(NOTE_USE)
        return {unquote(subject, errors="surrogatepass"): runs for subject, (runs,) in counts.items()}

    async def noted(self, identity: str, /) -> NotedTask | None:
        """The state of the notes on a task; None if there are none."""
        noted = await self._stored(identity)
        return None if noted is None else _effective(noted)

    async def tasks(self) -> list[NotedTask]:
        """All tasks with notes, the latest change first.

        A damaged record has a name that says so, and a description that says what to do.
        """
        records = await self._store.find(NOTED_TASK)
        records.sort(key=attrgetter("updated_at"), reverse=True)
        return [_listed(record) for record in records]

    async def page(self, most: int, /, *, before: str = "") -> list[NotedTask]:
        """At most `most` tasks with notes, the newest first.

        `before` is the identity of the last task on the previous page. Raises `ConfigError` if that task has
        no notes.
        """
        last = await listed(self._store, NOTED_TASK, _key(before)) if before else None
        if before and last is None:
            raise ConfigError(f"There are no notes on the task {before!r}.")
        records = await self._store.find(NOTED_TASK, newest_first=True, after=last, limit=most)
        return [_listed(record) for record in records]

    async def rollback(self, identity: str, version: int | None, /, *, why: str = "") -> NotedTask:
        """Put an older version in force, or none (None); return the new state.

        Every run gets the version until an accepted run with it adds the next note, with a trial after
        `min_runs` scored runs; None switches notes off. Nothing is deleted. Raises `ConfigError` for a
        version that does not exist.
        """
        return _effective(await self._change(identity, lambda noted: noted.rolled_back(version, why)))

    async def pin(self, identity: str, version: int, /) -> NotedTask:
        """Put a version in force until `unpin` or another `rollback`; return the new state.

        Every run gets it; new revisions are stored, but don't come into force. Raises `ConfigError` for a
        version that does not exist.
        """
        return _effective(await self._change(identity, lambda noted: noted.rolled_back(version, pinned=True)))

    async def unpin(self, identity: str, /) -> NotedTask:
        """Let the next note of a run with the pinned version replace it; return the new state."""
        return _effective(await self._change(identity, lambda noted: noted.unpinned()))

    async def switch(self, identity: str, /, *, off: bool, why: str = "") -> NotedTask:
        """Switch the notes on a task off, or on again as they were; return the new state.

        While they are off, revisions are added, but none is in force. Raises `ConfigError` if there are none.
        """
        return _effective(await self._change(identity, lambda noted: noted.switched(off=off, why=why)))

    async def settle(self, identity: str, trial: Trial, /) -> Rollback | None:
        """Roll the note in force back if the trial shows that it hurts; return the rollback.

        The control takes over: no note at all, as if notes were switched off, or the previous note. Of
        several concurrent callers, a single caller gets the rollback. Otherwise, records whether the notes
        are shown to help, and the share of control runs.
        """
        if (state := await self._trial_state(identity)) is None:
            return None
        (judged, uses, note), done = state, False
        evidence = evidence_of(trial, judged, uses, note.based_on)
        rollback, shown = evidence.rollback, (evidence.is_shown, evidence.control_share)

        def changed(noted: NotedTask) -> NotedTask:
            nonlocal done
            if rollback is not None:
                done = (noted.in_force, noted.since, noted.off) == (judged.in_force, judged.since, False)
                return noted.rolled_back(rollback.to, reason_of(rollback)) if done else noted
            if (noted.since, noted.judged_until) != (judged.since, judged.judged_until):
                return noted  # rolled back meanwhile
            return replace(noted, is_shown=evidence.is_shown, control_share=evidence.control_share)

        if rollback is not None or shown != (judged.is_shown, judged.control_share):
            await self._change(identity, changed)
        return rollback if done else None

    async def erase(self, identity: str, versions: Collection[int] | None = None, /) -> int:
        """Delete revisions of the notes on a task, or all that is stored about them; return how many.

        If the note in force is among them, no note is in force until an accepted run writes the next.
        """
        key = _key(identity)
        if versions is not None:

            def changed(noted: NotedTask) -> NotedTask:
                is_in_force = noted.in_force in versions
                if not is_in_force:
                    return noted
                return replace(noted, in_force=None, pinned=False, why_off="it was erased")

            if await self._stored(identity) is not None:
                await self._change(identity, changed)
            return sum([await self._store.delete(NOTE, _note_key(identity, version)) for version in versions])
        notes = [record.key for record in await self._store.find(NOTE, prefix=f"{key}/")]
        for use in await self._store.find(NOTE_USE, prefix=f"{key}/"):
            await self._store.delete(NOTE_USE, use.key)
        for note in notes:
            await self._store.delete(NOTE, note)
        await self._store.delete(NOTED_TASK, key)  # last, so that a repeated call finishes an interrupted one
        return len(notes)

    async def _trial_state(self, identity: str) -> tuple[NotedTask, list[NoteUse], Note] | None:
        """Read the data of a trial: the state, the runs and the note in force; None without a note."""
        record, now = await self._store.get(NOTED_TASK, _key(identity)), datetime.now(UTC)
        if record is None or record.data.get("off") or record.data.get(CURRENT) is None:
            return None
        noted, note = from_record(NotedTask, record.data), from_record(Note, record.data[CURRENT])
        if (until := noted.judged_until) is not None and is_future(until, now):
            # A wrong clock wrote it: replaced by the present, so that runs from now on count.

            def clamped(noted_now: NotedTask) -> NotedTask:
                return replace(noted_now, judged_until=now) if noted_now.judged_until == until else noted_now

            noted = _effective(await self._change(identity, clamped))
        return noted, await self.uses(identity, latest=LATEST), note

    async def _write(self, identity: str, note: Note, *, count_runs: bool = False) -> Note:
        """Write a note under the first free number, unless its run already has a note.

        `count_runs` makes the number its run count, too. Numbers up to the count are searched in a single
        query, later numbers one by one, so that a run that two processes resume makes only one note.
        """
        noted = await self._stored(identity)
        version = 0 if noted is None else noted.run_count
        if note.run_id:
            prefix = f"{_key(identity)}/"
            if earlier := intact(await self._store.find(NOTE, prefix=prefix, where={"run_id": note.run_id})):
                return from_record(Note, earlier[0].data)
        while True:
            version += 1
            if count_runs:
                note = replace(note, reflection=replace(note.reflection, run_count=version))
            note = replace(note, version=version)
            record = Record(NOTE, _note_key(identity, version), to_record(note))
            stored, is_new = await self._store.put_if_absent(record)
            if is_new:
                return note
            if note.run_id and stored.data.get("run_id") == note.run_id:
                return from_record(Note, stored.data)

    async def _stored(self, identity: str) -> NotedTask | None:
        record = await self._store.get(NOTED_TASK, _key(identity))
        return None if record is None else from_record(NotedTask, record.data)

    async def _change(
        self,
        identity: str,
        change: Callable[[NotedTask], NotedTask],
        new: NotedTask | None = None,
        written: Note | None = None,
    ) -> NotedTask:
        """Change the state of the notes on a task, safely among concurrent changes; `new` starts one.

        `written` is the note just written, if any, so that it need not be read again.
        """
        key = _key(identity)
        while True:
            record = await self._store.get(NOTED_TASK, key)
            if record is None:
                if new is None:
                    raise ConfigError(f"There are no notes on the task {identity!r}.")
                record, _ = await self._store.put_if_absent(Record(NOTED_TASK, key, to_record(new)))
            noted = from_record(NotedTask, record.data)
            changed = change(noted)
            if changed == noted:
                return changed
            version = changed.in_force
            if version == noted.in_force:
                current = record.data.get(CURRENT)
            elif version is None:
                current = None
            elif written is not None and written.version == version:
                current = to_record(written)
            else:
                current = to_record(await self.revision(identity, version))
            data = to_record(changed) | {CURRENT: current}
            if await self._store.replace(replace(record, data=data)):
                return changed


def _key(identity: str) -> str:
    # A custom identity may contain the slash that separates versions.
    return quote(identity, safe="", errors="surrogatepass")


def use_record(identity: str, use: NoteUse) -> Record:
    """The record of the note that a run of a task had."""
    index = RunUse(_key(identity), use.run_id, use.at, use.arm, use.version, use.score)
    return Record(NOTE_USE, f"{_key(identity)}/{use.run_id}", to_record(use) | {"index": index.to_data()})


def _note_key(identity: str, version: int) -> str:
    return f"{_key(identity)}/{version:08}"


def note_tokens(reflection: TaskReflection, task: PlainTask | None = None) -> int:
    """The estimated tokens of a note, before inputs are filled in."""
    return estimate_tokens(note_block(reflection, task or PlainTask(""), {}))


def _listed(record: Record) -> NotedTask:
    try:
        return _effective(from_record(NotedTask, record.data))
    except DamagedRecordError as error:
        identity = unquote(record.key, errors="surrogatepass")
        return NotedTask(identity, str(error), name="(a damaged record)")


def _effective(noted: NotedTask) -> NotedTask:
    # While notes are off, the record remembers what was in force before.
    return replace(noted, in_force=None) if noted.off else noted


class InMemoryReflectionStore(NoteStore):
    """Keeps notes in memory as long as this object exists: for tests and experiments."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())


@keyword_hints()
class SqliteReflectionStore(NoteStore):
    """Keeps notes in a SQLite database; the first write creates the file at `path` and its folder.

    It may be the database of a project, `.redraft/redraft.db`.
    """

    def __init__(self, path: str | Path) -> None:
        from redraft.stores.sqlite import SqliteStore  # noqa: PLC0415 (sqlite3 is imported on first use)

        super().__init__(SqliteStore(path))


@keyword_hints()
class PostgresReflectionStore(NoteStore):
    """Keeps notes in a PostgreSQL database: `dsn` is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.

    Each project in a database sees only its own notes; projects with the same name share them. The name is
    `project`, else REDRAFT_PROJECT, else this machine and folder. Raises `ConfigError` for an invalid URL,
    and `MissingExtraError` if `redraft[postgres]` is not installed.
    """

    def __init__(self, dsn: str, project: str | None = None) -> None:
        from redraft.stores.postgres import PostgresStore  # noqa: PLC0415 (imported on first use)

        super().__init__(PostgresStore(dsn, server_space() if project is None else project))


def project_notes() -> NoteStore:
    """The notes of this process's project, in the database of its runs.

    If storage is turned off (an empty `home`), they are kept in memory.
    """
    store = project_store()
    return InMemoryReflectionStore() if store is None else NoteStore(store)


Notebook: TypeAlias = "NoteStore | LatestNoteStore"
"""The store of an ensemble's notes."""


def notebook_of(store: ReflectionStore) -> Notebook:
    """Adapt a store for an ensemble.

    Raises `ConfigError` for a class, and for an object without `store` and `retrieve`.
    """
    if isinstance(store, type):
        raise ConfigError(
            f"reflection_store must be a store, got the class {store.__name__!r}; pass an instance, "
            f"{store.__name__}(...)."
        )
    return store if isinstance(store, NoteStore) else LatestNoteStore(store)


class LatestNoteStore:
    """Keeps the latest note on each task in a program's own store, without revisions.

    A note that only returns to a note that was replaced is not stored; only this process remembers replaced
    notes. Runs of this process that write a note on the same task take turns, across event loops and threads;
    guarding against other processes is up to the store. Methods that are not async run in threads, and
    exceptions of the store are passed on.
    """

    def __init__(self, store: ReflectionStore) -> None:
        self._store = awaited(_method(store, "store"))
        self._retrieve = awaited(_method(store, "retrieve"))
        self._replaced: dict[str, deque[TaskReflection]] = {}

    async def current(self, identity: str, /) -> Note | None:
        """The stored note; its version is its run count."""
        reflection = await self._retrieve(identity)
        if reflection is None:
            return None
        if not isinstance(reflection, TaskReflection):
            raise StoreError(f"retrieve must return a TaskReflection or None, got {reflection!r}.")
        return Note(reflection.run_count, reflection, tokens=note_tokens(reflection))

    async def append(
        self,
        task: PlainTask,
        reflection: TaskReflection,
        /,
        *,
        run_id: str = "",
        based_on: int | None = None,
        **_: object,
    ) -> tuple[Note, bool]:
        """Store a note in place of the previous one; return it, and whether it is the first.

        Ignores the arguments of `NoteStore.append` that concern names, trials and rollbacks.
        """
        identity = TaskIdentity.of(task)
        async with turn(identity):
            before = await self.current(identity)
            version = 1 if before is None else before.version + 1
            if before is not None:
                replaced = self._replaced.setdefault(identity, deque(maxlen=MOST_REPLACED))
                if any(is_return(reflection, before.reflection, earlier) for earlier in replaced):
                    reflection = before.reflection
                elif lines_said(reflection) != lines_said(before.reflection):
                    replaced.append(before.reflection)
            counted = replace(reflection, run_count=version)
            await self._store(identity, counted)
        return Note(version, counted, run_id, based_on, note_tokens(counted, task)), before is None


def _method(store: Any, name: str) -> Callable[..., Any]:
    method = getattr(store, name, None)
    if not callable(method):
        raise ConfigError(
            f"reflection_store must have the methods store(task_identity, reflection) and "
            f"retrieve(task_identity); {store!r} has no {name!r}."
        )
    return method


# Turns.


class _Turn(Future[None]):
    """The turn of a task, which ends with the task, or immediately if the task no longer waits for it."""

    before: _Turn | None = None
    """The turn for which the task waited to the end; None once it had its own."""


@asynccontextmanager
async def turn(name: str) -> AsyncGenerator[None]:
    """Let the tasks of all event loops and threads of the process take turns, in order, by name.

    Waiting blocks no thread, so the task whose turn it is always finds a free thread in the executor.
    """
    own, loop = _Turn(), asyncio.get_running_loop()
    own.set_running_or_notify_cancel()  # so that cancelling the next task does not cancel this turn
    with _registry_lock:
        before, _latest[name] = _latest.get(name), own

    def end(before: _Turn | None) -> None:
        with _registry_lock:
            while before is not None and before.done():
                before = before.before
            if before is not None and _latest.get(name) is own:
                _latest[name] = before  # nothing else may refer to this turn
            if not own.done():
                own.before = before
                own.set_result(None)

    def on_end(ended: Future[None]) -> None:
        if loop.is_closed():  # the task will never go on
            end(cast("_Turn", ended).before)

    try:
        while before is not None:
            before.add_done_callback(on_end)
            await asyncio.wrap_future(before)
            before = before.before
        yield
    finally:
        end(before)


_latest: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
"""The last turn that was asked for by each name; nothing refers to it once it has ended."""
_registry_lock = RLock()
