"""MemoryView: what an agent remembers, and what became of it between two cycles, as a page shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft._texts import shortened

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from redraft.cycles.memory import Item, Memory, MemoryChange
    from redraft.web.agent_read import MemoryDiff

HEAD = ("description", "message", "action", "constraint", "verdict")
"""What an item is about: the first of these that it has."""
NOT_SHOWN = ("id", "timestamp", "since", "durationMs")
LONGEST = 240
NEW, CHANGED, RETIRED, DROPPED, GONE = "new", "changed", "retired", "dropped", "gone"


@dataclass(frozen=True, slots=True)
class ItemView:
    """Hold an item: when it is from, what it is about, and what else it says."""

    at: str
    head: str
    rest: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class KeyView:
    """Hold a key of the memory with its newest items first; `older` are not shown."""

    key: str
    items: tuple[ItemView, ...]
    older: int


@dataclass(frozen=True, slots=True)
class ChangeView:
    """Say what became of an item; `moved` are the fields that changed, each with what it was and is."""

    what: str
    item: ItemView
    moved: tuple[tuple[str, str, str], ...] = ()


def memory_views(memory: Memory, sizes: Mapping[str, int]) -> tuple[KeyView, ...]:
    """Return the keys of a memory; `sizes` says how many items each has, shown or not."""
    return tuple(
        KeyView(key, tuple(item_view(item) for item in reversed(items)), sizes[key] - len(items))
        for key, items in memory.items.items()
    )


def change_views(diff: MemoryDiff) -> tuple[tuple[str, tuple[ChangeView, ...]], ...]:
    """Return what changed, key by key."""
    keys = dict.fromkeys(change.key for change in diff.changes)
    return tuple(
        (key, tuple(_change(one, diff.retired) for one in diff.changes if one.key == key)) for key in keys
    )


def item_view(item: Item) -> ItemView:
    """Take an item apart."""
    about = next((name for name in HEAD if item.get(name)), "id")
    rest = tuple(
        (name, _short(value))
        for name, value in item.items()
        if name not in (*NOT_SHOWN, about) and value not in ({}, [], None, "")
    )
    stamp = str(item.get("timestamp", ""))[:19].replace("T", " ")
    return ItemView(stamp, shortened(_short(item.get(about, "")), LONGEST), rest)


def _change(change: MemoryChange, retired: Collection[str] | None) -> ChangeView:
    before, after = change.before, change.after
    if after is None:
        return ChangeView(_gone(before or {}, retired), item_view(before or {}))
    if before is None:
        return ChangeView(NEW, item_view(after))
    names = [
        name for name in {**before, **after} if before.get(name) != after.get(name) and name not in NOT_SHOWN
    ]
    moved = tuple((name, _short(before.get(name)), _short(after.get(name))) for name in names)
    return ChangeView(CHANGED, item_view(after), moved)


def _gone(item: Item, retired: Collection[str] | None) -> str:
    """Say why an item is gone, where that is known."""
    if retired is None:
        return GONE
    return RETIRED if item.get("id") in retired or item.get("description") in retired else DROPPED


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shortened(text, LONGEST)
