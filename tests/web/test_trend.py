from itertools import pairwise

import pytest

from redraft.web.trend import BOTTOM, HEIGHT, TOP, trend

LOW = HEIGHT - BOTTOM


@pytest.mark.parametrize(
    ("values", "tops", "most", "words"),
    [
        ([1, 2, 4], [LOW - (LOW - TOP) / 4, (LOW + TOP) / 2, TOP], "4", "last 4, median 2, most 4"),
        ([3, None], [TOP, None], "3", "last 3, median 3, most 3"),
        ([0, 0], [LOW, LOW], "", "last 0, median 0, most 0"),
    ],
)
def test_bars_stand_on_zero(values, tops, most, words):
    drawn = trend("Tokens", list(range(1, len(values) + 1)), values, lambda value: f"{value:g}")
    assert [bar.top for bar in drawn.bars] == tops
    assert (drawn.most, drawn.words) == (most, words)
    assert drawn.bars[-1].says == f"cycle {len(values)}: {'not known' if values[-1] is None else values[-1]}"


def test_what_no_cycle_has_is_not_drawn():
    assert trend("Cost", [1, 2], [None, None], str) is None
    assert trend("Cost", [], [], str) is None


@pytest.mark.parametrize("count", [1, 7, 50])
def test_bars_lie_beside_each_other(count):
    drawn = trend("Tokens", range(count), [1] * count, str)
    ends = [(bar.x, bar.x + bar.width) for bar in drawn.bars]
    assert all(end < begin for (_, end), (begin, _) in pairwise(ends))
    assert drawn.left <= ends[0][0]
    assert ends[-1][1] <= drawn.right
