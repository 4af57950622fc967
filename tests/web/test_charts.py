from itertools import pairwise

import pytest

from redraft.web.charts import LARGE, MOST_DOTS, NAME_WIDTH, SMALL, Scored, bars, score_curve

TOP, LOW = SMALL.top, SMALL.bottom


@pytest.mark.parametrize(
    ("values", "tops", "most"),
    [
        ([1, 2, 4], [LOW - (LOW - TOP) / 4, (LOW + TOP) / 2, TOP], "4"),
        ([3, None], [TOP, None], "3"),
        ([0, 0], [LOW, LOW], ""),
    ],
)
def test_bars_stand_on_zero(values, tops, most):
    names = [f"cycle {number}" for number in range(1, len(values) + 1)]
    drawn = bars(names, values, lambda value: f"{value:g}")
    assert [bar.top for bar in drawn.bars] == tops
    assert (drawn.most, drawn.first, drawn.last) == (most, names[0], names[-1])
    assert drawn.bars[-1].title == f"{names[-1]}: {'unknown' if values[-1] is None else values[-1]}"


def test_without_values_there_are_no_bars():
    assert bars(["1", "2"], [None, None], str) is None
    assert bars([], [], str) is None


@pytest.mark.parametrize("frame", [SMALL, LARGE])
@pytest.mark.parametrize("count", [1, 7, 50])
def test_bars_do_not_overlap(count, frame):
    drawn = bars([str(n) for n in range(count)], [1] * count, str, frame)
    ends = [(bar.x, bar.x + bar.width) for bar in drawn.bars]
    assert all(end < begin for (_, end), (begin, _) in pairwise(ends))
    assert drawn.frame.left <= ends[0][0]
    assert ends[-1][1] <= drawn.frame.right


def test_a_long_curve_has_dots_only_where_it_matters():
    scores = [0.5 + (0.3 if n == 77 else -0.4 if n == 101 else 0.001 * (n % 7)) for n in range(200)]
    drawn = score_curve(
        [Scored(str(n + 1), score, kind="best" if n == 77 else "filled") for n, score in enumerate(scores)]
    )
    assert len(drawn.points) <= MOST_DOTS
    ends = [drawn.frame.left + 14, drawn.frame.right - 14]
    assert [drawn.points[0].x, drawn.points[-1].x] == pytest.approx(ends)
    assert [point.name for point in drawn.points if point.kind == "best"] == ["78"]
    assert max(point.y for point in drawn.points) == drawn.frame.y(scores[101])
    assert len(drawn.curve.split()) == 200  # the line goes through all of them
    assert drawn.count == 200


@pytest.mark.parametrize("count", [1, 16, MOST_DOTS])
def test_a_short_curve_has_a_dot_for_each_score(count):
    assert len(score_curve([Scored(str(n), 0.5) for n in range(count)]).points) == count


@pytest.mark.parametrize("count", [3, 40, 200])
def test_names_below_a_curve_do_not_overlap(count):
    points = score_curve([Scored(f"v{n}", 0.5) for n in range(count)]).points
    named = [point for point in points if point.name]
    assert {points[0].name, points[-1].name} <= {point.name for point in named}
    assert all(after.x - before.x >= NAME_WIDTH for before, after in pairwise(named))


def test_scores_stay_within_the_frame():
    drawn = score_curve([Scored("", score, 0.2) for score in (0.0, 1.0, 0.5)])
    low, high, middle = (point.y for point in drawn.points)
    assert (low, high, middle) == (drawn.frame.bottom, drawn.frame.top, (low + high) / 2)
    assert all(drawn.frame.top <= point.high <= point.low <= drawn.frame.bottom for point in drawn.points)


def test_a_curve_without_a_best_score_so_far():
    assert score_curve([Scored("", 0.5)], best_so_far=False).best_so_far == ""


def test_the_line_leaves_out_crosses():
    kinds = ["hollow", "cross", "filled"]
    curve = score_curve([Scored("", 0.5, kind=kind) for kind in kinds])
    assert len(curve.curve.split()) == 2
    assert [point.kind for point in curve.points] == kinds
