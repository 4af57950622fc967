"""Trend: how one number went from cycle to cycle, as bars."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 360.0, 146.0
LEFT, RIGHT, TOP, BOTTOM = 22.0, 6.0, 24.0, 22.0
"""Beside the bars stands 0 alone: the largest number stands above them, where it has room however long."""
WIDEST = 14.0


@dataclass(frozen=True, slots=True)
class Bar:
    """Place one cycle; `top` is None where its number is not known."""

    x: float
    width: float
    top: float | None
    says: str


@dataclass(frozen=True, slots=True)
class Trend:
    """Hold a chart: its bars, the numbers at its edges, and what it says in words."""

    name: str
    bars: tuple[Bar, ...]
    most: str
    first: str
    last: str
    words: str
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


def trend(
    name: str, cycles: Sequence[int], values: Sequence[float | None], text: Callable[[float], str]
) -> Trend | None:
    """Draw a value of each cycle, from 0 up, the oldest first; None where there is none of any cycle.

    `text` renders a value.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    most = max(known)
    step = (WIDTH - LEFT - RIGHT) / len(cycles)
    bars = tuple(
        Bar(
            round(LEFT + at * step + (step - min(WIDEST, step * 0.75)) / 2, 2),
            round(min(WIDEST, step * 0.75), 2),
            None if value is None else _height(value, most),
            f"cycle {cycle}: {'not known' if value is None else text(value)}",
        )
        for at, (cycle, value) in enumerate(zip(cycles, values, strict=True))
    )
    words = f"last {text(known[-1])}, median {text(median(known))}, most {text(most)}"
    return Trend(name, bars, text(most) if most > 0 else "", str(cycles[0]), str(cycles[-1]), words)


def _height(value: float, most: float) -> float:
    share = value / most if most > 0 else 0.0
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 2)
