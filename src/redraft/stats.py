"""Effect sizes with confidence intervals."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from random import Random
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RESAMPLES = 600
INTERVAL = 0.95
BYTE, DRAWS = 1 << 8, 1 << 16
"""What one random byte can say, and two; no more than the latest so many scores are looked at."""
FEWEST = 10
"""How many scores there must be with and without before anything is taken away for its effect."""
LATER = 4
"""How many times as many scores there are when a verdict looks again."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Hold by how much scores with something differ from those without: the mean, and its 95 % interval."""

    mean: float
    low: float
    high: float


def effect_of(with_scores: Sequence[float], without_scores: Sequence[float]) -> Effect:
    """Return the difference of the means with its 95 % interval, by the bootstrap.

    The same scores always give the same interval. Resamples of few scores vary too little, so that it is
    widened as Student's t is. Raises `ConfigError` for fewer than two scores on a side.
    """
    if min(len(with_scores), len(without_scores)) < 2:  # noqa: PLR2004 (one alone does not vary)
        raise ConfigError("An effect takes at least two scores with and two without.")
    chance = Random(repr((tuple(with_scores), tuple(without_scores))))  # noqa: S311 (no secret)
    mean = fmean(with_scores) - fmean(without_scores)
    differences = sorted(
        with_one - without_one
        for with_one, without_one in zip(
            _resampled(with_scores, chance), _resampled(without_scores, chance), strict=True
        )
    )
    outside = round(len(differences) * (1 - INTERVAL) / 2)
    return Effect(mean, mean + differences[outside], mean + differences[-outside - 1])


def _resampled(scores: Sequence[float], chance: Random) -> list[float]:
    """Return by how much the means of resamples differ from the mean."""
    scores = scores[-DRAWS:]
    count, mean = len(scores), fmean(scores)
    wider = (count / (count - 1)) ** 0.5 * _student(count - 1) / _student(float("inf"))
    table = _table(scores)
    drawn = _drawn(chance, len(table), count * RESAMPLES)
    return [
        (sum(map(table.__getitem__, drawn[start : start + count])) / count - mean) * wider
        for start in range(0, count * RESAMPLES, count)
    ]


def _table(scores: Sequence[float]) -> list[float]:
    """Return the scores as often as a random byte can tell apart, or two where they are more."""
    if len(scores) <= BYTE:
        return list(scores) * (BYTE // len(scores))
    # That this ends within a round of the scores shifts nothing that matters.
    return (list(scores) * (DRAWS // len(scores) + 1))[:DRAWS]


def _drawn(chance: Random, places: int, count: int) -> Sequence[int]:
    """Draw places at random, several times as quick as `choices`."""
    if places == DRAWS:
        return array("H", chance.randbytes(2 * count))
    drawn, refused = b"", bytes(range(places, BYTE))
    while len(drawn) < count:
        drawn += chance.randbytes(count).translate(None, refused)
    return drawn


def _student(freedom: float) -> float:
    """Return the quantile of Student's t that bounds the interval, by the first terms of its expansion."""
    z = NormalDist().inv_cdf((1 + INTERVAL) / 2)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def last_look(
    scores: Iterable[tuple[bool, float]],
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the scores with and without as they were at the last moment to look at their effect.

    `scores` are in the order of time, each with whether it is one with. The moments are those when the
    smaller side has 10 scores, 40, 160 and so on: who looks at an interval after each run will sooner or
    later see it below zero by chance. None before the first.
    """
    with_scores: list[float] = []
    without_scores: list[float] = []
    seen: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    look = FEWEST
    for is_with, score in scores:
        (with_scores if is_with else without_scores).append(score)
        if min(len(with_scores), len(without_scores)) == look:
            seen, look = (tuple(with_scores), tuple(without_scores)), look * LATER
    return seen
