"""How the next version is made: pure functions of the versions, row by row."""

from dataclasses import replace

import pytest

from redraft import Issue, QualityCriterion, ReflectionEvaluation
from redraft.loop.strategy import choose_strategy, next_attempt
from redraft.protocols import FIRST_ATTEMPT
from support.versions import version

LONG = "\n".join(f"line {n} of a text that is long enough to be edited in places" for n in range(60))


def evaluation(*messages, **fields):
    return ReflectionEvaluation(0.5, issues=tuple(Issue(text) for text in messages), **fields)


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        ([], "fresh"),
        ([("fresh", 0.0)], "resample"),
        ([("resample", 0.4)], "fresh"),
        ([("fresh", 0.0), ("resample", 0.0)], "fresh"),
        ([("fresh", 0.1), ("resample", 0.2)], "resample"),
        ([("fresh", 0.3), ("resample", 0.2), ("fresh", 0.0)], "fresh"),
    ],
)
def test_a_run_finds_out_whether_feedback_helps(tried, expected):
    drafted = [version(1, 0.0, "OLD", strategy="draft")]
    tried = [version(number, score, strategy=how) for number, (how, score) in enumerate(tried, 2)]
    assert choose_strategy("OLD", ReflectionEvaluation(0.0), (*drafted, *tried)) == expected


def test_suggestions_are_always_passed_on():
    tried = (version(1, 0.0, "OLD"), version(2, 0.0, strategy="fresh"))
    judged = ReflectionEvaluation(0.0, suggestions=("Be brief.",))
    assert choose_strategy("OLD", judged, tried) == "fresh"


@pytest.mark.parametrize(
    ("output", "judged", "expected"),
    [
        ("short", evaluation("x"), "full_rewrite"),
        ("short", ReflectionEvaluation(0.0), "fresh"),
        (LONG, ReflectionEvaluation(0.0), "full_rewrite"),
        (LONG, ReflectionEvaluation(0.0, issues=(Issue("x"),), criteria_scores={"a": 0.0}), "full_rewrite"),
        (
            LONG,
            ReflectionEvaluation(0.0, issues=(Issue("x", path="/a"),), criteria_scores={"a": 0.0}),
            "targeted_edit",
        ),
        (LONG, evaluation("x"), "targeted_edit"),
        (LONG, evaluation("a", "b", "c", "d"), "incremental"),
        (LONG, evaluation("x", criteria_scores={"a": 0.1, "b": 0.2, "c": 0.9}), "full_rewrite"),
        (LONG, evaluation("x", criteria_scores={"a": 0.1, "b": 0.9, "c": 0.9}), "targeted_edit"),
        (LONG, ReflectionEvaluation(0.1, issues=(Issue("x"),)), "full_rewrite"),
        (
            LONG,
            ReflectionEvaluation(0.6, issues=tuple(Issue("x", line=n) for n in range(1, 40))),
            "full_rewrite",
        ),
        (
            LONG,
            ReflectionEvaluation(0.6, issues=tuple(Issue("x", line=n) for n in range(1, 9))),
            "targeted_edit",
        ),
    ],
)
def test_hybrid_chooses_by_how_much_is_wrong(output, judged, expected):
    assert choose_strategy(output, judged) == expected


CALLS = QualityCriterion(
    "calls", evaluator="command", evaluator_config={"calls": [{"call": "f()", "expect": 1}]}
)
TESTS = replace(CALLS, name="tests", evaluator="generated_tests", evaluator_config={})
LINT = replace(CALLS, name="lint", evaluator_config={"command": ["lint", "{file}"]})
WORDS = QualityCriterion("words", evaluator="regex", evaluator_config={"pattern": "x"})
TONE = QualityCriterion("tone", threshold=0.5)


def failed_by(criterion, *messages, number=1, score=0.0, **fields):
    issues = tuple(Issue(message, criterion.name) for message in messages)
    return version(number, score, criteria_scores={criterion.name: 0.0}, issues=issues, **fields)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([failed_by(CALLS, "f() returned 2")], "resample"),
        ([failed_by(CALLS, "f() returned 2"), failed_by(CALLS, "f() returned 3", number=2)], "resample"),
        ([failed_by(CALLS, "f() returned 2"), failed_by(CALLS, "f() returned 2", number=2)], "fresh"),
        ([failed_by(TESTS, "f() returned 2")], "resample"),
        ([failed_by(LINT, "line 3 is too long")], "fresh"),
        ([failed_by(WORDS, "there is no x")], "fresh"),
        (
            [failed_by(WORDS, "there is no x"), failed_by(WORDS, "none", number=2, strategy="fresh")],
            "resample",
        ),
        ([failed_by(WORDS, "there is no x", score=0.5)], "fresh"),
        ([failed_by(WORDS, "there is no x", score=0.6)], "hybrid"),
        ([failed_by(CALLS, "f() returned 2", score=0.9)], "resample"),
        ([failed_by(TONE, "it is rude")], "hybrid"),
        ([failed_by(CALLS, "f() returned 2", suggestions=("Return 1.",))], "hybrid"),
        ([failed_by(CALLS, "f() returned 2", output="x" * 2000)], "hybrid"),
        ([failed_by(CALLS, "f() returned 2", strategy="given")], "hybrid"),
    ],
)
def test_a_short_output_of_which_only_checks_fail_is_started_from_scratch(versions, expected):
    def attempt(strategy, criteria=(CALLS, TESTS, LINT, WORDS, TONE)):
        return next_attempt(
            versions,
            versions[0],
            FIRST_ATTEMPT,
            visible=versions,
            strategy=strategy,
            diversify=True,
            is_repeat=False,
            criteria=criteria,
        )[0]

    assert attempt("hybrid").strategy == expected
    assert attempt("incremental").strategy == "incremental"  # as the caller said
    assert attempt("hybrid", criteria=()).strategy == "hybrid"


def test_a_failure_of_a_test_and_another_check_needs_a_fresh_answer():
    both = version(1, 0.0, criteria_scores={"calls": 0.0, "words": 0.0}, issues=(Issue("f() returned 2"),))
    for criteria, expected in (
        ((CALLS, WORDS), "fresh"),
        ((CALLS, replace(WORDS, threshold=0)), "resample"),
    ):
        attempt, _ = next_attempt(
            [both],
            both,
            FIRST_ATTEMPT,
            visible=[both],
            strategy="hybrid",
            diversify=True,
            is_repeat=False,
            criteria=criteria,
        )
        assert attempt.strategy == expected
