"""Runs: list, read and explain the runs that a project has stored."""

from __future__ import annotations

import asyncio
import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from importlib import import_module
from itertools import accumulate
from socket import gethostname
from typing import TYPE_CHECKING, Any, cast

from redraft._codec import from_json, read_only, to_json, without_tags
from redraft._hints import keyword_hints
from redraft._sync import run_sync
from redraft._texts import clipped, counted
from redraft._validation import check_choice, check_count, check_text, only
from redraft.errors import ConfigError, DamagedRecordError, StoreError
from redraft.loop.budget import ROLES
from redraft.loop.correction import is_same_output, read_correction, store_correction
from redraft.loop.journal import STEP, VOID
from redraft.loop.record import RUN, Process, RunRecord, damaged_run, with_loaded_images
from redraft.loop.select import select
from redraft.loop.version_diff import VersionDiff, version_diff
from redraft.protocols import ChatReply
from redraft.redact.redactor import EVERY_CATEGORY, redactor_of_environment
from redraft.stores.base import Store, intact, listed, reading
from redraft.stores.location import required_project_store
from redraft.stores.run_index import (
    ENDED,
    NOTE_COST,
    ExpenseGroup,
    RunQuery,
    RunRow,
    Totals,
    run_index,
)
from redraft.types import (
    NOT_REPORTED,
    NOTHING_USED,
    REASONS,
    ConvergenceReason,
    Draft,
    PlainTask,
    ReflectionEvaluation,
    ReflectionVersion,
    TokenUsage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.loop.record import Correction
    from redraft.protocols import Advisor
    from redraft.stores.base import Record, Scalar


LAST = "last"
KILLED = "killed"
UNFINISHED = ("running", KILLED, "unknown")
"""The states of a run that has not ended; its process decides which."""
ACTIVE = ("running", "unknown")
"""The states of runs that may still be active, including runs that this machine can't check."""
STATES = (*UNFINISHED, "waiting", "finished", "failed", "cancelled")
"""The states by which runs can be filtered."""
ENDED_RUNS = ("finished", "failed", "cancelled")
LONGEST_CLAUSE = 200
"""The most characters of an issue that explains why a version falls short."""
DAMAGED = "(damaged)"
"""The name of a step whose record is damaged; its error has the details."""
PAGE = 50
NAMES = "a number such as 2, v2 or 1.3, 'first', 'best' or 'last'"
_VERSION = re.compile(r"\d+(\.\d+)?", re.ASCII)
STATE_HEADLINES = {
    "running": "it is still running",
    "killed": "its process ended before the run did",
    "unknown": "it is not known whether its process is still running",
    "waiting": "the run goes on later",
    "failed": "a step failed for good",
    "cancelled": "the run was cancelled",
}
MAKING = ("generate", "revise", "evaluate", "wait", "on_generation", "on_revision")


def check_status(status: str | None) -> None:
    """Require None, or a status that a run or workflow can have; raises `ConfigError`."""
    if status is not None:
        check_choice("status", status, (*STATES, "damaged"))


@keyword_hints()
class Runs:
    """The runs that a project has stored: find them, read them, add up their usage.

    `store` is the project's by default. Raises `ConfigError` if the settings turn storage off, and
    `StoreError` if the store can't be read.
    """

    def __init__(self, store: Store | None = None) -> None:
        if not isinstance(store, Store | None):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
            raise ConfigError(f"store must be a Store, such as SqliteStore(path), got {store!r:.200}.")
        self._store = store or required_project_store("runs")
        self._index = run_index(self._store)

    async def find(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        reason: str | None = None,
        inner: bool = False,
        before: str | None = None,
        limit: int = PAGE,
    ) -> list[RunRecord]:
        """Find runs, newest first, by status, name of the agent, and reason for stopping.

        A run that is `running` but whose process has exited has the status `killed`, or `unknown` if this
        machine can't tell. Runs with damaged records are included, as `damaged`. Runs inside other runs are
        left out unless `inner`. `before` is the id of the last run on the previous page. Raises `ConfigError`
        if it does not exist, and for a status or reason that no run can have.
        """
        after = None if before is None else await listed(self._store, RUN, before)
        if before is not None and after is None:
            raise ConfigError(f"Can't page from the run {before!r}: it is not stored here.")
        rows = await self.rows(status=status, name=name, reason=reason, inner=inner, after=after, limit=limit)
        return await self.read_rows(rows)

    async def rows(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        reason: str | None = None,
        task: str | None = None,
        inner: bool = False,
        after: Record | None = None,
        limit: int = PAGE,
    ) -> list[RunRow]:
        """The index rows of the runs that `find` would return, optionally of a single task.

        `task` is its digest, `after` the last record of the previous page.
        """
        where: dict[str, Scalar] = {} if inner else {"is_inner": False}
        check_status(status)
        check_count("limit", limit, 1)
        if reason is not None:
            check_choice("reason", reason, [value.value for value in ConvergenceReason])
        if status is not None:
            where["status"] = "running" if status in UNFINISHED else status
        if name is not None:
            where["agent"] = name
        if reason is not None:
            where["reason"] = reason
        if task is not None:
            where["task"] = task
        if where.get("status") != "running":
            return await self._index.find(RunQuery(where), after=after, limit=limit)
        # The processes decide which of the unfinished runs were killed; the index does not have that.
        unended = await self._index.find(RunQuery(where), after=after)
        return [row for row in unended if state_of(row) == status][:limit]

    async def row(self, run_id: str) -> RunRow | None:
        """The index row of a run by its full id, or None."""
        rows = await self._index.find(RunQuery({"run_id": run_id}))
        return rows[0] if rows else None

    async def read_rows(self, rows: Sequence[RunRow]) -> list[RunRecord]:
        """Read the runs of index rows, skipping those deleted since."""
        records = await asyncio.gather(*(listed(self._store, RUN, row.run_id) for row in rows))
        return [await self.listed(record) for record in records if record is not None]

    async def get(self, run_id: str = LAST) -> RunRecord:
        """Get a run by its id or a prefix of it, or the `last` run to begin.

        Raises `ConfigError` if there is none, or if the prefix is ambiguous.
        """
        if run_id == LAST:
            rows = await self._index.find(RunQuery({"is_inner": False}), limit=PAGE)
            last = await asyncio.gather(*(listed(self._store, RUN, row.run_id) for row in rows))
            records = intact([record for record in last if record is not None])[:1]
        elif record := await self._store.get(RUN, run_id):
            records = [record]
        else:  # an empty string, as from an unset shell variable, matches no run
            records = await self._store.find(RUN, prefix=run_id, limit=3) if run_id else []
        record = only(records, run_id, "runs", lambda record: record.key)
        if record is None:
            raise ConfigError(
                "No runs are stored here yet; `redraft runs` says where they would be."
                if run_id == LAST
                else f"There is no run {run_id!r} here; `redraft runs` lists the runs, and "
                "`redraft runs --database PATH` those of a store of your own."
            )
        return await self.read(record)

    async def task(self, record: RunRecord) -> PlainTask:
        """The task of a run with the bytes of its images; raises `StoreError` if they are gone."""
        return await with_loaded_images(record.task, self._store)

    async def stored(self, run_id: str = LAST) -> StoredRun:
        """Get a run, as `get` does, with its steps."""
        record = await self.get(run_id)
        return StoredRun(record, tuple(await self.steps(record.run_id)))

    async def correct(
        self,
        run_id: str,
        output: Any,
        *,
        output_type: Any = None,
        why: str = "",
        lessons: Advisor | None = None,
    ) -> Correction | None:
        """Store a run's best output as it should have been, and learn from the difference.

        The correction replaces any earlier one of the run. It becomes a lesson with full trust, in `lessons`
        (a `Lessons`), else in the project's lessons of the agent that ran: the corrected output as an
        example, the changes, and the person's reason `why`. A typed output is JSON, or an object of its
        class; it is checked by `output_type`, else by the JSON Schema of the type that the run had. The
        corrected output is the reference of the case that `redraft eval add` makes of the run.

        With the run's own output, an earlier correction is taken back: it is removed, and its lesson is
        retired. Returns None then, and if nothing changes. If no lesson can be stored, the `problem` of the
        correction says why. Raises `ConfigError` for a run that has not ended or has no output, and for an
        output that is empty or not of its type; `StoreError` if it can't be stored.
        """
        check_text("why", why)
        record = await self.get(run_id)
        correction, earlier = read_correction(record, output, output_type), record.correction
        # The layer of lessons is above the layer of runs, which must not import it.
        learning = import_module("redraft.lessons.correction")
        if correction is None:
            if earlier is not None:
                await learning.unlearn_correction(record, self._store, lessons)
                await store_correction(self._store, record.run_id, None)
            return None
        if earlier is not None and is_same_output(correction, earlier) and earlier.lesson and not why:
            return None
        await store_correction(self._store, record.run_id, correction)
        try:
            lesson = await learning.learn_correction(record, correction, self._store, why, lessons)
        except (ConfigError, StoreError) as error:
            correction = replace(correction, problem=str(error))
        else:
            correction = replace(correction, lesson=lesson.id)
        await store_correction(self._store, record.run_id, correction)
        return correction

    def correct_sync(
        self,
        run_id: str,
        output: Any,
        *,
        output_type: Any = None,
        why: str = "",
        lessons: Advisor | None = None,
    ) -> Correction | None:
        """Correct a run as `correct` does, without a running event loop."""
        corrected = self.correct(run_id, output, output_type=output_type, why=why, lessons=lessons)
        return run_sync(corrected)

    async def steps(self, run_id: str) -> list[StoredStep]:
        """The steps of a run in the order they ended, including inner steps.

        Inner steps hold the verbatim prompts and replies.
        """
        prefix = f"{run_id}/"
        records = await self._store.find(STEP, prefix=prefix) + await self._store.find(VOID, prefix=prefix)
        return sorted(map(_step, records), key=lambda step: (step.at, not step.is_inner, step.place))

    async def latest_step(self, run_id: str) -> str:
        """The key of the step that was recorded last: it changes as the run makes progress."""
        records = await self._store.find(STEP, prefix=f"{run_id}/", newest_first=True, limit=1)
        return records[0].key if records else ""

    async def listed(self, record: Record) -> RunRecord:
        """Read a run from its record for a list; an unreadable run has the status `damaged`."""
        try:
            return await self.read(record)
        except DamagedRecordError as error:
            return damaged_run(record, str(error))

    async def read(self, record: Record) -> RunRecord:
        """Read a run from its record; an unfinished run has the versions in its journal so far."""
        # A reader does not have the classes of outputs, which belong to the program that ran.
        run = read_only(RunRecord, record.data)
        with reading(record):
            for criterion in run.options.get("criteria", ()):
                _check_criterion(criterion)
        if run.status == "running" or (run.status in ("waiting", "failed", "cancelled") and not run.versions):
            add_versions_so_far(run, await self.steps(run.run_id))
        return run

    async def spend(self, since: date | None = None, *, inner: bool = True) -> Spend:
        """Add up what runs that began on `since` (UTC) or later used; inner runs only if `inner`.

        Unfinished runs are counted, not summed: their usage is recorded when they end.
        """
        begin = None if since is None else datetime.combine(since, time(), UTC)

        def query(**where: Scalar | tuple[Scalar, ...]) -> RunQuery:
            return RunQuery(where if inner else {**where, "is_inner": False}, begin)

        ended = query(status=ENDED)
        inside = await self._index.count("day", RunQuery({"status": ENDED, "is_inner": True}, begin))
        unended = await self._index.find(query(status="running"))
        at_work = sum(state_of(row) in ACTIVE for row in unended)
        return Spend(
            await self._index.sum("day", ended),
            await self._index.sum("role", ended),
            await self._index.sum("role_model", ended),
            await self._index.sum("agent", ended),
            await self._index.sum("task", ended),
            await self._index.expenses(NOTE_COST, begin),
            sum(count.runs for count in inside.values()),
            at_work,
            len(unended) - at_work,
        )

    async def newest_of_tasks(self, tasks: Sequence[str]) -> dict[str, str]:
        """The id of the newest run of each task that has any."""
        rows_by_task = await asyncio.gather(*(self.rows(task=task, inner=True, limit=1) for task in tasks))
        return {task: rows[0].run_id for task, rows in zip(tasks, rows_by_task, strict=True) if rows}


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run's record and its steps, in the order they ended."""

    record: RunRecord
    steps: tuple[StoredStep, ...] = ()

    @property
    def outer_steps(self) -> tuple[StoredStep, ...]:
        """The steps of the loop itself, in order."""
        return tuple(step for step in self.steps if not step.is_inner)

    @property
    def thresholds(self) -> dict[str, float]:
        """The threshold of each criterion, in the order of the criteria; a workflow has only a score."""
        return self.record.thresholds

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each criterion, if they differ; else empty."""
        weights = {
            criterion["name"]: criterion.get("weight", 1.0)
            for criterion in self.record.options.get("criteria", ())
        }
        return weights if len(set(weights.values())) > 1 else {}

    @property
    def gates(self) -> frozenset[str]:
        """The names of the criteria that are gates."""
        criteria = self.record.options.get("criteria", ())
        return frozenset(criterion["name"] for criterion in criteria if criterion.get("gate"))

    @property
    def criteria(self) -> tuple[str, ...]:
        """The names of all criteria: first the pattern's, then any others that judged a version."""
        judged = (name for version in self.record.versions for name in version.evaluation.criteria_scores)
        return tuple(dict.fromkeys((*self.thresholds, *judged)))

    @property
    def criteria_texts(self) -> tuple[str, ...]:
        """Names and descriptions of the program's criteria, which are never personal data: not redacted."""
        criteria = self.record.options.get("criteria", ())
        written = (criterion for criterion in criteria if criterion.get("origin") != "generated")
        texts = (criterion.get(part, "") for criterion in written for part in ("name", "description"))
        return tuple(text for text in texts if any(map(str.isalnum, text)))

    def writer(self, version: ReflectionVersion) -> str:
        """The model that wrote a version; empty if the run had only one model, or if it is unknown.

        With fallback models, it is the model that answered.
        """
        models = {other.model for other in self.record.versions if other.model}
        had_several = len(models) > 1 or ", " in self.record.origin.model
        return version.model if had_several else ""

    def version(self, name: str | int) -> ReflectionVersion:
        """Get a version by its number or its name: `2` or `v2`, `first`, `best`, `last` (also `final`).

        A candidate that was not chosen is named by its version and its own number: `1.3`.

        Raises `ConfigError` if there is no such version.
        """
        record, versions = self.record, self.record.versions
        if not versions:
            raise ConfigError(
                f"The run {record.run_id!r} has no version to show (state: {record.state}); "
                "`redraft why` says why."
            )
        first, last = versions[0].name, versions[-1].name
        names = {"first": first, "best": str(record.best), "last": last, "final": last}
        number = names.get(name := str(name), name.removeprefix("v"))
        versions_by_name = {version.name: version for version in record.all_versions}
        if not _VERSION.fullmatch(number):
            raise ConfigError(f"A version must be {NAMES}; got {name!r}.")
        if number not in versions_by_name:
            raise ConfigError(
                f"The run {record.run_id!r} has no version {name!r}; it has {', '.join(versions_by_name)}."
            )
        return versions_by_name[number]

    def diff(self, older: str = "first", newer: str = "best") -> VersionDiff:
        """Compare two versions by their names; raises `ConfigError` as `version` does."""
        return version_diff(self.version(older), self.version(newer))

    @property
    def why(self) -> Why:
        """The rule that stopped the run, with its numbers, or the state of the run."""
        record = self.record
        best = record.version(record.best)
        short_of = () if best is None else self.shortfalls(best)
        if (stop := record.stop) is not None:
            return Why(stop.reason.value, REASONS[stop.reason], stop.detail, stop.numbers, short_of)
        detail, numbers = self._state_detail()
        return Why(record.state, STATE_HEADLINES.get(record.state, record.state), detail, numbers, short_of)

    def shortfalls(self, version: ReflectionVersion) -> tuple[str, ...]:
        """A clause for each threshold that a version misses; none if it is satisfactory.

        Without thresholds of criteria, the first issue says what is wrong.
        """
        evaluation, clauses = version.evaluation, self.record.shortfalls(version)
        if self.thresholds or evaluation.satisfactory or not evaluation.issues:
            return clauses
        return (*clauses, clipped(evaluation.issues[0], LONGEST_CLAUSE))

    def _state_detail(self) -> tuple[str, Mapping[str, Any]]:
        """The detail and the numbers of a run that no rule has stopped."""
        record, versions = self.record, self.record.versions
        if record.status == "failed":
            failed = [step for step in self.outer_steps if step.error is not None and not step.void]
            at = f"The step {failed[-1].name!r} failed" if failed else "A step failed"
            after = f" after version {versions[-1].iteration}" if versions else ""
            numbers = {"step": failed[-1].name if failed else None, "error": record.error}
            return f"{at}{after}: {record.error}", numbers
        if record.status == "waiting":
            return record.error, {"versions": len(versions)}
        if record.status == "cancelled":
            after = f"after version {versions[-1].iteration}" if versions else "before its first version"
            return f"It was cancelled {after}.", {"versions": len(versions)}
        process, steps = record.process, len(self.outer_steps)
        numbers = {"versions": len(versions), "steps": steps, "host": process.host, "pid": process.pid}
        drafts = self._drafts_so_far
        next_version = f", {counted(drafts, 'candidate')} for the next one" if drafts else ""
        progress = f"{counted(len(versions), 'version')}{next_version} and {counted(steps, 'finished step')}"
        if record.state == "killed":
            stored = f"{progress} are stored, which a resumed run does not repeat"
            if not versions and not self.steps:
                stored = "nothing was finished, so a resumed run starts from the beginning"
            detail = f"The process {process.pid} is gone; {stored}."
        elif record.state == "unknown":
            detail = (
                f"This machine can't tell whether the process {process.pid} is still working on it: "
                f"{progress} so far."
            )
        elif process.host == gethostname():
            detail = f"The process {process.pid} on {process.host} is working on it: {progress} so far."
        else:
            detail = (
                f"The process {process.pid} on {process.host} is working on it, unless it has died, which "
                f"only that machine can tell: {progress} so far."
            )
        return detail, numbers

    @property
    def _drafts_so_far(self) -> int:
        """The number of candidates made for a version whose step has not finished."""
        done = {step.place for step in self.outer_steps}
        return sum(
            step.name.startswith("draft ") and step.error is None and step.place.partition("/")[0] not in done
            for step in self.steps
        )

    @property
    def after_best(self) -> AfterBest | None:
        """Versions, usage and time after the best version; None if there is none."""
        record = self.record
        best = record.version(record.best)
        if best is None:
            return None
        later = [step for step in self.outer_steps if step.at > best.timestamp]
        until = max((step.elapsed for step in self.outer_steps if step.at <= best.timestamp), default=0.0)
        later_versions = record.revisions + 1 - best.iteration
        stored = sum(version.iteration > best.iteration for version in record.versions)
        usage = None
        if stored == later_versions:
            reflections = (
                reflection.usage for reflection in record.reflections if reflection.iteration > best.iteration
            )
            usage = sum((*map(_usage_of, later), *reflections), NOTHING_USED)
        return AfterBest(later_versions, usage, max(0.0, record.execution_time - until))

    @property
    def timeline(self) -> list[TimelineStep]:
        """The steps of the loop in the order they ended, each with its inner steps and its version."""
        within: defaultdict[str, list[StoredStep]] = defaultdict(list)
        for step in self.steps:
            # A step without arguments only encloses others; a damaged step has lost its arguments.
            if step.is_inner and (step.given or step.name == DAMAGED):
                within[step.place.partition("/")[0]].append(step)
        ends = sorted((version.timestamp, version.iteration) for version in self.record.versions)
        times = [at for at, _ in ends]
        first_from = list(accumulate((number for _, number in reversed(ends)), min))[::-1]

        def version_of(step: StoredStep) -> int | None:
            if step.name == "on_reflection":
                return max((number for _, number in ends[: bisect_right(times, step.at)]), default=None)
            if step.name not in MAKING:
                return None
            # A version has the time of the last step that contributed to it.
            at = bisect_left(times, step.at)
            if at < len(first_from):
                return first_from[at]
            return self.record.revisions + 2 if ends else 1

        return [TimelineStep(step, version_of(step), tuple(within[step.place])) for step in self.outer_steps]

    def redacted(self, *, to_export: bool = False) -> StoredRun:
        """Withhold secrets and personal data; with `to_export`, also names of hosts.

        The texts of criteria lose only secrets, except in an export. The process stays as it is: it shows
        whether the run was killed.
        """
        if to_export:
            redactor = redactor_of_environment(also=EVERY_CATEGORY)
        else:
            redactor = redactor_of_environment(allow=self.criteria_texts)
        return redactor.redact_object(self, spared=(Process,))

    def document(self, *, steps: bool = True) -> dict[str, Any]:
        """The run as plain data: record, why it stopped, what came after the best, and its steps."""
        document = to_json(self.record) | {
            "status": self.record.state,
            "reason": self.record.reason,
            "why": self.why,
            "after_best": self.after_best,
            "usage": self.record.usage,
        }
        if steps:
            document["steps"] = [{**to_json(step), "seconds": step.seconds} for step in self.steps]
        return document


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A step of a stored run, from its journal."""

    place: str
    """The position (`00003`); for an inner step, the outer place, a slash, and its name with a number."""
    name: str
    began: float
    """The start, in seconds of the run's clock."""
    elapsed: float
    """The end, in seconds of the run's clock."""
    at: datetime
    """The wall-clock time of its end."""
    given: Any = None
    """The arguments of an inner step: for a model call, the request."""
    result: Any = None
    error: dict[str, Any] | None = None
    """The `type` and the `message`, if the step failed."""
    void: bool = False
    """Whether a later attempt replaced the step; its cost still counts."""

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.elapsed - self.began

    @property
    def is_inner(self) -> bool:
        """Whether it ran inside another step."""
        return "/" in self.place

    @property
    def exchange(self) -> Exchange:
        """The request and reply of an inner step, in any recorded form; a damaged record is shown as JSON."""
        try:
            return self._exchange()
        except (LookupError, TypeError, ValueError, AttributeError):  # of another version, or damaged
            turns = (Turn(role, json.dumps(part)) for role, part in (("user", self.given), ("", self.result)))
            return Exchange(self.name, self.seconds, (next(turns),), (next(turns),))

    def _exchange(self) -> Exchange:
        name = self.name.partition(" ")[0] if self.name.startswith("model ") else self.name
        outer = (part.rpartition("#")[0] for part in self.place.split("/")[1:-1])
        name = ", ".join((*outer, name))
        request, result = tuple(_turns(self.given, "user")), cast("object", self.result)
        if self.error is not None:
            failure = Turn("error", f"{self.error.get('type')}: {self.error.get('message')}")
            return Exchange(name, self.seconds, request, (failure,))
        usage = None
        if isinstance(result, dict) and "text" in result:  # replies of other agent frameworks have no text
            usage = from_json(ChatReply, cast("dict[str, Any]", result)).usage
        return Exchange(name, self.seconds, request, tuple(_turns(result, "assistant")), usage)


@dataclass(frozen=True, slots=True)
class Why:
    """Why a run stopped, or its state."""

    rule: str
    """The reason for stopping, or else the state (`running`, `killed`, `failed`)."""
    headline: str
    """The rule in words."""
    detail: str
    """A sentence with the numbers."""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    short_of: tuple[str, ...] = ()
    """The thresholds that the best version misses."""


@dataclass(frozen=True, slots=True)
class AfterBest:
    """The part of a run after its best version."""

    versions: int
    """The number of later versions."""
    usage: TokenUsage | None
    """Their usage; None, for unknown, if not all of them are stored."""
    seconds: float


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A step of the loop, with its inner steps and the version it worked on, if any."""

    step: StoredStep
    version: int | None
    inner: tuple[StoredStep, ...] = ()

    @property
    def began(self) -> float:
        """The start, in seconds of the run's clock."""
        return self.step.began

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.step.seconds


@dataclass(frozen=True, slots=True)
class Turn:
    """A message and its role: `system`, `user`, `assistant`, `error`, or a tool's name."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """The request and reply of a call; `usage` if the reply reports it."""

    name: str
    seconds: float
    request: tuple[Turn, ...]
    reply: tuple[Turn, ...]
    usage: TokenUsage | None = None


@dataclass(frozen=True, slots=True)
class Spend:
    """The usage of finished runs, by day, role, model, agent and task."""

    days: dict[date, Totals]
    roles: dict[str, Totals]
    models: dict[str, Totals]
    agents: dict[str, Totals]
    tasks: dict[str, Totals]
    notes: dict[ExpenseGroup, Totals]
    """The usage of writing notes, which is not in the other sums."""
    inner_runs: int
    """The number of runs inside other runs."""
    at_work: int
    """Active runs, which are not in the sums."""
    interrupted: int
    """Interrupted runs, which are not in the sums."""


def state_of(row: RunRow) -> str:
    """The state of a run: its status, or for a `running` run the state of its process."""
    if row.status != "running":
        return row.status
    return Process(row.host, row.pid, row.process_started).state_of_run


def add_versions_so_far(run: RunRecord, steps: Sequence[StoredStep]) -> None:
    """Fill in the versions, the best version and the usage of an unfinished run from its steps."""
    versions: list[ReflectionVersion] = []
    usage: dict[str, TokenUsage] = {}
    draft = None if run.draft is None else Draft(run.draft, NOTHING_USED, strategy="given")
    for step in steps:
        if step.name == DAMAGED and not step.is_inner:
            break  # later steps belong to a version that can't be reconstructed
        if step.is_inner or step.void or step.name not in ROLES:
            continue
        role = "revision" if step.name == "generate" and versions else ROLES[step.name]
        if step.error is not None:
            usage[role] = usage.get(role, NOTHING_USED) + _usage_of(step)
            continue
        is_judgement = step.name == "evaluate" and draft is not None
        try:
            made: Any = from_json(ReflectionEvaluation if is_judgement else Draft, step.result)
        except ValueError:  # damaged, or of another version
            break
        run.execution_time = step.elapsed
        if is_judgement and draft is not None:
            evaluation: ReflectionEvaluation = made
            versions.append(
                ReflectionVersion(
                    len(versions) + 1,
                    draft.output,
                    evaluation,
                    draft.improvements,
                    step.at,
                    draft.usage + evaluation.usage,
                    draft.strategy,
                    conversation=draft.conversation,
                    choice=draft.choice,
                    model=draft.model,
                )
            )
            used = {role: evaluation.usage}
        else:
            draft = made
            used = made.usage_by_role(role)
        for part_role, part in used.items():
            usage[part_role] = usage.get(part_role, NOTHING_USED) + part
    run.versions, run.usage_by_role = tuple(versions), usage
    run.reflections = tuple(
        reflection
        for version in versions
        if version.conversation
        for reflection in version.conversation.reflections
    )
    if versions:
        run.best, run.final = select(versions, "highest_score").iteration, versions[-1].iteration
        run.revisions = len(versions) - 1


def _step(record: Record) -> StoredStep:
    place = record.key.partition("/")[2].partition("~")[0]
    if record.damage:
        return _damaged_step(record, place, record.damage)
    try:
        with reading(record):
            data = without_tags(record.data)
            return StoredStep(
                place,
                str(data["name"]),
                float(data["began"]),
                float(data["elapsed"]),
                datetime.fromisoformat(data["at"]),
                data.get("given"),
                data.get("result"),
                data.get("error"),
                void=record.kind == VOID,
            )
    except DamagedRecordError as error:
        return _damaged_step(record, place, str(error))


def _damaged_step(record: Record, place: str, damage: str) -> StoredStep:
    error = {"type": DamagedRecordError.__name__, "message": damage}
    at = record.created_at or datetime.now(UTC)
    return StoredStep(place, DAMAGED, 0.0, 0.0, at, error=error, void=record.kind == VOID)


def _check_criterion(criterion: Any) -> None:
    """Raise `TypeError` or `LookupError` for a recorded criterion without a name, or with other numbers."""
    if not isinstance(criterion["name"], str):
        raise TypeError(f"the name of a criterion is {criterion['name']!r}")
    for number in ("threshold", "weight"):
        float(criterion.get(number, 1.0))


def _usage_of(step: StoredStep) -> TokenUsage:
    if step.name not in ROLES:
        return NOTHING_USED
    try:
        return _usage_in(step)
    except ValueError:  # damaged, or of another version
        return NOT_REPORTED


def _usage_in(step: StoredStep) -> TokenUsage:
    if step.error is not None:
        used: Any = step.error.get("usage")
        failed = TokenUsage(failed_requests=1) if step.error.get("type") == "ModelError" else NOTHING_USED
        return failed if used is None else failed + from_json(TokenUsage, used)
    if step.name == "evaluate":
        return from_json(ReflectionEvaluation, step.result).usage
    return sum(from_json(Draft, step.result).usage_by_role(step.name).values(), NOTHING_USED)


def _turns(value: Any, role: str) -> list[Turn]:
    """Parse the turns of a request or reply: Redraft's own, Pydantic AI's messages, or any JSON."""
    if isinstance(value, list):
        return [turn for item in cast("list[Any]", value) for turn in _turns(item, role)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if "messages" in fields:
            return [Turn(message["role"], message["content"]) for message in fields["messages"]]
        if "parts" in fields:
            return [_part(part, role) for part in fields["parts"]]
        if isinstance(fields.get("text"), str):
            return [Turn(role, fields["text"])]
    return [Turn(role, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))]


def _part(part: dict[str, Any], role: str) -> Turn:
    kind = str(part.get("part_kind", role)).removesuffix("-prompt")
    who = f"{kind} {part['tool_name']}" if part.get("tool_name") else {"text": role}.get(kind, kind)
    content = part.get("content", part.get("args"))
    return Turn(who, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
