"""Statistics: effects on scores with confidence intervals, paired comparisons, and agreement of raters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, fsum
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INTERVAL = 0.95


@dataclass(frozen=True, slots=True)
class Effect:
    """A mean difference of scores, or a mean, with its 95 % interval."""

    mean: float
    low: float
    high: float


def student(freedom: float, share: float = INTERVAL) -> float:
    """Student's t at the upper bound of an interval, by the first terms of its expansion."""
    z = NormalDist().inv_cdf((1 + share) / 2)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean, estimated from the values; 0 for a single value."""
    count = len(values)
    if count < 2:  # noqa: PLR2004 (a single value)
        return 0.0
    # `statistics.stdev` computes with fractions, which takes six times as long.
    offsets = [value - values[0] for value in values]  # so that equal values give exactly 0
    mean = fmean(offsets)
    return (fsum((offset - mean) ** 2 for offset in offsets) / (count - 1) / count) ** 0.5


def more_needed(count: int, mean: float, detectable: float) -> int | None:
    """Estimate how many more values it takes until such a `mean` would differ significantly from zero.

    `detectable` is the smallest mean that is significant with `count` values. None if the total would exceed
    `MOST_NEEDED` times `count`.
    """
    if abs(mean) * MOST_NEEDED**0.5 <= detectable:
        return None
    more = max(0.0, count * ((detectable / mean) ** 2 - 1))
    size = 10 ** max(0, len(str(round(more))) - 1)
    return ceil(more / size) * size


# Cases that two sides tried, each once or several times.


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """How much better one side did than the other on the same cases."""

    cases: int
    effect: Effect | None = None
    """The mean difference over the cases, with its interval; None below `FEWEST_CASES`."""
    needed: int | None = None
    """The approximate number of cases to find such a difference with a probability of 0.8.

    None if it is unknown, or too large.
    """
    detectable: float | None = None
    """The difference that this number of cases finds with a probability of 0.8; None if there are too few."""

    @property
    def verdict(self) -> Literal["better", "worse", "not distinguishable", "unknown"]:
        """The conclusion from the interval: it is above zero, below zero, or contains zero."""
        if self.effect is None:
            return "unknown"
        if self.effect.low > 0:
            return "better"
        return "worse" if self.effect.high < 0 else "not distinguishable"


def rate_of(rates: Sequence[float]) -> Effect | None:
    """Mean of the shares (0..1) of tries that passed, a share for each case, with its 95 % interval.

    Agresti and Coull's interval (1998) with cases as its units: two that pass and two that don't are added.
    The spread is that between cases, so repeated tries narrow the interval only as far as they agree less
    than cases do. None for fewer than `FEWEST_CASES` cases.
    """
    if len(rates) < FEWEST_CASES:
        return None
    centre, error = _with_added_cases(rates, passed=2, lost=0, of=4)
    half = student(len(rates) - 1) * error
    return Effect(fmean(rates), max(0.0, centre - half), min(1.0, centre + half))


def mean_of_cases(means: Sequence[float]) -> Effect | None:
    """Mean over cases of scores (0..1) with Student's 95 % interval; None for fewer than `FEWEST_CASES`.

    Equal scores of a few cases say little about the spread of all, so their interval is that of `rate_of`.
    """
    if len(means) < FEWEST_CASES:
        return None
    if (error := standard_error(means)) <= EQUAL:
        return rate_of(means)
    mean, half = fmean(means), student(len(means) - 1) * error
    return Effect(mean, mean - half, mean + half)


def compared_rates(pairs: Sequence[tuple[float, float]]) -> PairedComparison:
    """Compare the shares of tries that passed on two sides, case by case.

    Agresti and Min's interval (2005) with cases as its units: three cases are added, and each side alone
    passes `ADDED` of them. So its width is never 0, and a few differing cases don't count as many.
    """
    if len(pairs) < FEWEST_CASES:
        return PairedComparison(len(pairs))
    differences = [ours - theirs for ours, theirs in pairs]
    centre, error = _with_added_cases(differences, passed=ADDED, lost=ADDED, of=4 * ADDED)
    half = student(len(pairs) - 1) * error
    effect = Effect(fmean(differences), max(-1.0, centre - half), min(1.0, centre + half))
    comparison = _comparison(len(pairs), effect, error)
    if comparison.needed is not None and comparison.verdict == "not distinguishable":
        comparison = replace(comparison, needed=max(comparison.needed, len(pairs) + 1))
    detectable = _detectable_rate(len(pairs), fmean([difference * difference for difference in differences]))
    return replace(comparison, detectable=detectable)


def _detectable_rate(cases: int, differing: float) -> float | None:
    """The smallest difference, in steps of 0.01, that `compared_rates` finds with a probability of 0.8.

    None if there is none. `differing` is the share of cases in which the sides differ. A difference of d
    takes a share of at least d: sides that hardly differ do not make a small difference detectable.
    """
    count, quantile = cases + 4 * ADDED, student(cases - 1)

    def is_found(difference: float) -> bool:
        squares = max(differing, difference)
        centre = cases * difference / count
        error = (((cases * squares + 2 * ADDED) / count - centre * centre) / count) ** 0.5
        varies = (cases * max(0.0, squares - difference * difference)) ** 0.5 / count
        return centre - quantile * error >= NormalDist().inv_cdf(POWER) * varies

    steps = range(1, 101)
    return next((step / 100 for step in steps if is_found(step / 100)), None)


def _with_added_cases(
    of_cases: Sequence[float], *, passed: float, lost: float, of: float
) -> tuple[float, float]:
    """The mean over cases and its standard error, with `of` more cases: `passed` times 1, `lost` times -1."""
    count = len(of_cases) + of
    mean = (sum(of_cases) + passed - lost) / count
    squares = (sum(value * value for value in of_cases) + passed + lost) / count
    return mean, ((squares - mean * mean) / count) ** 0.5


def compared_means(pairs: Sequence[tuple[float, float]]) -> PairedComparison:
    """Compare means of two sides, case by case, with Student's interval of the differences.

    Equal differences in a few cases say little about the spread of all, so they get the interval of
    `compared_rates`, in units of the largest value. As in a sign test, fewer cases that differ than
    `FEWEST_TELLING_CASES` exclude no zero.
    """
    differences = [ours - theirs for ours, theirs in pairs]
    if len(pairs) < FEWEST_CASES:
        return PairedComparison(len(pairs))
    centre, error, mean = fmean(differences), standard_error(differences), fmean(differences)
    unit = max(abs(value) for pair in pairs for value in pair)
    if error <= EQUAL * unit:
        scaled = [difference / (unit or 1.0) for difference in differences]
        centre, error = _with_added_cases(scaled, passed=ADDED, lost=ADDED, of=4 * ADDED)
        centre, error = unit * centre, unit * error
    half = student(len(pairs) - 1) * error
    low, high = min(mean, centre - half), max(mean, centre + half)
    if sum(abs(difference) > EQUAL * unit for difference in differences) < FEWEST_TELLING_CASES:
        low, high = min(low, 0.0), max(high, 0.0)
    return _comparison(len(pairs), Effect(mean, low, high), error)


def _comparison(cases: int, effect: Effect, error: float) -> PairedComparison:
    detectable = (student(cases - 1) + NormalDist().inv_cdf(POWER)) * error
    more = more_needed(cases, effect.mean, detectable)
    return PairedComparison(cases, effect, None if more is None else cases + more, detectable)


# Two raters of the same things.


@dataclass(frozen=True, slots=True)
class Rating:
    """The answers of a judge and of a person to the same yes-or-no question."""

    judge: bool
    person: bool
    group: str = ""
    """Ratings of the same group, such as a task, are not independent of each other."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a judge with a person: a table of counts, and Cohen's kappa with its 95 % interval."""

    both: int = 0
    """Yes of both."""
    judge_only: int = 0
    """Yes of the judge alone."""
    person_only: int = 0
    """Yes of the person alone."""
    neither: int = 0
    """No of both."""
    kappa: float | None = None
    """0 for chance and 1 for full agreement.

    None if it is undefined: without ratings, or if both always gave the same single answer.
    """
    low: float | None = None
    high: float | None = None
    """The interval; None for ratings of fewer than `FEWEST_CASES` groups."""

    @property
    def count(self) -> int:
        """The number of ratings."""
        return self.both + self.judge_only + self.person_only + self.neither

    @property
    def base_rate(self) -> float | None:
        """The share of the person's answers that are yes; None without ratings."""
        return (self.both + self.person_only) / self.count if self.count else None

    @property
    def observed(self) -> float | None:
        """The share of ratings on which both agree; None without ratings."""
        return (self.both + self.neither) / self.count if self.count else None

    def __str__(self) -> str:
        if self.kappa is None:
            return "kappa unknown"
        if self.low is None or self.high is None:
            return f"kappa {self.kappa:.2f}"
        return f"kappa {self.kappa:.2f} (95 %: {self.low:.2f} to {self.high:.2f})"


def agreement_of(ratings: Sequence[Rating]) -> Agreement:
    """Cohen's kappa (1960) of ratings, with an interval that counts groups, not ratings.

    The interval is that of the delta method with the sums of the groups, and Student's t. A part of a group
    is added to each cell of the table first, so that full agreement on a few ratings is not certainty.
    """
    cells = dict.fromkeys(((True, True), (True, False), (False, True), (False, False)), 0.0)
    for rating in ratings:
        cells[rating.judge, rating.person] += 1
    both, judge_only, person_only, neither = map(round, cells.values())
    groups = {rating.group for rating in ratings}
    kappa = _kappa(cells)
    agreement = Agreement(both, judge_only, person_only, neither, kappa)
    if kappa is None or len(groups) < FEWEST_CASES:
        return agreement
    size = len(ratings) / len(groups)
    padded = {pair: count + PADDING * size for pair, count in cells.items()}
    centre, influence = _kappa(padded) or 0.0, _influences(padded)
    sums = dict.fromkeys(groups, 0.0)
    for rating in ratings:
        sums[rating.group] += influence[rating.judge, rating.person]
    total = sum(padded.values())
    squares = sum(value * value for value in sums.values())
    squares += sum(PADDING * (size * value) ** 2 for value in influence.values())
    error = (squares * len(groups) / (len(groups) - 1)) ** 0.5 / total
    half = student(len(groups) - 1) * error
    low, high = max(-1.0, min(kappa, centre - half)), min(1.0, max(kappa, centre + half))
    return replace(agreement, low=low, high=high)


def _kappa(cells: Mapping[tuple[bool, bool], float]) -> float | None:
    observed, chance, _, _ = _shares(cells)
    return (observed - chance) / (1 - chance) if chance < 1 else None


def _shares(cells: Mapping[tuple[bool, bool], float]) -> tuple[float, float, float, float]:
    """The shares of agreement, of agreement by chance, and of yes by judge and person."""
    total = sum(cells.values())
    if not total:
        return 0.0, 1.0, 0.0, 0.0
    judge, person = (sum(count for pair, count in cells.items() if pair[at]) / total for at in (0, 1))
    observed = (cells[True, True] + cells[False, False]) / total
    return observed, judge * person + (1 - judge) * (1 - person), judge, person


def _influences(cells: Mapping[tuple[bool, bool], float]) -> dict[tuple[bool, bool], float]:
    """The change of kappa by one more rating in each cell, times the number of ratings."""
    observed, chance, judge, person = _shares(cells)
    return {
        (yes_judge, yes_person): (
            ((yes_judge is yes_person) - observed) * (1 - chance)
            - (1 - observed)
            * ((yes_judge - judge) * (2 * person - 1) + (yes_person - person) * (2 * judge - 1))
        )
        / (1 - chance) ** 2
        for yes_judge, yes_person in cells
    }


MOST_NEEDED = 100
"""The largest multiple of the present number of values to ask for; a smaller difference is negligible."""
FEWEST_CASES = 5
"""The minimum number of cases for an interval; fewer say almost nothing about others."""
FEWEST_TELLING_CASES = 6
"""The fewest differing cases whose interval can exclude zero: five heads in a row are chance."""
EQUAL = 1e-9
"""The share of the largest value up to which differences are equal: the errors of computing."""
PADDING = 0.5
"""The part of a group that is added to each cell of a table of two raters, for its interval."""
ADDED = 0.75
"""The number of added cases that one side alone passes; with 0.5, intervals of 20 cases miss too often."""
POWER = 0.8
"""The probability with which an existing difference should be found."""
