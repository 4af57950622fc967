"""The steps of one cycle, so that a killed one repeats none."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redraft._steps import direct
from redraft.errors import LeaseError, StoreError
from redraft.loop.journal import STEP, Journalled
from redraft.stores.base import Record
from redraft.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from redraft.cycles.storage import Keeping
    from redraft.protocols import Step
    from redraft.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")

JOURNAL = "journal"
"""The kind of the record of a journal, and its key: each cycle writes over that of the one before."""
QUICK = 0.02
"""Seconds: within so many a quick look or thought is written."""
LOOKS_UP = 0.05
"""Seconds between two looks whether a store that is slow is known to be away by now."""


class CycleJournal(Journalled):
    """Record the steps of one cycle, and replay those that are there already.

    What cost money, took time or changed the world, a model call or an action, is written before the next
    step begins or anybody hears of it (`settled`), with all before it. To look at the world, or to think for
    less time than a write takes, is written within 20 ms, with what comes next or alone: a cycle that was
    killed before then does it again. Nothing is written before the end of the cycle before is, whose steps
    it replaces, and no effect begins when another process has come to run the agent: that is a `LeaseError`.

    A journal waits, however far the store is. Only where it is out of reach, which `keeping` knows or learns
    here (a write failed, or nothing came of it for as long as its `silence`), the cycle goes on without one.
    """

    def __init__(
        self,
        store: Store,
        number: int,
        keeping: Keeping,
        *,
        resumes: bool,
    ) -> None:
        # A journal is there for a process that is killed, and has to wait for no disk but a file's.
        steps = store.hasty() if isinstance(store, PostgresStore) else store
        super().__init__(steps, f"cycle-{number}", resumes=resumes)
        self._number = number
        self._keeping = keeping
        self._is_broken = self._is_clear = False
        self._turn = asyncio.Lock()
        self._stored = 0
        self._steps: dict[str, dict[str, Any]] = {}
        self._soon: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[Any]] = set()
        self._due: asyncio.Task[Any] | None = None

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return what this step came to before, or carry it out when what came before is written."""
        await self.settled()
        await check_lease(self._keeping)
        return await super().__call__(name, returns, fn, *args, **kwargs)

    async def within(
        self,
        place: str,
        name: str,
        returns: type[R],
        fn: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Do the same for a step within a step."""
        await check_lease(self._keeping)
        return await super().within(place, name, returns, fn, *args, **kwargs)

    async def settled(self) -> None:
        """Wait until what has to be written before anything else is done is written."""
        due, self._due = self._due, None
        if due is not None:
            await self._waited_for({due})

    async def written(self) -> None:
        """Write all steps that have ended, and wait until they are, or no longer than that may take."""
        self._write()
        if self._writing:
            await self._waited_for(self._writing)

    def close(self) -> None:
        """Write no more: what the steps came to is kept elsewhere."""
        self._is_broken = True
        self._stop_waiting()

    async def _recorded(self, place: str) -> Record | None:
        return (await self._read()).get(place)  # no other process is at work on this agent

    async def _read(self) -> dict[str, Record]:
        if self._records is None:
            found = await self.store.get(JOURNAL, JOURNAL)
            if found is not None and found.data.get("cycle") == self._number:
                self._steps = dict(found.data["steps"])
            self._records = {
                place: Record(STEP, f"{self.run_id}/{place}", data) for place, data in self._steps.items()
            }
            self._worked = max((data["elapsed"] for data in self._steps.values()), default=0.0)
        return self._records

    async def _written(self, place: str, data: dict[str, Any]) -> tuple[Record, bool]:
        record = Record(STEP, f"{self.run_id}/{place}", data)
        if self._is_broken or self._keeping.is_away:
            return record, True
        self._steps[place] = data
        if "/" in place:  # a model call: what goes on in its step is not ours
            await self.written()
        elif not _is_repeatable(data):
            self._due = self._write()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(QUICK, self._write)
        return record, True

    async def _waited_for(self, writing: Collection[asyncio.Task[Any]]) -> None:
        """Wait until steps are written, or the store is known to be away."""
        loop, silence = asyncio.get_running_loop(), self._keeping.silence
        late: set[asyncio.Task[Any]] = {*writing}
        ends = inf if silence is None else loop.time() + silence
        while late and not self._keeping.is_away:
            if loop.time() >= ends:
                self._keeping.goes_away(f"it has not answered for {silence:g} s")
                break
            # Who keeps the memory may learn first that nobody answers.
            _, late = await asyncio.wait(late, timeout=LOOKS_UP)
        self._is_broken = self._is_broken or bool(late)

    def _write(self) -> asyncio.Task[Any] | None:
        self._stop_waiting()
        if not self._steps or self._is_broken or self._keeping.is_away:
            return None
        writing = asyncio.ensure_future(self._put())
        self._writing.add(writing)
        writing.add_done_callback(self._ended)
        return writing

    async def _put(self) -> None:
        """Write all steps that have ended by now, one write after the other."""
        async with self._turn:
            if not self._is_clear:
                await self._keeping.settled()
                self._is_clear = True
            if len(self._steps) == self._stored or self._is_broken or self._keeping.is_away:
                return
            steps = dict(self._steps)
            record = Record(JOURNAL, JOURNAL, {"cycle": self._number, "steps": steps})
            if self._keeping.lease is not None:
                await self._keeping.lease.write([record], self.store)
            else:
                await self.store.put(record)
            self._stored = len(steps)

    def _ended(self, writing: asyncio.Task[Any]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and isinstance(error := writing.exception(), StoreError):
            self._is_broken, self.trouble = True, str(error)
            if not isinstance(error, LeaseError):  # which the next step says
                self._keeping.goes_away(str(error))

    def _stop_waiting(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None


async def check_lease(keeping: Keeping) -> None:
    """Make sure, before an effect, that no other process has come to run the agent; raises `LeaseError`."""
    if keeping.lease is not None:
        await keeping.lease.check()


def unjournalled(keeping: Keeping) -> Step:
    """Return a step that records nothing, and begins no effect where another process runs the agent."""

    async def step(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        await check_lease(keeping)
        return await direct(name, returns, fn, *args, **kwargs)

    return step


def _is_repeatable(data: dict[str, Any]) -> bool:
    """Say of a step whether it may be done again: not an action, nor what took long."""
    if data["name"] == "sense":
        return True
    is_action = data["name"].count("/") > 1
    return not is_action and data["elapsed"] - data["began"] < QUICK
