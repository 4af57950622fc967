from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random

import pytest

from redraft import stats as effects
from redraft.notes import trial as trials
from redraft.notes.note import NotedTask, NoteUse, Rollback
from redraft.notes.trial import Trial, arm_of, may_replace, reason_of, shown_to_help, verdict
from redraft.stats import effect_of

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
    """Return the time of the last of as many runs."""
    return START + timedelta(seconds=runs - 1)


def test_the_arm_of_a_run_is_stable_and_arms_have_their_share():
    for share in (0.2, 0.5):
        trial = Trial(share=share)
        arms = [arm_of(trial, f"run {number}", "id") for number in range(4000)]
        assert arms.count("control") / 4000 == pytest.approx(share, abs=0.02)
        assert arms[:50] == [arm_of(trial, f"run {number}", "id") for number in range(50)]
    others = [arm_of(Trial(share=0.5), f"run {number}", "another") for number in range(4000)]
    agree = sum(a == b for a, b in zip(arms, others, strict=True))
    assert agree / 4000 == pytest.approx(0.5, abs=0.03)  # each task draws for itself
    assert arm_of(trial, "\ud800", "id") in ("note", "control")


WELL, BADLY = (0.8, 0.9), (0.2, 0.3)


@pytest.mark.parametrize(
    ("uses", "against", "noted", "previous", "expected"),
    [
        pytest.param([(10, "note", 1, *BADLY), (10, "control", None, *WELL)], "none", noted_task(1), None,
                     (1, None, 10, 10), id="10 and 10 are enough"),
        pytest.param([(9, "note", 1, *BADLY), (30, "control", None, *WELL)], "none", noted_task(1), None,
                     None, id="9 runs with notes are too few"),
        pytest.param([(30, "note", 1, *BADLY, 0.8), (9, "control", None, *WELL)], "none", noted_task(1), None,
                     None, id="9 control runs are too few"),
        pytest.param([(10, "note", 1, *BADLY), (3, "control", None, *WELL)], "none", noted_task(1), None,
                     (1, None, 10, 3), id="3 are enough if every one of them did better"),
        pytest.param([(10, "note", 1, *BADLY), (2, "control", None, *WELL)], "none", noted_task(1), None,
                     None, id="2 never are"),
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
        pytest.param([(9, "note", 1, *BADLY), (9, "note", 1, None), (20, "control", None, *WELL)], "none",
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
        pytest.param([(12, "note", 1, *BADLY), (9, "note", 2, *BADLY), (20, "control", 1, *WELL)], "previous",
                     noted_task(2), 1, None, id="runs with older notes do not count"),
        pytest.param([(12, "note", 1, *BADLY), (10, "control", None, *WELL)], "previous", noted_task(1), None,
                     (1, None, 12, 10), id="the first note has no previous one"),
    ],
)  # fmt: skip
def test_verdict_rolls_back_only_a_note_that_surely_hurts(uses, against, noted, previous, expected):
    found = verdict(Trial(against=against), noted, history(*uses), previous)
    if expected is None:
        assert found is None
    else:
        assert (found.version, found.to, found.with_runs, found.without_runs) == expected
        assert found.low <= found.effect <= found.high < 0


@pytest.mark.parametrize(
    ("uses", "against", "noted", "expected"),
    [
        pytest.param([(10, "note", 1, *WELL), (10, "control", None, *BADLY)], "none", noted_task(1), True,
                     id="10 and 10 are enough"),
        pytest.param([(40, "note", 1, *WELL), (9, "control", None, *BADLY)], "none", noted_task(1), None,
                     id="9 control runs are too few"),
        pytest.param([(9, "note", 1, *WELL), (40, "control", None, *BADLY)], "none", noted_task(1), None,
                     id="9 runs with notes are too few"),
        pytest.param([(10, "note", 1, *WELL), (10, "control", None, *WELL)], "none", noted_task(1), False,
                     id="no difference"),
        pytest.param([(10, "note", 1, *BADLY), (10, "control", None, *WELL)], "none", noted_task(1), False,
                     id="they hurt"),
        pytest.param([(12, "note", 2, *WELL), (12, "control", 1, *BADLY)], "previous", noted_task(2), None,
                     id="the next note has to show it anew"),
        pytest.param([(12, "note", 1, *WELL), (12, "control", None, *BADLY)], "none", noted_task(1, since=3),
                     None, id="a version that a person chose is not on trial"),
        pytest.param([(12, "note", 1, *WELL), (12, "control", None, *BADLY)], "none",
                     noted_task(1, judged_until=after(24)), None, id="what was judged does not count again"),
        pytest.param([(12, "note", 1, *WELL), (12, "control", None, *BADLY), (10, "note", 1, *WELL),
                      (10, "control", None, *WELL)], "none",
                     noted_task(1, is_shown=True, judged_until=after(24)), False, id="it is no longer so"),
    ],
)  # fmt: skip
def test_notes_are_shown_to_help_by_scores_that_have_not_been_judged_yet(uses, against, noted, expected):
    assert shown_to_help(Trial(against=against), noted, history(*uses)) is expected


def test_a_note_that_helped_for_long_is_rolled_back_by_the_runs_since_then():
    helped = [(500, "note", 1, *WELL), (100, "control", None, *BADLY)]
    turned = [(20, "note", 1, *BADLY), (10, "control", None, *WELL)]
    noted = noted_task(1, is_shown=True, judged_until=after(600))
    found = verdict(Trial(), noted, history(*helped, *turned))
    assert (found.version, found.with_runs, found.without_runs) == (1, 20, 10)


def test_a_quarter_of_the_control_runs_remain_once_notes_are_shown_to_help():
    ids = [f"run {number}" for number in range(8000)]
    before = {run for run in ids if arm_of(Trial(), run, "id") == "control"}
    later = {run for run in ids if arm_of(Trial(), run, "id", is_shown=True) == "control"}
    assert later < before
    assert len(later) / 8000 == pytest.approx(0.05, abs=0.01)


def test_a_verdict_is_revised_only_after_four_times_as_many_runs():
    even = [(1, "note", 1, 0.2), (1, "control", None, 0.8)] * 10
    turned = [(1, "note", 1, 0.9), (1, "control", None, 0.1)] * 29
    first = verdict(Trial(), noted_task(1), history(*even))
    assert first == verdict(Trial(), noted_task(1), history(*even, *turned))
    assert verdict(Trial(), noted_task(1), history(*even, *turned, *turned[:2])) is None


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


def rolled_back_after(effect, runs, seed):
    """Simulate runs of a task with a note that has an effect; return after how many it is rolled back."""
    trial, noted, chance, uses = Trial(), noted_task(1), Random(seed), []  # noqa: S311 (no secret)
    controls = 0
    for number in range(runs):
        arm = arm_of(trial, f"{seed}/{number}", "id")
        score = min(1.0, max(0.0, chance.gauss(0.6 + (effect if arm == "note" else 0), 0.2)))
        uses.append(NoteUse(f"{number}", 1 if arm == "note" else None, arm, score, START))
        controls += arm == "control"
        # Evaluated after every fifth control run only, because a verdict is slow.
        if arm == "control" and controls % 5 == 0 and verdict(trial, noted, uses):
            return number + 1
    return None


@pytest.mark.parametrize(
    ("effect", "least", "most"),
    [
        pytest.param(-0.2, 0.95, 1, id="hurts"),
        pytest.param(0, 0, 0.05, id="nothing"),
        pytest.param(0.2, 0, 0, id="helps"),
    ],
)
def test_rollbacks_in_200_simulated_histories(effect, least, most, monkeypatch):
    monkeypatch.setattr(effects, "RESAMPLES", 300)
    monkeypatch.setattr(trials, "effect_of", lru_cache(effect_of))
    ends = [rolled_back_after(effect, 300, seed) for seed in range(200)]
    share = sum(end is not None for end in ends) / 200
    assert least <= share <= most
