"""Watching: what listens to the runs of a command beside the person, as `--events` asks for it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError
from redraft.loop.event_log import EventLog

if TYPE_CHECKING:
    from collections.abc import Generator

    from redraft.core.events import Event, Listener

STDOUT = "-"


@contextmanager
def watched(progress: Listener, events: str | None, *, stdout_is_free: bool = False) -> Generator[Listener]:
    """Yield a listener that tells `progress`, and writes to the file that `events` names, if it does.

    Raises `ConfigError` as `check_events` does.
    """
    if events is None:
        yield progress
        return
    check_events(events, stdout_is_free=stdout_is_free)
    with EventLog(sys.stdout if events == STDOUT else events) as log:
        yield _both(progress, log)


def check_events(events: str | None, *, stdout_is_free: bool = False) -> None:
    """Raise `ConfigError` for a file that can't be written, and for `-` where stdout is taken."""
    if events == STDOUT and not stdout_is_free:
        raise ConfigError(
            "--events - would mix the events with what goes to stdout: give a file, or send the rest "
            "into one with --output (and without --json)."
        )
    if events not in (None, STDOUT):
        EventLog(events).close()


def _both(progress: Listener, log: EventLog) -> Listener:
    def tell(event: Event) -> None:
        log(event)
        progress(event)

    return tell
