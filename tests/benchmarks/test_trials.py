"""Simulated trials: how often the verdict on notes is right, and how soon it comes."""

from statistics import median

import pytest
from trials import gauss, passes, rolled_back_at


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
    ends = [rolled_back_at(score, runs, seed) for seed in range(25)]
    found = [run for run, _ in ends if run is not None]
    assert least <= len(found) / 25 <= most
    assert soon is None or median(found) <= soon
