"""Stored times that a wrong clock may have written."""

from __future__ import annotations

from datetime import datetime, timedelta

SKEW = timedelta(minutes=1)
"""The ordinary difference of two machines' clocks, or of a clock before and after a correction."""


def is_future(moment: datetime, now: datetime) -> bool:
    """Whether a stored time is so late that a wrong clock wrote it. It then counts as `now`."""
    return moment - now > SKEW


def moment_after(moment: datetime, seconds: float | None) -> datetime | None:
    """The time `seconds` after a moment; None if `seconds` is None, or the time is beyond the calendar."""
    try:
        return None if seconds is None else moment + timedelta(seconds=seconds)
    except OverflowError:
        return None
