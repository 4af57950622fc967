"""DraftedItems: the next items under one key of the memory, made out of the last ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.cycles.memory import MemoryChange
from redraft.cycles.retention import retained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from redraft.cycles.memory import Item
    from redraft.cycles.spec_reflect import Retention


class DraftedItems:
    """Hold items that are being added, replaced and removed, and keep account of it.

    A position is that of an item under its key, and stays the same whatever is removed.
    """

    def __init__(self, key: str, before: Sequence[Item]) -> None:
        self.key = key
        self._before = before
        self._items = list(before)
        self._replaced: set[int] = set()
        self._removed: set[int] = set()

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        every = enumerate(self._items)
        return (one for one in every if one[0] not in self._removed) if self._removed else every

    def __getitem__(self, position: int) -> Item:
        return self._items[position]

    def append(self, item: Item) -> None:
        """Add an item; its timestamp is never before that of the last one, even if the clock went back."""
        last = str(self._items[-1].get("timestamp", "")) if self._items else ""
        self._items.append(item if item["timestamp"] >= last else {**item, "timestamp": last})

    def replace(self, position: int, item: Item) -> None:
        """Put an item in the place of another, whose id it has."""
        self._items[position] = item
        self._replaced.add(position)

    def remove(self, position: int) -> None:
        """Take an item out."""
        self._removed.add(position)

    def finished(self, retention: Retention | None, now: datetime) -> tuple[list[Item], list[MemoryChange]]:
        """Return the items within their retention, and all that differs from those before."""
        drafted = [item for _, item in self] if self._removed else self._items
        kept = retained(drafted, retention, now)
        gone = self._removed | self._dropped(drafted, kept)
        return list(kept), [*self._changes(gone)]

    def _dropped(self, drafted: Sequence[Item], kept: Sequence[Item]) -> set[int]:
        """Return the positions of what retention dropped; mostly that is the first few."""
        dropped: set[int] = set()
        position_of = self._position_of()
        at = 0
        while len(drafted) - at > len(kept) - (at - len(dropped)):
            if at - len(dropped) < len(kept) and drafted[at] is kept[at - len(dropped)]:
                at += 1
                continue
            dropped.add(position_of(at))
            at += 1
        return dropped

    def _position_of(self) -> Callable[[int], int]:
        if not self._removed:
            return int
        return [position for position, _ in self].__getitem__

    def _changes(self, gone: set[int]) -> Iterator[MemoryChange]:
        known = len(self._before)
        for at in sorted(position for position in gone if position < known):
            yield MemoryChange(self.key, _id(self._before[at]), self._before[at], None, at)
        for at in sorted(self._replaced - gone):
            if at < known and self._items[at] != self._before[at]:
                yield MemoryChange(self.key, _id(self._items[at]), self._before[at], self._items[at])
        for at in range(known, len(self._items)):
            if at not in gone:
                yield MemoryChange(self.key, _id(self._items[at]), None, self._items[at])


def _id(item: Item) -> str:
    return str(item.get("id", ""))
