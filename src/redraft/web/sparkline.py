"""Sparkline: the scores of a run in the space of a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT, EDGE = 72.0, 18.0, 3.0
MOST = 24
"""Scores that are drawn; of more, the last ones."""


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Hold a line as SVG takes it, the place of its last score, and the scores in words."""

    points: str
    last: tuple[float, float] | None
    words: str
    width: float = WIDTH
    height: float = HEIGHT


def sparkline(scores: Sequence[float | None]) -> Sparkline:
    """Draw scores from 0 (at the bottom) to 1; those that are not known are left out."""
    drawn = scores[-MOST:]
    step = (WIDTH - 2 * EDGE) / max(1, len(drawn) - 1)
    places = [
        (EDGE + at * step, HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * min(1.0, max(0.0, score)))
        for at, score in enumerate(drawn)
        if score is not None
    ]
    words = ", ".join("not judged" if score is None else f"{score:.2f}" for score in scores)
    return Sparkline(" ".join(f"{x:.1f},{y:.1f}" for x, y in places), places[-1] if places else None, words)
