"""Journalled: a step that records each result and replays it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from redraft._codec import failure_from_json, failure_to_json, from_record, to_record
from redraft._steps import inner_step, offered
from redraft.errors import ChangedRunError, ConfigError, StoreError, over_budget
from redraft.protocols import TimedStep
from redraft.redact.log import logger
from redraft.stores.base import Record, Store
from redraft.types import ConvergenceReason, maker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from redraft.protocols import Step

P = ParamSpec("P")
R = TypeVar("R")

STEP = "step"
"""The kind of the records of a journal."""
VOID = "void"
"""The kind of those that a later try has replaced: paid for, to be looked at, not replayed."""
LONGEST_ID = 200

_record = maker(Record)


@runtime_checkable
class Journal(TimedStep, Protocol):
    """A step that keeps a run in a store: what it needs of the journal, wherever in the step that is."""

    store: Store
    parent: str
    resumes: bool
    trouble: str

    def begin(self) -> Journal:
        """Begin the run that this journal is for."""
        ...

    def close(self) -> None:
        """Record nothing from here on."""
        ...

    async def reopen(self) -> None:
        """Make way for another try where the run ended in an error."""
        ...

    async def forget_all_but(self, kept: Collection[int]) -> None:
        """Delete the records of the steps that made and judged other versions than these (1-based)."""
        ...


@runtime_checkable
class InnerStep(Protocol):
    """The step for effects within a step of a journal: where in it they are."""

    outer: Journal
    place: str

    def number(self, name: str) -> str:
        """Return a name that nothing else within this step has."""
        ...


_is_hidden: ContextVar[bool] = ContextVar("is_hidden", default=False)
"""Whether a step is being called that offers no journal, so that its run is not kept."""


def journal_in(step: Step) -> Journal | None:
    """Return the journal that a step is, or has inside; None where it has none."""
    return offered(step, Journal)


def not_hiding(step: Step) -> Step:
    """Refuse with `ConfigError` a journal inside a step that offers none, before anything is carried out."""

    async def call(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        outside = _is_hidden.set(True)
        try:
            return await step(name, returns, partial(_carried_out, fn), *args, **kwargs)
        finally:
            _is_hidden.reset(outside)

    return call


async def _carried_out(fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
    _is_hidden.set(False)  # what the program does inside its own functions is its own affair
    return await fn(*args, **kwargs)


class Journalled:
    """Record each finished step of a run in a store; started again under the same id, replay what is there.

    A step whose record is stored is never carried out again, whatever happened to the process: its result
    comes back, or its exception is raised again. A step that was under way is carried out again, but not the
    model calls and tool calls inside it that were finished. Two processes under one id both go on with what
    was recorded first. The clock (`elapsed`, `at`) counts the work of all processes and stands still between
    steps, so that decisions on time repeat, too.

    The steps of a run come in a fixed order, and go by their position; the same position with another name
    is another program, which raises `ChangedRunError`. Steps within a step go by their names.

    A store that can't be read raises `StoreError` at the first step, before anything is spent. One that
    can't be written later costs nobody an answer: a warning is logged, `trouble` says why, and what is not
    stored yet is written with a later step, in order, once that is possible again.

    Serves one run: make another for the next. `resumes=False` says that the id is new, so that there is
    nothing to look up.
    """

    def __init__(self, store: Store, run_id: str, *, resumes: bool = True) -> None:
        _check_id(run_id)
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"Journalled takes a Store, such as SqliteStore(path); got {store!r}.")
        self.run_id = run_id
        self.store = store
        self.resumes = resumes
        self.trouble = ""
        inside = offered(inner_step.get(), InnerStep)
        self.parent = "" if inside is None else inside.outer.run_id
        self._begun = False
        self._closed = False
        self._refused: ChangedRunError | None = None
        self._records: dict[str, Record] | None = None if resumes else {}
        self._unwritten: dict[str, Record] = {}
        self._position = 0
        self._under_way = 0
        self._since: float | None = None
        self._worked = 0.0
        self._elapsed = 0.0
        self._at = ""

    @property
    def journal(self) -> Journalled:
        """Itself; a step around this one offers it under the same name."""
        return self

    def begin(self) -> Journalled:
        """Begin the run that this journal is for; raises `ConfigError` for a second one."""
        if self._begun:
            raise ConfigError(
                f"The journal of the run {self.run_id!r} has served; make another for a new run."
            )
        self._begun = True
        return self

    def close(self) -> None:
        """Record nothing from here on: every effect is carried out as it is."""
        self._closed = True

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return what this step came to before, or carry it out and record it."""
        if self._refused is not None:
            raise self._refused
        if self._closed:
            return await fn(*args, **kwargs)
        if not self._begun and _is_hidden.get():
            raise ConfigError(
                f"The step of this run hides the journal {self.run_id!r} that it wraps, so the run would not "
                "be kept. Decorate a wrapping function with functools.wraps(inner); let a wrapping object "
                "have the attribute __wrapped__ = inner."
            )
        self._position += 1
        place = f"{self._position:05d}"
        record = await self._recorded(place) if self.resumes else None
        if record is not None and record.data["name"] != name:
            # Whoever passes over a failed callback must not pass over this.
            self._refused = ChangedRunError(
                f"Step {self._position} of the run {self.run_id!r} was recorded as {record.data['name']!r}, "
                f"and is {name!r} now: the program is not the one that began this run. Resume it with that "
                "program, or start a new run."
            )
            raise self._refused
        if record is None:
            outcome = await self._carried_out(place, {"name": name}, fn, *args, **kwargs)
        else:
            outcome = Outcome(record)
        self._elapsed = outcome.record.data["elapsed"]
        self._at = outcome.record.data["at"]
        return outcome.get(returns)

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
        """Do the same for a step within a step; what it was given is recorded, too: the verbatim prompt."""
        if self.resumes and (record := await self._recorded(place)) is not None:
            return Outcome(record).get(returns)
        data = {"name": name, "given": to_record(args)}
        return (await self._carried_out(place, data, fn, *args, **kwargs)).get(returns)

    def elapsed(self) -> float:
        """Return the seconds that the run has been at work, in all processes that worked on it."""
        return self._working_time() if self._under_way or self._closed else self._elapsed

    def at(self) -> datetime:
        """Return the time of day in UTC: now inside a step, else when the last one ended."""
        return datetime.fromisoformat(self._at) if self._at and not self._under_way else datetime.now(UTC)

    async def reopen(self) -> None:
        """Make way for another try where a run ended in an error: the step that failed last is not replayed.

        What was finished inside that step is kept if the failure came from a step within it, or a budget
        stopped it; otherwise the same replies would lead to the same failure again.
        """
        records = await self._read()
        last = max((place for place in records if "/" not in place), default="")
        if not last or "error" not in records[last].data:
            return
        reason = records[last].data["error"].get("reason")
        stopped = reason is not None
        inside = [] if stopped else [place for place in records if place.startswith(f"{last}/")]
        failed = [place for place in inside if "error" in records[place].data]
        for place in (last, *(failed or inside)):
            record = records.pop(place)
            await self.store.put(replace(record, kind=VOID, key=f"{record.key}~{record.updated_at}"))
            await self.store.delete(STEP, record.key)
        if reason == ConvergenceReason.TIME_BUDGET:
            # The time of a call that was cancelled must not cancel it again.
            self._worked = max((record.data["elapsed"] for record in records.values()), default=0.0)

    async def forget_all_but(self, kept: Collection[int]) -> None:
        """Delete the records of the steps that made and judged other versions than these (1-based)."""
        drafts, places = 0, list[tuple[int, str]]()
        records = await self.store.find(STEP, prefix=f"{self.run_id}/")
        for record in records:
            if record.key.count("/") > 1:
                continue
            name = record.data["name"]
            makes_draft = name in ("generate", "revise")
            places.append((drafts + 1 if makes_draft or drafts == 0 else drafts, record.key))
            # A run that starts from a given draft judges first.
            if "result" in record.data and (makes_draft or (drafts == 0 and name == "evaluate")):
                drafts += 1
        for iteration, place in places:
            if iteration not in kept:
                for record in records:
                    if record.key == place or record.key.startswith(f"{place}/"):
                        await self.store.delete(STEP, record.key)

    async def _recorded(self, place: str) -> Record | None:
        records = await self._read()
        if place not in records and not self.trouble:
            # Another process may be at work on the same run, and ahead of this one.
            try:
                found = await self.store.get(STEP, f"{self.run_id}/{place}")
            except StoreError as error:
                self._warn(error)
            else:
                return found
        return records.get(place)

    async def _read(self) -> dict[str, Record]:
        if self._records is None:
            found = await self.store.find(STEP, prefix=f"{self.run_id}/")
            self._records = {record.key.partition("/")[2]: record for record in found}
            self._worked = max((record.data["elapsed"] for record in found), default=0.0)
        return self._records

    def _working_time(self) -> float:
        if self._since is None:
            self._since = monotonic()
        return self._worked + monotonic() - self._since

    async def _carried_out(
        self,
        place: str,
        data: dict[str, Any],
        fn: Callable[P, Awaitable[Any]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Outcome:
        outside = inner_step.set(Inside(self, place))
        data["began"] = self._working_time()
        self._under_way += 1
        value: Any = None
        failure: Exception | None = None
        try:
            value = await fn(*args, **kwargs)
        except ChangedRunError:  # of a run inside this one: nothing that a resume should repeat
            raise
        except Exception as error:
            if "/" in place and over_budget(error):  # it did not start, or was cancelled: nothing came of it
                raise
            failure = error
        finally:
            self._under_way -= 1
            inner_step.reset(outside)
        data["elapsed"] = self._working_time()
        data["at"] = datetime.now(UTC).isoformat()
        if failure is None:
            data["result"] = to_record(value)
        else:
            data["error"] = failure_to_json(failure)
        record, ours = await self._written(place, data)
        return Outcome(record, carried_out=True, value=value, failure=failure) if ours else Outcome(record)

    async def _written(self, place: str, data: dict[str, Any]) -> tuple[Record, bool]:
        record = _record(STEP, f"{self.run_id}/{place}", data)
        try:
            for waiting in tuple(self._unwritten.values()):
                await self.store.put_if_absent(waiting)
                self._unwritten.pop(waiting.key, None)
            stored = await self.store.put_if_absent(record)
        except StoreError as error:
            self._warn(error)
            self._unwritten[record.key] = record
            return record, True
        self.trouble = ""
        return stored

    def _warn(self, error: StoreError) -> None:
        if not self.trouble:
            logger.warning("The run %s goes on, but its steps are not recorded: %s", self.run_id, error)
        self.trouble = str(error)


def _check_id(run_id: str) -> None:
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


class Inside:
    """Carry out the steps within one step; they go by their names, those of one name by their number."""

    __slots__ = ("_numbers", "outer", "place")

    def __init__(self, outer: Journalled, place: str) -> None:
        self.outer = outer
        self.place = place
        self._numbers: dict[str, int] = {}

    @property
    def journal(self) -> Inside:
        """Itself; a step around this one offers it under the same name."""
        return self

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return what this step came to before, or carry it out and record it."""
        return await self.outer.within(
            f"{self.place}/{self.number(name)}", name, returns, fn, *args, **kwargs
        )

    def number(self, name: str) -> str:
        """Return a name that nothing else within this step has, the same when it is replayed."""
        self._numbers[name] = number = self._numbers.get(name, 0) + 1
        return f"{name}#{number}"


@dataclass(slots=True)
class Outcome:
    """Hold what a step came to: its record, and the value or failure itself where it was carried out here."""

    record: Record
    carried_out: bool = False
    value: Any = None
    failure: Exception | None = None

    def get(self, returns: type[R]) -> R:
        """Return the value, or raise the failure."""
        if self.failure is not None:
            raise self.failure
        if self.carried_out:
            return self.value
        if "error" in self.record.data:
            raise failure_from_json(self.record.data["error"])
        return from_record(returns, self.record.data["result"])
