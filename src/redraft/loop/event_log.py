"""The event log: deliver the events of runs to listeners and to files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from logging import INFO
from os import fsync
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

from redraft._calls import called
from redraft._codec import describe_error, to_json
from redraft._hints import keyword_hints
from redraft._locks import check_regular
from redraft._texts import snapshot
from redraft.errors import ConfigError
from redraft.events import RunFinished, RunStarted, StepFinished, VersionEvaluated
from redraft.redact.log import logger, run_logger
from redraft.redact.redactor import redactor_of_environment
from redraft.types import REASONS, render_score, render_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from redraft.events import Event
    from redraft.redact.redactor import Redactor
    from redraft.types import ReflectionResult

E = TypeVar("E")


@keyword_hints()
class EventLog:
    """An `on_event` listener that writes each event as a line of JSON, for one run or many.

    A line has `schema_version`, `event` (the class name in snake case), `at` (UTC) and the event's fields,
    with secrets redacted. It is flushed immediately. Lines are appended to an existing file. A stream may be
    passed instead of a path; it is not closed.

    Raises `ConfigError` for a file that can't be opened. If a later write fails, a warning is logged once,
    and the runs go on.
    """

    def __init__(self, target: str | Path | TextIO) -> None:
        self._owned = isinstance(target, str | Path)
        self._name = str(target) if isinstance(target, str | Path) else "the stream"
        self._failed = False
        self._redactor = redactor_of_environment()
        self._names = set[str]()
        if not isinstance(target, str | Path):
            self._stream = target
            return
        try:
            check_regular(Path(target))
            # A lone surrogate can't be encoded; its escape is valid JSON.
            self._stream = Path(target).open("a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 (closed by close)
        except OSError as error:
            raise ConfigError(f"The events can't be written to {str(target)!r}: {error.strerror}.") from error

    def __call__(self, event: Event) -> None:
        """Write an event."""
        try:
            self._stream.write(f"{event_line(event, datetime.now(UTC), self._redactor, self._names)}\n")
            self._stream.flush()
        except (OSError, ValueError) as error:  # a stream that was closed raises ValueError
            if not self._failed:
                logger.warning("Events can no longer be written to %s: %s", self._name, error)
            self._failed = True

    def close(self) -> None:
        """Close the file; a stream that was passed stays open."""
        if self._owned:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def event_line(event: Event, at: datetime, redactor: Redactor, names: set[str] | None = None) -> str:
    """An event as a line of JSON, with secrets redacted.

    `names` are the names of persons in earlier events; the names in this event are added.
    """
    fields = redactor.redact_json(to_json(event), names)
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
    document = {"schema_version": fields.pop("schema_version"), "event": name, "at": at.isoformat(), **fields}
    return json.dumps(document, ensure_ascii=False)


ERASED = "erased"
"""The event in place of an erased event."""


def is_event_log(path: Path) -> bool:
    """Whether a file begins with an event, as files of `EventLog` do."""
    with path.open("rb") as file:
        return _event_in(file.readline(LONGEST_FIRST_LINE)) is not None


def erase_events(path: Path, is_erased: Callable[[Mapping[str, Any]], bool], *, check: bool = False) -> int:
    """Overwrite the events to erase in the file of an `EventLog`; returns how many there were.

    Each is overwritten where it is, by an event `erased` of the same length: a program that appends to the
    file meanwhile loses nothing, and an interruption leaves a file that can be read. With `check`, events are
    only counted.
    """
    count = 0
    with path.open("rb" if check else "r+b") as file:
        while line := file.readline():
            event = _event_in(line)
            if event is None or event["event"] == ERASED or not is_erased(event):
                continue
            count += 1
            if not check:
                end = file.tell()
                file.seek(end - len(line))
                blank = json.dumps({"schema_version": 1, "event": ERASED})[:-1]
                content = line.rstrip(b"\r\n")
                file.write(blank.ljust(len(content) - 1).encode() + b"}" + line[len(content) :])
                file.seek(end)
        if count and not check:
            file.flush()
            fsync(file.fileno())
    return count


LONGEST_FIRST_LINE = 1_000_000
_FEWEST_BYTES = 60
"""A line with the fields of every event is longer than the line that erases it."""


def _event_in(line: bytes) -> dict[str, Any] | None:
    """The event in a line; None for any other line."""
    if not line.startswith(b'{"schema_version"'):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_event = isinstance(event.get("event"), str) and (
        len(line) >= _FEWEST_BYTES or event["event"] == ERASED
    )
    return event if is_event else None


def is_logging() -> bool:
    """Whether `log_event` writes anything, at the levels of the loggers."""
    return logger.isEnabledFor(INFO) or run_logger.isEnabledFor(INFO)


def log_event(event: Event) -> None:
    """Log the start, the versions and the end of a run at INFO, without its task and outputs.

    The end is one line of JSON, too, in the log `redraft.runs`, if its level is INFO: see `run_line`.
    """
    match event:
        case RunStarted(run_id=run_id):
            logger.info("Run %s started.", run_id)
        case VersionEvaluated(run_id=run_id, version=version, is_best=is_best):
            score = render_score(version.evaluation.overall_score).strip()
            best = ", the best so far" if is_best else ""
            logger.info("Run %s: version %s scored %s%s.", run_id, version.name, score, best)
        case RunFinished(run_id=run_id, result=result):
            reason = result.convergence_reason.value
            logger.info(
                "Run %s stopped: %s (%s). It returned version %s, %s. Used: %s, %.1f s.",
                run_id,
                REASONS[reason],
                reason,
                result.history.best_version.iteration,
                "satisfactory" if result.success else "not satisfactory",
                render_usage(result.token_usage),
                result.execution_time,
            )
            if run_logger.isEnabledFor(INFO):
                run_logger.info("%s", run_line(result, datetime.now(UTC), redactor_of_environment()))
        case _:
            pass


def run_line(result: ReflectionResult, at: datetime, redactor: Redactor) -> str:
    """A finished run as a line of JSON, with secrets redacted.

    An unknown score or cost is null; `seconds` and `cost_usd` cover the whole run, and `failed` names the
    criteria that the best version misses.
    """
    first, best = result.history.versions[0].evaluation, result.history.best_version
    usage = result.token_usage
    document = {
        "schema_version": 1,
        "event": "run",
        "at": at.isoformat(),
        "run_id": result.run_id,
        "task_type": "" if result.task is None else result.task.task_type,
        "reason": result.convergence_reason.value,
        "satisfactory": result.success,
        "versions": result.history.total_iterations + 1,
        "best_version": best.iteration,
        "first_score": first.overall_score,
        "best_score": best.evaluation.overall_score,
        "failed": sorted({issue.criterion for issue in best.evaluation.issues if issue.criterion}),
        "seconds": round(result.execution_time, 3),
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "diagnostics": sorted(result.diagnostics),
        "error": None if result.error is None else describe_error(result.error),
    }
    return json.dumps(redactor.redact_json(document), ensure_ascii=False)


def emitter(listener: Callable[[E], None] | None) -> Callable[[E], None]:
    """A function that passes copies of events to a listener, and logs what the listener raises."""
    if listener is None:
        return ignore

    def emit(event: E) -> None:
        try:
            called(listener, _detached(event))
        except Exception:
            logger.exception("A listener failed on %s and was ignored.", type(event).__name__)

    return emit


def _detached(event: E) -> E:
    """Copy an event, so that a listener that changes it does not change the run."""
    if isinstance(event, VersionEvaluated):
        return replace(event, version=snapshot(event.version))
    if isinstance(event, StepFinished | RunFinished):
        return replace(event, result=snapshot(event.result))
    return event


def ignore(_event: object) -> None:
    """The listener of a run without one."""
