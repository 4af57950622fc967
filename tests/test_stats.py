"""Effects: their intervals, how often those are right, and when to look."""

from random import Random
from time import process_time

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from redraft.errors import ConfigError
from redraft.stats import (
    Agreement,
    Effect,
    Payoff,
    Rating,
    agreement_of,
    compared_means,
    compared_rates,
    effect_of,
    last_look,
    mean_of_cases,
    payoff_of,
    rate_of,
)


def test_effect_and_interval():
    chance = Random(3)  # noqa: S311 (no secret)
    better, worse = ([chance.gauss(mean, 0.1) for _ in range(60)] for mean in (0.7, 0.5))
    effect = effect_of(better, worse)
    assert effect == effect_of(better, worse)
    assert effect.low < 0.2 < effect.high
    assert effect.high - effect.low == pytest.approx(2 * 1.96 * 0.1 * (2 / 60) ** 0.5, rel=0.25)
    turned = effect_of(worse, better)
    assert turned.mean == pytest.approx(-effect.mean)
    many = effect_of(better * 20, worse * 20)  # the same, of 1200
    assert many.mean == pytest.approx(effect.mean)
    assert many.high - many.low == pytest.approx((effect.high - effect.low) / 20**0.5, rel=0.25)
    assert effect_of([0.5, 0.5], [0.25, 0.25]) == Effect(0.25, 0.25, 0.25)
    for few in ([], [0.5]):
        with pytest.raises(ConfigError, match="two scores with and two without"):
            effect_of(few, worse)


def test_interval_coverage():
    chance, hits = Random(5), 0  # noqa: S311 (no secret)
    for _ in range(300):
        with_scores = [chance.gauss(0.5, 0.2) for _ in range(30)]
        without_scores = [chance.gauss(0.4, 0.2) for _ in range(10)]
        effect = effect_of(with_scores, without_scores)
        hits += effect.low <= 0.1 <= effect.high
    assert 0.92 <= hits / 300 <= 0.98


def test_an_effect_of_400_scores_is_fast():
    scores = [number / 200 for number in range(200)]
    times = []
    for _ in range(9):
        begun = process_time()
        effect_of(scores, scores)
        times.append(process_time() - begun)
    assert min(times) <= 0.04  # half of that on a machine that does nothing else


@pytest.mark.parametrize(
    ("with_count", "without_count", "seen"),
    [(9, 30, None), (30, 9, None), (10, 10, 10), (39, 60, 10), (40, 60, 40), (159, 159, 40), (160, 170, 160)],
)
def test_looks_are_scheduled(with_count, without_count, seen):
    scores = [
        (is_with, 0.5)
        for number in range(max(with_count, without_count))
        for is_with, count in ((True, with_count), (False, without_count))
        if number < count
    ]
    found = last_look(scores)
    assert found is None if seen is None else min(map(len, found)) == seen


def test_only_runs_of_one_group_are_compared():
    easy, hard = ([0.9, 0.8] * 20, [0.9, 0.8]), ([0.2, 0.1], [0.2, 0.1] * 20)
    payoff = payoff_of([easy, hard, ([1.0], []), ([], [0.0])])
    assert (payoff.with_runs, payoff.without_runs) == (42, 42)
    assert payoff.effect.mean == pytest.approx(0)
    assert payoff.effect.low < 0 < payoff.effect.high
    assert payoff_of([([1.0], [0.5]), ([0.5] * 3, [])]) == Payoff(4, 1)
    assert payoff_of([]) == Payoff(0, 0)
    assert payoff_of([([0.5] * 3, [0.25] * 3)]).effect == Effect(0.25, 0.25, 0.25)


def test_coverage_of_the_interval_over_groups():
    chance, hits = Random(7), 0  # noqa: S311 (no secret)
    for _ in range(400):
        groups = [
            (
                [chance.gauss(level + 0.1, 0.2) for _ in range(count)],
                [chance.gauss(level, 0.2) for _ in range(3)],
            )
            for level, count in ((0.2, 4), (0.5, 12), (0.7, 30))
        ]
        effect = payoff_of(groups).effect
        hits += effect.low <= 0.1 <= effect.high
    assert 0.92 <= hits / 400 <= 0.98


SENTENCES = {
    "no score": (
        Payoff(0, 0),
        "Not known: 0 scored runs with, 0 without; at least 10 of each are needed.",
    ),
    "one": (Payoff(1, 0), "Not known: 1 scored run with, 0 without; at least 10 of each are needed."),
    "few": (Payoff(12, 9, Effect(0.5, 0.4, 0.6)), "Not known: 12 scored runs with, 9 without"),
    "apart": (
        Payoff(50, 50),
        "Not known: 50 runs with, 50 without, but none that can be compared with each other.",
    ),
    "yes": (
        Payoff(1041, 12, Effect(0.56, 0.32, 0.8)),
        "Yes: +0.56 (95 %: +0.32 to +0.80), 1,041 runs with, 12 without.",
    ),
    "no": (Payoff(41, 12, Effect(-0.2, -0.3, -0.1)), "No: -0.20 (95 %: -0.30 to -0.10), 41 runs"),
    "not clear": (
        Payoff(40, 10, Effect(0.1, -0.1, 0.3)),
        "40 runs with, 10 without; about 200 more may be enough to tell.",
    ),
    "always the same": (Payoff(10, 10, Effect(0.0, 0.0, 0.0)), "+0.00), 10 runs with, 10 without."),
    "nearly": (Payoff(40, 10, Effect(0.1, -0.001, 0.201)), "10 without; about 2 more may be enough to tell."),
    "no difference": (
        Payoff(40, 10, Effect(0.0, -0.1, 0.1)),
        "Not clear: +0.00 (95 %: -0.10 to +0.10), 40 runs with, 10 without.",
    ),
}


@pytest.mark.parametrize(("payoff", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_a_payoff_says_what_is_known_or_missing(payoff, sentence):
    said = payoff.sentence("notes")
    assert said.startswith("Do notes pay off? ")
    assert sentence in said


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
KINDS = ["alike", "mixed", "split"]
"""Cases of one difficulty, of all difficulties, and such that nearly always pass or fail."""


def shares(chance, count, tries, rates, kind, draws=DRAWS):
    """Shares of tries that pass, of each side, which find the same cases hard."""
    place = chance.random((draws, count))
    for rate in rates:
        if kind == "alike":
            levels = np.full((draws, count), rate)
        elif kind == "mixed":
            levels = stats.beta.ppf(place, rate, 1 - rate)
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
def test_what_is_detectable_is_found_four_times_in_five(cases, differing):
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
    assert mean_of_cases([0.5] * 5) == Effect(0.5, 0.5, 0.5)


# Two raters.


def ratings_of(judge, person, group=None):
    groups = range(len(judge)) if group is None else group
    return [
        Rating(bool(one), bool(other), str(at)) for one, other, at in zip(judge, person, groups, strict=True)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_kappa_is_that_of_scikit_learn(seed):
    chance = np.random.default_rng(seed)
    person = chance.random(60) < chance.uniform(0.1, 0.9)
    judge = np.where(chance.random(60) < chance.uniform(0.3, 1.0), person, chance.random(60) < 0.5)
    found = agreement_of(ratings_of(judge, person))
    assert found.kappa == pytest.approx(cohen_kappa_score(judge, person))
    assert found.base_rate == pytest.approx(person.mean())
    assert found.observed == pytest.approx((judge == person).mean())
    assert found.low <= found.kappa <= found.high


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
        found = agreement_of(ratings_of(judge.repeat(repeats), person.repeat(repeats), groups))
        hits += found.low is not None and found.low <= truth <= found.high
    assert hits / tries >= 0.93
