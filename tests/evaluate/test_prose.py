import time

import pytest

from redraft.evaluate.prose import read

LONG = 20_000


@pytest.mark.parametrize(
    "text",
    [
        f"clarity: {' ' * LONG}x{' ' * LONG}y",
        f"clarity: {'*' * LONG}x{'*' * LONG}y",
        f"clarity{' ' * LONG}x",
        f"Issues:\n- {' ' * LONG}x{' ' * LONG}y",
        f"Issues:\n- {'[' * LONG}",
        "Issues:\n" * LONG,
    ],
)
def test_a_judge_that_repeats_itself_costs_no_time(text):
    started = time.process_time()
    assert read(text, ["clarity"])["criteria"] == {}
    assert time.process_time() - started < 1
