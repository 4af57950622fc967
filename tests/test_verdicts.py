from fractions import Fraction

import pytest

from redraft import Draft, Issue, ReflectionEvaluation
from redraft._verdicts import draft_of, evaluation_of
from redraft.errors import OutputError


@pytest.mark.parametrize(
    ("verdict", "score", "satisfactory", "issues"),
    [
        (True, 1.0, True, []),
        (False, 0.0, False, []),
        (0.8, 0.8, True, []),
        (0.79, 0.79, False, []),
        (1, 1.0, True, []),
        (0, 0.0, False, []),
        (Fraction(1, 2), 0.5, False, []),
        ((True, "fine"), 1.0, True, []),
        ((False, "wrong"), 0.0, False, ["wrong"]),
        ((0.5, "half"), 0.5, False, ["half"]),
        ((0.9, "good"), 0.9, True, []),
        ((False, ""), 0.0, False, []),
        ({"valid": False}, 0.0, False, []),
        ({"valid": True}, 1.0, True, []),
        ({"valid": True, "score": 0.4}, 0.4, True, []),
        ({"score": 0.4, "reason": "meh"}, 0.4, False, ["meh"]),
        ({"score": 0.4, "errors": ["a", "b"], "reason": "meh"}, 0.4, False, ["a", "b"]),
        ({"valid": False, "errors": "one"}, 0.0, False, ["one"]),
        ({"score": "0.4"}, 0.4, False, []),
        ({"score": "85/100"}, 0.85, True, []),
        ({"score": "85 %"}, 0.85, True, []),
        ({"score": " 9/10 "}, 0.9, True, []),
        ({"score": 85, "score_max": 100}, 0.85, True, []),
        ({"score": "4", "score_max": 5}, 0.8, True, []),
        ({"score": "85%", "score_max": 100}, 0.85, True, []),
        ({"score": 0, "score_max": 10}, 0.0, False, []),
        ({"valid": "true", "score": "0.4"}, 0.4, True, []),
        ({"valid": "False"}, 0.0, False, []),
        ({"valid": " false", "reason": "meh"}, 0.0, False, ["meh"]),
    ],
)
def test_verdicts_become_evaluations(verdict, score, satisfactory, issues):
    evaluation = evaluation_of(verdict)
    assert evaluation.overall_score == score
    assert evaluation.satisfactory is satisfactory
    assert [str(issue) for issue in evaluation.issues] == issues


@pytest.mark.parametrize(
    "verdict",
    [
        None,
        "PASS",
        "0.9",
        7,
        -0.01,
        90,
        float("nan"),
        float("inf"),
        pytest.param(10**400, id="a huge integer"),
        {"score": 10**400},
        (True,),
        ("0.5", "why"),
        (None, "why"),
        (0.5, "why", "more"),
        {},
        {"reason": "x"},
        {"score": 85},
        {"score": "85"},
        {"score": "0.9 or so"},
        {"score": "-0.1"},
        {"score": "11/10"},
        {"score": "5/0"},
        {"score": "101%"},
        {"score": "nan"},
        {"score": 101, "score_max": 100},
        {"score": 1, "score_max": 0},
        {"score": 1, "score_max": -1},
        {"score": 1, "score_max": True},
        {"score": 1, "score_max": "100"},
        {"score": 1, "score_max": float("inf")},
        {"score": True},
        {"score": 1.1},
        {"valid": "maybe"},
        {"valid": "yes"},
        {"valid": 1},
        [True],
        object(),
    ],
)
def test_invalid_verdicts_are_refused(verdict):
    with pytest.raises(OutputError):
        evaluation_of(verdict)


def test_the_message_about_a_score_out_of_range_shows_how_to_declare_its_scale():
    with pytest.raises(OutputError, match=r"as in \{'score': 85, 'score_max': 100\}"):
        evaluation_of(85)


def test_the_threshold_decides_about_plain_numbers():
    assert evaluation_of(0.6, 0.6).satisfactory
    assert not evaluation_of(0.6, 0.61).satisfactory


@pytest.mark.parametrize(
    ("verdict", "score"),
    [
        (85, 0.85),
        ((85, "fair"), 0.85),
        ({"score": 85}, 0.85),
        ({"score": 4, "score_max": 5}, 0.8),
        (True, 1.0),
    ],
)
def test_a_scale_that_is_declared_divides_numbers(verdict, score):
    assert evaluation_of(verdict, score_max=100).overall_score == score


def test_suggestions_are_kept():
    assert evaluation_of({"valid": False, "suggestions": ["a", "b"]}).suggestions == ("a", "b")


def test_an_evaluation_is_taken_as_it_is():
    evaluation = ReflectionEvaluation(0.1, satisfactory=True)
    assert evaluation_of(evaluation) is evaluation


def test_one_text_is_one_issue_and_one_suggestion():
    evaluation = ReflectionEvaluation(0.1, issues="too long", suggestions="Cut it.")
    assert (evaluation.issues, evaluation.suggestions) == ((Issue("too long"),), ("Cut it.",))


def test_plain_strings_are_issues():
    evaluation = ReflectionEvaluation(0.1, issues=["a", Issue("b")], suggestions=["c"])
    assert evaluation.issues == (Issue("a"), Issue("b"))
    assert evaluation.suggestions == ("c",)
    assert ", ".join(str(issue) for issue in evaluation.issues) == "a, b"


@pytest.mark.parametrize("output", ["", "x", {}, [], 0, 1.5, False])
def test_outputs_become_drafts(output):
    assert draft_of(output).output == output
    assert draft_of(Draft(output)).output == output


@pytest.mark.parametrize("value", [None, Draft(None), object(), b"x", {1}, ValueError("x")])
def test_invalid_outputs_are_refused(value):
    with pytest.raises(OutputError):
        draft_of(value)
