"""Answers: what a sandbox tells its host about one script, and the JSON of a script's result."""

# Runs inside the jail: importing typing would cost each run 7 ms, hence the constant below.

from __future__ import annotations

import json
import struct
from math import isfinite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Answer: TypeAlias = dict[str, Any]
    """`value` (JSON text) and `printed`, see `success`; or `kind`, `message` and `line`, see `failure`.

    Or `unrun`: why the interpreter can run no more scripts, this one included.
    """

HEAD = struct.Struct("<I")
"""What precedes each message between host and interpreter: its length in bytes."""

MOST_MESSAGE = 2000
"""The characters of a message that are kept."""

DEPTH = 100
"""How many levels a result may have."""


def success(value: Any, printed: str, limits: dict[str, Any]) -> Answer:
    """Return the answer with a result as JSON text, or the failure that it is no JSON data."""
    if len(printed) > limits["output_chars"]:
        return too_much_output(limits)
    try:
        return {"value": json_text(value, limits["result_chars"]), "printed": printed}
    except NotJsonError as error:
        return failure("script", f"gave a result that {error}")


def failure(kind: str, message: str, line: int | None = None) -> Answer:
    """Return the answer that there is no result, and why.

    `kind` is `timeout`, `memory`, `forbidden`, `output` or `script`; the message continues "The script".
    """
    return {"kind": kind, "message": message[:MOST_MESSAGE], "line": line}


def too_much_output(limits: dict[str, Any]) -> Answer:
    """Return the answer that a script printed too much."""
    return failure("output", f"printed more than its limit of {limits['output_chars']:,} characters")


def timed_out(limits: dict[str, Any]) -> Answer:
    """Return the answer that a script ran too long."""
    return failure("timeout", f"ran longer than its limit of {limits['seconds']:g} s")


def out_of_memory(limits: dict[str, Any], line: int | None = None) -> Answer:
    """Return the answer that a script took too much memory."""
    return failure("memory", f"took more than its limit of {limits['memory_mb']} MB of memory", line)


class NotJsonError(Exception):
    """Say why a value is no JSON data of the allowed size; the message continues "The result"."""


def json_text(value: Any, most: int) -> str:
    """Return a value as JSON text of at most `most` characters; raises `NotJsonError`.

    Tuples are written as lists. What is referenced twice is written twice, and counts twice.
    """
    _check(value, most)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:  # half a surrogate pair, or a number of too many digits
        raise NotJsonError(f"cannot be written as JSON: {error}") from error
    if len(text) > most:
        raise NotJsonError(f"is too large: {len(text):,} characters of JSON, and {most:,} are allowed")
    return text


def is_too_deep(value: Any) -> bool:
    """Say whether a value parsed from JSON has more than `DEPTH` levels."""
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


_LEAVES = {str, int, float, bool, type(None)}


def _check(value: Any, most: int) -> None:
    """Raise `NotJsonError` for what is no JSON data; not recursive, since a value may be nested deeply."""
    ancestors: set[int] = set()
    stack: list[tuple[Any, bool]] = [(value, False)]
    characters = 0
    while stack:
        item, leaving = stack.pop()
        if leaving:
            ancestors.discard(id(item))
            continue
        characters += _least_characters(item)
        if characters > most:
            raise NotJsonError(f"is too large: {most:,} characters of JSON are allowed")
        if type(item) in _LEAVES:
            if type(item) is float and not isfinite(item):
                raise NotJsonError(f"holds {item!r}, which is no JSON number")
            continue
        children = _children(item)
        if id(item) in ancestors:
            raise NotJsonError("is cyclic: it contains itself")
        ancestors.add(id(item))
        if len(ancestors) > DEPTH:
            raise NotJsonError(f"is too deep: {DEPTH} levels are allowed")
        stack.append((item, True))
        stack.extend((child, False) for child in children)


def _least_characters(item: Any) -> int:
    """Return the characters that an item itself takes in JSON, at least."""
    if isinstance(item, str):
        return len(item) + 2
    if isinstance(item, dict):
        return 1 + sum(len(key) for key in item if isinstance(key, str))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] (anything a script made)
    return 1


def _children(item: Any) -> Any:
    if isinstance(item, list | tuple):
        return item  # pyright: ignore[reportUnknownVariableType] (anything a script made)
    if isinstance(item, dict):
        for key in item:  # pyright: ignore[reportUnknownVariableType] (likewise)
            if type(key) not in _LEAVES:  # pyright: ignore[reportUnknownArgumentType] (likewise)
                raise NotJsonError(f"has the key {key!r:.40}, and JSON has no such keys")
        return item.values()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (likewise)
    raise NotJsonError(
        f"holds a {type(item).__name__}, which is no JSON data (bool, number, text, list, dict, None)"
    )
