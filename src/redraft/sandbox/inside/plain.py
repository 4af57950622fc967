"""Plain JSON data: whether a value is that, and its text within a bound."""

from __future__ import annotations

import json
from math import isfinite

TYPE_CHECKING = False  # typing itself would cost each run in the jail 7 ms
if TYPE_CHECKING:
    from typing import Any

DEPTH = 100
_TEXT_AND_NUMBERS = {str, int, float, bool, type(None)}


class NotPlainError(Exception):
    """Say why a value is no plain JSON data of the size that was allowed."""


def to_text(value: Any, most: int) -> str:
    """Return a value as JSON text of at most `most` characters; raises `NotPlainError`.

    Tuples count as lists. A list in two places is written twice, and counts twice.
    """
    _check(value, most)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:  # half a surrogate pair, or a number of too many digits
        raise NotPlainError(f"cannot be written as JSON: {error}") from error
    if len(text) > most:
        raise NotPlainError(f"is too large: {len(text):,} characters of JSON, and {most:,} are allowed")
    return text


def is_too_deep(value: Any) -> bool:
    """Say whether data fresh from JSON, which is a tree, has more than `DEPTH` levels."""
    level = [value]
    for _ in range(DEPTH):
        level = [part for item in level for part in _parts(item)]
        if not level:
            return False
    return any(isinstance(item, list | dict) for item in level)


def _parts(item: Any) -> Any:
    if isinstance(item, dict):
        return item.values()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (any JSON)
    return item if isinstance(item, list) else ()  # pyright: ignore[reportUnknownVariableType] (likewise)


def _check(value: Any, most: int) -> None:
    """Walk with a stack of our own: the depth of a value must not become the depth of our calls."""
    above: set[int] = set()
    stack: list[tuple[Any, bool]] = [(value, False)]
    seen = 0
    while stack:
        item, leaving = stack.pop()
        if leaving:
            above.discard(id(item))
            continue
        seen += _characters(item)
        if seen > most:
            raise NotPlainError(f"is too large: {most:,} characters of JSON are allowed")
        if type(item) in _TEXT_AND_NUMBERS:
            if type(item) is float and not isfinite(item):
                raise NotPlainError(f"holds {item!r}, which is no JSON number")
            continue
        inside = _inside(item)
        if id(item) in above:
            raise NotPlainError("is cyclic: it contains itself")
        above.add(id(item))
        if len(above) > DEPTH:
            raise NotPlainError(f"is too deep: {DEPTH} levels are allowed")
        stack.append((item, True))
        stack.extend((part, False) for part in inside)


def _characters(item: Any) -> int:
    """Count the characters that an item needs at least: each reference to a text is written out in full."""
    if isinstance(item, str):
        return len(item) + 2
    if isinstance(item, dict):
        return 1 + sum(len(key) for key in item if isinstance(key, str))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] (whatever the script put in)
    return 1


def _inside(item: Any) -> Any:
    if isinstance(item, list | tuple):
        return item  # pyright: ignore[reportUnknownVariableType] (whatever the script put in)
    if isinstance(item, dict):
        for key in item:  # pyright: ignore[reportUnknownVariableType] (whatever the script put in)
            if type(key) not in _TEXT_AND_NUMBERS:  # pyright: ignore[reportUnknownArgumentType] (likewise)
                raise NotPlainError(f"has the key {key!r:.40}, which JSON has no keys like")
        return item.values()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (likewise)
    raise NotPlainError(
        f"holds a {type(item).__name__}, which is no JSON data (bool, number, text, list, dict, None)"
    )
