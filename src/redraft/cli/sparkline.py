"""Scores as a line of small bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
UNKNOWN = "·"


def sparkline(scores: Sequence[float | None], longest: int | None = None) -> str:
    """Draw scores (0..1, the full height is 1) as bars; `longest` bounds how many."""
    if longest is not None and len(scores) > longest:  # the first one and the latest tell most
        scores = [scores[0], *scores[len(scores) - longest + 1 :]]
    return "".join(_bar(score) for score in scores)


def _bar(score: float | None) -> str:
    return UNKNOWN if score is None else BARS[min(len(BARS) - 1, max(0, int(score * len(BARS))))]
