"""CycleAgent: run an agent in cycles of Sense, Reason, Actuate and Reflect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from redraft import _telemetry
from redraft._clock import moment_after, uptime, zoned
from redraft._hints import keyword_hints
from redraft._signals import StopRequest
from redraft._sync import run_sync
from redraft._tasks import end_tasks, first_of, unless
from redraft._telemetry import traced
from redraft._validation import (
    check_count,
    check_flag,
    check_functions,
    check_kind,
    check_name,
    check_text,
    is_number,
)
from redraft.cycles.actuate import evaluate, execute
from redraft.cycles.check import check
from redraft.cycles.cycle import (
    Cycle,
    CycleEvent,
    CycleFinished,
    CycleResult,
    CycleStarted,
    CycleState,
    CycleWaiting,
    Runtime,
    SubstageFinished,
    error_line,
)
from redraft.cycles.mail import answers_of, check_cycle, check_feedback, signal_mail
from redraft.cycles.memory import FEEDBACK, Memory, copied, stamp_of
from redraft.cycles.notices import Webhook, waiting_notice
from redraft.cycles.reason import analyze, authorize, govern, plan
from redraft.cycles.records import AgentCard, CycleRecord, data_redactor, new_id
from redraft.cycles.reflect import (
    feedback_item,
    learn,
    metrics_config,
    metrics_of,
    retention_of,
    update_state,
)
from redraft.cycles.sense import sense
from redraft.cycles.session import Session, SessionManager
from redraft.cycles.spec import (
    STAGES,
    AgentFile,
    AgentSpec,
    Authorize,
    ManualTrigger,
    WebhookTrigger,
    callers_in,
    functions_in,
    memory_keys,
    parse_agent_file,
    substages,
    substages_of,
)
from redraft.cycles.storage import locate
from redraft.cycles.triggers import Triggers
from redraft.errors import ChangedRunError, ConfigError, LeaseError, RedraftError, StoreError
from redraft.loop.event_log import emitter, ignore
from redraft.loop.journal import journal_in
from redraft.models.names import model_of, resolve_model, resolve_name
from redraft.redact.log import logger
from redraft.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from redraft.cycles.mail import Feedback, Verdict
    from redraft.cycles.records import CycleStatus
    from redraft.cycles.storage import LongTermStorage
    from redraft.protocols import ChatModel, ModelChoice
    from redraft.stores.base import Store
    from redraft.web.people import Person

NOTE_AFTER = 0.05
"""Seconds after which a cycle that has not ended is stored as running."""


def _now() -> datetime:
    return datetime.now(UTC)


@keyword_hints()
class CycleAgent:
    """An agent that runs in cycles, from a file (`from_file`) or from an `AgentSpec`.

    `functions` are the program's functions that the file names: sync (run in a thread) or async, called with
    the values of `with` as keywords. `models` maps names to other names or to models. `storage` is where the
    memory is stored: by default the long-term storage of the `network` if there is one, else this process
    only; `"project"` is where the project stores its runs; or pass a `LongTermStorage` or a store. `clock`
    returns the current time in UTC. `on_event` is called with each `CycleEvent`.

    Cycles never overlap: in one process they wait for each other, and a second process that runs the same
    agent gets a `LeaseError`. A killed cycle resumes at the next start without repeating the steps that it
    had finished, if the storage outlives the process.

    Raises `AgentFileError`, with file, line, stage and substage, for every mistake that can be detected
    before money is spent, and `ConfigError` for an unusable storage.
    """

    def __init__(
        self,
        spec: AgentSpec,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        models: Mapping[str, ModelChoice] | None = None,
        storage: Literal["project"] | LongTermStorage | Store | None = None,
        network: str = "default",
        on_event: Callable[[CycleEvent], None] | None = None,
        clock: Callable[[], datetime] = _now,
        source: AgentFile | None = None,
    ) -> None:
        check_kind("spec", spec, AgentSpec, "an AgentSpec; for a file, use CycleAgent.from_file")
        check_name("network", network)
        self.spec = spec
        self.network = network
        self.file = "" if source is None else str(Path(source.file).absolute())
        check_functions("functions", functions or {})
        self._functions = dict(functions or {})
        self._models: dict[str, ModelChoice] = {**spec.models, **(models or {})}
        self._resolved_models: dict[str | None, ChatModel] = {}
        self._emit: Callable[[CycleEvent], None] = emitter(on_event)
        self._clock = zoned(clock)
        check(spec, source, self._functions, self._model_for)
        self._location = locate(spec.name, storage, network)
        self._redact = data_redactor()
        self._webhook = None if spec.notify is None else Webhook(spec.notify, spec.env)
        self._keys = memory_keys(spec)
        self._metrics = metrics_config(spec)
        self._retention = retention_of(spec)
        self._sessions = SessionManager(spec.name, self._new_session)
        self._record: CycleRecord | None = None
        self._began = "", 0.0
        """The id of the last cycle, and when it began, by `uptime`."""
        self.failed_cycles = 0
        """Consecutive cycles of this process with a failure, up to the last cycle that ended."""

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        models: Mapping[str, ModelChoice] | None = None,
        storage: Literal["project"] | LongTermStorage | Store | None = None,
        network: str = "default",
        on_event: Callable[[CycleEvent], None] | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> CycleAgent:
        """Read and check an agent file."""
        source = AgentFile.read(path)
        return cls(
            parse_agent_file(source),
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
        """The name of the agent, under which its memory is stored."""
        return self.spec.name

    @property
    def is_manual(self) -> bool:
        """Whether its cycles start on request only."""
        return all(isinstance(trigger, ManualTrigger) for trigger in self.spec.triggers)

    @property
    def folder(self) -> Path:
        """The folder of the agent's file; paths in the file are relative to it."""
        return Path(self.file).parent

    @property
    def memory(self) -> Memory:
        """A copy of the memory after the last cycle; empty before the first cycle of this process."""
        return Memory() if self._sessions.latest is None else copied(self._sessions.latest.memory)

    @property
    def latest(self) -> CycleRecord | None:
        """A copy of the cycle under way, else of the last cycle of this process. Its data is not redacted."""
        return copied(self._record)

    @property
    def is_storage_away(self) -> bool:
        """Whether the agent is open and its database is out of reach."""
        return self._sessions.current is not None and self._sessions.current.write_behind.is_away

    def requirements(self) -> dict[str, Any]:
        """The models, functions and environment variables that a cycle would use, as plain data."""
        settings = load_settings()
        parts = [part for _, part, _ in substages(self.spec)]
        aliases = {**settings.models, **self.spec.models}
        names = [part.model for part in parts if getattr(part, "prompt", None) is not None]
        models = {resolve_name(str(name or self.spec.model or settings.model), aliases) for name in names}
        secrets = [trigger.secret for trigger in self.spec.triggers if isinstance(trigger, WebhookTrigger)]
        return {
            "name": self.name,
            "substages": len(parts),
            "triggers": [trigger.type for trigger in self.spec.triggers],
            "models": sorted(models),
            "functions": sorted(set(functions_in(parts))),
            "notify": None if self.spec.notify is None else self.spec.notify.url,
            "env": {name: name in os.environ for name in (*self.spec.env, *secrets)},
        }

    async def run_cycle(self, trigger: str = "manual") -> CycleResult:
        """Run a cycle, or resume the one that was killed.

        `trigger` is recorded as its reason. The failure of a substage is part of the result, and not raised.
        Raises `LeaseError` if another process runs this agent, or took over while this process was paused.
        This process then acts and writes no more, and its next cycle reads the memory again. Raises
        `StoreError` if the memory can't be read for another reason than an outage.
        """
        check_text("trigger", trigger)
        async with self._sessions.for_cycle() as session:
            await session.begin_cycle()
            try:
                return await self._traced_cycle(session, trigger)
            except ChangedRunError as error:
                # The cycle began with another agent file, so start a new cycle.
                record = self._next_record(session, trigger)
                record.status, record.error, record.finished_at = "failed", str(error), self._clock()
                await session.give_up(record)
                return await self._traced_cycle(session, trigger)

    def run_cycle_sync(self, trigger: str = "manual") -> CycleResult:
        """Run a cycle from synchronous code, also inside a running event loop.

        Writes everything and closes the agent at the end. Raises `ConfigError` while the agent is open in
        another event loop.
        """

        async def run_and_close() -> CycleResult:
            async with self:
                return await self.run_cycle(trigger)

        return run_sync(run_and_close())

    async def run_forever(
        self, cycles: int | None = None, *, immediately: bool = False, grace: float = 10.0
    ) -> int:
        """Run a cycle whenever a trigger of the file fires; return how many ran.

        A cycle that an earlier process left unfinished is finished first, and uses up no trigger. `Triggers`
        describes when each kind fires; with `immediately`, cycles don't wait for triggers at all. Triggers
        that fire during a cycle start a single further cycle. Ends after `cycles` cycles, or on SIGTERM,
        SIGINT or SIGHUP: the cycle under way then has `grace` seconds to finish. After that, or on a second
        signal other than SIGHUP, it is abandoned, and resumes at the next start. Raises `ConfigError` if all
        triggers are manual and `cycles` is None.
        """
        if cycles is not None:
            check_count("cycles", cycles, 0)
        check_flag("immediately", immediately)
        if not is_number(grace) or grace < 0:
            raise ConfigError(f"grace must be a number of seconds, 0 or more; got {grace!r}.")
        if cycles is None and not immediately and self.is_manual:
            raise ConfigError(
                f"The agent {self.name!r} has only manual triggers: pass how many `cycles` to run, or add an "
                "`interval` or `cron` trigger to its file."
            )

        async def newest_message(topic: str | None) -> str | None:
            return await (await self.open()).bus.newest_message(topic)

        session = await self.open()
        triggers = Triggers(
            self.name,
            self.spec.triggers,
            newest_message,
            now=self._clock,
            since=session.last_started,
        )
        count = 0
        stop = StopRequest()
        with stop.on_signals():
            while (cycles is None or count < cycles) and not stop.requested.is_set():
                if (unfinished := (await self.open()).unfinished) is not None:
                    trigger = unfinished.trigger
                else:
                    trigger = "manual" if immediately else await unless(stop.requested, triggers.next())
                if trigger is None or not await self._run_until_stopped(trigger, stop, grace):
                    break
                count += 1
        return count

    async def send_feedback(
        self,
        verdict: Verdict,
        message: str = "",
        *,
        cycle: int | None = None,
        action: str | None = None,
        changes: Mapping[str, Any] | None = None,
        by: str | Person = "",
    ) -> Feedback:
        """Send a person's verdict on what the agent did or is about to do; the next `learn` sees it.

        It is about `cycle`, by default the cycle that waits for a decision, if any; `action` narrows it to
        one action, by name or id. A `modify` has `changes`, which replace planned parameters. `by` is the
        author: a name, or a `Person` whose identity a token has proved. While the database is away, the
        feedback is held in this process, where cycles see it. Raises `ConfigError` for an invalid verdict,
        such as a verdict on a cycle, an action or a parameter that the agent does not have.
        """
        session = await self.open()
        if cycle is None and self._record is not None and self._record.is_undecided:
            cycle = self._record.number
        begun = [record.number for record in (self._record, session.unfinished) if record is not None]
        check_cycle(self.name, cycle, max([session.number, *begun]))
        record = self._record if self._record is not None and self._record.number == cycle else None
        check_feedback(verdict, action, changes, session.card, record)
        feedback = await session.mailbox.feedback(
            verdict,
            message,
            cycle=cycle,
            cycle_id="" if record is None else record.id,
            action=action,
            changes=changes,
            by=by,
        )
        if record is not None and record.is_undecided:
            questions = session.bus.open_questions()
            for question, answer in answers_of(feedback, questions, session.card, record):
                await session.bus.answer(question, answer)
        session.bus.add_own(feedback)
        signal_mail(self.name)
        return feedback

    async def deliver(self, topic: str, data: Any, delivery: str, *, sender: str = "webhook") -> bool:
        """Send plain JSON data to the agent's own `agent-messages` sources; return whether it is new.

        `delivery` is the sender's id of the delivery: for at least ten minutes, a repetition leaves no second
        message. Raises `ConfigError` for more data than a message may have, and `StoreError` or
        `TimeoutError` if it can't be stored now.
        """
        is_new = await (await self.open()).deliver(topic, data, delivery, sender)
        signal_mail(self.name)
        return is_new

    async def open(self) -> Session:
        """Acquire the lease and read the memory, unless the agent is open already."""
        return await self._sessions.open()

    async def aclose(self) -> None:
        """Write everything, and release connections and the lease; the next use reopens the agent.

        An agent that is left open is closed with its event loop.
        """
        await self._sessions.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _new_session(self) -> Session:
        return Session(
            self._location,
            AgentCard.of(self.spec, self.file),
            network=self.network,
            cycles=self.spec.memory.cycles,
            webhook=self._webhook,
            redact=self._redact,
            retention=self._retention,
            clock=self._clock,
            on_wait=self._note_wait,
        )

    async def _traced_cycle(self, session: Session, trigger: str) -> CycleResult:
        return await traced("cycle", self.name, session.card.id, lambda: self._run_cycle(session, trigger))

    async def _run_cycle(self, session: Session, trigger: str) -> CycleResult:
        resumed = session.unfinished is not None
        previous_start = session.last_started if self._record is None else self._record.started_at
        self._record = record = self._next_record(session, trigger)
        if self._began[0] != record.id:  # the time in an earlier process is known only by the time of day
            before = (self._clock() - record.started_at).total_seconds()
            self._began = record.id, uptime() - max(0.0, before)
        self._emit(CycleStarted(self.name, record.number, record.trigger, resumed))
        cycle = await self._new_cycle(session, record, previous_start)
        journal = journal_in(cycle.step)
        record.derived_data = cycle.state.derived_data  # so that other processes see its progress
        if _telemetry.current is not None:
            cycle.step = partial(_telemetry.current.step, cycle.step)
        note = asyncio.create_task(self._note_running(session, record))
        try:
            error, stages = await self._run_stages(session, cycle)
        except (ChangedRunError, LeaseError):
            raise
        except BaseException:  # cancelled, or the process is ending
            record.status = "abandoned"
            await session.abandon(record)
            raise
        finally:
            await end_tasks([note])
        record.finished_at, record.waits_until = self._clock(), None
        record.status, record.error = "failed" if error else "finished", error
        record.derived_data = {key: value for key, value in cycle.state.derived_data.items() if value}
        record.sense_errors = tuple(cycle.state.environmental_data["errors"])
        record.stages, record.usage, record.changes = stages, cycle.usage, cycle.changes
        seconds = max(uptime() - self._began[1], 0.0 if journal is None else journal.elapsed())
        record.metrics = metrics_of(cycle, self._metrics, seconds)
        self.failed_cycles = self.failed_cycles + 1 if cycle.failures else 0
        await session.end_cycle(cycle, record)
        result = self._result(session, cycle, record)
        self._emit(CycleFinished(self.name, record.number, result))
        return result

    async def _run_stages(self, session: Session, cycle: Cycle) -> tuple[str, dict[str, float]]:
        """Run the stages of a cycle; return the first failure, and the milliseconds of each stage.

        An error in a substage of Sense, Reason or Actuate is recorded, and the rest of these stages is
        skipped. Reflect always runs, so that the agent learns from the failure. Raises only if this process
        may not continue the cycle.
        """
        first, stages = "", dict[str, float]()
        for stage in STAGES:
            part: Any = getattr(self.spec.stages, stage)
            if part is None:
                continue
            if stage == "reflect":  # it sees the feedback that arrived during the cycle
                await self._show_memory(session, cycle)
            if stage == "sense":
                runnable: list[tuple[str, Substage, Any]] = [("sense", sense, part)]
            else:
                runnable = [
                    (substage.name, SUBSTAGES[substage.type], substage)
                    for substage in part.substages
                    if substage.type in SUBSTAGES
                ]
            stage_began = uptime()
            for name, function, substage in runnable:
                path = stage if stage == name else f"{stage}/{name}"
                began, error, is_skipped = uptime(), "", bool(first) and stage != "reflect"
                if is_skipped:
                    cycle.skipped.append(path)
                elif error := await self._run_substage(session, cycle, path, function, substage):
                    first = first or f"{path}: {error}"
                if self._emit is not ignore:
                    await session.steps.settled()  # a listener may end the process
                elapsed = 0.0 if is_skipped else _milliseconds_since(began)
                self._emit(SubstageFinished(self.name, cycle.number, stage, name, elapsed, error, is_skipped))
            stages[stage] = _milliseconds_since(stage_began)
        return first, stages

    async def _run_substage(
        self, session: Session, cycle: Cycle, path: str, function: Substage, substage: Any
    ) -> str:
        """Run a substage; return its error, if any."""
        try:
            await function(substage, cycle)
        except ChangedRunError:
            raise
        except Exception as error:  # a cycle ends with Reflect, whatever a substage raises
            session.write_behind.raise_if_lost()
            problem = error_line(error)
            cycle.failures.append(f"{path}: {problem}")
            is_ours = isinstance(error, RedraftError)  # its message needs no traceback
            warning = "The agent %r, cycle %d: %s: %s"
            logger.warning(warning, self.name, cycle.number, path, problem, exc_info=not is_ours)
            return problem
        return ""

    def _next_record(self, session: Session, trigger: str) -> CycleRecord:
        """The record of the unfinished cycle if there is one, else a new record."""
        if session.unfinished is not None:
            return replace(session.unfinished, status="running")
        return CycleRecord(session.number + 1, self._clock(), trigger, id=new_id())

    async def _new_cycle(
        self, session: Session, record: CycleRecord, previous_start: datetime | None
    ) -> Cycle:
        runtime = Runtime(
            functions=self._functions,
            model_for=self._model_for,
            bus=session.bus,
            outbox=session.outbox,
            egress=session.egress,
            folder=self.folder,
            clock=self._clock,
            redact=self._redact,
        )
        cycle = Cycle(
            self.spec,
            record.id,
            record.number,
            record.started_at,
            CycleState(),
            runtime,
            session.step(record, callers_in(self.spec)),
            memory=session.memory,
            waits_until=record.waits_until,
            previous_start=previous_start,
        )
        await self._show_memory(session, cycle)
        return cycle

    async def _show_memory(self, session: Session, cycle: Cycle) -> None:
        """Give the cycle the current memory, with the pending feedback."""
        cycle.pending = await session.bus.feedback()
        memory: dict[str, Any] = {key: session.memory.of(key) for key in self._keys}
        now = self._clock()
        pending = (feedback_item(feedback, self._redact, now) for feedback in cycle.pending)
        memory[FEEDBACK] = [*memory[FEEDBACK], *pending]
        cycle.state.memory = memory

    async def _note_running(self, session: Session, record: CycleRecord) -> None:
        await asyncio.sleep(NOTE_AFTER)
        with suppress(StoreError):  # a lost lease is raised when the cycle ends
            await session.note(record)

    async def _note_wait(self, status: CycleStatus, within: float | None) -> None:
        """Record that the cycle is waiting for a person, for at most `within` seconds, or running again."""
        if self._record is None or self._sessions.current is None:
            return
        session, now = self._sessions.current, self._clock()
        self._record.status, self._record.waits_until = status, moment_after(now, within)
        if status == "waiting":
            configs = [authorize.config for authorize in substages_of(self.spec, Authorize)]
            default = next((config.default for config in configs if config.mode == "supervised"), "reject")
            notice = waiting_notice(self._record, self.name, default, stamp_of(now))
            await session.note(self._record, notice)
            # Only now can people answer.
            self._emit(CycleWaiting(self.name, self._record.number, within, notice.url))
        else:
            await session.outbox.withdraw(self._record.id)
            await session.note(self._record)

    def _result(self, session: Session, cycle: Cycle, record: CycleRecord) -> CycleResult:
        memory = {key: list(session.memory.of(key)) for key in self._keys}
        # What the caller changes must not change the memory or the record.
        parts = (cycle.state.scopes() | {"memory": memory}, record.changes, record.stages)
        state, changes, stages = copied(parts)
        return CycleResult(
            record.number,
            record.status,
            state=state,
            metrics=record.metrics,
            changes=changes,
            usage=record.usage,
            stages=stages,
            trigger=record.trigger,
            error=record.error,
            id=record.id,
        )

    @property
    def models(self) -> tuple[ChatModel, ...]:
        """The models of its prompts."""
        return tuple(self._resolved_models.values())

    def _model_for(self, name: str | None) -> ChatModel:
        """The model of a name in the file (None: the agent's own). Raises `ConfigError`."""
        if name not in self._resolved_models:
            choice = name or self.spec.model or load_settings().model
            self._resolved_models[name] = model_of(resolve_model(choice, self._models))
        return self._resolved_models[name]

    async def _run_until_stopped(self, trigger: str, stop: StopRequest, grace: float) -> bool:
        """Run a cycle; False if it was abandoned."""
        cycle = asyncio.ensure_future(self.run_cycle(trigger))
        try:
            await first_of(asyncio.wait([cycle]), stop.requested.wait())
            if not cycle.done():
                logger.info("Stopping the agent %r after its current cycle.", self.name)
                if self._sessions.current is not None:
                    self._sessions.current.steps.end()
                await first_of(asyncio.wait([cycle]), stop.urgent.wait(), asyncio.sleep(grace))
            if cycle.done():
                cycle.result()
                return True
        finally:
            if await end_tasks([cycle]):
                self._sessions.forget_cycle()
        logger.warning("Stopped the agent %r; its cycle resumes at the next start.", self.name)
        return False


Substage: TypeAlias = Callable[[Any, Cycle], Awaitable[None]]

SUBSTAGES: dict[str, Substage] = {
    "analyze": analyze,
    "plan": plan,
    "govern": govern,
    "authorize": authorize,
    "execute": execute,
    "evaluate": evaluate,
    "learn": learn,
    "update-state": update_state,
}
"""The functions of substages, by type. `capture-metrics` has none: metrics are counted after Reflect."""


def _milliseconds_since(began: float) -> float:
    return round((uptime() - began) * 1000, 3)
