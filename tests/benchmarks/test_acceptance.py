import asyncio

import pytest
from acceptance import accepted, met


@pytest.mark.parametrize(
    ("samples", "margin", "true", "false"),
    [(1, 1.8, 0.72, 0.72), (5, 1.8, 0.64, 0.12), (5, 0.0, 0.96, 0.72)],
)
def test_accepted_gains(samples, margin, true, false):
    found = asyncio.run(accepted(25, judge_samples=samples, judge_margin=margin))
    assert (found.true, found.false) == (true, false)


def test_a_second_judgement_keeps_luck_from_ending_a_run():
    alone, confirmed = (asyncio.run(met(0.7, 25, confirmed=confirmed)) for confirmed in (False, True))
    assert (alone, confirmed) == (0.28, 0.08)
