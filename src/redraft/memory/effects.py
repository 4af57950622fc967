"""Whether a note or a lesson helps: a comparison of runs with it and without it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb, erfc
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from redraft.stats import Effect, more_needed, standard_error, student

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    History: TypeAlias = Sequence[tuple[bool, float]]
    """The scores of runs, earliest first; the flag says whether a run had the note or the lesson."""

LATEST = 500
"""Number of latest runs that count; older runs say little about the present."""
RECENT = 50
"""Number of latest runs that are also tested separately, to notice a helpful note that turns harmful."""
FEWEST = 4
"""Minimum runs on each side before the first test."""
LEVEL, LOOKS = 0.002, 20
"""The p value that shows a difference in the first `LOOKS` tests; afterwards it falls with their number.

The scores are tested each time a run without the note has ended, on all runs and on the recent runs. At this
level, all tests of a useless note together are wrong in about 2 of 100 tasks within 200 runs, and in 5 within
1,000: see "Trials of notes and lessons" in benchmarks/README.md.
"""


# --- the verdict -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Payoff:
    """Whether scores with a note or a lesson are better than scores without it."""

    with_runs: int = 0
    without_runs: int = 0
    effect: Effect | None = None
    """The mean difference; the interval holds for all tests together, and excludes 0 only with a verdict."""
    verdict: Literal["helps", "hurts", ""] = ""
    is_recent: bool = False
    """Whether the effect and the numbers of runs are those of the recent runs, which decided."""
    p_harm: float = 1.0
    """The probability of such low scores with it if it made no difference: the lower of both tests."""

    @property
    def answer(self) -> Literal["Yes", "No", "Not clear", "Not known"]:
        """Whether it pays off, according to these runs."""
        if self.verdict:
            return "Yes" if self.verdict == "helps" else "No"
        return "Not known" if self._too_few or self.effect is None else "Not clear"

    @property
    def _too_few(self) -> bool:
        return min(self.with_runs, self.without_runs) < FEWEST

    def sentence(self, what: str) -> str:
        """A sentence on whether `what` (such as "notes") pays off, or how many runs are missing."""
        begin, effect = f"Do {what} pay off? {self.answer}:", self.effect
        if self._too_few:
            scored = f"{self.with_runs:,} scored {'run' if self.with_runs == 1 else 'runs'} with"
            return f"{begin} {scored}, {self.without_runs:,} without; at least {FEWEST} of each are needed."
        runs = f"{self.with_runs:,} runs with, {self.without_runs:,} without"
        if effect is None:
            return f"{begin} {runs}, but none that can be compared with each other."
        sentence = f"{begin} {effect.mean:+.2f} (95 %: {effect.low:+.2f} to {effect.high:+.2f}), {runs}"
        if self.is_recent:
            sentence += f" of the latest {self.with_runs + self.without_runs}"
        if self.verdict:
            return f"{sentence}."
        runs_now = self.with_runs + self.without_runs
        needed = more_needed(runs_now, effect.mean, (effect.high - effect.low) / 2)
        return f"{sentence}; about {needed:,} more may be enough to tell." if needed else f"{sentence}."


def payoff_of(histories: Iterable[History]) -> Payoff:
    """Compare scores with and without a note or a lesson; each history belongs to a single task.

    The test makes no assumption about the scores: ranks with ties, exact for pass and fail and for few runs.
    Only runs of the same task are compared, so that an easy task with many runs with it proves nothing.
    """
    tasks = tuple(tuple(history)[-LATEST:] for history in histories)
    every = _compared(tasks)
    if every.effect is None:
        return every
    recent = _compared(tuple(history[-RECENT:] for history in tasks))
    p_harm = min(every.p_harm, recent.p_harm)
    for verdict in ("hurts", "helps"):
        for payoff in (every, recent):
            if payoff.verdict == verdict:
                return replace(payoff, is_recent=payoff is not every, p_harm=p_harm)
    return replace(every, p_harm=p_harm)


def control_share(share: float, history: History, payoff: Payoff) -> float:
    """The current share of runs without a note, from its trial's `share` and the history's `payoff`.

    Twice the share, at most a half, while there are few runs without it, while it seems to hurt, and when its
    scores have fallen; half the share once many runs show no sign of harm; a quarter once it helps.
    """
    most = max(share, min(2 * share, 0.5))
    without = sum(not is_with for is_with, _ in history[-LATEST:])
    if without < FEW_CONTROLS or payoff.p_harm < SUSPECT or _has_fallen(history):
        return most
    if payoff.verdict == "helps":
        return share / 4
    return share / 2 if without >= MANY_CONTROLS and payoff.p_harm > UNSUSPECT else share


FEW_CONTROLS, MANY_CONTROLS = 6, 10
"""Fewer runs without a note are too few; with at least the second number, their share may fall."""
SUSPECT, UNSUSPECT = 0.1, 0.25
"""Below the first p value, a note seems to hurt; above the second, there is no sign of it."""
FALLEN, SINCE_FALL = 0.01, 20
"""The p value that shows a fall of the scores with a note, and the number of latest scores compared."""


def _has_fallen(history: History) -> bool:
    scores = [score for is_with, score in history[-LATEST:] if is_with]
    earlier, latest = scores[:-SINCE_FALL], scores[-SINCE_FALL:]
    return bool(earlier) and _p_values([_Sides(latest, earlier)])[0] <= FALLEN


# --- the comparison ----------------------------------------------------------------------------------------


class _Sides(NamedTuple):
    """The scores of a task with a note or a lesson, and without it."""

    having: Sequence[float]
    lacking: Sequence[float]


@lru_cache(maxsize=128)  # a list of tasks is shown again and again, and few of them have new runs
def _compared(tasks: tuple[tuple[tuple[bool, float], ...], ...]) -> Payoff:
    """Compare the scores of a window; there is no effect before the first test."""
    every = [
        _Sides(
            [score for is_with, score in history if is_with],
            [score for is_with, score in history if not is_with],
        )
        for history in tasks
    ]
    both = [sides for sides in every if sides.having and sides.lacking]
    counted = both or every
    payoff = Payoff(sum(len(sides.having) for sides in counted), sum(len(sides.lacking) for sides in counted))
    tests = min(payoff.with_runs, payoff.without_runs)
    if not both or tests < FEWEST:
        return payoff
    level = LEVEL * min(1.0, LOOKS / tests)
    p_lower, p_higher = _p_values(both)
    effect = _effect(both, level)
    verdict: Literal["helps", "hurts", ""] = ""
    if p_lower <= level and effect.mean < 0:
        verdict, effect = "hurts", replace(effect, high=min(effect.high, 0.0))
    elif p_higher <= level and effect.mean > 0:
        verdict, effect = "helps", replace(effect, low=max(effect.low, 0.0))
    else:
        effect = replace(effect, low=min(effect.low, 0.0), high=max(effect.high, 0.0))
    return replace(payoff, effect=effect, verdict=verdict, p_harm=p_lower)


def _effect(tasks: Sequence[_Sides], level: float) -> Effect:
    """The mean difference within tasks, with an interval at the confidence of the tests.

    The lowest and the highest score of a task are added once to each side, as Agresti and Caffo (2000) do for
    pass and fail: ten runs that all passed do not prove that all runs pass.
    """
    weights = [
        len(sides.having) * len(sides.lacking) / (len(sides.having) + len(sides.lacking)) for sides in tasks
    ]
    total, mean, centre, error, spread = sum(weights), 0.0, 0.0, 0.0, 0.0
    for weight, sides in zip(weights, tasks, strict=True):
        share = weight / total
        mean += share * (fmean(sides.having) - fmean(sides.lacking))
        ends = [min(map(min, sides)), max(map(max, sides))]
        padded = [[*scores, *ends] for scores in sides]
        centre += share * (fmean(padded[0]) - fmean(padded[1]))
        for scores in padded:
            part = (share * standard_error(scores)) ** 2
            error += part
            spread += part**2 / (len(scores) - 1)
    half = student(error**2 / spread, 1 - 2 * level) * error**0.5 if spread else 0.0
    low, high = min(mean, centre - half), max(mean, centre + half)
    return Effect(mean, max(-1.0, low), min(1.0, high))


# --- the test ----------------------------------------------------------------------------------------------

MOST_STATES = 400
"""Maximum intermediate results of an exact test; beyond that, the normal approximation is used."""


def _p_values(tasks: Sequence[_Sides]) -> tuple[float, float]:
    """The p values of the rank sums: that scores with it are lower, and that they are higher.

    Several tasks are combined by the method of van Elteren (1960).
    """
    if len(tasks) == 1:
        return _p_of_task(_tied(tasks[0]))
    deviation = variance = step = 0.0
    for sides in tasks:
        tied = _tied(sides)
        total = len(sides.having) + len(sides.lacking)
        off, varies = _rank_sum(tied)
        deviation += off / (total + 1)
        variance += varies / (total + 1) ** 2
        step = max(step, 0.5 / (total + 1))
    return _normal(deviation, variance, step)


def _tied(sides: _Sides) -> tuple[tuple[int, int], ...]:
    """The number of scores of each side for each value, from the lowest to the highest."""
    having, lacking = map(Counter, sides)
    return tuple((having[score], lacking[score]) for score in sorted({*having, *lacking}))


@lru_cache(maxsize=4096)
def _p_of_task(tied: tuple[tuple[int, int], ...]) -> tuple[float, float]:
    """The p values for a single task, exact if that does not take too long."""
    having, lacking = (sum(pair[side] for pair in tied) for side in (0, 1))
    fewer = min(having, lacking)
    if min(comb(fewer + len(tied) - 1, fewer), fewer * fewer * (having + lacking)) <= MOST_STATES:
        lower, higher = _exact(
            tied
            if having <= lacking
            else tuple((lacking_count, having_count) for having_count, lacking_count in tied)
        )
        return (lower, higher) if having <= lacking else (higher, lower)
    deviation, variance = _rank_sum(tied)
    return _normal(deviation, variance, 0.5)


def _exact(tied: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """The shares of all ways to draw the first side whose rank sum is as low, and as high.

    For pass and fail, this is the hypergeometric test. Ranks are doubled, so that ties have whole ranks.
    """
    drawn = sum(having_count for having_count, _ in tied)
    left = total = sum(having_count + lacking_count for having_count, lacking_count in tied)
    ways, seen, observed = {(0, 0): 1}, 0, 0
    for having_count, lacking_count in tied:
        ties = having_count + lacking_count
        rank = 2 * seen + ties + 1
        seen, left, observed = seen + ties, left - ties, observed + having_count * rank
        following: dict[tuple[int, int], int] = {}
        for (taken, ranks), count in ways.items():
            for more in range(max(0, drawn - taken - left), min(ties, drawn - taken) + 1):
                state = (taken + more, ranks + more * rank)
                following[state] = following.get(state, 0) + count * comb(ties, more)
        ways = following
    every = comb(total, drawn)
    lower = sum(count for (_, ranks), count in ways.items() if ranks <= observed)
    higher = sum(count for (_, ranks), count in ways.items() if ranks >= observed)
    return lower / every, higher / every


def _rank_sum(tied: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """The difference of the first side's rank sum from its expected value, and its variance with ties."""
    having, total = (
        sum(having_count for having_count, _ in tied),
        sum(having_count + lacking_count for having_count, lacking_count in tied),
    )
    ranks = seen = cubes = 0.0
    for having_count, lacking_count in tied:
        ties = having_count + lacking_count
        ranks += having_count * (seen + (ties + 1) / 2)
        seen += ties
        cubes += ties**3 - ties
    variance = having * (total - having) / 12 * (total + 1 - cubes / (total * (total - 1)))
    return ranks - having * (total + 1) / 2, variance


def _normal(deviation: float, variance: float, step: float) -> tuple[float, float]:
    if variance <= 0:
        return 1.0, 1.0
    scale = (2 * variance) ** 0.5
    return min(1.0, erfc(-(deviation + step) / scale) / 2), min(1.0, erfc((deviation - step) / scale) / 2)
