from functools import partial

import numpy as np
import pytest

from redraft import ConfigError, Issue
from redraft.errors import OutputError
from redraft.loop import stop
from redraft.types import ConvergenceReason, Stop, same_issue
from support.versions import gained, history, judged, version


def reason(rule, versions):
    answer = rule(versions)
    return answer.reason.value if answer else None


@pytest.mark.parametrize(
    ("scores", "iterations", "expected"),
    [
        ([0.5], 2, None),
        ([0.5, 0.5], 2, None),
        ([0.5, 0.5, 0.5], 2, "plateau"),
        ([0.5, 0.4, 0.3], 2, "plateau"),
        ([0.5, 0.4, 0.6], 2, None),
        ([0.5, 0.6, 0.6], 2, None),
        ([0.5, 0.5], 1, "plateau"),
        ([0.5, None, 0.5], 2, None),  # an unknown says nothing about progress
        ([0.5, 0.5, 0.5], 3, None),
    ],
)
def test_plateau(scores, iterations, expected):
    assert reason(stop.plateau(iterations), history(*scores)) == expected


def test_a_version_that_generated_criteria_do_not_choose_is_no_end():
    scores = [("draft", 0.2, False), ("more", 0.8, True), ("all", 1.0, True)]
    versions = [
        version(
            number,
            share,
            output,
            satisfactory=satisfactory,
            criteria_scores={"tests": share},
            generated=("tests",),
        )
        for number, (output, share, satisfactory) in enumerate(scores, 1)
    ]
    assert stop.quality_met(versions[:2]) is None
    assert stop.quality_met(versions[:1]) is None
    assert reason(stop.quality_met, versions) == "quality_met"


def test_without_usable_generated_tests_the_users_criteria_decide():
    scores = {"given": 1.0, "tests": None}
    unknown = version(1, 1.0, criteria_scores=scores, generated=("tests",))
    assert "tests" in stop.unjudged([unknown]).detail
    unmet = version(1, 1.0, criteria_scores=scores, generated=("tests",), meets_given=False)
    assert stop.unjudged([unmet]) is None


def test_a_generated_criterion_that_is_missed_is_revised_although_another_one_was_not_judged():
    scores = {"given": 1.0, "tests": None, "examples": 0.0}
    both = ("tests", "examples")
    missed = version(1, 1.0, criteria_scores=scores, generated=both, unmet=("examples",))
    assert stop.unjudged([missed]) is None
    met = version(1, 1.0, criteria_scores={**scores, "examples": 1.0}, generated=both, unmet=())
    assert stop.unjudged([met]).numbers["unjudged"] == ["tests"]


def test_plateau_does_not_count_repeats():
    versions = [*history(0.5, 0.5), version(3, 0.5, repeats=2)]
    assert stop.plateau(2)(versions) is None


@pytest.mark.parametrize(
    ("scores", "spread", "expected"),
    [
        ((0.5, 0.52, 0.55), 0.1, "plateau"),
        ((0.5, 0.52, 0.55), 0.0, None),
        ((0.5, 0.6, 0.62), 0.08, "plateau"),  # 0.10 is less than sqrt(2) * 0.08
        ((0.5, 0.6, 0.62), 0.06, None),
    ],
)
def test_a_gain_within_the_margin_of_error_is_no_gain(scores, spread, expected):
    assert reason(stop.plateau(2), history(*scores, spread=spread)) == expected


def test_a_gain_within_the_margin_of_error_does_not_diminish():
    assert reason(stop.diminishing(0.05), history(0.5, 0.53)) == "diminishing"
    assert stop.diminishing(0.05)(history(0.5, 0.53, spread=0.03)) is None


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5], None),
        ([0.5, 0.54], "diminishing"),
        ([0.5, 0.55], None),  # exactly the threshold is enough
        ([0.5, 0.5], None),  # no gain at all is the plateau's business
        ([0.5, 0.4], None),
        ([0.5, 0.3, 0.51], "diminishing"),  # measured against the best, not against the last
        ([0.5, None], None),
    ],
)
def test_diminishing(scores, expected):
    assert reason(stop.diminishing(0.05), history(*scores)) == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5, 0.7, 0.5, 0.7], "oscillation"),
        ([0.7, 0.5, 0.7, 0.5], "oscillation"),
        ([0.5, 0.7, 0.5, 0.8], None),  # a trend upwards
        ([0.5, 0.6, 0.7, 0.8], None),
        ([0.5, 0.7, 0.5], None),
        ([0.1, 0.5, 0.7, 0.5, 0.7], "oscillation"),
    ],
)
def test_oscillation(scores, expected):
    assert reason(stop.oscillation, history(*scores)) == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([None], "unjudged"), ([0.5, None], None), ([0.5, None, None], "unjudged"), ([None, 0.5], None)],
)
def test_unjudged(scores, expected):
    assert reason(stop.unjudged, history(*scores)) == expected


BLANK = {"t": 1.0, "w": None}, ()
"""A version of which one criterion is met, and the other could not be judged."""
SHORT = {"t": 0.4, "w": None}, ("t",)
POOR = {"t": 1.0, "w": 0.4}, ("w",)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([BLANK], "unjudged"),
        ([SHORT], None),
        ([SHORT, BLANK], "unjudged"),  # the next revision would start from the second version
        ([POOR, BLANK], None),  # it would start from the first one, of which a fault is known
        ([POOR, BLANK, BLANK], "unjudged"),
        ([POOR, BLANK, SHORT], None),
        ([({"t": 1.0, "w": None}, None)], None),  # the evaluator does not say what is met
        ([({"t": 0.0, "w": None}, ("t",))], None),
    ],
)
def test_a_run_stops_if_nothing_that_could_be_judged_is_wrong(versions, expected):
    made = [judged(number, scores, unmet=unmet) for number, (scores, unmet) in enumerate(versions, 1)]
    assert reason(stop.unjudged, made) == expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([version(1, 0.5), version(2, 0.5, repeats=1)], None),
        ([version(1, 0.5), version(2, 0.5, repeats=1), version(3, 0.5, repeats=1)], "semantic_stability"),
        (
            [version(1, 0.5, "A b."), version(2, 0.5, "a  b"), version(3, 0.5, "A B!")],
            "semantic_stability",
        ),
        ([version(1, 0.5, "a b"), version(2, 0.6, "A b"), version(3, 0.6, "a B")], None),
        ([version(1, 0.5, "a b"), version(2, 0.5, "a c"), version(3, 0.5, "a d")], None),
        # Quotes make a difference: a number is not a text.
        ([version(1, 0.5, '{"a": "7"}'), version(2, 0.5, '{"a": 7}'), version(3, 0.5, '{"a": 7}')], None),
    ],
)
def test_semantic_stability(versions, expected):
    assert reason(stop.semantic_stability, versions) == expected


@pytest.mark.parametrize(
    ("messages", "scores", "expected"),
    [
        (["too long"] * 3, [0.5, 0.5, 0.5], "repeated_issues"),
        (["too long", "too short", "too long"], [0.5, 0.5, 0.5], None),
        (["it is too long", "it is much too long", "it is too long"], [0.5, 0.4, 0.5], "repeated_issues"),
        (["too long"] * 3, [0.5, 0.6, 0.7], None),
        (["too long"] * 2, [0.5, 0.5], None),
    ],
)
def test_repeated_issues(messages, scores, expected):
    pairs = enumerate(zip(messages, scores, strict=True), 1)
    versions = [version(n, score, issues=(Issue(text),)) for n, (text, score) in pairs]
    assert reason(stop.repeated_issues, versions) == expected


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Issue("a b c"), Issue("a b c"), True),
        (Issue("wrong", "schema", "/x"), Issue("entirely different words", "schema", "/x"), True),
        (Issue("wrong", "schema", "/x"), Issue("wrong kind of thing", "schema", "/y"), False),
        (Issue("the list has no end"), Issue("the list has no start"), True),  # 4 of 6 words
        (Issue("!!!"), Issue("???"), False),
        (
            Issue("Found 64 words, expected at most 40", "short"),
            Issue("Found 51 words, expected at most 40", "short"),
            True,
        ),
        (Issue("no end", "form"), Issue("no end at all", "style"), False),
        (Issue("no end", "form"), Issue("quite another thing", "form"), False),
        (Issue("it has no end"), Issue("it has no end", "style"), True),
        # By a judge's number, whatever the words say.
        (
            Issue("the list has no end", "form", number=1),
            Issue("the list has no start", "form", number=2),
            False,
        ),
        (Issue("too vague", "form", number=1), Issue("still says nothing", "form", number=1), True),
        (Issue("too vague", "form", number=1), Issue("too vague", "tone", number=1), False),
        (Issue("too vague", number=1), Issue("too vague"), True),
    ],
)
def test_same_issue(one, other, same):
    assert same_issue(one, other) is same
    assert same_issue(other, one) is same


def test_first_asks_in_order():
    rule = stop.first(stop.max_iterations(1), stop.quality_met)
    met = history(0.9, 0.9, satisfactory=True)
    assert reason(rule, met) == "max_iterations"
    assert reason(rule, met[:1]) == "quality_met"


@pytest.mark.parametrize(
    "build",
    [
        lambda: stop.max_iterations(-1),
        lambda: stop.max_iterations(1.5),
        lambda: stop.plateau(0),
        lambda: stop.plateau(True),
        lambda: stop.diminishing(1.5),
        lambda: stop.diminishing("0.1"),
        lambda: stop.diminishing(float("nan")),
    ],
)
def test_bad_options_raise(build):
    with pytest.raises(ConfigError):
        build()


def met(**options):
    return partial(stop.quality_met, **options)


@pytest.mark.parametrize(
    ("rule", "versions", "detail"),
    [
        (
            met(threshold=0.8, criteria={"short": 0.7}),
            [version(1, 0.92, satisfactory=True, criteria_scores={"short": 0.9})],
            "Version 1 scored 0.92 >= 0.80, and every criterion is at its threshold: short 0.90 >= 0.70.",
        ),
        (met(threshold=1.0), [version(1, 1.0, satisfactory=True)], "Version 1 scored 1.00 >= 1.00."),
        (
            met(threshold=0.8),
            [version(1, 0.3, satisfactory=True)],
            "Version 1 is satisfactory by its evaluator, and scored 0.30.",
        ),
        (stop.quality_met, [version(1, None, satisfactory=True)], "Version 1 is satisfactory."),
        (
            stop.max_iterations(3),
            history(0.2, 0.4, 0.3, 0.35),
            "All 4 versions were made: a draft and 3 revisions, the maximum.",
        ),
        (
            stop.max_iterations(1),
            history(0.2, 0.4),
            "All 2 versions were made: a draft and 1 revision, the maximum.",
        ),
        (stop.max_iterations(0), history(0.2), "One version was asked for, and no revision."),
        (
            stop.max_iterations(0),
            [version(1, None, satisfactory=True)],
            "One version was asked for, and there is nothing to judge it by.",
        ),
        (
            stop.plateau(2),
            history(0.5, 0.72, 0.70, 0.71),
            (
                "The best score, 0.72 of version 2, was not beaten by versions 3 (0.70) and 4 (0.71); "
                "plateau_iterations = 2."
            ),
        ),
        (
            stop.plateau(2),
            gained([version(1, 0.7), version(2, 0.72, spread=0.1), version(3, 0.6)]),
            (
                "The best score, 0.70 of version 1, was not beaten by versions 2 (0.72, within the "
                "margin of error of 0.10) and 3 (0.60); plateau_iterations = 2."
            ),
        ),
        (
            stop.plateau(1),
            history(0.5, 0.4),
            "The best score, 0.50 of version 1, was not beaten by version 2 (0.40); plateau_iterations = 1.",
        ),
        (
            stop.diminishing(0.05),
            history(0.70, 0.72),
            "Version 2 (0.72) beat the best before it by only 0.02 < 0.05 (improvement_threshold).",
        ),
        (
            stop.diminishing(0.05),
            history(0.70, 0.749),
            "Version 2 (0.75) beat the best before it by only 0.049 < 0.050 (improvement_threshold).",
        ),
        (
            stop.oscillation,
            history(0.5, 0.7, 0.5, 0.7),
            (
                "The last scores went up and down and ended no higher: 0.50 (version 1), 0.70 (version 2), "
                "0.50 (version 3) and 0.70 (version 4)."
            ),
        ),
        (
            stop.semantic_stability,
            gained([version(1, 0.5), version(2, 0.5, "output 1", repeats=1), version(3, 0.5, "OUTPUT 1")]),
            (
                "Nothing changed in substance any more: version 2 is the same as version 1 and version 3 "
                "says the same as version 2."
            ),
        ),
        (
            stop.repeated_issues,
            gained([version(n, 0.5, issues=(Issue("too long"), Issue("no title"))) for n in (1, 2, 3)]),
            ("Versions 1, 2 and 3 have the same issues, and the score stayed at 0.50: too long; no title."),
        ),
        (
            stop.unjudged,
            [version(1, None, criteria_scores={"short": None}, issues=(Issue("no\nreply"),))],
            "Version 1 could not be judged: short (no\\nreply).",
        ),
        (
            stop.unjudged,
            [
                judged(
                    1,
                    {"t": 1.0, "w": None},
                    unmet=(),
                    issues=(Issue("Minor.", "t"), Issue("Not judged: no reply", "w")),
                )
            ],
            (
                "Version 1 could not be judged by w (no reply); what could be judged leaves nothing to "
                "revise: t (1.00)."
            ),
        ),
    ],
)
def test_details_explain_a_stop_with_its_numbers(rule, versions, detail):
    answer = rule(versions)
    assert answer.detail == detail
    assert answer.numbers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (True, "user_stopped"),
        ("plateau", "plateau"),
        (ConvergenceReason.OSCILLATION, "oscillation"),
        (False, None),
        (None, None),
        (np.True_, "user_stopped"),
        (np.False_, None),
    ],
)
def test_stop_of(answer, reason):
    decision = stop.stop_of(answer, history(0.4))
    assert (decision and decision.reason) == reason
    assert decision is None or decision.detail == "A custom rule said stop after version 1 (0.40)."


def test_stop_of_keeps_a_stop():
    mine = Stop(ConvergenceReason.USER_STOPPED, "Enough.", {"mood": 3})
    assert stop.stop_of(mine, history(0.4)) is mine
    assert stop.stop_of(Stop("plateau"), history(0.4)).reason is ConvergenceReason.PLATEAU


@pytest.mark.parametrize("answer", ["enough", 1, Stop("enough")])
def test_an_answer_that_is_no_reason_is_refused(answer):
    with pytest.raises(OutputError, match=r"until returned .*enough|until returned 1; expected None"):
        stop.stop_of(answer, history(0.4))


LOW = {"clarity": 0.4, "regex": 1.0}
BLIND = {"clarity": None, "regex": 1.0}
SAID = (Issue("too vague"),)


@pytest.mark.parametrize(
    ("rule", "versions", "expected"),
    [
        # 0.7, then 1.0 without clarity, then 0.7: neither a gain nor two failures to beat it.
        (stop.plateau(2), [judged(1, LOW), judged(2, BLIND), judged(3, LOW)], None),
        (stop.plateau(2), [judged(1, LOW), judged(2, BLIND), judged(3, LOW), judged(4, LOW)], "plateau"),
        (stop.diminishing(0.5), [judged(1, LOW), judged(2, BLIND)], None),
        (
            stop.oscillation,
            [judged(1, LOW), judged(2, BLIND), judged(3, LOW), judged(4, BLIND)],
            None,
        ),
        # A score is not better if it is only higher because fewer criteria were judged.
        (
            stop.repeated_issues,
            [judged(1, LOW, issues=SAID), judged(2, LOW, issues=SAID), judged(3, BLIND, issues=SAID)],
            "repeated_issues",
        ),
        (
            stop.repeated_issues,
            [judged(1, BLIND, issues=SAID), judged(2, BLIND, issues=SAID), judged(3, LOW, issues=SAID)],
            None,  # now it is known
        ),
        (
            stop.semantic_stability,
            [judged(1, LOW, output="a b"), judged(2, LOW, output="A b"), judged(3, BLIND, output="a B.")],
            "semantic_stability",
        ),
    ],
)
def test_versions_that_are_not_fully_judged_are_not_better(rule, versions, expected):
    assert reason(rule, gained(versions)) == expected
