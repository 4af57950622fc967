"""The verdict on notes and lessons."""

from random import Random

import pytest

from redraft.memory.effects import FEWEST, Payoff, payoff_of


@pytest.mark.parametrize(
    ("having", "lacking", "answer"),
    [
        ([], [], "Not known"),
        ([1.0] * 12, [0.0] * (FEWEST - 1), "Not known"),
        ([0.0] * 12, [1.0] * FEWEST, "No"),
        ([1.0] * 12, [0.0] * FEWEST, "Yes"),
        ([0.9] * 9 + [1.0], [1.0] * 10, "No"),
        ([1.0] * 9 + [0.0], [1.0] * 10, "Not clear"),
        ([0.5] * 30, [0.5] * 30, "Not clear"),
    ],
)
def test_the_answer_and_its_interval_agree(having, lacking, answer):
    payoff = payoff_of([[*((True, score) for score in having), *((False, score) for score in lacking)]])
    assert payoff.answer == answer
    assert payoff.sentence("notes").startswith(f"Do notes pay off? {answer}:")
    if payoff.effect is not None:
        excludes_zero = payoff.effect.low > 0 or payoff.effect.high < 0
        assert not excludes_zero or payoff.verdict


def test_only_runs_of_one_task_are_compared():
    easy = [(True, 0.9), (True, 0.8)] * 20 + [(False, 0.9), (False, 0.8)]
    hard = [(True, 0.2), (True, 0.1)] + [(False, 0.2), (False, 0.1)] * 20
    payoff = payoff_of([easy, hard])
    assert (payoff.with_runs, payoff.without_runs, payoff.verdict) == (42, 42, "")
    assert payoff.effect.mean == pytest.approx(0)
    assert payoff_of([]) == Payoff()


def harm_after(effect, runs, seed):
    """Simulate runs, every second one with a note of an effect; return whether harm was detected."""
    chance, history = Random(seed), []  # noqa: S311 (no secret)
    for number in range(runs):
        has_it = number % 2 == 1
        history.append((has_it, min(1.0, max(0.0, chance.gauss(0.6 + effect * has_it, 0.2)))))
        if has_it and payoff_of([history]).verdict == "hurts":
            return True
    return False


@pytest.mark.parametrize(
    ("effect", "least", "most"),
    [
        pytest.param(-0.2, 0.9, 1, id="harmful"),
        pytest.param(0.0, 0, 0.05, id="no effect"),
        pytest.param(0.2, 0, 0, id="helpful"),
    ],
)
def test_harm_is_detected_at_the_expected_rate(effect, least, most):
    found = [harm_after(effect, 84, seed) for seed in range(40)]
    assert least <= sum(found) / 40 <= most
