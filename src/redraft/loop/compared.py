"""Scores as words: with as many digits as it takes to see what a rule saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.version import ReflectionVersion

FEWEST, MOST = 2, 6


def compared(number: float, sign: str, bound: float) -> str:
    """Render `0.92 >= 0.80`; two numbers that differ never look alike, however near they are."""
    for digits in range(FEWEST, MOST):
        left, right = f"{number:.{digits}f}", f"{bound:.{digits}f}"
        if left != right or number == bound:
            return f"{left} {sign} {right}"
    return f"{number!r} {sign} {bound!r}"


def scored(version: ReflectionVersion) -> str:
    """Render a version's score; what is not known of it is said to be so."""
    score, missing = version.evaluation.overall_score, version.evaluation.unjudged
    if score is None:
        return "not judged"
    return f"{score:.2f} without {listed(missing)}" if missing else f"{score:.2f}"


def unasked(version: ReflectionVersion) -> bool:
    """Say whether nothing was there to judge a version by: it passes, for want of any criterion."""
    evaluation = version.evaluation
    return evaluation.satisfactory and evaluation.overall_score is None and not evaluation.criteria_scores


def listed(things: Sequence[str]) -> str:
    """Join as a sentence does: `a`, `a and b`, `a, b and c`."""
    *most, last = things or ("none",)
    return f"{', '.join(most)} and {last}" if most else last


def counted(number: int, thing: str) -> str:
    """Say how many there are: `1 version`, `2 versions`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
