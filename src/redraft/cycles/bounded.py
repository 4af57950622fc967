"""Bounded: plain data, small enough to be kept, and without its secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

from redraft.text.invisible import without_invisible

DEEPEST = 8
LARGEST_INT = 2**63
MARGIN = 4
"""How many times as much is redacted as is kept."""


def bounded(value: Any, most: int) -> Any:
    """Return JSON data of about `most` characters at most; what was cut ends in `...` and says how much.

    Characters that can't be seen are left out; a number that JSON does not have becomes None, anything
    else that is no data its text. Never raises for plain Python data.
    """
    return _copied(value, _Room(most), DEEPEST)


def fit_to_keep(value: Any, redacted: Callable[[Any], Any], most: int) -> Any:
    """Return data `redacted` and then bounded: half a secret would not be known for one."""
    room = _Room(MARGIN * most)
    copy = redacted(_copied(value, room, DEEPEST))
    return copy if MARGIN * most - room.left <= most else bounded(copy, most)


@dataclass(slots=True)
class _Room:
    """Count down the characters that are left."""

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
        return value if abs(value) <= LARGEST_INT else None
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
