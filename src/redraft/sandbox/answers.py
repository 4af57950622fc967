"""Answers: the replies of a worker to its host, with the result of a script as JSON, or its failure."""

# Runs inside the jail: importing typing would cost each run 7 ms, hence the constant below.

from __future__ import annotations

import json
import struct
from math import isfinite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Answer: TypeAlias = dict[str, Any]
    """A dict with `value` (JSON text), see `success`; with `kind`, `message` and `line`, see `failure`; or
    with `not_run`, the reason why the worker can't run this script or any other."""

HEAD = struct.Struct("<I")
"""The header of each message between host and worker: its length in bytes."""

MAX_MESSAGE = 2000
"""Characters after which a message is cut off."""

MAX_DEPTH = 100
"""Levels of nesting that a result may have."""


def success(value: Any, printed: str, limits: dict[str, Any]) -> Answer:
    """Answer for a script that ran: its value as JSON text, or a failure if the value is not JSON."""
    if len(printed) > limits["output_chars"]:
        return too_much_output(limits)
    try:
        return {"value": json_text(value, limits["result_chars"])}
    except NotJsonError as error:
        return failure("script", f"returned a value that {error}")


def failure(kind: str, message: str, line: int | None = None) -> Answer:
    """Answer for a script without a result.

    `kind` is `timeout`, `memory`, `forbidden`, `output` or `script`. The message continues "The script".
    """
    return {"kind": kind, "message": message[:MAX_MESSAGE], "line": line}


def too_much_output(limits: dict[str, Any]) -> Answer:
    """Answer for a script that printed too much."""
    return failure("output", f"printed more than its limit of {limits['output_chars']:,} characters")


def timed_out(limits: dict[str, Any]) -> Answer:
    """Answer for a script that ran too long."""
    return failure("timeout", f"ran longer than its limit of {limits['seconds']:g} s")


def out_of_memory(limits: dict[str, Any], line: int | None = None) -> Answer:
    """Answer for a script that used too much memory."""
    return failure("memory", f"used more than its limit of {limits['memory_mb']} MB of memory", line)


class NotJsonError(Exception):
    """A value is not JSON data of the allowed size; the message continues "a value that"."""


def json_text(value: Any, limit: int) -> str:
    """Serialise a value as JSON text of at most `limit` characters; raises `NotJsonError`.

    Tuples become lists. A value that is referenced twice is written twice, and counts twice.
    """
    _check(value, limit)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:  # half a surrogate pair, or a number of too many digits
        raise NotJsonError(f"cannot be written as JSON: {error}") from error
    if len(text) > limit:
        raise NotJsonError(f"is too large: {len(text):,} characters of JSON; the limit is {limit:,}")
    return text


_LEAVES = {str, int, float, bool, type(None)}


def _check(value: Any, limit: int) -> None:
    """Raise `NotJsonError` unless a value is JSON data. Iterative, since it may be nested deeply."""
    ancestors: set[int] = set()
    stack: list[tuple[Any, bool]] = [(value, False)]
    characters = 0
    while stack:
        item, leaving = stack.pop()
        if leaving:
            ancestors.discard(id(item))
            continue
        characters += _min_characters(item)
        if characters > limit:
            raise NotJsonError(f"is too large: the limit is {limit:,} characters of JSON")
        if type(item) in _LEAVES:
            if type(item) is float and not isfinite(item):
                raise NotJsonError(f"contains {item!r}, which is not a JSON number")
            continue
        children = _children(item)
        if id(item) in ancestors:
            raise NotJsonError("is cyclic: it contains itself")
        ancestors.add(id(item))
        if len(ancestors) > MAX_DEPTH:
            raise NotJsonError(f"is too deep: the limit is {MAX_DEPTH} levels")
        stack.append((item, True))
        stack.extend((child, False) for child in children)


def _min_characters(item: Any) -> int:
    """Lower bound on the characters of an item in JSON, without its children."""
    if isinstance(item, str):
        return len(item) + 2
    if isinstance(item, dict):
        return 1 + sum(len(key) for key in item if isinstance(key, str))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] (anything a script made)
    return 1


def _children(item: Any) -> Any:
    if isinstance(item, list | tuple):
        return item  # pyright: ignore[reportUnknownVariableType] (anything a script made)
    if isinstance(item, dict):
        for key in item:  # pyright: ignore[reportUnknownVariableType] (as above)
            if type(key) not in _LEAVES:  # pyright: ignore[reportUnknownArgumentType] (as above)
                raise NotJsonError(f"has the key {key!r:.40}, which JSON does not allow")
        return item.values()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (as above)
    raise NotJsonError(
        f"contains a {type(item).__name__}; JSON has bool, number, string, list, dict and None"
    )
