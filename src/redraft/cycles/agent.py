"""CycleAgent: sense, reason, actuate, reflect, and remember."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from redraft._sync import run_sync
from redraft.cycles.check import check
from redraft.cycles.cycle import Running
from redraft.cycles.lease import Lease
from redraft.cycles.mail import EVERY, AgentCard, Post, check_about, heard, ring, rung
from redraft.cycles.memory import FEEDBACK, Memory, moment_after
from redraft.cycles.records import CycleRecord
from redraft.cycles.reflect import feedback_item, metrics_of, tracked
from redraft.cycles.spec import (
    AgentFile,
    IntervalTrigger,
    ManualTrigger,
    MessageTrigger,
    Trigger,
    agent_file,
    memory_keys,
    read,
)
from redraft.cycles.state import (
    Cycle,
    CycleFinished,
    CycleResult,
    CycleStarted,
    CycleState,
    CycleWaiting,
    Means,
    withholding,
)
from redraft.cycles.storage import AgentBus, AgentHome, DirectKeeping, Keeping, locate
from redraft.cycles.write_behind import PATIENCE
from redraft.errors import ChangedRunError, ConfigError, LeaseError, StoreError
from redraft.loop.events import emitter
from redraft.models.names import meant, model_of
from redraft.redact.log import logger
from redraft.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
    from types import TracebackType
    from typing import Self

    from redraft.cycles.mail import Feedback, Verdict
    from redraft.cycles.spec import AgentSpec
    from redraft.cycles.state import CycleEvent
    from redraft.cycles.storage import AgentLocation, LongTermStorage, Waiting
    from redraft.protocols import ChatModel
    from redraft.stores.base import Record, Store


class Door:
    """Open an agent when it is first needed, and close it by `close`, or before its event loop has ended.

    `now` is what it works with while it is open, and `latest` stays when it is closed. Connections and locks
    belong to one event loop. Where another one comes while the agent is open, that raises `ConfigError`: to
    wait would be to wait for ever, if the first one waits for the second.
    """

    def __init__(self, agent: str, opened: Callable[[], Awaitable[Opened]]) -> None:
        self.now: Opened | None = None
        self.latest: Opened | None = None
        self._agent = agent
        self._opened = opened
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = self._opening = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[Opened]:
        """Have the agent alone, as far as cycles go.

        Where another process has run it meanwhile, it is opened anew: what was known of it is old.
        """
        self._come_in()
        async with self._turn:
            at = await self.open()
            if await at.home.is_lost():
                async with self._opening:
                    self.now = None
                    await at.aclose()
                at = await self.open()
            yield at

    async def open(self) -> Opened:
        """Return what the agent works with; raises `LeaseError` where another process runs it."""
        self._come_in()
        async with self._opening:
            if self.now is None:
                self.now = self.latest = await self._opened()
                if self._closing is None or self._closing.done():
                    self._closing = asyncio.create_task(
                        self._closed_with_loop(), name=f"redraft-door-{self._agent}"
                    )
            return self.now

    async def close(self) -> None:
        """Close what is open, after the cycle under way; the next use opens anew."""
        if (at := self.now) is None:
            return
        self._come_in()
        async with self._turn:
            if self.now is at:
                self.now = None
                await at.aclose()
        if self._closing is not None and self._closing is not asyncio.current_task():
            self._closing.cancel()
            await asyncio.wait([self._closing])

    def _come_in(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self.now is not None or self._turn.locked() or self._opening.locked():
            raise ConfigError(
                f"The agent {self._agent!r} is open in another event loop: close it there first "
                "(`await agent.aclose()`), or go on there."
            )
        self._loop, self._turn, self._opening = loop, asyncio.Lock(), asyncio.Lock()

    async def _closed_with_loop(self) -> None:
        """Wait until the event loop ends, which cancels what is still under way in it."""
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        await self.close()


@dataclass(frozen=True, slots=True)
class Opened:
    """Hold the home of an agent, and what is sent to it and from it."""

    home: AgentHome
    bus: AgentBus
    post: Post

    async def aclose(self) -> None:
        """Write what is still to be written, and give the agent to the next process."""
        await self.bus.aclose()
        await self.home.aclose()


async def opened(
    agent: CycleAgent,
    location: AgentLocation,
    withheld: Callable[[Any], Any],
    clock: Callable[[], datetime],
    waiting: Waiting,
) -> Opened:
    """Return an agent's home, opened; raises `LeaseError` where another process runs it."""
    keeping: Keeping
    if location.storage is not None:
        keeping, patience = location.storage.keeper_for(location.agent), PATIENCE
    else:
        lease = Lease(location.store, location.agent) if location.is_durable else None
        keeping, patience = DirectKeeping(location.store, location.agent, lease), None
    home = AgentHome(
        location,
        keeping,
        AgentCard.of(agent.spec, agent.file),
        cycles=agent.spec.memory.cycles,
        withheld=withheld,
    )
    try:
        await home.open()
    except BaseException:
        await keeping.aclose()  # else the lease would keep the next try out
        raise

    async def keep(record: Record) -> None:
        try:
            await keeping.save([record])
        except LeaseError:  # anybody may leave mail for an agent
            await location.store.put(record)

    post = Post(location.store, withholding(also=()), clock, keep)
    bus = AgentBus(location, agent.network, post, keeping, waiting=waiting, patience=patience)
    await bus.open()
    return Opened(home, bus, post)


NewestMessage = Callable[[str | None], Awaitable[str | None]]

AGAIN = 60.0
"""Seconds after which a message begins another cycle where the one before, which failed, did not take it."""


@dataclass(slots=True)
class Triggers:
    """Say when a cycle of an agent begins.

    An interval begins one at once, and goes on at fixed times from there; those that pass while a cycle runs
    count as one, which begins when that has ended. A message begins one when it is there: `newest_message`
    gives the id of the newest one of a topic. Where a cycle is only begun by hand, each begins at once.
    """

    agent: str
    triggers: Sequence[Trigger]
    newest_message: NewestMessage
    clock: Callable[[], float] = monotonic
    _due: dict[int, float] = field(default_factory=dict[int, float])
    _begun: dict[str | None, tuple[str, float]] = field(default_factory=dict[str | None, tuple[str, float]])

    async def next(self) -> str:
        """Wait until a cycle is to begin; return why: `interval`, `message` or `manual`."""
        intervals = [one for one in self.triggers if isinstance(one, IntervalTrigger)]
        if not intervals and not self._listens:
            return "manual"
        if not self._due:
            self._due = {id(one): self.clock() for one in intervals}
        while True:
            seen = rung(self.agent)
            if self._is_due(intervals):
                return "interval"
            if await self._message_is_there():
                return "message"
            waits = [due - self.clock() for due in self._due.values()]
            await heard(self.agent, seen, max(0.0, min([*waits, EVERY] if self._listens else waits)))

    @property
    def _listens(self) -> bool:
        return any(isinstance(one, MessageTrigger) for one in self.triggers)

    def _is_due(self, intervals: Sequence[IntervalTrigger]) -> bool:
        now, is_due = self.clock(), False
        for one in intervals:
            due, every = self._due[id(one)], one.interval_ms / 1000
            if due <= now:
                is_due = True
                self._due[id(one)] = due + every * ((now - due) // every + 1)
        return is_due

    async def _message_is_there(self) -> bool:
        for one in self.triggers:
            if isinstance(one, MessageTrigger):
                newest = await self.newest_message(one.topic)
                if newest is not None and self._is_news(one.topic, newest):
                    return True
        return False

    def _is_news(self, topic: str | None, newest: str) -> bool:
        before, when = self._begun.get(topic, ("", 0.0))
        now = self.clock()
        if newest == before and now - when < AGAIN:
            return False
        self._begun[topic] = newest, now
        return True


MANUAL = "manual"
ENDING = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """Hear how urgently the process is told to end: not at all, soon, or at once."""

    def __init__(self) -> None:
        self.soon = asyncio.Event()
        self.at_once = asyncio.Event()

    def told(self) -> None:
        """Be told to end, more urgently each time."""
        (self.at_once if self.soon.is_set() else self.soon).set()


async def go_round(agent: CycleAgent, cycles: int | None, grace: float, *, at_once: bool) -> int:
    """Run cycles as their triggers come; return how many. What `CycleAgent.run_forever` does."""
    if cycles is None and not at_once and all(isinstance(one, ManualTrigger) for one in agent.spec.triggers):
        raise ConfigError(
            f"The agent {agent.name!r} has only manual triggers: say how many `cycles` to run, or give "
            "its file an `interval` or `message` trigger."
        )
    count = 0
    await agent.opened()

    async def newest_message(topic: str | None) -> str | None:
        return await (await agent.opened()).bus.newest_message(topic)

    triggers = Triggers(agent.name, agent.spec.triggers, newest_message)
    with _told_to_end() as ending:
        while (cycles is None or count < cycles) and not ending.soon.is_set():
            trigger = MANUAL if at_once else await _unless(ending.soon, triggers.next())
            if trigger is None:
                break
            if not await _carried_out(agent, trigger, ending, grace):
                break
            count += 1
    return count


async def _carried_out(agent: CycleAgent, trigger: str, ending: Ending, grace: float) -> bool:
    """Carry out a cycle; say whether it came to its end, and was not abandoned."""
    cycle = asyncio.ensure_future(agent.run_cycle(trigger))
    try:
        soon = asyncio.ensure_future(ending.soon.wait())
        await asyncio.wait([cycle, soon], return_when=asyncio.FIRST_COMPLETED)
        soon.cancel()
        if not cycle.done():
            logger.info("The agent %r is told to end, and finishes its cycle first.", agent.name)
            at_once = asyncio.ensure_future(ending.at_once.wait())
            await asyncio.wait([cycle, at_once], timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            at_once.cancel()
        if cycle.done():
            cycle.result()
            return True
    finally:
        if not cycle.done():
            cycle.cancel()
            await asyncio.wait([cycle])
    logger.warning("The agent %r is told to end; its cycle goes on at the next start.", agent.name)
    return False


async def _unless(event: asyncio.Event, waiting: Coroutine[Any, Any, str]) -> str | None:
    """Return what comes of waiting, or None if the event comes first."""
    waited, happened = asyncio.ensure_future(waiting), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waited, happened], return_when=asyncio.FIRST_COMPLETED)
        return waited.result() if waited.done() else None
    finally:
        for task in (waited, happened):
            if not task.done():
                task.cancel()
                await asyncio.wait([task])


_endings: list[Ending] = []
"""Those who hear the signals now: several agents may go round in one event loop."""
_handlers: dict[signal.Signals, Any] = {}
"""What heard the signals before the first of them."""


@contextmanager
def _told_to_end() -> Generator[Ending]:
    """Hear the signals that end a process; as it was afterwards. In another thread nothing is heard."""
    ending = Ending()
    if current_thread() is not main_thread():
        yield ending
        return
    loop = asyncio.get_running_loop()
    if not _endings:
        for one in ENDING:
            _handlers[one] = signal.getsignal(one)
            loop.add_signal_handler(one, _tell_all)
    _endings.append(ending)
    try:
        yield ending
    finally:
        _endings.remove(ending)
        if not _endings:
            for one, handler in _handlers.items():
                loop.remove_signal_handler(one)
                signal.signal(one, handler)


def _tell_all() -> None:
    for ending in _endings:
        ending.told()


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
        self._location = locate(spec.name, storage, network)
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
        return await opened(self, self._location, self._withheld, self._clock, self._waiting)

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
