"""Effects: their intervals, how often those are right, and when to look."""

from random import Random
from statistics import stdev

import numpy as np
import pytest
from scipy import stats

from redraft.stats import (
    Agreement,
    Effect,
    Rating,
    agreement_of,
    compared_means,
    compared_rates,
    mean_of_cases,
    rate_of,
    standard_error,
)
from support.kappa import kappa

# What is compared on the same cases.


def test_intervals_are_those_of_scipy():
    chance = Random(11)  # noqa: S311 (no secret)
    pairs = [(chance.random(), chance.random()) for _ in range(40)]
    comparison = compared_means(pairs)
    known = stats.ttest_rel(*zip(*pairs, strict=True)).confidence_interval(0.95)
    assert (comparison.effect.low, comparison.effect.high) == pytest.approx(tuple(known), abs=1e-4)
    rates = [float(chance.random() < 0.2) for _ in range(40)]
    effect = rate_of(rates)
    wilson = stats.binomtest(round(sum(rates)), 40).proportion_ci(0.95, "wilson")
    # Student's t for the number of cases in place of the normal quantile, so a little wider.
    assert effect.low <= wilson.low <= effect.mean <= wilson.high <= effect.high
    assert (effect.low, effect.high) == pytest.approx(tuple(wilson), abs=0.015)


@pytest.mark.parametrize("count", [20, 30, 50, 100, 200])
def test_coverage_of_pass_rates_is_exact(count):
    """One try of each case: the chance of each number that passes is known, so nothing is drawn."""
    effects = [rate_of([1.0] * passed + [0.0] * (count - passed)) for passed in range(count + 1)]
    for rate in np.linspace(0.1, 0.9, 81):
        chances = stats.binom.pmf(np.arange(count + 1), count, rate)
        assert sum(p for p, one in zip(chances, effects, strict=True) if one.low <= rate <= one.high) >= 0.93


@pytest.mark.parametrize("count", [20, 30, 50, 80])
def test_coverage_and_false_alarms_of_differences_are_exact(count):
    """One try of each case: the chance of each number that one side alone passes is known."""
    won, lost = (each.ravel() for each in np.indices((count + 1, count + 1)))
    won, lost = won[won + lost <= count], lost[won + lost <= count]
    effects = [
        compared_rates([(1.0, 0.0)] * ours + [(0.0, 1.0)] * theirs + [(0.0, 0.0)] * (count - ours - theirs))
        for ours, theirs in zip(won.tolist(), lost.tolist(), strict=True)
    ]
    low, high = (np.array([getattr(one.effect, end) for one in effects]) for end in ("low", "high"))

    def chances(ours, theirs):
        table = np.stack([won, lost, count - won - lost], axis=-1)
        return stats.multinomial.pmf(table, count, [ours, theirs, 1 - ours - theirs])

    rates = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    for rate, other in ((rate, other) for rate in rates for other in rates if rate >= other):
        for alike in (0.0, 0.5, 1.0):  # from cases that have nothing in common to the same ones being hard
            both = rate * other + alike * (other - rate * other)
            known = chances(rate - both, other - both)
            assert known[(low <= rate - other) & (rate - other <= high)].sum() >= 0.93
    # Where nothing changed, two tries of a case differ in at most half of the cases.
    for differing in np.linspace(0.02, 0.5, 25):
        assert chances(differing / 2, differing / 2)[high < 0].sum() <= 0.025


SIZES = [(20, 3), (50, 3), (200, 2)]
"""The number of cases, and of tries of each."""
DRAWS = 1000
GRID = np.linspace(0, 1, 4001)
KINDS = ["alike", "mixed", "split"]
"""Cases of one difficulty, of all difficulties, and such that nearly always pass or fail."""


def shares(chance, count, tries, rates, kind, draws=DRAWS):
    """Shares of tries that pass, of each side, which find the same cases hard."""
    place = chance.random((draws, count))
    for rate in rates:
        if kind == "alike":
            levels = np.full((draws, count), rate)
        elif kind == "mixed":
            levels = np.interp(place, GRID, stats.beta.ppf(GRID, rate, 1 - rate))
        else:
            levels = np.where(place < (rate - 0.03) / 0.94, 0.97, 0.03)
        yield chance.binomial(tries, levels) / tries


@pytest.mark.parametrize(("count", "tries"), [(20, 1), *SIZES])
def test_coverage_of_scores(count, tries):
    """Cases differ, and so do the tries of one: the interval holds the true difference in 93 to 97 %."""
    chance = np.random.default_rng(13)
    of_cases = chance.normal(0.05, 0.1, (DRAWS, count, 1))
    of_tries = chance.normal(0, 0.2, (DRAWS, count, tries))
    hits = 0
    for means in (of_cases + of_tries).mean(2).tolist():
        effect = compared_means([(mean, 0.0) for mean in means]).effect
        hits += effect.low <= 0.05 <= effect.high
    assert 0.93 <= hits / DRAWS <= 0.97


@pytest.mark.parametrize("count", [20, 50, 200])
def test_coverage_of_skewed_scores(count):
    """Most scores are near 1, as where most of a task is easy."""
    chance = np.random.default_rng(29)
    ours, theirs = chance.beta(8, 2, (DRAWS, count)), chance.beta(8, 3, (DRAWS, count))
    hits = 0
    for pairs in np.stack([ours, theirs], axis=-1).tolist():
        effect = compared_means(pairs).effect
        hits += effect.low <= 8 / 10 - 8 / 11 <= effect.high
    assert 0.93 <= hits / DRAWS <= 0.97


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("count", "tries"), SIZES)
def test_coverage_of_pass_rates(count, tries, rate, kind):
    chance = np.random.default_rng(17)
    hits = 0
    for (rates,) in zip(*(each.tolist() for each in shares(chance, count, tries, [rate], kind)), strict=True):
        effect = rate_of(rates)
        hits += effect.low <= rate <= effect.high
    assert hits / DRAWS >= 0.93


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rates", [(0.2, 0.1), (0.7, 0.5), (0.9, 0.7)])
@pytest.mark.parametrize(("count", "tries"), SIZES)
def test_coverage_of_differences(count, tries, rates, kind):
    chance = np.random.default_rng(19)
    hits = 0
    for ours, theirs in zip(
        *(each.tolist() for each in shares(chance, count, tries, rates, kind)), strict=True
    ):
        effect = compared_rates(list(zip(ours, theirs, strict=True))).effect
        hits += effect.low <= rates[0] - rates[1] <= effect.high
    assert hits / DRAWS >= 0.93


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_false_alarms_of_repeated_tries(rate, kind):
    """Nothing changed, so either verdict is an alarm, and one of "worse" half as frequent: at most 3 %."""
    chance = np.random.default_rng(31)
    alarms = 0
    both = shares(chance, 50, 3, (rate, rate), kind, draws=3 * DRAWS)
    for ours, theirs in zip(*(each.tolist() for each in both), strict=True):
        alarms += compared_rates(list(zip(ours, theirs, strict=True))).verdict in ("better", "worse")
    assert alarms / 2 / (3 * DRAWS) <= 0.03


@pytest.mark.parametrize(
    ("cases", "differing"),
    [(8, 0), (12, 0), (12, 3), (20, 0), (20, 6), (40, 12), (50, 0), (50, 5), (100, 0), (100, 50)],
)
def test_a_detectable_difference_is_detected_four_times_in_five(cases, differing):
    differ = [(0.0, 1.0)] * (differing // 2) + [(1.0, 0.0)] * (differing - differing // 2)
    least = compared_rates(differ + [(1.0, 1.0)] * (cases - differing)).detectable
    share = max(least, differing / cases)
    better, worse = (share + least) / 2, (share - least) / 2
    draws = np.random.default_rng(23).multinomial(cases, [better, worse, 1 - better - worse], size=1_000)
    verdicts = {
        (up, down): compared_rates(
            [(1.0, 0.0)] * up + [(0.0, 1.0)] * down + [(1.0, 1.0)] * (cases - up - down)
        ).verdict
        for up, down in {(up, down) for up, down, _ in draws.tolist()}
    }
    found = sum(verdicts[up, down] == "better" for up, down, _ in draws.tolist())
    assert 0.75 <= found / 1_000 <= 0.97


def test_five_cases_are_too_few_to_find_any_difference_of_rates():
    five = compared_rates([(1.0, 0.0)] * 5)
    assert (five.verdict, five.needed) == ("not distinguishable", 6)
    assert compared_rates([(1.0, 0.0)] * 6).verdict == "better"
    assert compared_rates([(1.0, 1.0)] * 5).detectable is None
    assert compared_rates([(1.0, 1.0)] * 6).detectable is not None


def test_how_many_cases_it_takes():
    pairs = [(1.0, 0.0)] * 6 + [(0.0, 1.0)] * 3 + [(1.0, 1.0)] * 21
    comparison = compared_rates(pairs)
    assert (comparison.cases, comparison.verdict) == (30, "not distinguishable")
    assert comparison.effect.mean == pytest.approx(0.1)
    assert 200 <= comparison.needed <= 400
    assert compared_rates([(1.0, 1.0)] * 30).needed is None
    assert compared_rates([(1.0, 0.0)] * 30).verdict == "better"
    few = compared_rates([(1.0, 0.0)] * 4)
    assert (few.cases, few.verdict, few.effect, few.needed) == (4, "unknown", None, None)
    assert rate_of([1.0] * 4) is None
    assert mean_of_cases([1.0] * 4) is None
    assert mean_of_cases([0.5] * 5) == rate_of([0.5] * 5)


# Two raters.


def ratings_of(judge, person, group=None):
    groups = range(len(judge)) if group is None else group
    return [
        Rating(bool(one), bool(other), str(at)) for one, other, at in zip(judge, person, groups, strict=True)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_kappa_is_that_of_its_definition(seed):
    chance = np.random.default_rng(seed)
    person = chance.random(60) < chance.uniform(0.1, 0.9)
    judge = np.where(chance.random(60) < chance.uniform(0.3, 1.0), person, chance.random(60) < 0.5)
    agreement = agreement_of(ratings_of(judge, person))
    assert agreement.kappa == pytest.approx(kappa(judge, person))
    assert agreement.base_rate == pytest.approx(person.mean())
    assert agreement.observed == pytest.approx((judge == person).mean())
    assert agreement.low <= agreement.kappa <= agreement.high


def test_kappa_that_is_not_defined_is_unknown():
    assert agreement_of([]) == Agreement()
    alike = agreement_of(ratings_of([1] * 30, [1] * 30))
    assert (alike.kappa, alike.low, alike.count, str(alike)) == (None, None, 30, "kappa unknown")
    one_sided = agreement_of(ratings_of([1] * 30, [1, 0] * 15))
    assert one_sided.kappa == 0.0


def test_full_agreement_on_a_few_is_not_certain():
    few, many = (agreement_of(ratings_of([0, 1] * n, [0, 1] * n)) for n in (5, 100))
    assert (few.kappa, few.high, many.kappa) == (1.0, 1.0, 1.0)
    assert few.low < 0.75
    assert many.low > 0.95
    # Ten ratings of two tasks are two tasks.
    assert agreement_of(ratings_of([0, 1] * 5, [0, 1] * 5, [1, 2] * 5)).low is None


@pytest.mark.parametrize(
    ("count", "repeats", "rate", "hit"),
    [(20, 1, 0.5, 0.9), (50, 1, 0.2, 0.7), (200, 1, 0.8, 0.9), (20, 4, 0.5, 0.7), (50, 4, 0.2, 0.9)],
)
def test_the_interval_of_kappa_holds_the_truth(count, repeats, rate, hit):
    chance = np.random.default_rng(7)
    accepted = rate * hit + (1 - rate) * (1 - hit)
    luck = accepted * rate + (1 - accepted) * (1 - rate)
    truth = (hit - luck) / (1 - luck)
    groups = [number for number in range(count) for _ in range(repeats)]
    hits, tries = 0, 250
    for _ in range(tries):
        person, right = chance.random(count) < rate, chance.random(count) < hit
        judge = np.where(right, person, ~person)
        # All ratings of a task come out alike, the worst case.
        agreement = agreement_of(ratings_of(judge.repeat(repeats), person.repeat(repeats), groups))
        hits += agreement.low is not None and agreement.low <= truth <= agreement.high
    assert hits / tries >= 0.93


@pytest.mark.parametrize("values", [[0.3], [0.3] * 7, [0.1] * 10, [1 / 3] * 499])
def test_equal_values_have_no_error_at_all(values):
    assert standard_error(values) == 0.0


def test_the_standard_error_is_that_of_the_sample():
    values = [((7 * number) % 11) / 10 for number in range(500)]
    assert standard_error(values) == pytest.approx(stdev(values) / len(values) ** 0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.2] * 5, "not distinguishable"),
        ([0.1 + 0.2 - 0.1] * 2 + [0.2] * 3, "not distinguishable"),
        ([0.2, 0.21, 0.19, 0.2, 0.22], "not distinguishable"),
        ([0.2] * 4 + [0.0] * 16, "not distinguishable"),
        ([0.0] * 20, "not distinguishable"),
        ([0.2] * 20, "better"),
        ([-0.2] * 20, "worse"),
        ([0.2, 0.21, 0.19, 0.2, 0.22, 0.2], "better"),
    ],
)
@pytest.mark.parametrize("unit", [1.0, 1_000.0, 1e-5], ids=["scores", "tokens", "dollars"])
def test_equal_differences_are_no_certainty(differences, verdict, unit):
    comparison = compared_means([(unit * (0.5 + each), unit * 0.5) for each in differences])
    assert comparison.verdict == verdict
    assert comparison.effect.high - comparison.effect.low > 0.02 * unit
    assert comparison.effect.low <= comparison.effect.mean <= comparison.effect.high


@pytest.mark.parametrize("score", [0.0, 0.8, 1.0])
def test_equal_scores_are_no_certainty(score):
    effect = mean_of_cases([score] * 6)
    assert effect.mean == pytest.approx(score)
    assert effect.low <= score <= effect.high
    assert effect.high - effect.low > 0.2


def test_nothing_spent_on_either_side_is_no_difference():
    assert compared_means([(0.0, 0.0)] * 6).effect == Effect(0.0, 0.0, 0.0)
