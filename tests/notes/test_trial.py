from datetime import UTC, datetime, timedelta

import pytest

from redraft.notes.note import NotedTask, NoteUse, Rollback
from redraft.notes.trial import Evidence, Trial, arm_of, evidence_of, may_replace, reason_of, share_of

START = datetime(2026, 11, 22, tzinfo=UTC)


def test_the_reason_for_a_rollback_includes_the_figures():
    assert reason_of(Rollback(7, None, -0.123, -0.2, -0.04, 40, 10)) == (
        "version 7 was rolled back automatically: runs with it scored 0.12 lower than runs without notes "
        "(95 % interval -0.20 to -0.04, 40 and 10 runs)"
    )
    assert "than runs with version 6" in reason_of(Rollback(7, 6, -0.1, -0.2, -0.04, 40, 10))


def history(*rows):
    """Return uses from rows: how many runs, their arm, the version, and scores to cycle through."""
    uses = []
    for count, arm, version, *scores in rows:
        for number in range(count):
            at = START + timedelta(seconds=len(uses))
            score = scores[number % len(scores)]
            uses.append(NoteUse(f"r{len(uses)}", version, arm, score, at))
    return uses


def noted_task(in_force, since=1, **fields):
    return NotedTask("id", "Write.", run_count=9, in_force=in_force, since=since, **fields)


def after(runs):
    """The time of the last of as many runs."""
    return START + timedelta(seconds=runs - 1)


def test_the_arm_of_a_run_is_stable_and_arms_have_their_share():
    for share in (0.2, 0.5):
        arms = [arm_of(share, f"run {number}", "id") for number in range(4000)]
        assert arms.count("control") / 4000 == pytest.approx(share, abs=0.02)
        assert arms[:50] == [arm_of(share, f"run {number}", "id") for number in range(50)]
    others = [arm_of(0.5, f"run {number}", "another") for number in range(4000)]
    agree = sum(a == b for a, b in zip(arms, others, strict=True))
    assert agree / 4000 == pytest.approx(0.5, abs=0.03)  # each task draws for itself
    assert arm_of(share, "\ud800", "id") in ("note", "control")


WELL, BADLY = (0.8, 0.9), (0.2, 0.3)


@pytest.mark.parametrize(
    ("uses", "against", "noted", "previous", "expected"),
    [
        pytest.param([(10, "note", 1, *BADLY), (10, "control", None, *WELL)], "none", noted_task(1), None,
                     (1, None, 10, 10), id="10 and 10 are enough"),
        pytest.param([(3, "note", 1, *BADLY), (30, "control", None, *WELL)], "none", noted_task(1), None,
                     None, id="3 runs with notes are too few"),
        pytest.param([(30, "note", 1, *BADLY, 0.8), (3, "control", None, *WELL)], "none", noted_task(1), None,
                     None, id="3 control runs are too few"),
        pytest.param([(12, "note", 1, *BADLY), (4, "control", None, *WELL)], "none", noted_task(1), None,
                     (1, None, 12, 4), id="4 are enough if every one of them did better"),
        pytest.param([(20, "note", 1, 0.0), (10, "control", None, 0.0, 0.0, 0.0, 1.0)], "none", noted_task(1),
                     None, None, id="2 passes in 10 runs show nothing"),
        pytest.param([(30, "note", 1, *WELL), (12, "control", None, *BADLY)], "none", noted_task(1), None,
                     None, id="a note that helps stays"),
        pytest.param([(30, "note", 1, *WELL), (12, "control", None, *WELL)], "none", noted_task(1), None,
                     None, id="a note without effect stays"),
        pytest.param([(6, "note", 1, *BADLY), (6, "note", 2, *BADLY), (10, "control", None, *WELL)], "none",
                     noted_task(2), None, (2, None, 12, 10), id="notes of one line count together"),
        pytest.param([(20, "note", 1, *BADLY), (20, "control", None, *WELL)], "none", noted_task(5, since=4),
                     None, None, id="runs before a rollback do not count"),
        pytest.param([(20, "control", None, *WELL), (20, "note", 5, *BADLY)], "none", noted_task(5, since=4),
                     None, None, id="control runs before a rollback do not count"),
        pytest.param([(3, "note", 1, *BADLY), (9, "note", 1, None), (20, "control", None, *WELL)], "none",
                     noted_task(1), None, None, id="a run without a score does not count"),
        pytest.param([(20, "note", 1, *BADLY), (20, "none", None, *WELL)], "none", noted_task(1), None,
                     None, id="a run before the notes is no control"),
        pytest.param([(20, "note", 2, *BADLY), (20, "control", None, *WELL)], "none", noted_task(2, since=4),
                     None, None, id="a version that a person chose stays"),
        pytest.param([(20, "note", 2, *BADLY), (20, "control", None, *WELL)], "none", noted_task(None),
                     None, None, id="no note is in force"),
        pytest.param([(12, "note", 2, *BADLY), (10, "control", 1, *WELL)], "previous", noted_task(2), 1,
                     (2, 1, 12, 10), id="the previous note takes over"),
        pytest.param([(12, "note", 2, *BADLY), (10, "control", None, *WELL)], "previous", noted_task(2), 1,
                     None, id="control runs with another note do not count"),
        pytest.param([(12, "note", 1, *BADLY), (3, "note", 2, *BADLY), (20, "control", 1, *WELL)], "previous",
                     noted_task(2), 1, None, id="runs with older notes do not count"),
        pytest.param([(12, "note", 1, *BADLY), (10, "control", None, *WELL)], "previous", noted_task(1), None,
                     (1, None, 12, 10), id="the first note has no previous one"),
    ],
)  # fmt: skip
def test_a_trial_rolls_back_only_a_note_that_surely_hurts(uses, against, noted, previous, expected):
    found = evidence_of(Trial(against=against), noted, history(*uses), previous).rollback
    if expected is None:
        assert found is None
    else:
        assert (found.version, found.to, found.with_runs, found.without_runs) == expected
        assert found.low <= found.effect <= found.high <= 0


@pytest.mark.parametrize(
    ("uses", "share"),
    [
        pytest.param([(9, "note", 1, *WELL), (5, "control", None, *BADLY)], 0.4, id="few control runs"),
        pytest.param([(30, "note", 1, *WELL), (8, "control", None, *WELL)], 0.2, id="no difference"),
        pytest.param([(30, "note", 1, *WELL), (20, "control", None, *WELL)], 0.1, id="no sign of harm"),
        pytest.param([(30, "note", 1, *WELL), (20, "control", None, *BADLY)], 0.05, id="they help"),
        pytest.param([(30, "note", 1, 0.0, 1.0), (8, "control", None, 1.0)], 0.4, id="they seem to hurt"),
        pytest.param([(60, "note", 1, 1.0), (20, "control", None, 0.0), (8, "note", 1, 0.0),
                      (1, "control", None, 1.0)], 0.4, id="the scores with them have fallen"),
    ],
)  # fmt: skip
def test_the_share_of_control_runs_follows_the_evidence(uses, share):
    evidence = evidence_of(Trial(), noted_task(1), history(*uses))
    assert evidence.control_share == pytest.approx(share)
    assert share_of(Trial(), noted_task(1, control_share=share)) == share


def test_most_runs_have_the_note_unless_the_trial_says_otherwise():
    assert [share_of(Trial(share=share), noted_task(1)) for share in (0.1, 0.4, 0.9)] == [0.2, 0.5, 0.9]
    assert evidence_of(Trial(), noted_task(1), history((9, "note", 1, 0.5))) == Evidence()
    assert share_of(Trial(against="previous"), noted_task(1)) == 0.2


def test_a_note_that_helped_for_long_is_rolled_back_by_the_latest_runs():
    helped = [(200, "note", 1, *WELL), (50, "control", None, *BADLY)]
    turned = [(36, "note", 1, *BADLY), (14, "control", None, *WELL)]
    assert evidence_of(Trial(), noted_task(1), history(*helped)).rollback is None
    found = evidence_of(Trial(), noted_task(1), history(*helped, *turned)).rollback
    assert (found.version, found.with_runs, found.without_runs) == (1, 36, 14)


def test_a_look_is_taken_when_a_control_run_has_ended():
    uses = history((20, "note", 1, *WELL), (8, "control", None, *WELL))
    later = history((20, "note", 1, *WELL), (8, "control", None, *WELL), (40, "note", 1, 0.0))
    assert evidence_of(Trial(), noted_task(1), later) == evidence_of(Trial(), noted_task(1), uses)


def test_a_larger_share_adds_control_runs_and_takes_none_away():
    ids = [f"run {number}" for number in range(2000)]
    few, many = ({run for run in ids if arm_of(share, run, "id") == "control"} for share in (0.05, 0.2))
    assert few < many


@pytest.mark.parametrize(
    ("uses", "against", "noted", "expected"),
    [
        ([], "none", noted_task(None), True),
        ([(4, "note", 2, 0.5)], "none", noted_task(2), False),
        ([(5, "note", 2, 0.5)], "none", noted_task(2), True),
        ([(9, "note", 2, None)], "none", noted_task(2), False),
        ([(9, "note", 1, 0.5), (9, "control", 2, 0.5)], "none", noted_task(2), False),
        ([(12, "note", 2, 0.5), (9, "control", 1, 0.5)], "previous", noted_task(2), False),
        ([(9, "note", 2, 0.5), (12, "control", 1, 0.5)], "previous", noted_task(2), False),
        ([(10, "note", 2, 0.5), (10, "control", 1, 0.5)], "previous", noted_task(2), True),
        ([(10, "note", 2, 0.5)], "previous", noted_task(2, since=3), True),
        ([(10, "note", 2, *BADLY), (10, "control", 1, *WELL)], "previous", noted_task(2), False),
    ],
)
def test_may_replace_waits_for_enough_scored_runs(uses, against, noted, expected):
    trial = Trial(min_runs=5, against=against)
    assert may_replace(trial, noted, history(*uses), previous=1) is expected


def test_after_a_rollback_only_runs_since_then_make_room_for_a_newer_note():
    uses = history((9, "note", 2, 0.5), (5, "note", 2, 0.5))
    since_when = {runs: noted_task(2, since=10, judged_until=after(runs)) for runs in (9, 10)}
    assert may_replace(Trial(min_runs=5), since_when[9], uses)
    assert not may_replace(Trial(min_runs=5), since_when[10], uses)
    assert may_replace(Trial(min_runs=5), noted_task(2, judged_until=after(10)), uses)  # no rollback
