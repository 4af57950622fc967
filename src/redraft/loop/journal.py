"""The journal of a run: begin or resume it, replay its finished steps, record the others, and end it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from os import urandom
from pathlib import PurePath
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast

from redraft import _telemetry
from redraft._clock import uptime
from redraft._codec import failure_from_json, failure_to_json, from_record, to_record, unrestorable_in
from redraft._hints import keyword_hints
from redraft._steps import OBSERVE, direct, step_context, step_scope
from redraft._validation import named_error, repr_of
from redraft.errors import (
    ChangedRunError,
    ClaimLostError,
    ConfigError,
    DamagedRecordError,
    StoreError,
    over_budget,
)
from redraft.loop.budget import NO_BUDGET, Tally, usage_of_failure
from redraft.redact.log import logger
from redraft.stores.base import FencedStore, Record, Store, reading
from redraft.stores.location import project_store
from redraft.types import NOTHING_USED, ConvergenceReason, TokenUsage

if TYPE_CHECKING:
    from redraft.loop.record import Status
    from redraft.protocols import Step
    from redraft.types import PlainTask

P = ParamSpec("P")
R = TypeVar("R")

STEP = "step"
"""The kind of the record of a step; its key is `RUN_ID/PLACE`."""
VOID = "void"
"""The kind of a step's record that a later attempt replaced: paid for and shown, but not replayed."""
OUTSIDE = "owed "
"""Prefix of the places of steps outside the loop, such as reading evidence or writing a lesson."""
TRY = "try"
"""The name of a try's step, within the step that is tried again after a failure."""
LONGEST_ID = 200
"""Characters of an id that a caller chooses."""
_RUN_ID = re.compile(rf"(?!\.\.?$)[^/]{{1,{LONGEST_ID}}}(?:[.-](?:[0-9a-f]{{1,12}}|grade)){{0,50}}")
"""An id, with the endings of the runs within a run (`RunKey.derived`). Browsers drop `.` and `..` from the
address of a page."""

StepData: TypeAlias = Mapping[str, Any]
"""A finished step: its `name`, `began` and `elapsed` (seconds of the run's clock), `at` (time of day at its
end), `result` or `error`, `budget_state` if the run has a budget, `given` (the arguments of a step within a
step), with telemetry its position in a `trace`, and `void_usage` in a failed step that is void."""


class StoredRecord(Protocol):
    """The record of a run or a workflow: `running` at first, then how it ended."""

    noun: ClassVar[str]
    run_id: str
    status: Status
    started_at: datetime
    finished_at: datetime | None
    error: str

    @property
    def is_final(self) -> bool:
        """Whether it has finished, and its result comes back instead of another attempt."""
        ...

    def stored(self) -> Record:
        """The record in its stored form."""
        ...

    def wait(self, why: str, /) -> None:
        """Note that the run goes on later, and why."""
        ...

    def check_same(self, stored: Record, before: Self, /) -> None:
        """Raise `ChangedRunError` if the stored record belongs to another run."""
        ...


K = TypeVar("K", bound=StoredRecord)


@keyword_hints()
class Journalled:
    """Record each finished step of a run in a store, and replay the recorded steps under the same id.

    A recorded step is never carried out again, whatever happened to the process: its result comes back, or
    its exception is raised again. An interrupted step is carried out again, but not the model and tool calls
    inside it that had finished. Two processes under the same id both continue with the record that was
    written first. The clock (`elapsed`, `at`) adds up the work of all processes and pauses between steps, so
    decisions that depend on time replay as well.

    The steps of a run have a fixed order and are identified by position; another name at the same position
    means another program, which raises `ChangedRunError`. Steps within a step and steps outside the loop,
    such as writing the lesson of a run, are identified by name.

    A result comes back equal and of the same class. A result that can't is named in a warning as soon as its
    step has ended, and in `unrestorable`; the run goes on, and resuming it raises `StoreError` at that step.

    A store that can't be read raises `StoreError` at the first step, before anything is spent. A store that
    can't be written later costs no result: a warning is logged, `store_error` says why, and the missing
    records are written, in order, with the next step that can be written.

    Inside a worker of a fleet, the claim of the worker guards every write: if another worker has taken over
    the run, `ClaimLostError` is raised, and nothing is written.

    A journal serves a single run: `begin` stores the record of the run, or resumes the run under this id, and
    `track` stores how the run ended. A step before `begin` raises `ConfigError`. `resumes=False` says that
    the id is new, so nothing has to be looked up. `log` replaces the record for each step; a caller that
    passes a log stores the record of the run, too.
    """

    def __init__(
        self, store: Store, run_id: str, *, resumes: bool = True, log: StepLog | None = None
    ) -> None:
        check_run_id(run_id)
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
            raise ConfigError(f"Journalled takes a Store, such as SqliteStore(path); got {repr_of(store)}.")
        self.run_id = run_id
        self.store = store
        self.resumes = resumes
        self.is_closed = False
        """Whether nothing is recorded, because the store failed at the beginning."""
        outer_step = enclosing_step()
        self.parent = "" if outer_step is None else outer_step.outer.run_id
        """The id of the run inside which this run takes place, if any."""
        self.origin = run_id
        """An id that is the same in each try of the step in which this run takes place."""
        self.budget_state: Mapping[str, Any] = {}
        """The state of the run's budget at the end of the last step, with which it is recorded."""
        claim = claim_under_way.get()
        self._claim = claim if claim is not None and claim.store is store else None
        self._log = log or StepRecords(store, run_id, self._claim)
        self._recorded: dict[str, StepData] | None = None if resumes else {}
        self._position = 0
        self._has_begun = log is not None
        self._store_error = ""
        self._refusal: ChangedRunError | None = None
        self._last: StepData = {"elapsed": 0.0, "at": ""}
        self.unrestorable: list[str] = []
        """Step results that are stored only as text, so that the run can't be resumed after them."""
        self.failures = Counter[str]()
        """How often the step at a place has failed before, in a run that was resumed after that."""
        self.void_usage: dict[str, TokenUsage] = {}
        """The usage of calls that were paid for in steps that failed, and that are not replayed, by place."""
        self._under_way = 0
        self._worked_before = 0.0
        self._working_since: float | None = None

    @property
    def journal(self) -> Journalled:
        """Itself; a step that wraps a journal offers it under the same name."""
        return self

    @property
    def store_error(self) -> str:
        """Why part of the run is not stored; empty if all of it is."""
        return self._store_error or self._log.store_error

    async def begin(self, record: K) -> K | None:
        """Store the record of a new run, or resume the stored run; its record is returned if it has finished.

        Raises `ChangedRunError` if another run has this id, `StoreError` if a stored run may have it and the
        store fails, and `ConfigError` if this journal has begun before. With a new id, a failing store costs
        no more than a warning: nothing is stored, and effects are carried out directly.
        """
        if self._has_begun:
            raise ConfigError(
                f"The journal for the run {self.run_id!r} has already been used; create a new one for each "
                "run."
            )
        self._has_begun = True
        try:
            stored, is_new = await self.store.put_if_absent(record.stored())
            if is_new:
                return None
            before = from_record(type(record), stored.data)
            record.check_same(stored, before)
            if before.is_final:
                return before
            record.started_at = before.started_at
            await self._delete_void()
            if before.status != "waiting":  # a run that waits for a person has no failed step
                await self._reopen()
            self._count_void(await self.store.find(VOID, prefix=f"{self.run_id}/"))
            await self._put(record.stored())
        except StoreError as error:
            if self.resumes:
                raise
            logger.warning("The %s is not stored: %s", record.noun, error)
            self._store_error = str(error)
            self.is_closed = True
        return None

    async def track(self, record: StoredRecord, work: Awaitable[R]) -> R:
        """Await the work, which fills in the record, and store the record even if the work fails."""
        try:
            result = await work
        except BaseException as error:
            claim = claim_under_way.get()
            if claim is not None and claim.pause and isinstance(error, asyncio.CancelledError):
                record.wait(claim.pause)
            elif record.status == "running":
                record.status = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
                record.error = named_error(error)
            await self._end(record)
            raise
        await self._end(record)
        return result

    async def _end(self, record: StoredRecord) -> None:
        if self.is_closed:
            return
        record.finished_at = datetime.now(UTC)
        try:
            await self._put(record.stored())
        except StoreError as error:
            logger.warning("The end of the %s %s is not stored: %s", record.noun, record.run_id, error)
            self._store_error = str(error)

    async def _put(self, record: Record) -> None:
        await (self.store.put(record) if self._claim is None else self._claim.write(record))

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Replay the next step, or carry it out and record it."""
        if self._refusal is not None:
            raise self._refusal
        if self.is_closed:
            return await fn(*args, **kwargs)
        if not self._has_begun:
            raise ConfigError(
                f"No run has begun with the journal {self.run_id!r}, so its steps would be stored without a "
                "run. Pass it as step=... to a run. If another step wraps it, decorate that function with "
                "functools.wraps(inner), or give the object the attribute __wrapped__ = inner."
            )
        place = self.next_place
        self._position += 1
        await self._log.ready(place)
        recorded = await self._look_up(place)
        if recorded is None:
            return await self._carry_out(place, {"name": name}, returns, fn, *args, **kwargs)
        self._check_name(recorded["name"], name)
        self._finish(recorded)
        return _replay(recorded, returns)

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
        """Replay a step at a place of its own, or carry it out and record it.

        Its arguments are recorded, too, such as the verbatim prompt.
        """
        await self._log.ready(place)
        if (recorded := await self._look_up(place)) is not None:
            return _replay(recorded, returns)
        data = {"name": name, "given": [to_record(argument) for argument in args]}
        return await self._carry_out(place, data, returns, fn, *args, **kwargs)

    async def outside(self, name: str, returns: type[R], fn: Callable[[], Awaitable[R]], /) -> R:
        """Replay a step outside the loop, before the run or after it, or carry it out and record it.

        The first process carries it out: one that resumes the run, or a later run. A failure is not recorded,
        so the next attempt tries again and replays the calls that had finished. The run need not have begun
        in this process, and its clock does not count the step.
        """
        return await self.within(f"{OUTSIDE}{name}", name, returns, fn)

    def elapsed(self) -> float:
        """Seconds of work on the run, over all processes that worked on it."""
        return self._working_time() if self._under_way or self.is_closed else self._last["elapsed"]

    def at(self) -> datetime:
        """The time in UTC: now inside a step, otherwise the end of the last step."""
        ended = "" if self._under_way else self._last["at"]
        return datetime.fromisoformat(ended) if ended else datetime.now(UTC)

    async def _reopen(self) -> None:
        """Allow another attempt after a run that ended in an error: its last, failed step is not replayed.

        Steps that had finished inside the failed step stay recorded if a step within it or a budget caused
        the failure; otherwise the same replies would lead to the same failure. Observations by advisors after
        the failure are not replayed either: they observe the run again when it ends another way.
        """
        recorded = await self._load()
        places = [place for place in recorded if not place.startswith(OUTSIDE)]
        steps = sorted(place for place in places if "/" not in place)
        observed: list[str] = []
        while steps and recorded[steps[-1]]["name"] == OBSERVE:
            observed.append(steps.pop())
        last = steps[-1] if steps else ""
        if not last or "error" not in recorded[last]:
            return
        if any(place.partition("/")[0] not in recorded for place in places):
            return  # the run survived the failure and was interrupted in a later step, which is resumed
        reason = recorded[last]["error"].get("reason")
        inside = [] if reason else [place for place in places if place.startswith(f"{last}/")]
        failed = {last, *(place for place in inside if "error" in recorded[place])}
        enclosing = {outer for place in failed for outer in _enclosing_places(place)}
        repeated = [
            place
            for place in inside
            if place in failed or not enclosing.issuperset(failed & {*_enclosing_places(place)})
        ]
        used = NOTHING_USED if reason else _usage_not_replayed(recorded, last, inside, repeated)
        observations = [place for place in places if place.split("/")[0] in observed]
        repeated = [last, *repeated, *observations]
        found = [await self.store.get(STEP, f"{self.run_id}/{place}") for place in repeated]
        records = [record for record in found if record is not None]
        void = [replace(record, kind=VOID, key=f"{record.key}~{record.updated_at}") for record in records]
        if void:
            void[0] = replace(void[0], data={**void[0].data, "void_usage": to_record(used)})
        # All or none: if this process is killed while it deletes them, the next one finishes that.
        await self.store.put_all(void)
        for record in records:
            await self.store.delete(STEP, record.key)
        for place in repeated:
            del recorded[place]
        if reason == ConvergenceReason.TIME_BUDGET:
            # On resume, ignore a time limit that already fired.
            self._worked_before = _time_worked(recorded)

    async def _delete_void(self) -> None:
        """Delete the steps that are void already, after a kill between the two writes."""
        for void in await self.store.find(VOID, prefix=f"{self.run_id}/"):
            key, _, updated_at = void.key.rpartition("~")
            step = await self.store.get(STEP, key)
            if step is not None and str(step.updated_at) == updated_at:
                await self.store.delete(STEP, key)

    def _count_void(self, records: Sequence[Record]) -> None:
        """Count the failures of earlier attempts, and their usage."""
        void = [(record.key.partition("/")[2].rpartition("~")[0], record.data) for record in records]
        self.failures.update(place for place, _ in void)
        for place, data in void:
            if used := data.get("void_usage"):
                usage = from_record(TokenUsage, used)
                self.void_usage[place] = self.void_usage.get(place, NOTHING_USED) + usage

    @property
    def next_place(self) -> str:
        """The place of the next step of the loop."""
        return f"{self._position + 1:05d}"

    async def _look_up(self, place: str) -> StepData | None:
        if not self.resumes:
            return None
        recorded = (await self._load()).get(place)
        return await self._log.look_up(place) if recorded is None else recorded

    async def _load(self) -> dict[str, StepData]:
        if self._recorded is None:
            self._recorded = await self._log.load()
            self._worked_before = _time_worked(self._recorded)
        return self._recorded

    def _check_name(self, recorded: str, name: str) -> None:
        if recorded == name:
            return
        # Every later step raises it again, since the loop survives errors of callbacks.
        self._refusal = ChangedRunError(
            f"Step {self._position} of the run {self.run_id!r} was recorded as {recorded!r}, but is {name!r} "
            "now: this is not the program that began the run. Resume it with that program, or start a new "
            "run."
        )
        raise self._refusal

    async def _carry_out(
        self,
        place: str,
        data: dict[str, Any],
        returns: type[R],
        fn: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Carry out and record a step of the loop, whose place is a number, within a step, or outside."""
        in_loop = place.isdigit()
        if in_loop:
            self.budget_state = {}
        data["began"] = self._working_time()
        self._under_way += 1
        value: Any = None
        failure: Exception | None = None
        try:
            with step_scope(step=InnerStep(self, place)):
                value = await fn(*args, **kwargs)
        except ChangedRunError:  # from a run inside this one; a resumed run must not repeat it
            raise
        except Exception as error:
            if place.startswith(OUTSIDE):  # the next attempt tries again
                raise
            if not in_loop and over_budget(error):  # not started, or cancelled: there is no result
                raise
            failure = error
        finally:
            self._under_way -= 1
            if in_loop:  # a cancelled step is not recorded, but its time has passed
                self._last = {**self._last, "elapsed": self._working_time()}
        data["elapsed"] = self._working_time()
        data["at"] = datetime.now(UTC).isoformat()
        if failure is None:
            data["result"] = to_record(value)
            for part in unrestorable_in(data["result"]):
                what = f"the result of step {place} ({data['name']}) can't be restored: {part}"
                logger.warning("The run %s can't be resumed if it is interrupted: %s.", self.run_id, what)
                if in_loop:
                    self.unrestorable.append(what)
        else:
            data["error"] = failure_to_json(failure)
        if in_loop and self.budget_state:
            data["budget_state"] = self.budget_state
        if _telemetry.current is not None and (position := _telemetry.current.position()):
            data["trace"] = position
        recorded = await self._log.write(place, data)
        if in_loop:
            self._finish(recorded)
        if recorded is not data:  # another process was first
            return _replay(recorded, returns)
        if failure is not None:
            raise failure
        return value

    def _finish(self, step: StepData) -> None:
        self._last, self.budget_state = step, step.get("budget_state", {})

    def _working_time(self) -> float:
        if self._working_since is None:
            self._working_since = monotonic()
        return self._worked_before + monotonic() - self._working_since


class InnerStep:
    """The step for effects within a journalled step, which are identified by name and number."""

    __slots__ = ("_numbers", "outer", "place")

    def __init__(self, outer: Journalled, place: str) -> None:
        self.outer = outer
        self.place = place
        self._numbers: dict[str, int] = {}

    @property
    def journal(self) -> InnerStep:
        """Itself; a step that wraps a journal offers it under the same name."""
        return self

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Replay the effect, or carry it out and record it."""
        place = f"{self.place}/{self.number(name)}"
        return await self.outer.within(place, name, returns, fn, *args, **kwargs)

    @property
    def failures(self) -> int:
        """How often this step has failed before, in a run that was resumed after that."""
        return self.outer.failures[self.place]

    def key(self, place: str) -> str:
        """An id for a place within this step, the same in a replay and in another try."""
        place = f"{self.place.partition(f'/{TRY}#')[0]}/{place}"
        return f"{self.outer.origin}.{sha256(place.encode()).hexdigest()[:16]}"

    def number(self, name: str) -> str:
        """Make a name unique within this step; it gets the same number in a replay."""
        self._numbers[name] = number = self._numbers.get(name, 0) + 1
        return f"{name}#{number}"


def journal_in(step: Step) -> Journalled | None:
    """The journal that a step is or wraps, if there is one."""
    return _find_in(step, Journalled)


def enclosing_step() -> InnerStep | None:
    """The step for effects within the current journalled step, if there is one."""
    return _find_in(step_context.get().step, InnerStep)


def _find_in(step: Step, kind: type[R]) -> R | None:
    """Find an instance of a class among a step, the steps it wraps (`__wrapped__`), and their `journal`."""
    layer: object = step
    while layer is not None and layer is not direct:
        for candidate in (layer, getattr(layer, "journal", None)):
            if isinstance(candidate, kind):
                return candidate
        layer = getattr(layer, "__wrapped__", None)
    return None


def _replay(recorded: StepData, returns: type[R]) -> R:
    """The result of a recorded step; raises its failure again."""
    if _telemetry.current is not None:
        _telemetry.current.replayed(recorded.get("trace", ""))
    if "error" in recorded:
        raise failure_from_json(recorded["error"])
    return from_record(returns, recorded["result"])


class StepLog(Protocol):
    """Stores the records of a journal's steps, and decides when they are written."""

    @property
    def store_error(self) -> str:
        """Why steps are not stored; empty if all are."""
        ...

    async def ready(self, place: str, /) -> None:
        """Wait until the step at a place may begin; raises an error if it may not."""
        ...

    async def load(self) -> dict[str, StepData]:
        """The steps that an earlier process recorded, by place."""
        ...

    async def look_up(self, place: str, /) -> StepData | None:
        """The step at a place, if another process recorded it meanwhile."""
        ...

    async def write(self, place: str, data: StepData, /) -> StepData:
        """Record a step, now or later; returns `data`, or the record of a process that was first."""
        ...


class StepRecords:
    """The `StepLog` of runs: writes a record for each step as soon as it has finished.

    While the store can't be written, steps wait in memory; they are written before the next step.
    """

    def __init__(self, store: Store, run_id: str, claim: Claim | None = None) -> None:
        self.store_error = ""
        self._is_unreadable = False
        self._store = store
        self._run_id = run_id
        self._claim = claim
        self._waiting: dict[str, Record] = {}

    async def ready(self, _place: str, /) -> None:
        """Let every step begin, unless another worker has taken over the run."""
        if self._claim is not None:
            await self._claim.check()

    async def load(self) -> dict[str, StepData]:
        """All recorded steps; raises `StoreError` if the store or a step can't be read."""
        records = await self._store.find(STEP, prefix=f"{self._run_id}/")
        return {record.key.partition("/")[2]: _step_in(record) for record in records}

    async def look_up(self, place: str, /) -> StepData | None:
        """The step at a place from the store; None while the store can't be used."""
        if self.store_error:
            return None
        try:
            record = await self._store.get(STEP, f"{self._run_id}/{place}")
        except StoreError as error:
            if not self._is_unreadable:
                logger.warning(
                    "The run %s can't read its journal; it goes on, without steps that another process may "
                    "have recorded meanwhile: %s",
                    self._run_id,
                    error,
                )
            self._is_unreadable = True
            return None
        self._is_unreadable = False
        return None if record is None else _step_in(record)

    async def write(self, place: str, data: StepData, /) -> StepData:
        """Write the waiting steps and this one; the first process to record a step wins."""
        record = Record(STEP, f"{self._run_id}/{place}", data)
        try:
            for waiting in tuple(self._waiting.values()):
                await self._put(waiting)
                self._waiting.pop(waiting.key, None)
            stored, is_new = await self._put(record)
        except ClaimLostError:
            raise
        except StoreError as error:
            if not self.store_error:
                logger.warning(
                    "The run %s continues, but its steps are not recorded: %s", self._run_id, error
                )
            self.store_error = str(error)
            self._waiting[record.key] = record
            return data
        self.store_error = ""
        return data if is_new else stored.data

    async def _put(self, record: Record) -> tuple[Record, bool]:
        if self._claim is None:
            return await self._store.put_if_absent(record)
        await self._claim.write(record)  # no other worker can have recorded the step
        return record, True


def _step_in(record: Record) -> StepData:
    """The step in a record; raises `DamagedRecordError` for fields that the run can't go on with."""
    with reading(record):
        float(record.data["elapsed"])
        datetime.fromisoformat(record.data["at"])
        if state := record.data.get("budget_state"):
            Tally(NO_BUDGET).restore(state)
    return record.data


def _usage_not_replayed(
    recorded: Mapping[str, StepData], failed: str, inside: Sequence[str], repeated: Sequence[str]
) -> TokenUsage:
    """The usage of a failed step that a replay does not count again: of the `repeated` ones inside it."""
    enclosing = {outer for place in repeated for outer in _enclosing_places(place)}
    calls = [_usage_in(recorded[place]) for place in repeated if place not in enclosing]
    used = sum(calls, NOTHING_USED)
    if len(repeated) < len(inside):
        return used
    # Calls of other frameworks are recorded in their own form; then the error has the usage of all of them.
    return max(_usage_in(recorded[failed]), used, key=lambda used: used.total_tokens)


def _usage_in(step: StepData) -> TokenUsage:
    if "error" in step:
        return usage_of_failure(failure_from_json(step["error"]))
    result: Any = step["result"]
    if not isinstance(result, dict) or "usage" not in result:
        return NOTHING_USED
    return from_record(TokenUsage, cast("dict[str, Any]", result)["usage"])


def _enclosing_places(place: str) -> list[str]:
    parts = place.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _time_worked(recorded: dict[str, StepData]) -> float:
    ends = (data["elapsed"] for place, data in recorded.items() if not place.startswith(OUTSIDE))
    return max(ends, default=0.0)


CLAIM = "claim"
"""The kind of a claim's record; its key is the run's id."""
OUTAGE_WAIT = 0.5
DEATHS_TOGETHER = 2
"""After so many deaths of its workers in a row, without a new step, a run is suspect."""
WRITES = 10
"""Attempts to write a record, with a readable store in between, before it counts as impossible to store."""

claim_under_way: ContextVar[Claim | None] = ContextVar("claim_under_way", default=None)
"""The claim of the worker that carries out the current run; None outside of a fleet."""


class Claim:
    """Fencing token of a run: permits writing into the run and the runs inside it. `take` makes it.

    Claims of a run are numbered. Taking a claim with a higher number ends the earlier claims: their writes
    are rejected with `ClaimLostError`, even if the process was stopped for hours in between.

    `deaths` counts the workers in a row that died while they held this run, without a new step in its
    journal. After two deaths the run `is_suspect`: this run may have killed them, or another run of the same
    worker. The death of a worker in which a suspect only waits does not count. `run_alone` records that the
    worker begins the run and runs nothing else; if it dies then, the next claim `is_poison`.

    `renew` confirms that the claim holds now. Before an effect that follows more than `valid_for` seconds
    later, `check` asks the store. While the store is away, both `check` and `write` wait for it: a worker
    pays for nothing that it can't record, and reports no result that is not stored.
    """

    def __init__(self, store: FencedStore, record: Record, valid_for: float) -> None:
        self.store = store
        self.run_id = record.key
        self.number: int = record.data["number"]
        self.deaths: int = record.data["deaths"]
        self.is_poison: bool = record.data["is_poison"]
        self.pause = ""
        """Why the worker hands the run back, and when it goes on; empty if it does not."""
        self._valid_for = valid_for
        self._is_waiting = False
        self._renewed = uptime()

    @classmethod
    async def take(
        cls, store: Store, run_id: str, number: int, worker: str = "", *, valid_for: float = 5.0
    ) -> Claim:
        """Take a claim; raises `ClaimLostError` if a claim with this number or a higher one exists."""
        if not isinstance(store, FencedStore):
            raise TypeError(f"{store!r} can't fence off a worker that was replaced: it is not a FencedStore.")
        while True:
            data = {
                "number": number,
                "worker": worker,
                "newest": "",
                "deaths": 0,
                "is_at_risk": True,
                "is_alone": False,
                "is_poison": False,
            }
            previous, is_new = await store.put_if_absent(Record(CLAIM, run_id, data))
            if is_new:
                return cls(store, previous, valid_for)
            if previous.data["number"] >= number:
                raise _lost(run_id, number, previous)
            data["newest"] = await _newest_step(store, run_id)
            if data["newest"] == previous.data["newest"]:
                has_died = previous.data.get("is_at_risk", True)
                data["deaths"] = previous.data.get("deaths", 0) + has_died
                data["is_poison"] = has_died and previous.data.get("is_alone", False)
                data["is_at_risk"] = data["deaths"] < DEATHS_TOGETHER
            if (stored := await store.replace(replace(previous, data=data))) is not None:
                return cls(store, stored, valid_for)

    @property
    def is_suspect(self) -> bool:
        """Whether the run has to run alone, since two workers in a row have died in it."""
        return self.deaths >= DEATHS_TOGETHER

    async def run_alone(self) -> None:
        """Record that the worker begins this run and runs nothing else; raises what `write` raises."""
        record = await self._stored()
        if record is None or record.data["number"] != self.number:
            raise _lost(self.run_id, self.number, record)
        await self.write(replace(record, data={**record.data, "is_at_risk": True, "is_alone": True}))

    def renew(self) -> None:
        """Note that the queue has just confirmed the claim."""
        self._renewed = uptime()

    async def check(self) -> None:
        """Raise `ClaimLostError` before an effect if another worker has taken over meanwhile."""
        if uptime() - self._renewed < self._valid_for:
            return
        record = await self._stored()
        if record is None or record.data["number"] != self.number:
            raise _lost(self.run_id, self.number, record)
        self.renew()

    async def write(self, record: Record) -> None:
        """Write a record if the claim still holds; raises `ClaimLostError` if not.

        Raises `StoreError` for a record that can't be stored.
        """
        held = {"number": self.number}
        for attempt in range(1, WRITES + 1):
            try:
                is_written = await self.store.put_all_if(CLAIM, self.run_id, held, [record])
            except StoreError:
                if attempt == WRITES:
                    raise
                await self._stored()  # which waits for the store
            else:
                if not is_written:
                    raise _lost(self.run_id, self.number, await self._stored())
                return

    async def _stored(self) -> Record | None:
        """The record of the claim, as soon as the store can be read."""
        while True:
            try:
                return await self.store.get(CLAIM, self.run_id)
            except StoreError as error:
                if isinstance(error, DamagedRecordError):
                    raise
                if not self._is_waiting:
                    logger.warning("The run %s waits for its store: %s", self.run_id, error)
                self._is_waiting = True
            await asyncio.sleep(OUTAGE_WAIT)

    async def release(self, *, acquit: bool = False) -> None:
        """Give the claim back, so that the next claim does not count as a pick-up after a death.

        With `acquit`, earlier deaths no longer count either.
        """
        record = await self.store.get(CLAIM, self.run_id)
        if record is not None and record.data["number"] == self.number:
            data = {**record.data, "is_at_risk": False}
            await self.store.replace(replace(record, data=data | ({"deaths": 0} if acquit else {})))


def _lost(run_id: str, number: int, record: Record | None) -> ClaimLostError:
    if record is None:
        return ClaimLostError(f"The claim on the run {run_id!r} was deleted.")
    return ClaimLostError(
        f"The run {run_id!r} was taken over by {record.data['worker'] or 'another worker'} (claim "
        f"{record.data['number']}), so what claim {number} writes is rejected."
    )


async def _newest_step(store: Store, run_id: str) -> str:
    """Identify the latest recorded step of a run, or of a run inside it."""
    steps = [record for end in ("/", ".") for record in await store.find(STEP, prefix=f"{run_id}{end}")]
    return max((f"{record.created_at} {record.key}" for record in steps), default="")


@dataclass(frozen=True, slots=True)
class RunKey:
    """Where a run is stored: its id and its store."""

    run_id: str
    store: Store | None = None
    """None if the run is not stored."""
    resumes: bool = False
    """Whether there may be records under this id already."""
    parent: str = ""
    """The id of the run inside which this run takes place; by default the current run."""
    origin: str = ""
    """An id that is the same in each try of the step in which this run takes place; by default its id."""

    @classmethod
    def of(cls, keep: bool | Store, run_id: str | None, description: str) -> RunKey:
        """Choose the store, by `keep`, and an id if `run_id` is None.

        Inside a journalled step the id follows from the id of the outer run and the description, so that a
        resumed outer run finds it again. Raises `ConfigError` for an id without a store.
        """
        check_keep(keep)
        outer_step = enclosing_step()
        if isinstance(keep, bool):
            store = None if not keep else project_store() if outer_step is None else outer_step.outer.store
        else:
            store = keep
        if store is None and run_id is not None:
            why = "the setting `home` (REDRAFT_HOME) is empty" if keep else "leave keep=True"
            raise ConfigError(f"The run {run_id!r} is not stored, so it can't be resumed: {why}.")
        if run_id is not None:
            return cls(run_id, store, resumes=True)
        if store is None or outer_step is None:
            return cls(new_run_id(), store)
        number = outer_step.number(f"run {description}")
        place = f"{outer_step.place}/{number}"
        inner_id = f"{outer_step.outer.run_id}.{sha256(place.encode()).hexdigest()[:8]}"
        return cls(inner_id, store, resumes=True, origin=outer_step.key(number))

    def step(self) -> Step:
        """The step of the run: a new journal, or `direct` if nothing is stored."""
        return self.journal() or direct

    def journal(self) -> Journalled | None:
        """A new journal of the run; None if nothing is stored."""
        if self.store is None:
            return None
        journal = Journalled(self.store, self.run_id, resumes=self.resumes)
        journal.parent = self.parent or journal.parent
        journal.origin = self.origin or journal.origin
        return journal

    def derived(self, suffix: str) -> RunKey:
        """The key of a part or another attempt, whose id is this id with a suffix."""
        origin = self.origin and f"{self.origin}{suffix}"
        return RunKey(f"{self.run_id}{suffix}", self.store, self.resumes, self.parent, origin)


def journalled_step(keep: bool | Store, run_id: str | None, task: PlainTask) -> Step:
    """The step of a run: a journal in the store that `keep` names, or `direct` if nothing is stored."""
    if keep is False and run_id is None:
        return direct
    return RunKey.of(keep, run_id, task.description).step()


def new_run_id() -> str:
    """A new id; ids sort by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{urandom(4).hex()}"


def check_keep(keep: Any) -> None:
    """Require True, False or a store; raises `ConfigError`."""
    if isinstance(keep, bool) or (isinstance(keep, Store) and not isinstance(keep, type)):
        return
    meant = f" Did you mean SqliteStore({keep!r})?" if isinstance(keep, str | PurePath) else ""
    raise ConfigError(
        f"keep must be True, False or a Store, such as SqliteStore(path); got {repr_of(keep)}.{meant}"
    )


def check_run_id(run_id: str) -> None:
    """Raise `ConfigError` for an invalid id."""
    is_text = isinstance(run_id, str)  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
    if not is_text or not run_id.strip() or not run_id.isprintable() or not _RUN_ID.fullmatch(run_id):
        raise ConfigError(
            f"run_id must be 1 to {LONGEST_ID} printable characters without '/', and not '.' or '..', got "
            f"{repr_of(run_id)}."
        )
