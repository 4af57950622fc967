"""Retention: which items of an array of the memory are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from redraft.cycles.stamp import stamp_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from redraft.cycles.memory import Item
    from redraft.cycles.spec_reflect import Retention

MOST_ITEMS = 10_000
"""So many items a key keeps where its policy names no number: a file without one must not fill a disk."""


def retained(items: Sequence[Item], retention: Retention | None, now: datetime) -> Sequence[Item]:
    """Return the items that are kept, in their order; `items` itself where all are.

    `max_items` keeps the most recent by their timestamps; of two of the same time the later one in the array
    is the younger. `ttl` discards what is older than `ttl_ms`; what is exactly that old stays, and so does
    what is of the future. Both together keep what both keep. Specification 004, Retention Policies.
    """
    most, oldest = _bounds(retention, now)
    stamps = [item.get("timestamp", "") for item in items] if oldest else []  # they sort as the times do
    if min(stamps, default=oldest) < oldest:
        items = [item for item, stamp in zip(items, stamps, strict=True) if stamp >= oldest]
    return items if len(items) <= most else _youngest(items, most)


def _youngest(items: Sequence[Item], most: int) -> list[Item]:
    stamps = [item.get("timestamp", "") for item in items]
    if stamps == sorted(stamps):  # as they are unless one was renewed
        return list(items[len(items) - most :])
    by_age = sorted(range(len(items)), key=stamps.__getitem__)
    return [items[position] for position in sorted(by_age[len(items) - most :])]


def _bounds(retention: Retention | None, now: datetime) -> tuple[int, str]:
    """Return how many items are kept at most, and the stamp of the oldest (empty: of any age)."""
    if retention is None:
        return MOST_ITEMS, ""
    given = retention.policy or ["max_items", "ttl"]
    policies = [given] if isinstance(given, str) else given
    most = retention.max_items if "max_items" in policies else None
    ttl = retention.ttl_ms if "ttl" in policies else None
    return MOST_ITEMS if most is None else most, "" if ttl is None else _before(now, ttl)


def _before(now: datetime, milliseconds: int) -> str:
    try:
        return stamp_of(now - timedelta(milliseconds=milliseconds))
    except OverflowError:  # longer than there are years: nothing is that old
        return ""
