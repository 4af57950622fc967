"""The record of a run: its origin, its process, its versions, and the images in its task."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from redraft._codec import to_record
from redraft._texts import clipped, short_repr, shortfalls
from redraft._validation import named_error
from redraft.errors import ChangedRunError, ConfigError, DamagedRecordError, StoreError
from redraft.loop.ways import way_shares
from redraft.redact.log import logger
from redraft.stores.base import Record, damage_of
from redraft.stores.run_index import RUN, RunRow, Share, spent
from redraft.types import (
    DEFAULT_CRITERION_THRESHOLD,
    NOT_REPORTED,
    NOTHING_USED,
    Advice,
    ConvergenceReason,
    ImageMessage,
    Output,
    PlainTask,
    Reflection,
    ReflectionHistory,
    ReflectionResult,
    ReflectionVersion,
    Stop,
    TokenUsage,
)

if TYPE_CHECKING:
    from redraft.loop.budget import Tally
    from redraft.loop.journal import Journalled
    from redraft.loop.output_type import OutputType
    from redraft.stores.base import Store
    from redraft.types import Image

Surface = Literal["agent", "function", "reflected", "command", "workflow", "task"]


@dataclass(frozen=True, slots=True)
class Origin:
    """What began a run, so that it can be resumed or repeated: an agent, a function, a command or a task."""

    surface: Surface = "function"
    name: str = ""
    model: str = ""
    arguments: tuple[str, ...] = ()
    """The arguments of a command, or the only text with which a function was called."""
    folder: str = ""
    system_prompt: str = ""
    importable: str = ""
    """The name by which another process can import the agent or function, such as `app.agents:writer`."""
    model_settings: Mapping[str, Any] | None = None
    label: str = ""
    """The name in traces and metrics, if `name` is a part of a task's text."""
    owner: str = ""
    """A digest of the `repr` of the object of a method that ran under an id; empty for a function."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified so that other processes can check whether it is still running."""

    host: str
    pid: int
    started: str

    @classmethod
    def this(cls) -> Process:
        """The current process."""
        return cls(socket.gethostname(), os.getpid(), own_start())

    def has_exited(self) -> bool | None:
        """Whether this process has ended; None if this machine can't tell.

        A process on another machine counts as running.
        """
        if self.host != socket.gethostname():
            return False
        if self.pid == os.getpid():
            return own_start() != self.started
        if not _pid_exists(self.pid):
            return True
        state, started = _status_of(self.pid)
        if state == ZOMBIE:
            return True
        # Process ids are reused: only the start tells whether it is the same process.
        return started != self.started if started and self.started else None

    @property
    def state_of_run(self) -> Literal["running", "killed", "unknown"]:
        """The state of an unfinished run of this process."""
        exited = self.has_exited()
        return "unknown" if exited is None else "killed" if exited else "running"

    def check_exited(self, run_id: str, *, force: bool = False) -> None:
        """Raise `ConfigError` if this process, on this machine, is or may be at work on a run.

        `force` allows a run if this machine can't tell. Processes on other machines can't be checked; two
        processes that work on the same run end with the same results.
        """
        if self.host != socket.gethostname():
            return
        exited = self.has_exited()
        if exited is False:
            raise ConfigError(
                f"The process {self.pid} is still working on the run {run_id!r}; wait for it, or end it."
            )
        if exited is None and not force:
            raise ConfigError(
                f"This machine can't tell whether the process {self.pid} is still working on the run "
                f"{run_id!r}. If it is not: redraft resume {run_id} --force"
            )


PROC = Path("/proc")
PS = "ps"


ZOMBIE = "Z"
"""The state of a process that has exited and was not yet reaped by its parent."""


def start_of(pid: int) -> str:
    """The start time of a process, in this machine's notation; empty if it is unknown."""
    return _status_of(pid)[1]


def _status_of(pid: int) -> tuple[str, str]:
    """The state of a process, as a letter, and its start time; both empty if they are unknown."""
    try:
        if (PROC / "self").exists():
            # The program's name, in parentheses, may hold anything; the start is the 20th field after it.
            fields = (PROC / f"{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            return fields[0], fields[19]
        command = [PS, "-o", "stat=", "-o", "lstart=", "-p", str(pid)]  # macOS, the BSDs
        process = subprocess.run(  # noqa: S603 (a fixed command, and a number)
            command, capture_output=True, text=True, timeout=5, check=False, env={**os.environ, "LC_ALL": "C"}
        )
        state, *start = process.stdout.split()
        return state[0], " ".join(start)
    except (OSError, IndexError, ValueError, subprocess.SubprocessError):
        return "", ""


def _pid_exists(pid: int) -> bool:
    """Whether a process has this id now."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # a process of another user
        return True
    return True


@cache  # reading it takes a tenth of a millisecond, for each stored run
def own_start() -> str:
    """The start time of the current process."""
    return start_of(os.getpid())


os.register_at_fork(after_in_child=own_start.cache_clear)

LONGEST_QUOTED = 200
"""The most characters of a task that a call quotes; a longer task is read from the record."""
Status = Literal["running", "waiting", "finished", "failed", "cancelled", "damaged"]
BUDGET_REASONS = (
    ConvergenceReason.TOKEN_BUDGET,
    ConvergenceReason.COST_BUDGET,
    ConvergenceReason.TIME_BUDGET,
)
ENDED: Mapping[ConvergenceReason, Status] = {
    ConvergenceReason.ERROR: "failed",
    ConvergenceReason.CANCELLED: "cancelled",
}


LONGEST_PART = 120
"""The most characters of the old and of the new text that a change quotes."""


def quoted(text: str) -> str:
    """A piece of an output in quotation marks, on one line, shortened."""
    return f'"{clipped(text, LONGEST_PART)}"'


@dataclass(frozen=True, slots=True)
class Amendment:
    """A change of a correction."""

    old: str
    """Empty for an addition."""
    new: str
    """Empty for a removal."""
    path: str = ""
    """The place in a JSON output, as a pointer."""

    @property
    def kind(self) -> Literal["replaced", "removed", "added"]:
        """What the person did."""
        return "added" if not self.old else "replaced" if self.new else "removed"

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        old, new = (quoted(text) for text in (self.old, self.new))
        if self.kind == "added":
            return f"{place}added {new}"
        return f"{place}removed {old}" if self.kind == "removed" else f"{place}replaced {old} with {new}"


@dataclass(frozen=True, slots=True)
class Correction:
    """The output of a run as it should have been, and the changes that a person made."""

    output: Output
    at: datetime
    version: int
    """The version that was corrected."""
    changes: tuple[Amendment, ...] = ()
    """At most eight, each with at most 120 characters of the old and of the new text."""
    more_changes: int = 0
    """The number of further changes."""
    lesson: str = ""
    """The id of the lesson made from it."""
    problem: str = ""
    """Why no lesson was made from it."""

    def lines(self) -> list[str]:
        """The changes as lines."""
        more = [f"and {self.more_changes} more"] if self.more_changes else []
        return [*map(str, self.changes), *more] or ["changed only spaces and line breaks"]


@dataclass(slots=True)
class RunRecord:
    """The record of a run: its task, its versions, and how it ended."""

    noun: ClassVar[str] = "run"

    run_id: str
    task: PlainTask
    origin: Origin
    options: Mapping[str, Any]
    """The options of the pattern that explain why the run stopped."""
    started_at: datetime
    process: Process
    status: Status = "running"
    """`running` until the run ends: `finished` by a rule, `failed` by an error, or `cancelled`. The `error`
    of a `waiting` run says when it goes on; a `damaged` record has only its `error`, what to do about it."""
    parent: str = ""
    """The id of the run inside which this run took place."""
    draft: Output = None
    """The output that the run started from, if there was one."""
    finished_at: datetime | None = None
    versions: tuple[ReflectionVersion, ...] = ()
    """The stored versions."""
    best: int | None = None
    """The iteration of the best version."""
    final: int | None = None
    """The iteration of the last version."""
    revisions: int = 0
    """All revisions that were made, stored or not."""
    stop: Stop | None = None
    usage_by_role: Mapping[str, TokenUsage] = field(default_factory=dict[str, TokenUsage])
    execution_time: float = 0.0
    diagnostics: Mapping[str, str] = field(default_factory=dict[str, str])
    advice: tuple[Advice, ...] = ()
    error: str = ""
    reflections: tuple[Reflection, ...] = ()
    output_type: Mapping[str, Any] | None = None
    """The name and the JSON Schema of the output type, if there is one: outputs are then stored as JSON."""
    correction: Correction | None = None
    """The output as it should have been, by a person."""

    @property
    def state(self) -> str:
        """The status; a running run is `killed` if its process has exited, `unknown` if that is unknown."""
        return self.process.state_of_run if self.status == "running" else self.status

    @property
    def reason(self) -> ConvergenceReason | None:
        """Why the run stopped; None if it has not ended, or if an error ended it before its first version."""
        return None if self.stop is None else self.stop.reason

    @property
    def is_final(self) -> bool:
        """Whether it has finished, and its result comes back; a loop of a workflow goes on after a budget."""
        goes_on = self.origin.surface == "workflow" and self.reason in BUDGET_REASONS
        return self.status == "finished" and not goes_on

    @property
    def is_inner(self) -> bool:
        """Whether it ran inside another run; loops of a workflow don't count."""
        return bool(self.parent) and self.origin.surface != "workflow"

    @property
    def usage(self) -> TokenUsage:
        """The usage of all roles together."""
        return sum(self.usage_by_role.values(), NOTHING_USED)

    @property
    def all_versions(self) -> tuple[ReflectionVersion, ...]:
        """The versions, each followed by the candidates that were rejected for it."""
        return tuple(each for version in self.versions for each in (version, *version.rejected))

    @property
    def thresholds(self) -> dict[str, float]:
        """The threshold of each criterion, in the order of the criteria; a workflow has only a score."""
        if self.origin.surface == "workflow":
            return {}
        return {
            criterion["name"]: criterion.get("threshold", DEFAULT_CRITERION_THRESHOLD)
            for criterion in self.options.get("criteria", ())
        }

    @property
    def unimportable(self) -> tuple[str, str] | None:
        """The first criterion that can't be imported again, and whether it is a "function" or a "class"."""
        if self.origin.surface == "workflow":
            return None
        for criterion in self.options.get("criteria", ()):
            config = criterion.get("evaluator_config", {})
            for key, noun in (("function", "function"), ("schema", "class")):
                name = config.get(key)
                if isinstance(name, str) and (":" not in name or "<" in name):
                    return criterion["name"], noun
        return None

    def shortfalls(self, version: ReflectionVersion) -> tuple[str, ...]:
        """A clause for each threshold that a version misses; none if it is satisfactory."""
        return shortfalls(version.evaluation, self.options.get("quality_threshold"), self.thresholds)

    def version(self, iteration: int | None) -> ReflectionVersion | None:
        """The version of an iteration, if it is stored."""
        return next((version for version in self.versions if version.iteration == iteration), None)

    def result(self, output_type: OutputType[Any] | None = None) -> ReflectionResult:
        """The result of a finished run, its outputs read into their type.

        Raises `ValueError` for a run without a result, and `DamagedRecordError` for one that had a result.
        """
        versions = self.versions
        if output_type is not None:
            versions = tuple(version.converted(output_type.restore) for version in versions)
        by_iteration = {version.iteration: version for version in versions}
        best, final = by_iteration.get(self.best or 0), by_iteration.get(self.final or 0)
        if self.stop is None or best is None or final is None:
            if self.status == "finished":
                raise DamagedRecordError(
                    damage_of(
                        RUN, self.run_id, "it lacks the best or the last version, or why the run stopped"
                    )
                )
            raise ValueError(f"The run {self.run_id!r} has no result: it is {self.status}.")
        return ReflectionResult(
            success=best.evaluation.satisfactory,
            final_output=final.output,
            best_output=best.output,
            final_evaluation=final.evaluation,
            history=ReflectionHistory(versions, best, final, self.stop.reason, self.revisions),
            iterations_used=self.revisions,
            convergence_reason=self.stop.reason,
            token_usage=self.usage,
            execution_time=self.execution_time,
            run_id=self.run_id,
            usage_by_role=self.usage_by_role,
            diagnostics=self.diagnostics,
            advice=self.advice,
            reflections=self.reflections,
            task=self.task,
            stop=self.stop,
            short_of=self.shortfalls(best),
        )

    def check_resumable(self, *, force: bool = False) -> None:
        """Raise `ConfigError` for a run inside another run, and for a run that a process is working on.

        `force` as in `Process.check_exited`.
        """
        if self.parent:
            raise ConfigError(f"The run {self.run_id!r} ran inside {self.parent!r}: resume that one.")
        if self.status == "running":
            self.process.check_exited(self.run_id, force=force)

    def resuming_call(self) -> str:
        """The Python call that resumes a run; empty for a command, which `redraft resume` resumes."""
        if self.origin.surface == "command":
            return ""
        surface, run_id = self.origin.surface, self.run_id
        is_short = (
            self.task == PlainTask(self.task.description) and len(self.task.description) <= LONGEST_QUOTED
        )
        task = repr(self.task.description) if is_short else f"(await Runs().get({run_id!r})).task"
        if surface == "agent":
            call = f"await agent.run({task}, run_id={run_id!r})  # or agent.run_sync"
        elif surface == "task":
            ensemble = re.sub(r"\.\d+(-\d+)?$", "", run_id)  # as `notes.ensemble` makes the ids of its tasks
            call = f"await ensemble.run(..., run_id={ensemble!r})  # or ensemble.run_sync"
        elif surface == "reflected":
            name = self.origin.name.rpartition(".")[2] or "function"
            if (texts := self.origin.arguments) and len(texts[0]) <= LONGEST_QUOTED:
                return f"await {name}.run_as({run_id!r}, {texts[0]!r})  # or {name}.run_as_sync"
            lines = filter(None, map(str.strip, self.task.description.splitlines()))
            call_text = short_repr("; ".join(lines), LONGEST_QUOTED)  # with the arguments, which it quotes
            call = f"await {name}.run_as({run_id!r}, ...)  # or run_as_sync; the arguments of {call_text}"
        else:
            call = f"await reflect({task}, ..., step=Journalled(store, {run_id!r}))  # or reflect_sync"
        return f"from redraft import Runs\n\n{call}" if "Runs()" in call else call

    def summary(self) -> dict[str, Any]:
        """The fields that a list shows, as plain data."""
        best = self.version(self.best)
        scores = [version.evaluation.overall_score for version in self.versions]
        return {
            "kind": "run",
            "run_id": self.run_id,
            "name": self.origin.name,
            "task": self.task.description,
            "status": self.state,
            "reason": self.reason,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "versions": self.revisions + 1 if self.versions else 0,
            "scores": scores,
            "first_score": scores[0] if scores else None,
            "best_score": None if best is None else best.evaluation.overall_score,
            "best_version": self.best,
            "satisfactory": best is not None and best.evaluation.satisfactory,
            "usage": self.usage,
            "budget_usd": self.options.get("budget_usd"),
            "execution_time": self.execution_time,
            "parent": self.parent,
            "error": self.error,
        }

    def stored(self) -> Record:
        """The record for a store, with its entry in the index of runs."""
        return Record(RUN, self.run_id, to_record(self) | {"index": row_of(self).to_data()})

    def check_same(self, stored: Record, before: RunRecord, /) -> None:
        """Raise `ChangedRunError` if the stored run has another task, type, draft, object or model settings.

        Other criteria are only a warning, since finished steps keep their scores.
        """
        if before.task != self.task:
            raise ChangedRunError(
                f"The run {self.run_id!r} was for another task: {before.task.description!r}. "
                "Give a new task a new run_id."
            )
        if stored.data.get("output_type") != to_record(self.output_type):
            raise ChangedRunError(
                f"The run {self.run_id!r} was for outputs of another type: {_type_name(before.output_type)} "
                f"instead of {_type_name(self.output_type)}. Give a new output_type a new run_id."
            )
        if stored.data.get("draft") != to_record(self.draft):
            raise ChangedRunError(
                f"The run {self.run_id!r} began from {_draft_text(before.draft)}, but is now given "
                f"{_draft_text(self.draft)}. Give a new draft a new run_id."
            )
        if before.origin.owner and before.origin.owner != self.origin.owner:
            raise ChangedRunError(
                f"The run {self.run_id!r} was of the method {before.origin.name!r} of another object. Give "
                "another object a new run_id."
            )
        if before.origin.model_settings != self.origin.model_settings:
            raise ChangedRunError(
                f"The run {self.run_id!r} had other model settings ({before.origin.model_settings!r}) than "
                f"those given now ({self.origin.model_settings!r}). Give other settings a new run_id."
            )
        if _have_changed(before.options.get("criteria", []), self.options.get("criteria", [])):
            logger.warning(
                "The run %s has been judged by other criteria than those given now: what is finished keeps "
                "its scores. To have all of it judged by these, use a new run_id.",
                self.run_id,
            )

    def changed_options(self, options: Mapping[str, Any]) -> list[str]:
        """The options, as `name=value`, that differ from those that this run has recorded."""
        return [
            f"{name}={short_repr(value)}"
            for name, value in options.items()
            if name in self.options and _comparable(value) != _comparable(self.options[name])
        ]

    def end(self, result: ReflectionResult, output_type: OutputType[Any] | None = None) -> None:
        """Fill in how the run ended."""
        history = result.history
        self.status = ENDED.get(result.convergence_reason, "finished")
        self.versions = tuple(history.versions)
        if output_type is not None:
            self.versions = tuple(version.converted(output_type.dump) for version in self.versions)
        self.best = history.best_version.iteration
        self.final = history.final_version.iteration
        self.revisions = history.total_iterations
        self.stop = result.stop
        self.usage_by_role = dict(result.usage_by_role)
        self.execution_time = result.execution_time
        self.diagnostics = dict(result.diagnostics)
        self.advice = result.advice
        self.reflections = result.reflections
        self.error = "" if result.error is None else named_error(result.error)

    def wait(self, why: str, /) -> None:
        """Note that the run goes on later, and why."""
        self.status, self.stop, self.error = "waiting", None, why

    def end_without_version(self, stop: Stop, tally: Tally) -> None:
        """Fill in the end of a run whose budget was spent before its first version, with its usage."""
        self.stop = replace(stop, detail=f"{stop.detail} No version was made.")
        self.usage_by_role = dict(tally.by_role)
        self.execution_time = tally.seconds()
        self.diagnostics = tally.diagnostics()


JUDGED = ("evaluation", "reflection")
"""The roles of the judging model, if a run names one."""
TASK_DIGITS = 16


def task_digest(description: str) -> str:
    """The key of a task in the index: the beginning of the SHA-256 of its description."""
    return sha256(description.encode("utf-8", "surrogatepass")).hexdigest()[:TASK_DIGITS]


def row_of(record: RunRecord) -> RunRow:
    """The columns of a run for the index."""
    options, origin, process = record.options, record.origin, record.process
    judge = str(options.get("judge") or "")
    best = record.version(record.best)
    first = record.versions[0] if record.versions else best
    nothing: Mapping[str, float | None] = {}
    first_scores = nothing if first is None else first.evaluation.criteria_scores
    best_scores = nothing if best is None else best.evaluation.criteria_scores
    usage: Mapping[str, TokenUsage] = record.usage_by_role
    if not usage and record.status != "running":
        usage = {
            "": NOT_REPORTED
        }  # the run failed before its usage was recorded, and may have cost something
    # A judge that a program built is recorded as its repr, `Judge(...)`, which names no model.
    judges = judge if judge and not set("(<") & set(judge) else origin.model
    models: dict[str, list[TokenUsage]] = {}
    for role, used in usage.items():
        models.setdefault(judges if role in JUDGED else origin.model, []).append(used)
    later = _after_best(record)
    shares = [Share("role", role, **spent([used])) for role, used in usage.items()]
    shares += way_shares(record.versions)
    shares += [Share("role_model", model, **spent(used)) for model, used in models.items()]
    return RunRow(
        record.run_id,
        record.started_at,
        status=record.status,
        reason=record.reason or "",
        agent=origin.name,
        model=origin.model,
        judge=judge,
        task=task_digest(record.task.description),
        parent=record.parent,
        is_inner=record.is_inner,
        host=process.host,
        pid=process.pid,
        process_started=process.started,
        is_advised=bool(record.advice),
        strategy=options.get("revision_strategy") or "",
        max_iterations=options.get("max_iterations"),
        threshold=options.get("quality_threshold"),
        selection=options.get("best_version_selection") or "",
        versions=record.revisions + 1 if record.versions else 0,
        first_score=None if first is None else first.evaluation.overall_score,
        best_score=None if best is None else best.evaluation.overall_score,
        satisfactory=best is not None and best.evaluation.satisfactory,
        seconds=record.execution_time,
        later_tokens=later.total_tokens,
        later_usd=later.cost_usd or 0.0,
        later_unpriced=later.cost_usd is None,
        criteria={name: (first_scores.get(name), score) for name, score in best_scores.items()},
        shares=tuple(shares),
        **spent(usage.values()),
    )


def _after_best(record: RunRecord) -> TokenUsage:
    """Add up the usage of the versions after the best; the usage of versions not stored is unknown."""
    if record.best is None or not record.versions:
        return NOTHING_USED
    later = [version.token_usage for version in record.versions if version.iteration > record.best]
    total = sum(later, NOTHING_USED)
    return total if len(later) == record.revisions + 1 - record.best else total + NOT_REPORTED


def _type_name(output_type: Mapping[str, Any] | None) -> str:
    return "str" if output_type is None else output_type["name"]


def _draft_text(draft: Output | None) -> str:
    return "no draft" if draft is None else f"the draft {short_repr(draft)}"


_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")


def _comparable(value: Any) -> str:
    """A value as stored, without the addresses of functions, which differ from process to process."""
    return _ADDRESS.sub(">", json.dumps(to_record(value), sort_keys=True))


def _have_changed(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> bool:
    """Whether recorded criteria differ in the keys that both have: a newer Redraft may record more."""
    return len(before) != len(now) or any(
        _comparable(then[key]) != _comparable(this[key])
        for then, this in zip(before, now, strict=True)
        for key in then.keys() & this.keys()
    )


def damaged_run(record: Record, damage: str) -> RunRecord:
    """A run in place of a record that can't be read, with its id, its start and the damage."""
    began = record.created_at or datetime.now(UTC)
    task, process = PlainTask("(a damaged record)"), Process("", 0, "")
    return RunRecord(record.key, task, Origin(), {}, began, process, "damaged", error=damage)


IMAGE = "image"
"""The kind of an image's record; its key is the digest."""


async def with_stored_images(task: PlainTask, journal: Journalled) -> PlainTask:
    """Store the images of a task, each once for all runs, and load images without their bytes.

    Raises `StoreError` if an image can't be loaded.
    """
    if not journal.is_closed:
        try:
            await store_images(task, journal.store)
        except StoreError as error:
            logger.warning("The images of the run %s are not stored: %s", journal.run_id, error)
    return await with_loaded_images(task, journal.store)


async def store_images(task: PlainTask, store: Store) -> None:
    """Store the images of a task that have their bytes; raises `StoreError`."""
    for image in {image.digest: image for image in task.all_images if image.data}.values():
        data = {"media_type": image.media_type, "base64": b64encode(image.data).decode()}
        await store.put_if_absent(Record(IMAGE, image.digest, data))


async def with_loaded_images(task: PlainTask, store: Store) -> PlainTask:
    """Load the bytes of images without them; raises `StoreError` if the store does not have them."""
    images_by_digest = {image.digest: image for image in task.all_images if image.digest}
    for digest, image in images_by_digest.items():
        if not image.data:
            record = await store.get(IMAGE, digest)
            if record is None:
                raise StoreError(
                    f"The store does not have the image {digest!r}; pass it with the task again."
                )
            images_by_digest[digest] = replace(image, data=b64decode(record.data["base64"]))

    def loaded(images: tuple[Image, ...]) -> tuple[Image, ...]:
        return tuple(images_by_digest.get(image.digest, image) for image in images)

    messages = tuple(
        replace(message, images=loaded(message.images)) if isinstance(message, ImageMessage) else message
        for message in task.messages
    )
    return replace(task, messages=messages, images=loaded(task.images)) if images_by_digest else task
