"""CycleAgent: an agent that goes round, Sense, Reason, Actuate, Reflect, and remembers within bounds."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from redraft.core.errors import ChangedRunError, LeaseError, StoreError
from redraft.core.settings import load_settings
from redraft.core.sync import run_sync
from redraft.cycles.bell import ring
from redraft.cycles.capture_metrics import metrics_of, tracked
from redraft.cycles.checking import check
from redraft.cycles.cycle import Cycle, Means
from redraft.cycles.door import Door
from redraft.cycles.events import CycleFinished, CycleStarted, CycleWaiting
from redraft.cycles.forever import go_round
from redraft.cycles.mail import check_about
from redraft.cycles.memory import FEEDBACK, Memory
from redraft.cycles.opening import Opened, opened
from redraft.cycles.parts import memory_keys
from redraft.cycles.places import place_of
from redraft.cycles.reading import AgentFile, agent_file, read
from redraft.cycles.record import CycleRecord
from redraft.cycles.remembered import feedback_item
from redraft.cycles.result import CycleResult
from redraft.cycles.running import Running
from redraft.cycles.stamp import moment_after
from redraft.cycles.state import CycleState
from redraft.cycles.withheld import withholding
from redraft.loop.tell import emitter
from redraft.models.names import meant, model_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from redraft.core.protocols import ChatModel
    from redraft.cycles.events import CycleEvent
    from redraft.cycles.feedback import Feedback, Verdict
    from redraft.cycles.long_term import LongTermStorage
    from redraft.cycles.spec import AgentSpec
    from redraft.stores.base import Store

Storage = Literal["project"]
SHOWN_LATER = 0.05
"""Seconds after which a cycle that has not ended is written down as running."""


def _now() -> datetime:
    return datetime.now(UTC)


class CycleAgent:
    """Run an agent in cycles: of a file (`from_file`), or of an `AgentSpec` made in Python.

    `functions` are those that its file names: sync (run in a thread) or async, called with the values of
    `with` as keywords. `models` says what names of models stand for: other names, or models. `storage` is
    where its memory is: None for the long-term storage of its `network` where there is one, else this process
    only; `"project"` for where the project keeps its runs; or a `LongTermStorage`, or a store of its own.
    `clock` tells the time of day in UTC. `on_event` hears of each `CycleEvent`.

    Its cycles never overlap: within the process they wait for each other, and a second process that runs the
    same agent gets a `LeaseError`. A cycle that was killed goes on at the next start without repeating what
    was finished, where the storage outlives the process.

    Raises `AgentFileError`, with file, line, stage and substage, for everything that can be known to be wrong
    before anything is spent, and `ConfigError` for a storage that can't be used.
    """

    def __init__(
        self,
        spec: AgentSpec,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        models: Mapping[str, str | ChatModel] | None = None,
        storage: Storage | LongTermStorage | Store | None = None,
        network: str = "default",
        on_event: Callable[[CycleEvent], None] | None = None,
        clock: Callable[[], datetime] = _now,
        source: AgentFile | None = None,
    ) -> None:
        self.spec = spec
        self.network = network
        self.file = "" if source is None else str(Path(source.file).absolute())
        self._folder = Path(self.file).parent
        self._functions = dict(functions or {})
        self._models: dict[str, str | ChatModel] = {**spec.models, **(models or {})}
        self._ready: dict[str | None, ChatModel] = {}
        self._emit: Callable[[CycleEvent], None] = emitter(on_event)
        self._clock = clock
        check(spec, source, self._functions, self._model_for)
        self._place = place_of(spec.name, storage, network)
        self._withheld = withholding()
        self._keys = memory_keys(spec)
        self._tracked = tracked(spec)
        self._door = Door(spec.name, self._open)
        self._record: CycleRecord | None = None
        self._noting: asyncio.Task[None] | None = None

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        models: Mapping[str, str | ChatModel] | None = None,
        storage: Storage | LongTermStorage | Store | None = None,
        network: str = "default",
        on_event: Callable[[CycleEvent], None] | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> CycleAgent:
        """Read and check an agent file."""
        source = agent_file(path)
        return cls(
            read(source),
            functions=functions,
            models=models,
            storage=storage,
            network=network,
            on_event=on_event,
            clock=clock,
            source=source,
        )

    @property
    def name(self) -> str:
        """The name of the agent, under which its memory is kept."""
        return self.spec.name

    @property
    def memory(self) -> Memory:
        """What the agent remembers since its last cycle; nothing before the first of this process began."""
        return Memory() if self._door.latest is None else self._door.latest.home.memory

    async def run_cycle(self, trigger: str = "manual") -> CycleResult:
        """Carry out one cycle, or go on with the one that was killed; return how it went.

        `trigger` is what is noted as its reason. A substage that fails is in the result and not raised.
        Raises `LeaseError` where another process runs this agent, also where that one took over while this
        one stood still: it does and writes nothing more then, and its next cycle begins with the memory read
        anew. Raises `StoreError` where the memory can't be read for another reason than an outage.
        """
        async with self._door.turn() as at:
            await at.home.begin()
            try:
                return await self._cycle(at, trigger)
            except ChangedRunError as error:
                # It began with another agent file; what this one does begins anew.
                record = self._recorded(at, trigger)
                record.status, record.error, record.finished_at = "failed", str(error), self._clock()
                await at.home.give_up(record)
                return await self._cycle(at, trigger)

    def run_cycle_sync(self, trigger: str = "manual") -> CycleResult:
        """Do what `run_cycle` does, from code that is not async; also inside a running event loop.

        What the agent keeps is written and let go of in the end, since nothing goes on behind it. Raises
        `ConfigError` while the agent is open in another event loop.
        """

        async def once() -> CycleResult:
            async with self:
                return await self.run_cycle(trigger)

        return run_sync(once())

    async def run_forever(
        self, cycles: int | None = None, *, at_once: bool = False, grace: float = 10.0
    ) -> int:
        """Run a cycle whenever a trigger of the file says so; return how many there were.

        An interval begins with one at once; with `at_once` no trigger is waited for at all. Triggers that
        come while a cycle runs count as one. Ends after so many `cycles`, or when the process is told to
        (SIGTERM, SIGINT): the cycle under way is finished within `grace` seconds; else, or at a second
        signal, it is abandoned, to go on at the next start. Raises `ConfigError` for manual triggers alone
        without a number of cycles.
        """
        return await go_round(self, cycles, grace, at_once=at_once)

    async def send_feedback(
        self,
        verdict: Verdict,
        message: str = "",
        *,
        cycle: int | None = None,
        action: str | None = None,
        changes: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> Feedback:
        """Say what a person thinks of what the agent did or is about to do; the next `learn` sees it.

        `cycle` is what it is about; without one it is the cycle that waits for a decision, else none in
        particular. `action` means one of its actions, by name or id. A `modify` has `changes`: parameters in
        place of the planned ones. While the database is away it waits in this process, where cycles see it.
        Raises `ConfigError` for what is no feedback, such as an action or a parameter that is not known.
        """
        at = await self.opened()
        if cycle is None and self._record is not None and self._record.is_undecided:
            cycle = self._record.number
        of_cycle = self._record if self._record is not None and self._record.number == cycle else None
        check_about(verdict, action, changes, at.home.card, of_cycle)
        feedback = await at.post.feedback(
            verdict, message, cycle=cycle, action=action, changes=changes, by=by
        )
        at.bus.sent(feedback)
        ring(self.name)
        return feedback

    async def aclose(self) -> None:
        """Write what is to be written, and let go of connections and the lease; the next use opens anew.

        An agent that is not closed is closed with its event loop.
        """
        await self._door.close()

    async def __aenter__(self) -> Self:
        await self.opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def opened(self) -> Opened:
        """Return what the agent works with while its process runs it."""
        return await self._door.open()

    async def _open(self) -> Opened:
        return await opened(self, self._place, self._withheld, self._clock, self._waiting)

    async def _cycle(self, at: Opened, trigger: str) -> CycleResult:
        resumed = at.home.unfinished is not None
        self._record = record = self._recorded(at, trigger)
        self._emit(CycleStarted(self.name, record.number, record.trigger, resumed))
        cycle = await self._begun(at, record)
        record.derived_data = cycle.state.derived_data  # so that who looks meanwhile sees how far it is
        running = Running(
            cycle, self._emit, lambda: self._seen(at, cycle), at.home.settled, at.home.raise_if_lost
        )
        later = asyncio.get_running_loop().call_later(SHOWN_LATER, self._note, at, record)
        try:
            await running.run()
        except (ChangedRunError, LeaseError):
            raise
        except BaseException:  # cancelled, or the process is to end
            record.status = "abandoned"
            await at.home.abandon(record)
            raise
        finally:
            later.cancel()
        self._ended(record, running)
        at.bus.took(cycle.pending if cycle.next_memory is not None else ())
        await at.home.end(cycle, record)
        result = self._result(at, cycle, record)
        self._emit(CycleFinished(self.name, record.number, result))
        return result

    def _recorded(self, at: Opened, trigger: str) -> CycleRecord:
        """Return the record of the next cycle, or of the one that is to go on."""
        if at.home.unfinished is not None:
            return replace(at.home.unfinished, status="running")
        return CycleRecord(at.home.number + 1, self._clock(), trigger)

    async def _begun(self, at: Opened, record: CycleRecord) -> Cycle:
        cycle = Cycle(
            self.spec,
            record.number,
            record.started_at,
            CycleState(),
            Means(
                self._functions,
                self._model_for,
                at.bus,
                self._folder,
                self._clock,
                self._withheld,
            ),
            at.home.step(record.number),
            memory=at.home.memory,
            life=at.home.card.id,
            waits_until=record.waits_until,
        )
        await self._seen(at, cycle)
        return cycle

    async def _seen(self, at: Opened, cycle: Cycle) -> None:
        """Put before the cycle what is remembered, and what people have said since."""
        cycle.pending = await at.bus.feedback()
        memory: dict[str, Any] = {key: at.home.memory.of(key) for key in self._keys}
        now = self._clock()
        said = (feedback_item(one, self._withheld, now) for one in cycle.pending)
        memory[FEEDBACK] = [*memory[FEEDBACK], *said]
        cycle.state.memory = memory

    def _note(self, at: Opened, record: CycleRecord) -> None:
        """Write down that a cycle runs, which takes so long that somebody may look."""

        async def note() -> None:
            with suppress(StoreError):  # that another process runs the agent now is said when the cycle ends
                await at.home.note(record)

        self._noting = asyncio.ensure_future(note())

    async def _waiting(self, number: int, within: float | None, *, is_waiting: bool) -> None:
        if self._record is None or self._door.now is None:
            return
        self._record.status = "waiting" if is_waiting else "running"
        self._record.waits_until = moment_after(self._clock(), within) if is_waiting else None
        if is_waiting:
            self._emit(CycleWaiting(self.name, number, within))
        await self._door.now.home.note(self._record)

    def _ended(self, record: CycleRecord, running: Running) -> None:
        """Write into the record how the cycle went."""
        cycle = running.cycle
        record.finished_at, record.waits_until = self._clock(), None
        record.status = "failed" if running.error else "finished"
        record.error = running.error
        record.derived_data = {key: value for key, value in cycle.state.derived_data.items() if value}
        record.sense_errors = tuple(cycle.state.environmental_data["errors"])
        record.stages = running.stages
        record.usage = cycle.usage
        record.changes = cycle.changes
        record.metrics = metrics_of(cycle, self._tracked, record.finished_at)

    def _result(self, at: Opened, cycle: Cycle, record: CycleRecord) -> CycleResult:
        memory = {key: list(at.home.memory.of(key)) for key in self._keys}
        state = cycle.state.scopes() | {"memory": memory}
        return CycleResult(
            record.number,
            record.status,
            state,
            record.metrics,
            record.changes,
            record.usage,
            record.stages,
            record.trigger,
            record.error,
        )

    def _model_for(self, name: str | None) -> ChatModel:
        """Return the model of a name in the file, None for the agent's own; raises `ConfigError` for none."""
        if name not in self._ready:
            chosen = name or self.spec.model or load_settings().model
            self._ready[name] = model_of(meant(chosen, self._models))
        return self._ready[name]
