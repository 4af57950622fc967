import pytest

from redraft.loop.select import highest, is_better, select
from versions import history, version


@pytest.mark.parametrize(
    ("versions", "selection", "expected"),
    [
        (history(0.5, 0.9, 0.7), "highest_score", 2),
        (history(0.5, 0.9, 0.9), "highest_score", 2),  # ties keep the earliest
        (history(None, 0.1), "highest_score", 2),  # an unknown loses against anything
        ([version(1, 0.9), version(2, 0.8, satisfactory=True)], "highest_score", 2),
        ([version(1, 0.9, gates_passed=False), version(2, 0.2)], "highest_score", 2),
        (history(0.5, 0.9, 0.7), "latest", 3),
        (history(0.5, 0.9, 0.7), "first_satisfactory", 2),  # none is: highest score
        (
            [version(1, 0.5), version(2, 0.8, satisfactory=True), version(3, 0.9, satisfactory=True)],
            "first_satisfactory",
            2,
        ),
        (history(0.80, 0.79), "weighted_recency", 2),  # 0.64 against 0.632 + 0.2
        (history(0.9, 0.2), "weighted_recency", 1),  # 0.72 against 0.16 + 0.2
        (history(0.5), "weighted_recency", 1),
        ([version(1, 0.2, accepted=True), version(2, 0.9)], "highest_score", 1),
        ([version(1, 0.2, accepted=True), version(2, 0.9)], "latest", 1),
    ],
)
def test_select(versions, selection, expected):
    assert select(versions, selection).iteration == expected


def test_a_gain_within_the_spread_does_not_win():
    first, second = history(0.50, 0.55, spread=0.1)
    assert not is_better(second, first)
    assert highest([first, second]) is first


def test_nothing_is_better_than_itself():
    for one in (*history(None, 0.5), version(1, 0.5, satisfactory=True)):
        assert not is_better(one, one)
