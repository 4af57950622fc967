"""A caller's clock, a clock for durations, and stored times that a wrong clock may have written."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
SKEW = timedelta(minutes=1)
"""The ordinary difference of two machines' clocks, or of a clock before and after a correction."""


def uptime() -> float:
    """Seconds by a clock that is never set, and that also runs while the machine sleeps."""
    return time.clock_gettime(_UPTIME)


def zoned(clock: Any) -> Callable[[], datetime]:
    """A caller's clock that raises `ConfigError` unless it returns a time with its zone."""

    def now() -> datetime:
        moment: Any = clock() if callable(clock) else clock
        if not callable(clock) or not isinstance(moment, datetime) or moment.tzinfo is None:
            raise ConfigError(
                f"clock must be a function that returns the time with its zone, got {moment!r}."
            )
        return moment

    return now


def is_future(moment: datetime, now: datetime) -> bool:
    """Whether a stored time is so late that a wrong clock wrote it. It then counts as `now`."""
    return moment - now > SKEW


def moment_after(moment: datetime, seconds: float | None) -> datetime | None:
    """The time `seconds` after a moment; None if `seconds` is None, or the time is beyond the calendar."""
    try:
        return None if seconds is None else moment + timedelta(seconds=seconds)
    except OverflowError:
        return None
