"""Trials of notes and lessons: their verdicts, and how often these are right."""

from random import Random
from statistics import median

import pytest

from redraft.memory.effects import FEWEST, Payoff, control_share, payoff_of


def gauss(mean, effect, since=0):
    return lambda chance, run, noted: min(
        1.0, max(0.0, chance.gauss(mean + effect * (noted and run >= since), 0.1))
    )


def passes(share, effect, since=0):
    return lambda chance, run, noted: float(chance.random() < share + effect * (noted and run >= since))


def rolled_back_at(score, runs, seed):
    chance, history, share = Random(seed), [], 0.4  # noqa: S311 (no secret)
    for run in range(4, runs + 1):
        noted = chance.random() >= share
        history.append((noted, score(chance, run, noted)))
        if not noted:
            if payoff_of([history]).verdict == "hurts":
                return run
            share = control_share(0.2, history)
    return None


@pytest.mark.parametrize(
    ("score", "runs", "least", "most", "soon"),
    [
        pytest.param(gauss(0.7, 0), 200, 0, 0.08, None, id="useless, gauss"),
        pytest.param(passes(0.7, 0), 200, 0, 0.08, None, id="useless, pass .7"),
        pytest.param(passes(0.9, 0), 200, 0, 0.04, None, id="useless, pass .9"),
        pytest.param(passes(0.9, 0.04), 200, 0, 0.02, None, id="helps"),
        pytest.param(gauss(0.7, -0.1), 200, 0.95, 1, None, id="harms a little, gauss"),
        pytest.param(gauss(0.7, -0.3), 200, 1, 1, 25, id="harms, gauss"),
        pytest.param(passes(0.7, -0.3), 200, 0.75, 1, None, id="harms a little, pass .7"),
        pytest.param(passes(0.7, -0.5), 200, 0.99, 1, 60, id="harms, pass .7"),
        pytest.param(gauss(0.8, -0.75, 60), 260, 1, 1, 95, id="turns harmful, gauss"),
        pytest.param(passes(0.9, -0.6, 60), 260, 1, 1, 110, id="turns harmful, pass .9"),
    ],
)
def test_how_often_and_how_soon_notes_are_rolled_back(score, runs, least, most, soon):
    ends = [rolled_back_at(score, runs, seed) for seed in range(50)]
    found = [run for run in ends if run is not None]
    assert least <= len(found) / 50 <= most
    assert soon is None or median(found) <= soon


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
