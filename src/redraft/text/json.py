"""Read JSON strictly, and measure JSON data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, cast

from redraft._codec import to_json
from redraft.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEPTH = 100
"""Levels of nesting that JSON data may have."""


def load_json(text: str | bytes, *, repeats_keys: bool = True) -> Any:
    """Parse standard JSON; raises `ValueError` for anything else, also if it is nested too deeply.

    Unlike Python's own parser, it rejects NaN, and numbers that would become infinite. Without
    `repeats_keys`, it also rejects objects with duplicate keys.
    """
    hook = None if repeats_keys else unique_members
    try:
        return json.loads(
            text, parse_constant=refuse_constant, parse_float=finite_number, object_pairs_hook=hook
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def refuse_constant(name: str) -> NoReturn:
    """Raise `ValueError`: a hook of Python's parser for NaN and the infinities."""
    raise ValueError(f"{name} is not a number of JSON")


def finite_number(digits: str) -> float:
    """Parse a number: a hook of Python's parser that raises `ValueError` for numbers that are too large."""
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object: a hook of Python's parser that raises `ValueError` for a duplicate key."""
    members = dict(pairs)
    if len(members) < len(pairs):
        # A dict keeps its keys in the order of their first appearance.
        twice = next(key for (key, _), new in zip(pairs, [*members, None], strict=False) if key != new)
        raise ValueError(f"the key {twice!r} comes twice in one object")
    return members


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a value: its numbers of values, characters and levels."""

    nodes: int
    characters: int
    depth: int


def size_of(value: Any) -> Size:
    """Measure a value; raises `ValueError` if it is not JSON, or nested deeper than 100 levels."""
    level: list[Any] = [value]
    nodes = characters = depth = 0
    while level:
        nodes += len(level)
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, str):
                characters += len(item)
            elif isinstance(item, dict):
                members = cast("dict[Any, Any]", item)
                if (key := next((key for key in members if not isinstance(key, str)), None)) is not None:
                    raise ValueError(f"the key {key!r} is not a text")
                characters += sum(map(len, members))
                deeper.extend(members.values())
            elif isinstance(item, list | tuple):
                deeper.extend(cast("list[Any]", item))
            elif isinstance(item, float) and not isfinite(item):
                raise ValueError(f"{item!r} is not JSON")
            elif isinstance(item, int):
                str(item)  # raises for more digits than Python writes
            elif item is not None and not isinstance(item, float):
                raise ValueError(f"a {type(item).__name__} is not JSON")
        level = deeper
    return Size(nodes, characters, depth)


def bounded_json(value: Any, what: str) -> Any:
    """Convert a value to JSON data of at most 100 levels; raises an `OutputError` that names `what`.

    Dataclasses, models and times become data; anything else without a JSON form becomes its `repr`.
    Numbers that are not finite are rejected.
    """
    try:
        data = to_json(value)
        size_of(data)
    except (ValueError, RecursionError) as error:
        raise OutputError(f"{what} is not plain JSON data: {error}.") from error
    return data


def is_too_deep(value: Any) -> bool:
    """Whether parsed JSON has lists and objects on more than 100 levels."""
    level, depth = _containers([value]), 0
    while level and depth < MAX_DEPTH:
        level = [inner for outer in level for inner in _containers(outer)]
        depth += 1
    return bool(level)


def _containers(value: Any) -> list[Any]:
    inside = cast("Iterable[Any]", value.values() if isinstance(value, dict) else value)
    return [inner for inner in inside if isinstance(inner, dict | list)]
