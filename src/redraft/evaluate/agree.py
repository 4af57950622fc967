"""When a value that came back from the jail is the one that was expected."""

from __future__ import annotations

import math
from typing import Any, cast

from redraft.evaluate.steps import plain

RELATIVE = 1e-9
ABSOLUTE = 1e-12
"""Near zero, where nothing is relatively close: what adding 0.1, 0.2 and -0.3 leaves is still nothing."""


def agree(returned: Any, expected: Any) -> bool:
    """Say whether JSON made by `plain` in the jail is the value `expected`, which never was there.

    Equality is Python's, but floats need only be close, and tuples equal lists.
    """
    try:
        return _agree(returned, plain(expected))
    except RecursionError:
        return False


def _agree(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        if isinstance(one, int) and isinstance(other, int):
            return one == other
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(one, list) and isinstance(other, list):
        items, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(others) and all(map(_agree, items, others))
    if isinstance(one, dict) and isinstance(other, dict):
        fields, wanted = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        if fields.keys() != wanted.keys() or "__other__" in fields:
            return False
        return all(_agree(fields[key], wanted[key]) for key in wanted)
    return bool(type(one) is type(other) and one == other)  # pyright: ignore[reportUnknownArgumentType] (a text or None)
