"""Memory: the items an agent remembers, within bounds, and how they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from operator import is_
from typing import Any, TypeAlias, cast

from redraft._clock import SKEW
from redraft.text.characters import without_invisible

Item: TypeAlias = Mapping[str, Any]
"""One thing that is remembered: JSON data with an `id` and a `timestamp` (`2026-11-22T10:00:00.000Z`)."""

RECENT_ACTIONS, PATTERNS, CONSTRAINTS, FEEDBACK = (
    "recentActions",
    "patterns",
    "constraints",
    "feedbackHistory",
)
STANDARD_KEYS = (RECENT_ACTIONS, PATTERNS, CONSTRAINTS, FEEDBACK)
"""The keys that every agent has; its file may name more."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The items under each key, oldest first, as they were after cycle `cycle` (0: before the first)."""

    items: Mapping[str, Sequence[Item]] = field(default_factory=dict[str, Sequence[Item]])
    cycle: int = 0

    def of(self, key: str) -> Sequence[Item]:
        """Return the items under a key, none if it was never written."""
        return self.items.get(key, ())


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """A change of one item."""

    key: str
    id: str
    before: Item | None
    """None for a new item."""
    after: Item | None
    """None for an item that is gone."""
    at: int | None = None
    """The position of an item that is gone (0: first), so that the change can be undone."""


DEFAULT_CONFIDENCE = 0.5


def clamped(value: Any) -> float:
    """Return a confidence between 0 and 1, to four decimals; the default for what is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return DEFAULT_CONFIDENCE
    return round(min(1.0, max(0.0, value)), 4)


def confidence_of(item: Item) -> float:
    """Return the confidence of an item, between 0 and 1."""
    found = item.get("confidence")
    return found if type(found) is float and 0.0 <= found <= 1.0 else clamped(found)


def stamp_of(moment: datetime) -> str:
    """Return a time as memory stores it: `2026-11-22T10:00:00.000Z`, in UTC, truncated to milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def moment_of(stamp: str) -> datetime | None:
    """Parse an ISO 8601 time, in UTC if it names no zone; None if it is not one."""
    try:
        moment = datetime.fromisoformat(stamp)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # not a time, or one outside of UTC's years
        return None


def moment_after(moment: datetime, seconds: float | None) -> datetime | None:
    """Return the time `seconds` later; None if they are None, or beyond the calendar."""
    try:
        return None if seconds is None else moment + timedelta(seconds=seconds)
    except OverflowError:
        return None


MAX_ITEMS = 10_000
"""Items that a key keeps if its policy sets no number: an unbounded file must not fill a disk."""


def retained(
    items: Sequence[Item], max_items: int | None, oldest: datetime | None, now: datetime
) -> Sequence[Item]:
    """Return the items that are kept, in their order; `items` itself if all are.

    `max_items` keeps the most recent by their timestamps; of two with the same timestamp the later one in the
    sequence counts as newer. Items older than `oldest` are dropped. `past_stamps` says which time counts.
    """
    limit = MAX_ITEMS if max_items is None else max_items
    if oldest is None and len(items) <= limit:
        return items
    stamps = past_stamps(items, now)
    first = "" if oldest is None else stamp_of(oldest)
    kept = [position for position, stamp in enumerate(stamps) if stamp >= first]
    if len(kept) > limit:
        kept = sorted(sorted(kept, key=stamps.__getitem__)[len(kept) - limit :])
    return items if len(kept) == len(items) else [items[position] for position in kept]


def past_stamps(items: Sequence[Item], now: datetime) -> list[str]:
    """Return the timestamps of items as they count now; they sort as the times do.

    One from the future, which a wrong clock wrote, counts as the next one in the sequence, or as now.
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
    """Return the stamp after which a stored one is from the future."""
    return stamp_of(moment_after(now, SKEW.total_seconds()) or now)


class KeyDraft:
    """The items under one key while they are added to, replaced and removed, at the time `now`.

    Iterating yields each item with its position, which stays the same whatever is removed.
    """

    def __init__(self, items: Sequence[Item], now: datetime) -> None:
        self._items: list[Item | None] = list(items)
        self._now = now
        self._latest = latest_stamp(now)

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        return ((position, item) for position, item in enumerate(self._items) if item is not None)

    def append(self, item: Item) -> None:
        """Add an item; its timestamp is not before the last one, unless that is from the future."""
        last = next((str(one.get("timestamp", "")) for one in reversed(self._items) if one is not None), "")
        is_ordered = item["timestamp"] >= last or last > self._latest
        self._items.append(item if is_ordered else {**item, "timestamp": last})

    def renewed_stamp(self, item: Item) -> str:
        """Return the timestamp of an item that is renewed now."""
        now = stamp_of(self._now)
        return now if item["timestamp"] > self._latest else max(now, item["timestamp"])

    def replace(self, position: int, item: Item) -> None:
        """Replace an item by one with the same id."""
        self._items[position] = item

    def remove(self, position: int) -> None:
        """Remove an item."""
        self._items[position] = None

    def finish(self, max_items: int | None = None, oldest: datetime | None = None) -> Sequence[Item]:
        """Return the items that are `retained`."""
        return retained([item for _, item in self], max_items, oldest, self._now)


def differences(before: Memory, after: Memory) -> tuple[MemoryChange, ...]:
    """Return the differences between two memories, key by key: items gone, changed, and new."""
    changes: list[MemoryChange] = []
    for key in dict.fromkeys([*before.items, *after.items]):
        old, new = before.of(key), after.of(key)
        if len(old) == len(new) and all(map(is_, old, new)):
            continue
        old_by_id, new_by_id = ({str(item.get("id")): item for item in items} for items in (old, new))
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
"""How many times as much is redacted as is kept: half a secret would not be recognized."""


def truncated(value: Any, limit: int) -> Any:
    """Return JSON data cut to about `limit` characters; what was cut ends in `...` and says how much is gone.

    Invisible characters are left out; a number that JSON can't represent becomes None, and any other object
    its text. Never raises for plain Python data.
    """
    return _copied(value, _Room(limit), MAX_DEPTH)


def redacted_and_truncated(value: Any, redact: Callable[[Any], Any], limit: int) -> Any:
    """Return JSON data without secrets, then cut to about `limit` characters."""
    room = _Room(MARGIN * limit)
    copy = redact(_copied(value, room, MAX_DEPTH))
    return copy if MARGIN * limit - room.left <= limit else truncated(copy, limit)


@dataclass(slots=True)
class _Room:
    """How many characters are left."""

    left: int


def _copied(value: Any, room: _Room, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, room)
    if value is None or isinstance(value, bool | int | float):
        room.left -= 8
        return _number(value)
    if isinstance(value, Mapping) and depth:
        return _mapping(cast("Mapping[Any, Any]", value), room, depth)
    if isinstance(value, list | tuple) and depth:
        return _list(cast("list[Any]", value), room, depth)
    if isinstance(value, Mapping | list | tuple):
        return "..."
    return _text(str(value), room)


def _number(value: float | None) -> float | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_INT else None
    return value if isfinite(value) else None


def _text(text: str, room: _Room) -> str:
    left = max(0, room.left)
    begin = text[: 2 * left + 1]
    seen = begin if begin.isascii() and begin.isprintable() else without_invisible(begin)
    room.left -= len(seen) + 2
    return seen if len(seen) <= left and len(text) <= 2 * left + 1 else f"{seen[:left]}..."


def _mapping(value: Mapping[Any, Any], room: _Room, depth: int) -> dict[str, Any]:
    copy: dict[str, Any] = {}
    for done, (key, inner) in enumerate(value.items()):
        if room.left <= 0:
            copy["..."] = f"{len(value) - done:,} more"
            break
        name = _text(str(key), room)
        copy[name] = _copied(inner, room, depth - 1)
    return copy


def _list(value: list[Any] | tuple[Any, ...], room: _Room, depth: int) -> list[Any]:
    copy: list[Any] = []
    for done, inner in enumerate(value):
        if room.left <= 0:
            copy.append(f"... {len(value) - done:,} more")
            break
        copy.append(_copied(inner, room, depth - 1))
    return copy
