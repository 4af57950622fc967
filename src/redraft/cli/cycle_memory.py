"""What an agent remembers, to read: key by key, item by item, and what changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from redraft.cli.show import BAD, GOOD, QUIET
from redraft.core.texts import shortened
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from redraft.cycles.memory import Memory, MemoryChange

SHOWN = 20
"""So many items of a key are shown, the latest; --json has all."""
LONGEST = 240
HEAD = ("description", "message", "action", "verdict")
"""What an item is about: the first of these that it has."""
NOT_SHOWN = ("id", "timestamp", "durationMs")


def memory_view(memory: Memory) -> RenderableType:
    """Render a memory: each key with its latest items."""
    parts: list[RenderableType] = [Text(f"After cycle {memory.cycle}", QUIET)]
    for key, items in memory.items.items():
        parts.append(Text(f"\n{key} ({len(items):,})", "bold"))
        if len(items) > SHOWN:
            parts.append(Text(f"  ... {len(items) - SHOWN:,} older: --json has all", QUIET))
        parts += [_item_lines(item) for item in items[-SHOWN:]]
    return Group(*parts)


def changes_view(changes: Sequence[MemoryChange], between: tuple[int, int]) -> RenderableType:
    """Render what changed between the ends of two cycles."""
    if not changes:
        return Text(f"Nothing changed from cycle {between[0]} to {between[1]}.")
    parts: list[RenderableType] = []
    for key in dict.fromkeys(change.key for change in changes):
        parts.append(Text(key, "bold"))
        parts += [_change_lines(change) for change in changes if change.key == key]
    return Group(*parts)


def _change_lines(change: MemoryChange) -> RenderableType:
    before, after = change.before, change.after
    if before is None:
        return _lines(Text("+ ", GOOD), after or {})
    if after is None:
        return _lines(Text("- ", BAD), before)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    moved = ", ".join(f"{name} {_short(before.get(name))} -> {_short(after.get(name))}" for name in names)
    return Group(Text.assemble(("~ ", "yellow"), _head(after)), _indented(moved))


def _item_lines(item: Mapping[str, Any]) -> RenderableType:
    return _lines(Text(f"  {str(item.get('timestamp', ''))[:19].replace('T', ' ')}  ", QUIET), item)


def _lines(mark: Text, item: Mapping[str, Any]) -> RenderableType:
    """Render an item: what it is about, and below it all else that it says."""
    head = _head(item)
    said = ", ".join(
        f"{name} {_short(value)}"
        for name, value in item.items()
        if name not in NOT_SHOWN and value not in ({}, [], None, "") and _short(value) != head
    )
    line = Text.assemble(mark, head)
    return Group(line, _indented(shortened(said, LONGEST))) if said else line


def _indented(said: str) -> RenderableType:
    return Padding(Text(visible(said), QUIET), (0, 0, 0, 6))


def _head(item: Mapping[str, Any]) -> str:
    found = next((item[name] for name in HEAD if item.get(name)), item.get("id", ""))
    return visible(shortened(str(found), LONGEST))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, 60)
