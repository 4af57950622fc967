"""The effect of something on scores, with a confidence interval."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import ceil
from random import Random
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING, Literal

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RESAMPLES = 600
INTERVAL = 0.95
BYTE, DRAWS = 1 << 8, 1 << 16
"""The values of one random byte, and of two; at most the latest `DRAWS` scores count."""


@dataclass(frozen=True, slots=True)
class Effect:
    """How much scores with something differ from scores without: the mean, and its 95 % interval."""

    mean: float
    low: float
    high: float


def effect_of(with_scores: Sequence[float], without_scores: Sequence[float]) -> Effect:
    """Return the difference of the means of scores (0..1), with its 95 % bootstrap interval.

    The same scores always give the same interval. Resamples of few scores vary too little, so the interval
    is widened like Student's t. Raises `ConfigError` for fewer than two scores on a side.
    """
    if min(len(with_scores), len(without_scores)) < 2:  # noqa: PLR2004 (one alone does not vary)
        raise ConfigError("An effect needs at least two scores with and two without.")
    chance = Random(repr((tuple(with_scores), tuple(without_scores))))  # noqa: S311 (no secret)
    mean = fmean(with_scores) - fmean(without_scores)
    differences = sorted(
        with_one - without_one
        for with_one, without_one in zip(
            _resampled(with_scores, chance), _resampled(without_scores, chance), strict=True
        )
    )
    outside = round(len(differences) * (1 - INTERVAL) / 2)
    low, high = mean + differences[outside], mean + differences[-outside - 1]
    return Effect(mean, max(-1.0, low), min(1.0, high))


def _resampled(scores: Sequence[float], chance: Random) -> list[float]:
    """Return the differences of the resampled means from the mean."""
    scores = scores[-DRAWS:]
    count, mean = len(scores), fmean(scores)
    wider = (count / (count - 1)) ** 0.5 * _student(count - 1) / _student(float("inf"))
    table = _table(scores)
    indices = _random_indices(chance, len(table), count * RESAMPLES)
    return [
        (sum(map(table.__getitem__, indices[start : start + count])) / count - mean) * wider
        for start in range(0, count * RESAMPLES, count)
    ]


def _table(scores: Sequence[float]) -> list[float]:
    """Repeat the scores to fill what one random byte can index, or two bytes if they are many."""
    if len(scores) <= BYTE:
        return list(scores) * (BYTE // len(scores))
    # The last repetition may be cut short; the bias is negligible.
    return (list(scores) * (DRAWS // len(scores) + 1))[:DRAWS]


def _random_indices(chance: Random, size: int, count: int) -> Sequence[int]:
    """Draw at least `count` indices below `size`; several times as fast as `choices`."""
    if size == DRAWS:
        return array("H", chance.randbytes(2 * count))
    indices, too_large = b"", bytes(range(size, BYTE))
    while len(indices) < count:
        indices += chance.randbytes(count).translate(None, too_large)
    return indices


def _student(freedom: float) -> float:
    """Return Student's t at the interval's upper bound, by the first terms of its expansion."""
    z = NormalDist().inv_cdf((1 + INTERVAL) / 2)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean, estimated from the values; 0 for a single one."""
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def last_look(
    scores: Iterable[tuple[bool, float]],
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the scores with and without, as of the last scheduled look; None before the first.

    `scores` are in order of time; the flag says whether a score is one with. The looks take place when the
    smaller side has 10, 40, 160 scores and so on: an interval that is looked at after each run will sooner or
    later be below zero by chance.
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


@dataclass(frozen=True, slots=True)
class Payoff:
    """How many scored runs had something and how many went without, and the difference of their scores.

    `effect` is None if no group of runs has at least two of each.
    """

    with_runs: int
    without_runs: int
    effect: Effect | None = None

    @property
    def known(self) -> Effect | None:
        """The effect, once there are enough runs to make a claim about it."""
        return None if min(self.with_runs, self.without_runs) < FEWEST else self.effect

    @property
    def answer(self) -> Literal["Yes", "No", "Not clear", "Not known"]:
        """Whether it pays, as far as these runs tell."""
        if self.known is None:
            return "Not known"
        return "Yes" if self.known.low > 0 else "No" if self.known.high < 0 else "Not clear"

    def sentence(self, what: str) -> str:
        """Return what is known of `what` (such as "notes"), or what is missing to know it."""
        begin, effect = f"Do {what} pay? {self.answer}:", self.known
        if min(self.with_runs, self.without_runs) < FEWEST:
            scored = f"{self.with_runs:,} scored {'run' if self.with_runs == 1 else 'runs'} with"
            return f"{begin} {scored}, {self.without_runs:,} without; it takes {FEWEST} of each."
        runs = f"{self.with_runs:,} runs with, {self.without_runs:,} without"
        if effect is None:
            return f"{begin} {runs}, none to be compared with another."
        found = f"{begin} {effect.mean:+.2f} (95 %: {effect.low:+.2f} to {effect.high:+.2f}), {runs}"
        needed = self._needed(effect) if self.answer == "Not clear" else 0
        return f"{found}; {needed:,} more might tell." if needed else f"{found}."

    def _needed(self, effect: Effect) -> int:
        """Return about how many runs more would tell if the difference stays as it is; 0 if too many."""
        runs, half = self.with_runs + self.without_runs, (effect.high - effect.low) / 2
        if abs(effect.mean) * MOST_NEEDED**0.5 <= half:
            return 0
        more = runs * ((half / effect.mean) ** 2 - 1)
        size = 10 ** max(0, len(str(round(more))) - 1)
        return ceil(more / size) * size


def payoff_of(groups: Iterable[tuple[Sequence[float], Sequence[float]]]) -> Payoff:
    """Compare scores with something and without it, in groups such as tasks.

    Only runs of the same group are compared, so that a task which is easy and has many runs with it proves
    nothing. Groups without two scores of each are left out, if there are others. The interval is Welch's,
    which takes a hundredth of the time of `effect_of`.
    """
    every = [(with_scores, without_scores) for with_scores, without_scores in groups]
    both = [pair for pair in every if min(map(len, pair)) >= 2]  # noqa: PLR2004 (one alone does not vary)
    with_runs, without_runs = (sum(len(pair[side]) for pair in both or every) for side in (0, 1))
    if not both:
        return Payoff(with_runs, without_runs)
    weights = [len(those) * len(others) / (len(those) + len(others)) for those, others in both]
    total, mean, error, spread = sum(weights), 0.0, 0.0, 0.0
    for weight, (those, others) in zip(weights, both, strict=True):
        share = weight / total
        mean += share * (fmean(those) - fmean(others))
        for scores in (those, others):
            part = (share * standard_error(scores)) ** 2
            error += part
            spread += part**2 / (len(scores) - 1)
    half = _student(error**2 / spread) * error**0.5 if spread else 0.0
    return Payoff(with_runs, without_runs, Effect(mean, max(-1.0, mean - half), min(1.0, mean + half)))


MOST_NEEDED = 100
"""Times as many runs as there are that may be asked for; beyond that, the difference is as good as none."""
FEWEST = 10
"""The scores needed on each side before anything is withdrawn for its effect."""
LATER = 4
"""The factor by which the scores must have grown before the effect is looked at again."""
