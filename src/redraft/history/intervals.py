"""Intervals: differences with what they may be by chance, drawn around zero on one scale."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.history.contrast import Contrast

WIDTH, HEIGHT, EDGE = 180.0, 18.0, 6.0
STEPS = 20
"""The scale ends at a whole number of these parts of 1, so that it is round."""


@dataclass(frozen=True, slots=True)
class Span:
    """Place a difference, and its interval where there is one."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Intervals:
    """Hold a scale from `-extent` to `extent`, for differences of scores or shares."""

    extent: float
    width: float = WIDTH
    height: float = HEIGHT
    zero: float = WIDTH / 2
    middle: float = HEIGHT / 2

    def span(self, contrast: Contrast | None) -> Span | None:
        """Place a contrast on the scale; None where there is no difference to place."""
        if contrast is None or contrast.difference is None:
            return None
        effect = contrast.effect
        if effect is None:
            return Span(self._x(contrast.difference), None, None)
        return Span(self._x(effect.mean), self._x(effect.low), self._x(effect.high))

    def _x(self, value: float) -> float:
        return self.zero + (WIDTH / 2 - EDGE) * max(-1.0, min(1.0, value / self.extent))


def intervals(contrasts: Iterable[Contrast | None]) -> Intervals:
    """Return a scale on which all these intervals find room."""
    most = 0.0
    for one in contrasts:
        if one is not None and one.difference is not None:
            ends = (one.difference,) if one.effect is None else (one.effect.low, one.effect.high)
            most = max(most, *map(abs, ends))
    return Intervals(max(1, ceil(most * STEPS - 1e-9)) / STEPS)
