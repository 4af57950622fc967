"""Journal: the steps of one cycle, so that a killed cycle repeats none of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redraft._codec import from_record, to_record
from redraft._steps import step_scope
from redraft.cycles.records import CycleRecord
from redraft.cycles.trace import calls_in, recorder
from redraft.errors import LeaseError, StoreError
from redraft.loop.journal import Journalled, StepData
from redraft.stores.base import Record
from redraft.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.cycles.write_behind import WriteBehind
    from redraft.protocols import Step
    from redraft.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")

JOURNAL = "journal"
"""The kind and the key of the record that holds the steps; each cycle overwrites those of the one before."""
QUICK = 0.02
"""Seconds within which a quick step is written."""


async def begun_cycle(store: Store) -> CycleRecord | None:
    """Return the last cycle that was journalled, finished or not; None if there is none with an id."""
    record = await store.get(JOURNAL, JOURNAL)
    begun = None if record is None else record.data.get("begun")
    return None if begun is None else from_record(CycleRecord, begun)


class CycleSteps:
    """Keep a cycle and its steps together in one record: the `StepLog` of cycles.

    That a cycle has begun, under which id, is written before its first step. What cost money, took time or
    changed the world, a model call, an action or a source that acts, is written before the next step begins
    or a listener hears of it (`settled`), with everything before it. Sensing, and thinking that takes less
    time than a write, is written within 20 ms, with the next step or alone; a cycle that is killed before
    then does it again. Nothing is written before the end of the previous cycle is, whose steps it replaces,
    and no effect begins once another process runs the agent: that raises `LeaseError`.

    A cycle waits for its journal, however slow the store is. It goes on without one only while the store is
    away, which `write_behind` knows.
    """

    def __init__(self, store: Store, cycle: CycleRecord, write_behind: WriteBehind) -> None:
        self.trouble = ""
        # The journal serves a process that is killed, not a machine that fails: only a file is waited for.
        self._store = store.hasty() if isinstance(store, PostgresStore) else store
        self._id = cycle.id
        self._begun = to_record(cycle)
        self._write_behind = write_behind
        self._steps: dict[str, StepData] = {}
        self._stored = -1
        """How many steps are written; -1: not even that the cycle has begun."""
        self._is_broken = self._is_clear = False
        self._turn = asyncio.Lock()
        self._soon: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[Any]] = set()
        self._is_due = False
        """Whether something is to be written before the next step begins."""

    @property
    def calls(self) -> list[StepData]:
        """The model calls of the cycle so far, those of an earlier process included."""
        return calls_in(self._steps)

    def journal(self, *, resumes: bool) -> Journalled:
        """Return the journal that writes here; `resumes` if the cycle has begun earlier."""
        if not resumes:
            self._is_due = True
            self._write()
        return Journalled(self._store, f"cycle-{self._id}", resumes=resumes, log=self)

    async def ready(self, place: str, /) -> None:
        """Wait until everything that must be written is; raises `LeaseError` if the agent is not ours now."""
        if "/" not in place:
            await self.settled()
        await self._write_behind.check_lease()

    async def load(self) -> dict[str, StepData]:
        """Return the steps of this cycle that were written earlier."""
        record = await self._store.get(JOURNAL, JOURNAL)
        if record is not None and record.data.get("cycle") == self._id:
            self._steps = dict(record.data["steps"])
            self._stored = len(self._steps)
        return dict(self._steps)

    async def look_up(self, _place: str, /) -> StepData | None:
        """Return None: no other process is at work on this agent."""
        return None

    async def write(self, place: str, data: StepData, /) -> StepData:
        """Take a step down; wait until it is written if it is a model call, otherwise write it soon."""
        self._steps[place] = data
        if self._is_broken or self._write_behind.is_away:
            return data
        if "/" in place:  # a model call: the step that asked goes on at once
            await self.written()
            return data
        self._is_due = self._is_due or not _is_repeatable(data)
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(QUICK, self._write)
        return data

    async def settled(self) -> None:
        """Wait until what must be written before anything else begins is written."""
        if self._is_due:
            self._is_due = False
            await self.written()

    async def written(self) -> None:
        """Write all finished steps, and wait until they are, for as long as the store may take."""
        self._write()
        if not await self._write_behind.written(*self._writing):
            self._is_broken = True

    def close(self) -> None:
        """Begin no more writes: the results of the steps are stored with the cycle."""
        self._is_broken = True
        self._cancel_soon()

    async def aclose(self) -> None:
        """End what is being written, so that the next cycle's journal comes after it."""
        self.close()
        await self._write_behind.written(*self._writing)

    def _write(self) -> None:
        self._cancel_soon()
        if self._is_broken or self._write_behind.is_away:
            return
        writing = asyncio.ensure_future(self._put())
        self._writing.add(writing)
        writing.add_done_callback(self._ended)

    async def _put(self) -> None:
        """Write all steps that have finished by now, one write after another."""
        async with self._turn:
            if not self._is_clear:
                await self._write_behind.flush()
                self._is_clear = True
            if len(self._steps) == self._stored or self._is_broken or self._write_behind.is_away:
                return
            steps = dict(self._steps)
            record = Record(JOURNAL, JOURNAL, {"cycle": self._id, "begun": self._begun, "steps": steps})
            await self._write_behind.write_now([record], self._store)
            self._stored = len(steps)

    def _ended(self, writing: asyncio.Task[Any]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and isinstance(error := writing.exception(), StoreError):
            self._is_broken, self.trouble = True, str(error)
            if not isinstance(error, LeaseError):  # which the next step raises
                self._write_behind.mark_away(str(error))

    def _cancel_soon(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None


def _is_repeatable(step: StepData) -> bool:
    """Return whether a step may be done again: it neither acts on the world nor took long."""
    name: str = step["name"]
    if name == "sense":
        return True
    acts = name.count("/") > 1 or name.startswith("sense/")
    return not acts and step["elapsed"] - step["began"] < QUICK


def unjournalled(write_behind: WriteBehind, calls: list[StepData]) -> Step:
    """Return a step that only adds model calls to a list, and begins no effect without the lease."""

    async def step(
        name: str, _returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        await write_behind.check_lease()
        with step_scope(step=recorder(name, calls)):
            return await fn(*args, **kwargs)

    return step
