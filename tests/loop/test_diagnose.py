import pytest

from redraft.loop.diagnose import NO_JUDGE, FirstDrafts, Signals, diagnose
from redraft.types import ConvergenceReason, Issue
from support.versions import history, version

JUDGED = Signals("judge", frozenset({"clarity"}))


def judged(*scores, checks=None, **fields):
    return [
        version(n, score, criteria_scores={"clarity": score, **(checks or {})}, **fields)
        for n, score in enumerate(scores, 1)
    ]


def sampled(*scores):
    return tuple({"clarity": score} for score in scores)


@pytest.mark.parametrize(
    ("versions", "reason", "signals", "expected"),
    [
        (history(0.5, 0.9), ConvergenceReason.QUALITY_MET, NO_JUDGE, set()),
        (history(0.5), ConvergenceReason.REPEATED_ISSUES, NO_JUDGE, {"infinite_loop"}),
        (history(0.5, 0.4), ConvergenceReason.MAX_ITERATIONS, NO_JUDGE, {"quality_regression"}),
        (history(0.5, 0.5), ConvergenceReason.MAX_ITERATIONS, NO_JUDGE, set()),
        (history(None), ConvergenceReason.UNJUDGED, NO_JUDGE, {"unjudged"}),
        (
            [version(1, 0.5, criteria_scores={"a": 0.5, "b": None})],
            ConvergenceReason.MAX_ITERATIONS,
            NO_JUDGE,
            {"unjudged"},
        ),
        (
            [  # wherever in the run it was
                version(1, 0.5, criteria_scores={"a": 0.5, "b": None}),
                version(2, 0.7, criteria_scores={"a": 0.5, "b": 0.9}),
            ],
            ConvergenceReason.MAX_ITERATIONS,
            NO_JUDGE,
            {"unjudged"},
        ),
        (
            [  # a gate that failed spares the judge: nothing is unknown that was to be known
                version(1, 0.0, criteria_scores={"a": 0.0, "b": None}, gates_passed=False),
                version(2, 0.7, criteria_scores={"a": 1.0, "b": 0.4}),
            ],
            ConvergenceReason.MAX_ITERATIONS,
            NO_JUDGE,
            set(),
        ),
        (
            [version(1, None, criteria_scores={"a": None, "b": None}, gates_passed=None)],
            ConvergenceReason.UNJUDGED,
            NO_JUDGE,
            {"unjudged"},
        ),
        (judged(0.5), ConvergenceReason.MAX_ITERATIONS, JUDGED, set()),
        (
            judged(0.5),
            ConvergenceReason.MAX_ITERATIONS,
            Signals("judge", frozenset({"clarity"}), self_judged=True),
            {"self_judged_only"},
        ),
        (  # a judge that was never asked, or whose replies were unreadable, has no opinion
            [version(1, None, criteria_scores={"type": 0.0, "clarity": None}, gates_passed=False)],
            ConvergenceReason.MAX_ITERATIONS,
            Signals("judge", frozenset({"clarity"}), self_judged=True),
            set(),
        ),
        (
            judged(0.5, samples=sampled(0.5, 0.5), repeats_itself=True),
            ConvergenceReason.MAX_ITERATIONS,
            JUDGED,
            {"repeating_judge"},
        ),
        (
            judged(0.5, samples=sampled(0.3, 0.5, 0.7)),
            ConvergenceReason.MAX_ITERATIONS,
            JUDGED,
            {"unstable_judge"},
        ),
        (judged(0.5, samples=sampled(0.45, 0.5, 0.55)), ConvergenceReason.MAX_ITERATIONS, JUDGED, set()),
        (judged(0.5, agreement=0.6), ConvergenceReason.MAX_ITERATIONS, JUDGED, {"flipping_verdict"}),
        (judged(0.5, confidence=0.3), ConvergenceReason.MAX_ITERATIONS, JUDGED, {"low_confidence"}),
        (judged(0.5, confidence=0.5), ConvergenceReason.MAX_ITERATIONS, JUDGED, set()),
        ([version(1, None, confidence=0.0)], ConvergenceReason.UNJUDGED, JUDGED, {"unjudged"}),
        (history(0.5, confidence=0.3), ConvergenceReason.MAX_ITERATIONS, NO_JUDGE, set()),
        (  # a worse score within the margin of error
            history(0.5, 0.45, spread=0.05),
            ConvergenceReason.MAX_ITERATIONS,
            NO_JUDGE,
            set(),
        ),
        (
            judged(0.5, 0.6, 0.7, checks={"schema": 1.0}),
            ConvergenceReason.MAX_ITERATIONS,
            JUDGED,
            {"overcritical"},
        ),
        (judged(0.5, 0.6, 0.7, checks={"schema": 0.0}), ConvergenceReason.MAX_ITERATIONS, JUDGED, set()),
        (judged(0.5, 0.6), ConvergenceReason.MAX_ITERATIONS, JUDGED, set()),
    ],
)
def test_diagnose(versions, reason, signals, expected):
    assert set(diagnose(versions, reason, signals, FirstDrafts())) == expected


def test_unjudged_criteria_are_named_with_their_versions():
    versions = [
        version(1, 0.5, criteria_scores={"a": 0.5, "b": 0.5}),
        version(2, 0.5, criteria_scores={"a": 0.5, "b": None}),
        version(3, None, criteria_scores={"a": None, "b": None}),
        version(4, 0.5, criteria_scores={"a": 0.5, "b": None}),
        version(5, None),
    ]
    findings = diagnose(versions, ConvergenceReason.MAX_ITERATIONS, NO_JUDGE, FirstDrafts())
    assert findings["unjudged"] == "Not fully judged: versions 2 and 4 (b), version 3 (a and b), version 5."


def test_generated_criteria_that_were_not_judged_or_not_followed():
    def tested(number, share, *issues):
        findings = [Issue(text, "tests") for text in issues]
        scores = {"tests": share}
        return version(number, share, criteria_scores=scores, generated=("tests",), issues=findings)

    def doubts(*versions):
        findings = diagnose(versions, ConvergenceReason.MAX_ITERATIONS, NO_JUDGE, FirstDrafts())
        return findings.get("generated_criteria")

    assert doubts(tested(1, None, "Not judged: no test")) == "Not judged: no test."
    assert doubts(tested(1, 0.2), tested(2, 0.8)).startswith(
        "Version 2 does better by them (0.80) than version 1"
    )
    assert doubts(tested(1, 0.2), tested(2, 1.0)) is None
    assert doubts(version(1, 0.5)) is None


@pytest.mark.parametrize(("accepted", "expected"), [(20, True), (19, True), (18, False)])
def test_an_undercritical_judge_shows_after_twenty_runs(accepted, expected):
    findings, drafts = {}, FirstDrafts()
    for n in range(20):
        first = judged(0.9 if n < accepted else 0.1, satisfactory=n < accepted)
        findings = diagnose(first, ConvergenceReason.QUALITY_MET, JUDGED, drafts)
        assert ("undercritical" in findings) <= (n == 19)
    assert ("undercritical" in findings) is expected


def test_a_judge_that_checks_agree_with_is_not_undercritical():
    findings, drafts = {}, FirstDrafts()
    for _ in range(25):
        first = judged(0.9, checks={"schema": 1.0}, satisfactory=True)
        findings = diagnose(first, ConvergenceReason.QUALITY_MET, JUDGED, drafts)
    assert findings == {}


def test_remembered_first_drafts_are_bounded():
    drafts = FirstDrafts(judges=2)
    one, two, three = (Signals(name, frozenset({"x"})) for name in ("one", "two", "three"))
    for _ in range(20):
        drafts.add(one, accepted=True)
    for other in (two, three):
        drafts.add(other, accepted=True)
    assert drafts.add(one, accepted=True) is None  # forgotten, so it starts again
