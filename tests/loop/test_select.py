import pytest

from redraft.loop.select import highest, is_better, is_setback, select
from support.versions import gained, history, judged, version

HALF = {"clarity": 0.4, "regex": 1.0}
BLIND = {"clarity": None, "regex": 1.0}  # whose mean, 1.0, is above that of HALF


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
        # A version that was not fully judged loses to one that was, whatever its score.
        ([judged(1, HALF), judged(2, BLIND)], "highest_score", 1),
        ([judged(1, BLIND), judged(2, HALF)], "highest_score", 2),
        ([judged(1, HALF), judged(2, BLIND)], "first_satisfactory", 1),
        ([judged(1, HALF), judged(2, BLIND)], "weighted_recency", 1),
        ([judged(1, HALF), judged(2, BLIND)], "latest", 2),
        ([judged(1, BLIND), version(2, None)], "highest_score", 1),
        (
            [judged(1, {"a": 0.9, "b": None, "c": None}), judged(2, {"a": 0.1, "b": 0.1, "c": None})],
            "highest_score",
            2,
        ),  # more criteria judged
        (
            [judged(1, {"a": 0.3, "b": None}), judged(2, {"a": None, "b": 0.9})],
            "highest_score",
            1,
        ),  # not alike
        ([judged(1, {"a": 0.3, "b": None}), judged(2, {"a": 0.4, "b": None})], "highest_score", 2),
        # A verdict comes before none, whatever the gates; a gate that could not be judged has not passed.
        ([judged(1, HALF, gates_passed=False), judged(2, BLIND)], "highest_score", 1),
        ([judged(1, HALF, gates_passed=None), judged(2, BLIND)], "highest_score", 1),
        ([judged(1, BLIND), judged(2, HALF, gates_passed=False)], "highest_score", 2),
        ([judged(1, BLIND, gates_passed=False), judged(2, BLIND)], "highest_score", 2),
        ([judged(1, HALF, gates_passed=False), version(2, None)], "highest_score", 1),
        ([version(1, None), judged(2, HALF, gates_passed=False)], "highest_score", 2),
        ([judged(1, HALF), judged(2, {"clarity": 0.9, "regex": 1.0}, gates_passed=None)], "highest_score", 1),
    ],
)
def test_select(versions, selection, expected):
    assert select(versions, selection).iteration == expected


def by_tests(number, share, given=None, **fields):
    """One version by the share of a generated criterion that it passed, and the score of a given one."""
    scores = {"tests": share} if given is None else {"given": given, "tests": share}
    return version(
        number, share if given is None else given, criteria_scores=scores, generated=("tests",), **fields
    )


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([by_tests(1, 0.6), by_tests(2, 1.0)], 1),  # the tests may be wrong: half is enough
        ([by_tests(1, 0.5, satisfactory=True), by_tests(2, 1.0, satisfactory=True)], 1),
        ([by_tests(1, 0.4), by_tests(2, 0.8, satisfactory=True)], 1),  # not all of them
        ([by_tests(1, 0.4), by_tests(2, 1.0, satisfactory=True)], 2),
        ([by_tests(1, 0.4), by_tests(2, 0.8), by_tests(3, 1.0)], 3),
        ([by_tests(1, 0.0), by_tests(2, 0.0)], 1),
        ([by_tests(1, None), by_tests(2, 1.0, satisfactory=True)], 1),  # an unknown is not less than half
        ([by_tests(1, 0.0), by_tests(2, None)], 1),
        ([by_tests(1, 0.0), version(2, None)], 1),  # judging it failed
        # Given criteria come first.
        ([by_tests(1, 0.0, 0.8), by_tests(2, 1.0, 0.7)], 1),
        ([by_tests(1, 1.0, 0.7), by_tests(2, 0.0, 0.8)], 2),
        ([by_tests(1, 0.0, 0.8), by_tests(2, 1.0, 0.8)], 2),
        ([by_tests(1, 0.6, 0.8), by_tests(2, 1.0, 0.8)], 1),
        ([by_tests(1, 0.0, 0.8, spread=0.1), by_tests(2, 1.0, 0.75, spread=0.1)], 2),  # equal but for noise
        ([by_tests(1, 0.0, 0.8), by_tests(2, 1.0, 0.9, meets_given=False)], 1),
        ([by_tests(1, 0.2, 0.8, gates_passed=False), by_tests(2, 0.0, 0.2)], 2),
        ([by_tests(1, 0.2, 0.9, meets_given=False), version(2, None)], 1),
    ],
)
def test_generated_criteria_do_not_overrule_an_earlier_version_lightly(versions, expected):
    assert highest(versions).iteration == expected


@pytest.mark.parametrize(
    ("best", "last", "expected"),
    [
        (by_tests(1, 0.4), by_tests(2, 0.2), True),
        (by_tests(1, 0.4), by_tests(2, 0.4), False),
        (by_tests(1, 0.4), by_tests(2, 0.8), False),
        (by_tests(1, 0.4), by_tests(2, None), False),
        (by_tests(1, 0.2, 0.8), by_tests(2, 0.4, 0.7), True),  # worse by the given criterion
        (version(1, 0.8), version(2, 0.7), True),
        (version(1, 0.8), version(2, 0.8), False),
    ],
)
def test_a_setback_also_shows_in_generated_criteria(best, last, expected):
    assert is_setback(last, best) is expected


@pytest.mark.parametrize(
    ("first", "second", "better"),
    [
        ((0.50, 0.1), (0.55, 0.1), False),
        ((0.50, 0.03), (0.54, 0.03), False),  # each alone is smaller than the gain, together they are not
        ((0.50, 0.03), (0.55, 0.03), True),
        ((0.50, 0.0), (0.55, 0.06), False),
        ((0.50, 0.04), (0.55, 0.0), True),
    ],
)
def test_a_gain_must_exceed_the_margins_of_both_versions(first, second, better):
    one, other = version(1, first[0], spread=first[1]), version(2, second[0], spread=second[1])
    assert is_better(other, one) is better
    assert highest([one, other]) is (other if better else one)


def test_nothing_is_better_than_itself():
    for one in (*history(None, 0.5), version(1, 0.5, satisfactory=True)):
        assert not is_better(one, one)


NEW = {"clarity": 0.6, "regex": 1.0}


@pytest.mark.parametrize(
    ("versions", "gains"),
    [
        (history(0.5, 0.7, 0.6), [None, 0.2, -0.1]),
        (history(0.5, None, 0.6), [None, None, 0.1]),
        (
            [judged(1, HALF), judged(2, BLIND), judged(3, NEW)],
            [None, None, 0.1],
        ),  # no fake gain, no fake drop
        ([judged(1, BLIND), judged(2, HALF), judged(3, NEW)], [None, None, 0.1]),
        ([judged(1, {"a": None, "b": 0.5}), judged(2, {"a": None, "b": 0.7})], [None, 0.2]),
        ([judged(1, {"a": 0.5}), judged(2, {"a": 0.5, "newer": 0.0})], [None, None]),  # one more applies
        # Passing a gate adds 1 to the gain and failing it again subtracts 1, whatever else was judged.
        (
            [
                judged(1, {"gate": 0.0, "clarity": None}, gates_passed=False),
                judged(2, {"gate": 1.0, "clarity": 0.2}),
                judged(3, {"gate": 0.0, "clarity": None}, gates_passed=False),
                judged(4, {"gate": 1.0, "clarity": 0.4}),
            ],
            [None, 1.0, -1.0, 0.1],
        ),
        (
            [judged(1, {"gate": None, "a": 0.5}, gates_passed=None), judged(2, {"gate": 1.0, "a": 0.5})],
            [None, None],
        ),
    ],
)
def test_a_gain_compares_versions_judged_by_the_same_criteria(versions, gains):
    found = [one.gain for one in gained(versions)]
    assert found == [None if gain is None else pytest.approx(gain) for gain in gains]
