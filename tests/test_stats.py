"""Effects: their intervals, how often those are right, and when to look."""

from random import Random
from time import process_time

import pytest

from redraft.errors import ConfigError
from redraft.stats import Effect, Payoff, effect_of, last_look, payoff_of


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
        "Not known: 0 scored runs with, 0 without; it takes 10 of each.",
    ),
    "one": (Payoff(1, 0), "Not known: 1 scored run with, 0 without; it takes 10 of each."),
    "few": (Payoff(12, 9, Effect(0.5, 0.4, 0.6)), "Not known: 12 scored runs with, 9 without"),
    "apart": (Payoff(50, 50), "Not known: 50 runs with, 50 without, none to be compared with another."),
    "yes": (
        Payoff(1041, 12, Effect(0.56, 0.32, 0.8)),
        "Yes: +0.56 (95 %: +0.32 to +0.80), 1,041 runs with, 12 without.",
    ),
    "no": (Payoff(41, 12, Effect(-0.2, -0.3, -0.1)), "No: -0.20 (95 %: -0.30 to -0.10), 41 runs"),
    "not clear": (
        Payoff(40, 10, Effect(0.1, -0.1, 0.3)),
        "40 runs with, 10 without; 200 more might tell.",
    ),
    "always the same": (Payoff(10, 10, Effect(0.0, 0.0, 0.0)), "+0.00), 10 runs with, 10 without."),
    "nearly": (Payoff(40, 10, Effect(0.1, -0.001, 0.201)), "10 without; 2 more might tell."),
    "no difference": (
        Payoff(40, 10, Effect(0.0, -0.1, 0.1)),
        "Not clear: +0.00 (95 %: -0.10 to +0.10), 40 runs with, 10 without.",
    ),
}


@pytest.mark.parametrize(("payoff", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_a_payoff_says_what_is_known_or_missing(payoff, sentence):
    said = payoff.sentence("notes")
    assert said.startswith("Do notes pay? ")
    assert sentence in said
