"""Clock: stored times, as they count for a clock that may have been wrong."""

from __future__ import annotations

from datetime import datetime, timedelta

SKEW = timedelta(minutes=1)
"""How far the clocks of two machines, or of one before and after a correction, ordinarily differ."""


def is_future(moment: datetime, now: datetime) -> bool:
    """Whether only a wrong clock can have written a stored time, which then counts as `now`."""
    return moment - now > SKEW
