"""Deliver events: to listeners and to files."""

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
    """Write every event of one or many runs as a line of JSON: an `on_event` listener.

    A line has `schema_version`, `event` (the class's name in snake case), `at` (UTC) and the event's fields,
    and is there for readers as soon as the event has happened; secrets in it are withheld. Lines are added
    to a file that exists. A stream that is given in place of a path stays open. Raises `ConfigError` for a
    file that can't be written; one that can't be written later costs no run anything but its lines.
    """

    def __init__(self, place: str | Path | TextIO) -> None:
        self._owned = isinstance(place, str | Path)
        self._name = str(place) if isinstance(place, str | Path) else "the stream"
        self._failed = False
        self._redactor = redactor_of_environment()
        if not isinstance(place, str | Path):
            self._stream = place
            return
        try:
            # A lone surrogate has no UTF-8; its escape is what JSON has for it.
            self._stream = Path(place).open("a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 (closed by close)
        except OSError as error:
            raise ConfigError(f"The events can't be written to {str(place)!r}: {error.strerror}.") from error

    def __call__(self, event: Event) -> None:
        """Write an event."""
        try:
            self._stream.write(f"{event_line(event, datetime.now(UTC), self._redactor)}\n")
            self._stream.flush()
        except (OSError, ValueError) as error:  # a stream that was closed raises ValueError
            if not self._failed:
                logger.warning("The events are not written to %s any more: %s", self._name, error)
            self._failed = True

    def close(self) -> None:
        """Let go of the file."""
        if self._owned:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def event_line(event: Event, at: datetime, redactor: Redactor) -> str:
    """Return an event as one line of JSON, with its secrets withheld."""
    fields = redactor.redact_json(to_json(event))
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
    document = {"schema_version": fields.pop("schema_version"), "event": name, "at": at.isoformat(), **fields}
    return json.dumps(document, ensure_ascii=False)


def emitter(listener: Callable[[E], None] | None) -> Callable[[E], None]:
    """Return what hands an event to the listener; one that raises is logged."""
    if listener is None:
        return nobody

    def emit(event: E) -> None:
        try:
            listener(event)
        except Exception:
            logger.exception("A listener failed on %s and was ignored.", type(event).__name__)

    return emit


def nobody(_event: object) -> None:
    """Listen to nothing."""
