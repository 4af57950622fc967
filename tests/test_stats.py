"""Effects: their intervals, how often those are right, and when to look."""

from random import Random
from time import process_time

import pytest

from redraft.errors import ConfigError
from redraft.stats import Effect, effect_of, last_look


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
