"""What an agent remembers, to read: key by key, item by item, and what changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Group
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
QUIET_FIELDS = ("id", "timestamp", "cycle", "durationMs")


def memory_view(memory: Memory) -> RenderableType:
    """Render a memory: each key with its latest items."""
    parts: list[RenderableType] = [Text(f"After cycle {memory.cycle}", QUIET)]
    for key, items in memory.items.items():
        parts.append(Text(f"\n{key} ({len(items):,})", "bold"))
        if len(items) > SHOWN:
            parts.append(Text(f"  ... {len(items) - SHOWN:,} older: --json has all", QUIET))
        parts += [_item_line(item) for item in items[-SHOWN:]]
    return Group(*parts)


def changes_view(changes: Sequence[MemoryChange], between: tuple[int, int]) -> RenderableType:
    """Render what changed between the ends of two cycles."""
    if not changes:
        return Text(f"Nothing changed from cycle {between[0]} to {between[1]}.")
    parts: list[RenderableType] = []
    for key in dict.fromkeys(change.key for change in changes):
        parts.append(Text(key, "bold"))
        parts += [_change_line(change) for change in changes if change.key == key]
    return Group(*parts)


def _change_line(change: MemoryChange) -> Text:
    before, after = change.before, change.after
    if before is None:
        return Text.assemble(("+ ", GOOD), _said(after or {}))
    if after is None:
        return Text.assemble(("- ", BAD), _said(before))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    moved = ", ".join(f"{name} {_short(before.get(name))} -> {_short(after.get(name))}" for name in names)
    return Text.assemble(("~ ", "yellow"), _head(after), "  ", (visible(moved), QUIET))


def _item_line(item: Mapping[str, Any]) -> Text:
    return Text.assemble((f"  {item.get('timestamp', '')[:19]}  ", QUIET), _said(item))


def _said(item: Mapping[str, Any]) -> Text:
    head = _head(item)
    rest = {name: value for name, value in item.items() if name not in QUIET_FIELDS and _short(value) != head}
    said = ", ".join(f"{name} {_short(value)}" for name, value in rest.items())
    return Text.assemble(head, "  ", (visible(shortened(said, LONGEST)), QUIET))


def _head(item: Mapping[str, Any]) -> str:
    found = next((item[name] for name in HEAD if item.get(name)), item.get("id", ""))
    return visible(shortened(str(found), LONGEST))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, 60)
