"""Memory: what an agent remembers, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, TypeAlias

Item: TypeAlias = Mapping[str, Any]
"""One thing that is remembered: JSON data with an `id`, a `timestamp` (`2026-11-22T10:00:00.000Z`)."""

RECENT_ACTIONS, PATTERNS, CONSTRAINTS, FEEDBACK = (
    "recentActions",
    "patterns",
    "constraints",
    "feedbackHistory",
)
STANDARD_KEYS = (RECENT_ACTIONS, PATTERNS, CONSTRAINTS, FEEDBACK)
"""The keys that every agent has; a file may name others. Specification 004, Memory Keys."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Hold the items under each key, oldest first, as they were after cycle `cycle` (0: before the first)."""

    items: Mapping[str, Sequence[Item]] = field(default_factory=dict[str, Sequence[Item]])
    cycle: int = 0

    def of(self, key: str) -> Sequence[Item]:
        """Return the items under a key; one that was never written has none."""
        return self.items.get(key, ())


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Say what became of one item: `before` is None for a new one, `after` for one that is gone.

    `at` is where one that is gone stood under its key (0: first), so that a change can be undone.
    """

    key: str
    id: str
    before: Item | None
    after: Item | None
    at: int | None = None


DEFAULT = 0.5
"""That of an item which says nothing of it."""


def clamped(value: Any) -> float:
    """Return a number within 0 and 1, to four decimals; anything that is no number is the default."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return DEFAULT
    return round(min(1.0, max(0.0, value)), 4)


def confidence_of(item: Item) -> float:
    """Return the confidence of an item."""
    found = item.get("confidence")
    return found if type(found) is float and 0.0 <= found <= 1.0 else clamped(found)


def stamp_of(moment: datetime) -> str:
    """Return a time as memory has it: `2026-11-22T10:00:00.000Z`, in UTC, cut to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def moment_of(stamp: str) -> datetime | None:
    """Return the time that an ISO 8601 text tells, in UTC where it names no zone; else None."""
    try:
        moment = datetime.fromisoformat(stamp)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # no time, or one that UTC has no year for
        return None


def moment_after(moment: datetime, seconds: float | None) -> datetime | None:
    """Return a time so many seconds later; None where they are None, or more than the calendar has."""
    try:
        return None if seconds is None else moment + timedelta(seconds=seconds)
    except OverflowError:
        return None
