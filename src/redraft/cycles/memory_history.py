"""The history of a memory: what it was after an earlier cycle, is after later ones, and what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.record import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redraft.cycles.memory import Item
    from redraft.cycles.record import CycleRecord


def memory_at(memory: Memory, records: Iterable[CycleRecord], cycle: int) -> Memory:
    """Return the memory as it was after an earlier cycle (0: before the first): undo what changed since.

    `records` are those of the cycles after it, in any order; others don't matter. Raises `ConfigError` for a
    cycle that has not been, or whose followers are not kept any more.
    """
    kept = {record.number: record for record in records}
    latest = max(memory.cycle, *kept, 0) if kept else memory.cycle
    if not 0 <= cycle <= latest:
        raise ConfigError(f"There is no cycle {cycle!r}: expected one from 0 to {latest}.")
    items: dict[str, Sequence[Item]] = dict(memory.items)
    for number in range(memory.cycle, cycle, -1):
        if number not in kept:
            raise ConfigError(
                f"The memory after cycle {cycle!r} is not known any more: what cycle {number} changed is not "
                f"kept. Ask for {number} or a later one."
            )
        _undo(items, kept[number].changes)
    return Memory(items, cycle)


def memory_after(memory: Memory, records: Iterable[CycleRecord]) -> Memory:
    """Return the memory as it is after later cycles: do again what they have changed.

    `records` are those of the cycles after it, in their order; one that has not ended has changed nothing.
    """
    items: dict[str, Sequence[Item]] = dict(memory.items)
    cycle = memory.cycle
    for record in records:
        if record.status not in UNFINISHED:
            cycle = record.number
        for key, changes in _by_key(record.changes).items():
            items[key] = _redone(items.get(key, ()), changes)
    return Memory(items, cycle)


def differences(before: Memory, after: Memory) -> tuple[MemoryChange, ...]:
    """Return what differs between two memories: what is gone, what changed, what is new, key by key."""
    changes: list[MemoryChange] = []
    for key in dict.fromkeys([*before.items, *after.items]):
        old, new = _by_id(before.of(key)), _by_id(after.of(key))
        changes += [
            MemoryChange(key, name, item, None, at)
            for at, (name, item) in enumerate(old.items())
            if name not in new
        ]
        changes += [
            MemoryChange(key, name, old[name], item)
            for name, item in new.items()
            if name in old and item != old[name]
        ]
        changes += [MemoryChange(key, name, None, item) for name, item in new.items() if name not in old]
    return tuple(changes)


def _undo(items: dict[str, Sequence[Item]], changes: Sequence[MemoryChange]) -> None:
    for key, own in _by_key(changes).items():
        items[key] = _undone(items.get(key, ()), own)


def _by_key(changes: Sequence[MemoryChange]) -> dict[str, list[MemoryChange]]:
    by_key: dict[str, list[MemoryChange]] = {}
    for change in changes:
        by_key.setdefault(change.key, []).append(change)
    return by_key


def _redone(items: Sequence[Item], changes: Sequence[MemoryChange]) -> list[Item]:
    """Return the items under a key as they became: what is gone goes, what is new stands at the end."""
    gone = {_place_of(change, items) for change in changes if change.after is None}
    replaced = {change.id: change.after for change in changes if change.before and change.after}
    left = [item for at, item in enumerate(items) if at not in gone]
    if replaced:
        left = [replaced.get(str(item.get("id")), item) for item in left]
    return left + [change.after for change in changes if change.before is None and change.after is not None]


def _place_of(change: MemoryChange, items: Sequence[Item]) -> int | None:
    """Return where an item stands that a cycle took away: elsewhere, if an earlier memory was joined."""
    at = change.at
    if at is not None and at < len(items) and str(items[at].get("id")) == change.id:
        return at
    return next((at for at, item in enumerate(items) if str(item.get("id")) == change.id), None)


def _undone(items: Sequence[Item], changes: Sequence[MemoryChange]) -> list[Item]:
    """Return the items under a key as they were: what is new stands at the end, what is gone says where."""
    added = sum(change.before is None for change in changes)
    replaced = {change.id: change.before for change in changes if change.before and change.after}
    left = list(items[: len(items) - added])
    if replaced:
        left = [replaced.get(str(item.get("id")), item) for item in left]
    gone = [(change.at, change.before) for change in changes if change.before and not change.after]
    for at, item in sorted(gone, key=lambda one: one[0] or 0):
        left.insert(at or 0, item)
    return left


def _by_id(items: Sequence[Item]) -> Mapping[str, Item]:
    return {str(item.get("id")): item for item in items}
