from itertools import pairwise

import pytest

from redraft.web.charts import (
    LABEL_WIDTH,
    MOST_DOTS,
    MOST_SAMPLES,
    TREND,
    Period,
    Scored,
    SeriesSample,
    period_bars,
    score_curve,
    series,
    trend,
)

TOP, LOW = TREND.top, TREND.bottom


@pytest.mark.parametrize(
    ("values", "tops", "most", "words"),
    [
        ([1, 2, 4], [LOW - (LOW - TOP) / 4, (LOW + TOP) / 2, TOP], "4", "last 4, median 2, max 4"),
        ([3, None], [TOP, None], "3", "last 3, median 3, max 3"),
        ([0, 0], [LOW, LOW], "", "last 0, median 0, max 0"),
    ],
)
def test_bars_stand_on_zero(values, tops, most, words):
    drawn = trend("Tokens", list(range(1, len(values) + 1)), values, lambda value: f"{value:g}")
    assert [bar.top for bar in drawn.bars] == tops
    assert (drawn.most, drawn.words) == (most, words)
    assert drawn.bars[-1].title == f"cycle {len(values)}: {'unknown' if values[-1] is None else values[-1]}"


def test_a_series_without_values_is_not_drawn():
    assert trend("Cost", [1, 2], [None, None], str) is None
    assert trend("Cost", [], [], str) is None


@pytest.mark.parametrize("count", [1, 7, 50])
def test_bars_do_not_overlap(count):
    drawn = trend("Tokens", range(count), [1] * count, str)
    ends = [(bar.x, bar.x + bar.width) for bar in drawn.bars]
    assert all(end < begin for (_, end), (begin, _) in pairwise(ends))
    assert drawn.frame.left <= ends[0][0]
    assert ends[-1][1] <= drawn.frame.right


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["2026-02-27", "2026-03-02"], 4),
        (["2025-11", "2026-02"], 4),
        (["2026-02-27"], 1),
        ([], 0),
    ],
)
@pytest.mark.parametrize("unit", ["dollars", "tokens"])
def test_periods_without_a_value_are_gaps(names, count, unit):
    bars = period_bars([Period(name, 0.03, 0.01) for name in names], unit)
    assert len(bars.bars) == count
    assert sum(bar.height > 0 for bar in bars.bars) == len(names)
    assert bars.unit == unit
    assert all(bar.part == pytest.approx(bar.height / 3) for bar in bars.bars)


def test_a_long_curve_has_dots_only_where_it_matters():
    scores = [0.5 + (0.3 if n == 77 else -0.4 if n == 101 else 0.001 * (n % 7)) for n in range(200)]
    drawn = score_curve(
        [Scored(n + 1, score, kind="best" if n == 77 else "") for n, score in enumerate(scores)]
    )
    shown = [point.number for point in drawn.points]
    assert len(shown) <= MOST_DOTS
    assert {1, 78, 102, 200} <= set(shown)
    assert [point.number for point in drawn.points if point.kind == "best"] == [78]
    assert len(drawn.curve.split()) == 200  # the line goes through all of them
    assert drawn.count == 200


@pytest.mark.parametrize("count", [1, 16, MOST_DOTS])
def test_a_short_curve_has_a_dot_for_each_score(count):
    assert len(score_curve([Scored(n, 0.5) for n in range(count)]).points) == count


def samples(*rows):
    """Samples of (group, score); those of the group "x" count in no mean."""
    return [SeriesSample(score, "kind", "title", None if group == "x" else group) for group, score in rows]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([], []),
        ([("no note", 0.2), ("no note", 0.4), ("v1", 0.6)], ["no note", "v1"]),
        ([("v1", 0.5), ("x", 0.3), ("v1", 0.7), ("v2", 0.8)], ["v1", "v2"]),
        ([("v1", 0.5), ("v2", 0.5), ("v1", 0.5)], ["v1", "v2", "v1"]),
    ],
)
def test_a_stretch_ends_where_the_group_changes(rows, labels):
    drawn = series(samples(*rows))
    assert [part.label for part in drawn.stretches] == labels
    assert len(drawn.points) == len(rows)


def test_scores_stay_within_the_frame():
    drawn = series(samples(("a", 0.0), ("a", 1.0), ("a", 0.5)))
    low, high, middle = (point.y for point in drawn.points)
    assert (low, high) == (drawn.frame.bottom, drawn.frame.top)
    assert drawn.stretches[0].mean == middle == (low + high) / 2
    assert all(drawn.frame.left < point.x < drawn.frame.right for point in drawn.points)


def test_the_latest_samples_are_drawn_and_their_labels_do_not_overlap():
    drawn = series(samples(*((f"v{number}", 0.5) for number in range(MOST_SAMPLES + 10))))
    assert (len(drawn.points), drawn.left_out) == (MOST_SAMPLES, 10)
    starts = [part.start for part in drawn.stretches if part.label]
    assert min(after - before for before, after in pairwise(starts)) >= LABEL_WIDTH
