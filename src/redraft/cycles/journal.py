"""Journal: the finished steps of a cycle, so that a killed cycle repeats none, and the trace of its calls."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from redraft._codec import from_record, to_record
from redraft._tasks import Isolation
from redraft.cycles.egress import PoisonError
from redraft.cycles.records import CycleRecord
from redraft.errors import LeaseError, StoreError
from redraft.loop.journal import DEATHS_TOGETHER, Journalled, StepData
from redraft.redact.log import logger
from redraft.stores.base import Record
from redraft.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from redraft.cycles.write_behind import WriteBehind
    from redraft.protocols import Step
    from redraft.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")

JOURNAL = "journal"
"""The kind and the key of the record of the steps; each cycle overwrites the previous cycle's steps."""
QUICK = 0.02
"""Seconds within which the start of a cycle, and a repeatable step, are written."""


async def journalled_cycle(store: Store) -> CycleRecord | None:
    """The last cycle in the journal, finished or not; None if there is none with an id."""
    record = await store.get(JOURNAL, JOURNAL)
    begun = None if record is None else record.data.get("begun")
    return None if begun is None else from_record(CycleRecord, begun)


class CycleSteps:
    """The `StepLog` of a cycle: the cycle and its steps in a single record.

    A model call, an action, a source with side effects or any slow step is written, with all earlier steps,
    before the next step begins or a listener gets the event (`settled`). The start of the cycle, sensing and
    fast steps of Reason are written within 20 ms, with the next step, alone, or before a side effect or an
    idempotency key, which follow from them (`written`); a cycle that is killed before then repeats them, or
    never began. After the death of a process, every step is written before it begins, until a cycle has
    ended. Nothing is written before the end of the previous cycle, whose steps it replaces. Once another
    process runs the agent, no effect begins: `LeaseError`.

    With the steps, it writes which step is at risk: the step under way, if it `may_kill` the process, since
    it calls a function of the program. `deaths` counts, by step, the processes that died in it; a process
    that is asked to end puts no step at risk.

    A cycle waits for its journal, however slow the store is, except while `write_behind` has marked the store
    as away. Without `is_stored`, the steps are only collected, for the trace.
    """

    def __init__(
        self, store: Store, cycle: CycleRecord, write_behind: WriteBehind, *, is_stored: bool = True
    ) -> None:
        self.store_error = ""
        # The journal protects against a killed process, not against a machine failure, so a database need
        # not flush its disk.
        self._store = store.hasty() if isinstance(store, PostgresStore) else store
        self._id = cycle.id
        self._begun = to_record(cycle)
        self._write_behind = write_behind
        self._steps: dict[str, StepData] = {}
        self._stored: tuple[int, str] | None = None
        """The number of written steps, and the step at risk; None: this process has written nothing."""
        self.may_kill = False
        """Whether the step that begins next calls a function of the program."""
        self._resumes = self._is_ending = False
        self._place = self._at_risk = ""
        self._deaths: dict[str, int] = {}
        self._is_broken, self._is_previous_written = not is_stored, False
        self._write_lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[Any]] = set()
        self._must_write = False
        """Whether the steps must be written before the next step begins."""

    @property
    def calls(self) -> list[StepData]:
        """The model calls of all processes of the cycle so far, each with the `step` that made it."""
        inner = [(place.partition("/")[0], data) for place, data in self._steps.items() if "/" in place]
        return [{"step": self._steps.get(outer, {}).get("name", ""), **data} for outer, data in inner]

    def journal(self, *, resumes: bool) -> Journalled:
        """The journal that writes here; `resumes` if an earlier process began the cycle."""
        self._resumes = resumes
        if not resumes:
            self._write_soon()
        return Journalled(self._store, f"cycle-{self._id}", resumes=resumes, log=self)

    async def ready(self, place: str, /) -> None:
        """Wait until the steps that must be written are. Raises `LeaseError` if the lease is lost."""
        if "/" not in place:
            self._place = place
            is_safe = not self.may_kill or self._is_ending or self.deaths >= DEATHS_TOGETHER
            self._at_risk = "" if is_safe else place
            await self.settled()
        await self._write_behind.check_lease()

    async def load(self) -> dict[str, StepData]:
        """The steps of this cycle that were written earlier."""
        record = await self._store.get(JOURNAL, JOURNAL)
        if record is not None and record.data.get("cycle") == self._id:
            self._steps = dict(record.data["steps"])
            self._deaths = dict(record.data.get("deaths", {}))
            if (place := record.data.get("at_risk")) and place not in self._steps:
                self._deaths[place] = self._deaths.get(place, 0) + 1
        return dict(self._steps)

    @property
    def deaths(self) -> int:
        """The number of processes that died in the step under way."""
        return self._deaths.get(self._place, 0)

    async def begin(self) -> None:
        """Put the step under way at risk, if it may kill the process, before it is carried out."""
        self._at_risk = self._place if self.may_kill and not self._is_ending else ""
        if self._resumes or self._write_behind.is_after_death:
            await self.written()
        elif self._stored != self._state:
            self._write_soon()

    def end(self) -> None:
        """Put no more steps at risk, since the process is asked to end."""
        self._is_ending, self._at_risk = True, ""
        self._write()

    async def look_up(self, _place: str, /) -> StepData | None:
        """None: no other process runs this agent."""
        return None

    async def write(self, place: str, data: StepData, /) -> StepData:
        """Record a step; wait until it is written if it is a model call, otherwise write it soon."""
        self._steps[place] = data
        if self._is_broken or self._write_behind.is_away:
            return data
        if "/" in place:  # a model call: its step goes on immediately
            await self.written()
            return data
        self._must_write = self._must_write or not _is_repeatable(data)
        self._write_soon()
        return data

    async def settled(self) -> None:
        """Wait until the steps that must not be repeated are written."""
        if self._must_write:
            self._must_write = False
            await self.written()

    async def written(self) -> None:
        """Write all finished steps, and wait until they are written, unless the store is away."""
        self._write()
        if not await self._write_behind.written(*self._writing):
            self._is_broken = True

    def close(self) -> None:
        """Begin no more writes, since the results of the steps are stored with the cycle."""
        self._is_broken = True
        self._cancel_timer()

    async def aclose(self) -> None:
        """Wait for the writes under way, so that the next cycle's journal comes after them."""
        self.close()
        await self._write_behind.written(*self._writing)

    def _write_soon(self) -> None:
        if self._timer is None and not self._is_broken:
            self._timer = asyncio.get_running_loop().call_later(QUICK, self._write)

    def _write(self) -> None:
        self._cancel_timer()
        if self._is_broken or self._write_behind.is_away:
            return
        writing = asyncio.ensure_future(self._put())
        self._writing.add(writing)
        writing.add_done_callback(self._ended)

    async def _put(self) -> None:
        """Write all steps that have finished by now, after any write under way."""
        async with self._write_lock:
            if not self._is_previous_written:
                await self._write_behind.flush()
                self._is_previous_written = True
            if self._state == self._stored or self._is_broken or self._write_behind.is_away:
                return
            state, data = self._state, {"cycle": self._id, "begun": self._begun, "steps": dict(self._steps)}
            data |= {"at_risk": self._at_risk, "deaths": dict(self._deaths)}
            await self._write_behind.write_now([Record(JOURNAL, JOURNAL, data)], self._store)
            self._stored = state

    @property
    def _state(self) -> tuple[int, str]:
        return len(self._steps), self._at_risk

    def _ended(self, writing: asyncio.Task[Any]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and isinstance(error := writing.exception(), StoreError):
            self._is_broken, self.store_error = True, str(error)
            if not isinstance(error, LeaseError):  # a lost lease is raised by the next step
                self._write_behind.mark_away(str(error))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_repeatable(step: StepData) -> bool:
    """Whether a step may be repeated: it has no side effect and was fast."""
    if step["name"] == "sense":
        return True
    return not _acts(step["name"]) and step["elapsed"] - step["began"] < QUICK


def _acts(name: str) -> bool:
    return name.count("/") > 1 or name.startswith("sense/")


_isolations: WeakKeyDictionary[asyncio.AbstractEventLoop, Isolation] = WeakKeyDictionary()
"""The isolation of the steps of all agents, by event loop."""
_problem: ContextVar[str | None] = ContextVar("problem", default=None)
"""Within the step of a cycle: why its effect may not begin (empty: it may); None outside."""


def check_step() -> None:
    """Raise `PoisonError` before the effect of a step that has killed its processes."""
    if problem := _problem.get():
        raise PoisonError(problem)


class IsolatedStep:
    """The step of a cycle that keeps a step from killing process after process.

    Only the steps of `callers` can, since they call functions of the program; true for actions. A step in
    which two processes died is run while no other agent of the process runs such a step. If the process dies
    again, the step fails with a `PoisonError`, and an effect where it begins (`check_step`).
    """

    def __init__(self, step: Step, steps: CycleSteps, agent: str, callers: Mapping[str, bool]) -> None:
        self.__wrapped__ = step
        self._steps = steps
        self._agent = agent
        self._callers = callers
        self._name = ""

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Replay a step, or carry it out: with the other steps of this process, alone, or no more."""
        self._name, self._steps.may_kill = name, name in self._callers
        return await self.__wrapped__(name, returns, self._isolated, fn, *args, **kwargs)

    async def _isolated(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        steps, is_inside, problem = self._steps, _problem.get() is not None, ""
        deaths = steps.deaths if steps.may_kill else 0
        if deaths > DEATHS_TOGETHER:
            problem = (
                f"{deaths} processes in a row died in {self._name!r}, the last one while it ran nothing "
                "else, so it is not run again."
            )
            steps.may_kill = False
        outside = _problem.set(problem)
        try:
            if problem and not self._callers[self._name]:
                check_step()
            isolation = _isolations.setdefault(asyncio.get_running_loop(), Isolation())
            turn = isolation.together() if steps.may_kill and not is_inside else nullcontext()
            if deaths == DEATHS_TOGETHER and not is_inside:
                warning = "The agent %r runs %r by itself: its process died %d times."
                logger.warning(warning, self._agent, self._name, deaths)
                turn = isolation.alone()
            async with turn:
                await steps.begin()
                return await fn(*args, **kwargs)
        finally:
            _problem.reset(outside)


TRACE = "trace"
"""The kind of the record of a cycle's model calls; its key is the number of the cycle modulo `MAX_TRACES`."""
MAX_TRACES = 100
"""The number of traces that are stored, one per cycle; later cycles overwrite the oldest."""
MAX_TRACE = 1_000_000
"""The maximum size of the trace of a cycle, in characters of JSON; further calls are left out."""


def trace_key(number: int) -> str:
    """The key of the trace of a cycle."""
    return f"{number % MAX_TRACES:03d}"


def trace_record(number: int, calls: Iterable[StepData]) -> Record:
    """The record of the trace of a cycle; calls beyond `MAX_TRACE` are counted, but not stored."""
    stored: list[StepData] = []
    left, left_out = MAX_TRACE, 0
    for call in calls:
        left -= (size := len(json.dumps(call, ensure_ascii=False)))
        if left < 0:
            left, left_out = left + size, left_out + 1
        else:
            stored.append(call)
    return Record(TRACE, trace_key(number), {"calls": stored, "left_out": left_out, "cycle": number})
