"""Confidence: how sure an agent is of an item of its memory, from 0 to 1."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redraft.cycles.memory import Item

DEFAULT = 0.5
"""That of an item which says nothing of it."""


def clamped(value: Any) -> float:
    """Return a number within 0 and 1, to four decimals; anything that is no number is the default."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return DEFAULT
    return round(min(1.0, max(0.0, value)), 4)


def confidence_of(item: Item) -> float:
    """Return the confidence of an item."""
    found = item.get("confidence")
    return found if type(found) is float and 0.0 <= found <= 1.0 else clamped(found)
