"""The event log: deliver the events of runs to listeners and to files."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO, TypeVar

from redraft._codec import to_json
from redraft.errors import ConfigError
from redraft.redact.log import logger
from redraft.redact.redactor import redactor_of_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from redraft.events import Event
    from redraft.redact.redactor import Redactor

E = TypeVar("E")


class EventLog:
    """An `on_event` listener that writes each event as a line of JSON, for one run or many.

    A line has `schema_version`, `event` (the class name in snake case), `at` (UTC) and the event's fields,
    with secrets redacted. It is flushed at once. Lines are appended to an existing file. A stream may be
    passed instead of a path; it is not closed.

    Raises `ConfigError` for a file that can't be opened. If a later write fails, a warning is logged once,
    and the runs go on.
    """

    def __init__(self, target: str | Path | TextIO) -> None:
        self._owned = isinstance(target, str | Path)
        self._name = str(target) if isinstance(target, str | Path) else "the stream"
        self._failed = False
        self._redactor = redactor_of_environment()
        if not isinstance(target, str | Path):
            self._stream = target
            return
        try:
            # A lone surrogate can't be encoded; its escape is valid JSON.
            self._stream = Path(target).open("a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 (closed by close)
        except OSError as error:
            raise ConfigError(f"The events can't be written to {str(target)!r}: {error.strerror}.") from error

    def __call__(self, event: Event) -> None:
        """Write an event."""
        try:
            self._stream.write(f"{event_line(event, datetime.now(UTC), self._redactor)}\n")
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


def event_line(event: Event, at: datetime, redactor: Redactor) -> str:
    """Return an event as one line of JSON, with secrets redacted."""
    fields = redactor.redact_json(to_json(event))
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
    document = {"schema_version": fields.pop("schema_version"), "event": name, "at": at.isoformat(), **fields}
    return json.dumps(document, ensure_ascii=False)


def emitter(listener: Callable[[E], None] | None) -> Callable[[E], None]:
    """Return a function that passes events to a listener, and logs what the listener raises."""
    if listener is None:
        return ignore

    def emit(event: E) -> None:
        try:
            listener(event)
        except Exception:
            logger.exception("A listener failed on %s and was ignored.", type(event).__name__)

    return emit


def ignore(_event: object) -> None:
    """Ignore an event: the listener of a run that has none."""
