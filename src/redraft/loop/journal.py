"""The journal of a run: record each finished step, and replay it when the run is resumed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar

from redraft import _telemetry
from redraft._codec import failure_from_json, failure_to_json, from_record, to_record
from redraft._codec import recorded as recorded_value
from redraft._hints import keyword_hints
from redraft._steps import OBSERVE, find_in_step, step_context, step_scope
from redraft.errors import ChangedRunError, ClaimLostError, ConfigError, StoreError, over_budget
from redraft.loop.claim import claim_under_way
from redraft.redact.log import logger
from redraft.stores.base import Record, Store
from redraft.types import ConvergenceReason

if TYPE_CHECKING:
    from redraft.loop.claim import Claim
    from redraft.protocols import Step

P = ParamSpec("P")
R = TypeVar("R")

STEP = "step"
"""The kind of the record of a step; its key is `RUN_ID/PLACE`."""
VOID = "void"
"""The kind of a step's record that a later attempt replaced: paid for and shown, but not replayed."""
OWED = "owed "
"""The beginning of the places of steps that follow the end of a run, such as the lesson that it teaches."""
LONGEST_ID = 200

StepData: TypeAlias = Mapping[str, Any]
"""A finished step: its `name`, `began` and `elapsed` (seconds of the run's clock), `at` (time of day at its
end), `result` or `error`, the `budget_state` if the run has a budget, for a step within a step the arguments
it was `given`, and with telemetry its place in a `trace`."""


@keyword_hints()
class Journalled:
    """Record each finished step of a run in a store; under the same id, replay what is there.

    A step that was recorded is never carried out again, whatever happened to the process: its result comes
    back, or its exception is raised again. A step that was interrupted is carried out again, but not the
    model and tool calls inside it that had finished. Two processes under one id both go on with whatever was
    recorded first. The clock (`elapsed`, `at`) adds up the work of all processes and stands still between
    steps, so decisions that depend on time replay as well.

    The steps of a run come in a fixed order and are identified by position; another name at the same position
    means another program, which raises `ChangedRunError`. Steps within a step are identified by name.

    A result comes back equal and of the same class. One that can't is named in a warning as soon as its step
    has ended, and in `unrestorable`; the run goes on, and resuming it raises `StoreError` at that step.

    A store that can't be read raises `StoreError` at the first step, before anything is spent. One that can't
    be written later costs no result: a warning is logged, `trouble` says why, and the missing records are
    written, in order, with the next step that can be.

    Inside a worker of a fleet, the claim of the worker guards what is written: if another worker has taken
    over the run, `ClaimLostError` is raised, and nothing is written.

    A journal serves one run, which begins it; a step before that raises `ConfigError`. `resumes=False` says
    that the id is new, so nothing has to be looked up. `log` is where the records go if not one by one into
    the store.
    """

    def __init__(
        self, store: Store, run_id: str, *, resumes: bool = True, log: StepLog | None = None
    ) -> None:
        check_run_id(run_id)
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"Journalled takes a Store, such as SqliteStore(path); got {store!r}.")
        self.run_id = run_id
        self.store = store
        self.resumes = resumes
        self.is_closed = False
        inside = enclosing_step()
        self.parent = "" if inside is None else inside.outer.run_id
        """The run inside which this one runs, if any."""
        self.budget_state: Mapping[str, Any] = {}
        """What the run's budget knew when the last step ended; it is recorded with the step."""
        claim = claim_under_way.get()
        self._claim = claim if claim is not None and claim.store is store else None
        self._log = log or StepRecords(store, run_id, self._claim)
        self._recorded: dict[str, StepData] | None = None if resumes else {}
        self._position = 0
        self._has_begun = log is not None  # a caller with its own log also has its own record
        self._refusal: ChangedRunError | None = None
        self._last: StepData = {"elapsed": 0.0, "at": ""}
        self.unrestorable: list[str] = []
        """Results of steps that the store has only as text, so that the run can't be resumed after them."""
        self._under_way = 0
        self._worked_before = 0.0
        self._working_since: float | None = None

    @property
    def journal(self) -> Journalled:
        """Itself; a step around this one offers it under the same name."""
        return self

    @property
    def trouble(self) -> str:
        """Why steps are missing in the store; empty if none are."""
        return self._log.trouble

    def begin(self) -> None:
        """Begin the run; raises `ConfigError` for a second one."""
        if self._has_begun:
            raise ConfigError(
                f"The journal for the run {self.run_id!r} has already been used; create a new one for each "
                "run."
            )
        self._has_begun = True

    async def put(self, record: Record) -> None:
        """Store the record of the run; raises `ClaimLostError` if another worker has taken it over."""
        await (self.store.put(record) if self._claim is None else self._claim.write(record))

    def close(self) -> None:
        """Record nothing from here on; effects are carried out as they are."""
        self.is_closed = True

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return the recorded result of the next step, or carry it out and record it."""
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
        self._position += 1
        place = f"{self._position:05d}"
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
        """Return the recorded result of a step within a step, or carry it out and record it.

        Its arguments are recorded, too: the verbatim prompt.
        """
        await self._log.ready(place)
        if (recorded := await self._look_up(place)) is not None:
            return _replay(recorded, returns)
        data = {"name": name, "given": [to_record(argument) for argument in args]}
        return await self._carry_out(place, data, returns, fn, *args, **kwargs)

    async def owed(self, name: str, returns: type[R], fn: Callable[[], Awaitable[R]], /) -> R:
        """Return the recorded result of a step that follows the end of the run, or carry it out.

        Whichever process comes first carries it out: one that resumes the run, or a later run. A failure is
        not recorded, so the next attempt tries again and replays the calls that had finished. The run need
        not have begun here.
        """
        return await self.within(f"{OWED}{name}", name, returns, fn)

    def elapsed(self) -> float:
        """Return the seconds of work on the run, over all processes that worked on it."""
        return self._working_time() if self._under_way or self.is_closed else self._last["elapsed"]

    def at(self) -> datetime:
        """Return the time of day in UTC: inside a step now, otherwise when the last one ended."""
        ended = "" if self._under_way else self._last["at"]
        return datetime.fromisoformat(ended) if ended else datetime.now(UTC)

    async def reopen(self) -> None:
        """Allow another attempt after a run that ended in an error: its last, failed step is not replayed.

        What had finished inside a failed step stays, if the failure came from a step within it or from a
        budget; otherwise the same replies would lead to the same failure again. What advisors observed after
        it is not replayed either: they observe the run again when it ends otherwise.
        """
        recorded = await self._load()
        places = [place for place in recorded if not place.startswith(OWED)]
        steps = sorted(place for place in places if "/" not in place)
        observed: list[str] = []
        while steps and recorded[steps[-1]]["name"] == OBSERVE:
            observed.append(steps.pop())
        last = steps[-1] if steps else ""
        if not last or "error" not in recorded[last]:
            return
        if any(place.partition("/")[0] not in recorded for place in places):
            return  # the run survived it, and was interrupted in a later step: that one is resumed
        reason = recorded[last]["error"].get("reason")
        inside = [] if reason else [place for place in places if place.startswith(f"{last}/")]
        failed = {last, *(place for place in inside if "error" in recorded[place])}
        explained = {around for place in failed for around in _around(place)}
        again = [
            place
            for place in inside
            if place in failed or not explained.issuperset(failed & {*_around(place)})
        ]
        after = [place for place in places if place.split("/")[0] in observed]
        for place in (last, *again, *after):
            del recorded[place]
            key = f"{self.run_id}/{place}"
            if (record := await self.store.get(STEP, key)) is not None:
                await self.store.put(replace(record, kind=VOID, key=f"{key}~{record.updated_at}"))
                await self.store.delete(STEP, key)
        if reason == ConvergenceReason.TIME_BUDGET:
            # The time of a cancelled call must not cancel it again.
            self._worked_before = _time_worked(recorded)

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
        # Every later step raises it again: a loop that survives a failed callback must not survive this.
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
        if "/" not in place:
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
            if "/" in place and over_budget(error):  # it was not started, or cancelled: there is no result
                raise
            if place.startswith(OWED):
                raise
            failure = error
        finally:
            self._under_way -= 1
            if "/" not in place:  # a step that is cancelled is not recorded, but its time has passed
                self._last = {**self._last, "elapsed": self._working_time()}
        data["elapsed"] = self._working_time()
        data["at"] = datetime.now(UTC).isoformat()
        if failure is None:
            data["result"], lost = recorded_value(value)
            for part in lost:
                self._warn_of(place, data["name"], part)
        else:
            data["error"] = failure_to_json(failure)
        if "/" not in place and self.budget_state:
            data["budget_state"] = self.budget_state
        if _telemetry.current is not None and (position := _telemetry.current.position()):
            data["trace"] = position
        recorded = await self._log.write(place, data)
        if "/" not in place:
            self._finish(recorded)
        if recorded is not data:  # another process was first
            return _replay(recorded, returns)
        if failure is not None:
            raise failure
        return value

    def _warn_of(self, place: str, name: str, part: str) -> None:
        what = f"the result of step {place} ({name}) can't be restored: {part}"
        logger.warning("The run %s can't be resumed if it is interrupted: %s.", self.run_id, what)
        if "/" not in place:
            self.unrestorable.append(what)

    def _finish(self, step: StepData) -> None:
        self._last, self.budget_state = step, step.get("budget_state", {})

    def _working_time(self) -> float:
        if self._working_since is None:
            self._working_since = monotonic()
        return self._worked_before + monotonic() - self._working_since


class InnerStep:
    """The step for effects within a journalled step; identified by name, and numbered within a name."""

    __slots__ = ("_numbers", "outer", "place")

    def __init__(self, outer: Journalled, place: str) -> None:
        self.outer = outer
        self.place = place
        self._numbers: dict[str, int] = {}

    @property
    def journal(self) -> InnerStep:
        """Itself; a step around this one offers it under the same name."""
        return self

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return the recorded result of this step, or carry it out and record it."""
        place = f"{self.place}/{self.number(name)}"
        return await self.outer.within(place, name, returns, fn, *args, **kwargs)

    def number(self, name: str) -> str:
        """Return a name that is unique within this step, and the same when it is replayed."""
        self._numbers[name] = number = self._numbers.get(name, 0) + 1
        return f"{name}#{number}"


def journal_in(step: Step) -> Journalled | None:
    """Return the journal that a step is or wraps, if there is one."""
    return find_in_step(step, Journalled)


def enclosing_step() -> InnerStep | None:
    """Return the step for effects within the journalled step under way here, if there is one."""
    return find_in_step(step_context.get().step, InnerStep)


def _replay(recorded: StepData, returns: type[R]) -> R:
    """Return the result of a recorded step, or raise its failure again."""
    if _telemetry.current is not None:
        _telemetry.current.replayed(recorded.get("trace", ""))
    if "error" in recorded:
        raise failure_from_json(recorded["error"])
    return from_record(returns, recorded["result"])


class StepLog(Protocol):
    """Where the records of a journal's steps are, and when they are written."""

    @property
    def trouble(self) -> str:
        """Why steps are missing in it; empty if none are."""
        ...

    async def ready(self, place: str, /) -> None:
        """Return when the step at a place may begin; raises what forbids it."""
        ...

    async def load(self) -> dict[str, StepData]:
        """Return the steps that an earlier process recorded, by place."""
        ...

    async def look_up(self, place: str, /) -> StepData | None:
        """Return the step at a place if another process recorded it meanwhile."""
        ...

    async def write(self, place: str, data: StepData, /) -> StepData:
        """Record a step, now or later; return the one recorded: `data` itself, unless another was first."""
        ...


class StepRecords:
    """Write a record for each step as soon as it has finished: the `StepLog` of runs.

    While the store can't be written, steps wait here and are written before the next one.
    """

    def __init__(self, store: Store, run_id: str, claim: Claim | None = None) -> None:
        self.trouble = ""
        self._is_unreadable = False
        self._store = store
        self._run_id = run_id
        self._claim = claim
        self._waiting: dict[str, Record] = {}

    async def ready(self, _place: str, /) -> None:
        """Let every step begin at once, unless another worker has taken over the run."""
        if self._claim is not None:
            await self._claim.check()

    async def load(self) -> dict[str, StepData]:
        """Return all recorded steps; raises `StoreError` if the store can't be read."""
        found = await self._store.find(STEP, prefix=f"{self._run_id}/")
        return {record.key.partition("/")[2]: record.data for record in found}

    async def look_up(self, place: str, /) -> StepData | None:
        """Return the step at a place from the store, unless the store can't be used at present."""
        if self.trouble:
            return None
        try:
            found = await self._store.get(STEP, f"{self._run_id}/{place}")
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
        return None if found is None else found.data

    async def write(self, place: str, data: StepData, /) -> StepData:
        """Write the waiting steps and this one; whoever records a step first wins."""
        record = Record(STEP, f"{self._run_id}/{place}", data)
        try:
            for waiting in tuple(self._waiting.values()):
                await self._put(waiting)
                self._waiting.pop(waiting.key, None)
            stored, is_new = await self._put(record)
        except ClaimLostError:
            raise
        except StoreError as error:
            self._warn(error)
            self._waiting[record.key] = record
            return data
        self.trouble = ""
        return data if is_new else stored.data

    async def _put(self, record: Record) -> tuple[Record, bool]:
        if self._claim is None:
            return await self._store.put_if_absent(record)
        await self._claim.write(record)  # nobody else may have recorded it
        return record, True

    def _warn(self, error: StoreError) -> None:
        if not self.trouble:
            logger.warning("The run %s continues, but its steps are not recorded: %s", self._run_id, error)
        self.trouble = str(error)


def _around(place: str) -> list[str]:
    """Return the places of the steps within which a step is."""
    parts = place.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _time_worked(recorded: dict[str, StepData]) -> float:
    return max((data["elapsed"] for data in recorded.values()), default=0.0)


def check_run_id(run_id: str) -> None:
    """Raise `ConfigError` for an id that a run can't have."""
    is_text = isinstance(run_id, str)  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
    if (
        not is_text
        or not run_id.strip()
        or len(run_id) > LONGEST_ID
        or "/" in run_id
        or not run_id.isprintable()
    ):
        raise ConfigError(
            f"run_id must be 1 to {LONGEST_ID} printable characters without '/', got {run_id!r}."
        )
