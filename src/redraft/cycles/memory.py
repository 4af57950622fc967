"""Memory: the items that an agent remembers, their bounds, and their changes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from operator import is_
from typing import Any, TypeAlias, TypeVar, cast

from redraft._clock import SKEW, moment_after
from redraft._validation import is_number
from redraft.text.characters import without_invisible

T = TypeVar("T")

Item: TypeAlias = Mapping[str, Any]
"""A memory item: JSON data with an `id` and a `timestamp` (`2026-11-22T10:00:00.000Z`)."""

RECENT_ACTIONS, PATTERNS, CONSTRAINTS, FEEDBACK = (
    "recentActions",
    "patterns",
    "constraints",
    "feedbackHistory",
)
STANDARD_KEYS = (RECENT_ACTIONS, PATTERNS, CONSTRAINTS, FEEDBACK)
"""The memory keys of every agent; its file may name more."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of an agent after a cycle."""

    items: Mapping[str, Sequence[Item]] = field(default_factory=dict[str, Sequence[Item]])
    """The items under each key, oldest first."""
    cycle: int = 0
    """The number of the cycle; 0: before the first."""

    def of(self, key: str) -> Sequence[Item]:
        """The items under a key; empty if the key was never written."""
        return self.items.get(key, ())


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """The change of a memory item."""

    key: str
    id: str
    before: Item | None
    """None for a new item."""
    after: Item | None
    """None for a removed item."""
    at: int | None = None
    """The position of a removed item (0: first), so that the change can be undone."""


def copied(data: T) -> T:
    """A copy of plain data, for a caller who may change it; several times faster than `deepcopy`."""
    return pickle.loads(pickle.dumps(data, pickle.HIGHEST_PROTOCOL))  # noqa: S301 (made by this process)


DEFAULT_CONFIDENCE = 0.5


def clamped(value: Any) -> float:
    """A confidence between 0 and 1, rounded to four decimals; the default for anything but a number."""
    if not is_number(value):
        return DEFAULT_CONFIDENCE
    return round(min(1.0, max(0.0, value)), 4)


def confidence_of(item: Item) -> float:
    """The confidence of an item, between 0 and 1."""
    stored = item.get("confidence")
    return stored if type(stored) is float and 0.0 <= stored <= 1.0 else clamped(stored)


def stamp_of(moment: datetime) -> str:
    """A time in the form of the memory: `2026-11-22T10:00:00.000Z`, in UTC, truncated to milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def moment_of(stamp: str) -> datetime | None:
    """Parse an ISO 8601 time, in UTC unless it names a zone; None for other text."""
    try:
        moment = datetime.fromisoformat(stamp)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # not a time, or outside the years that UTC has
        return None


MAX_ITEMS = 10_000
"""The limit of a key without `maxItems`, so that no agent fills the disk."""


def retained(
    items: Sequence[Item], max_items: int | None, oldest: datetime | None, now: datetime
) -> Sequence[Item]:
    """The items within the bounds, in their order; `items` itself if that is all of them.

    The `max_items` most recent items are retained, by timestamp, then by position. Items older than `oldest`
    are dropped. Timestamps are those of `past_stamps`.
    """
    limit = MAX_ITEMS if max_items is None else max_items
    if oldest is None and len(items) <= limit:
        return items
    stamps = past_stamps(items, now)
    first = "" if oldest is None else stamp_of(oldest)
    positions = [position for position, stamp in enumerate(stamps) if stamp >= first]
    if len(positions) > limit:
        positions = sorted(sorted(positions, key=stamps.__getitem__)[len(positions) - limit :])
    return items if len(positions) == len(items) else [items[position] for position in positions]


def past_stamps(items: Sequence[Item], now: datetime) -> list[str]:
    """The timestamps of items, none of them in the future; they sort as the times do.

    A timestamp in the future, which a wrong clock wrote, is replaced by the next one in the sequence, or by
    now.
    """
    stamps: list[str] = [item.get("timestamp", "") for item in items]
    latest = latest_stamp(now)
    if max(stamps, default="") > latest:
        following = stamp_of(now)
        for position in reversed(range(len(stamps))):
            if stamps[position] > latest:
                stamps[position] = following
            following = stamps[position]
    return stamps


def latest_stamp(now: datetime) -> str:
    """The latest timestamp that does not count as in the future."""
    return stamp_of(moment_after(now, SKEW.total_seconds()) or now)


def by_id(items: Iterable[Item]) -> dict[str, Item]:
    """Items by their ids, in their order."""
    return {str(item.get("id")): item for item in items}


def add_item(items: dict[str, Item], item: Item, now: datetime) -> None:
    """Add an item after the others.

    Its timestamp is raised to that of the last item if it is earlier, unless that is in the future.
    """
    last = str(items[next(reversed(items))].get("timestamp", "")) if items else ""
    is_ordered = item["timestamp"] >= last or last > latest_stamp(now)
    items[item["id"]] = item if is_ordered else {**item, "timestamp": last}


def renewed_stamp(item: Item, now: datetime) -> str:
    """The timestamp of an item that is renewed now."""
    stamp = stamp_of(now)
    return stamp if item["timestamp"] > latest_stamp(now) else max(stamp, item["timestamp"])


def differences(before: Memory, after: Memory) -> tuple[MemoryChange, ...]:
    """The differences between two memories, key by key: removed, changed and new items."""
    changes: list[MemoryChange] = []
    for key in dict.fromkeys([*before.items, *after.items]):
        old, new = before.of(key), after.of(key)
        if len(old) == len(new) and all(map(is_, old, new)):
            continue
        old_by_id, new_by_id = by_id(old), by_id(new)
        changes += [
            MemoryChange(key, name, item, None, at)
            for at, (name, item) in enumerate(old_by_id.items())
            if name not in new_by_id
        ]
        changes += [
            MemoryChange(key, name, old_by_id[name], item)
            for name, item in new_by_id.items()
            if name in old_by_id and item is not old_by_id[name] and item != old_by_id[name]
        ]
        changes += [
            MemoryChange(key, name, None, item) for name, item in new_by_id.items() if name not in old_by_id
        ]
    return tuple(changes)


MAX_DEPTH = 8
MAX_INT = 2**63
MARGIN = 4
"""Text is redacted up to this multiple of the limit, then cut: half a secret would not be recognized."""


def truncated(value: Any, limit: int) -> Any:
    """JSON data cut to about `limit` characters; `...` marks a cut, with the number of omitted items.

    Invisible characters are removed. A number that JSON can't represent becomes None, and any other object
    its text. Never raises for plain Python data.
    """
    return _copied(value, _Budget(limit), MAX_DEPTH)


def redacted_and_truncated(value: Any, redact: Callable[[Any], Any], limit: int) -> Any:
    """JSON data without secrets, cut to about `limit` characters."""
    budget = _Budget(MARGIN * limit)
    copy = redact(_copied(value, budget, MAX_DEPTH))
    return copy if MARGIN * limit - budget.left <= limit else truncated(copy, limit)


@dataclass(slots=True)
class _Budget:
    left: int
    """The remaining characters."""


def _copied(value: Any, budget: _Budget, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, budget)
    if value is None or isinstance(value, bool | int | float):
        budget.left -= 8
        return _number(value)
    if isinstance(value, Mapping) and depth:
        return _mapping(cast("Mapping[Any, Any]", value), budget, depth)
    if isinstance(value, list | tuple) and depth:
        return _list(cast("list[Any]", value), budget, depth)
    if isinstance(value, Mapping | list | tuple):
        return "..."
    return _text(str(value), budget)


def _number(value: float | None) -> float | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_INT else None
    return value if isfinite(value) else None


def _text(text: str, budget: _Budget) -> str:
    left = max(0, budget.left)
    begin = text[: 2 * left + 1]
    visible = begin if begin.isascii() and begin.isprintable() else without_invisible(begin)
    budget.left -= len(visible) + 2
    return visible if len(visible) <= left and len(text) <= 2 * left + 1 else f"{visible[:left]}..."


def _mapping(value: Mapping[Any, Any], budget: _Budget, depth: int) -> dict[str, Any]:
    copy: dict[str, Any] = {}
    for done, (key, inner) in enumerate(value.items()):
        if budget.left <= 0:
            copy["..."] = f"{len(value) - done:,} more"
            break
        name = _text(str(key), budget)
        copy[name] = _copied(inner, budget, depth - 1)
    return copy


def _list(value: list[Any] | tuple[Any, ...], budget: _Budget, depth: int) -> list[Any]:
    copy: list[Any] = []
    for done, inner in enumerate(value):
        if budget.left <= 0:
            copy.append(f"... {len(value) - done:,} more")
            break
        copy.append(_copied(inner, budget, depth - 1))
    return copy
