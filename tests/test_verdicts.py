import json
from dataclasses import asdict
from fractions import Fraction
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from redraft import Draft, Issue, ReflectionEvaluation, reflect_sync
from redraft._codec import from_record, to_record
from redraft._verdicts import draft_of, evaluation_of
from redraft.errors import OutputError
from redraft.types import NOT_REPORTED, NOTHING_USED, Advice, Choice, Conversation, TokenUsage

ADVICE = Advice("Be brief.", "house")


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
        ((False, ["a", "b"]), 0.0, False, ["a", "b"]),
        ((False, 404), 0.0, False, ["404"]),
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
        ({"pass": True, "score": 0.75}, 0.75, True, []),
        ({"pass": False, "score": 0.95}, 0.95, False, []),
        ({"Passed": "true", "Score": "0.5"}, 0.5, True, []),
        ({"score": True, "comment": "fine"}, 1.0, True, []),
        ({"score": False, "comment": "dull"}, 0.0, False, ["dull"]),
        ({"score": 0.4, "issues": "too long"}, 0.4, False, ["too long"]),
        (
            {"valid": False, "errors": [{"description": "no title"}, {"text": "no end"}]},
            0.0,
            False,
            ["no title", "no end"],
        ),
        ({"valid": False, "errors": [], "reason": "meh"}, 0.0, False, ["meh"]),
        (np.bool_(True), 1.0, True, []),
        (np.bool_(False), 0.0, False, []),
        ((np.bool_(False), "wrong"), 0.0, False, ["wrong"]),
        (np.float32(0.5), 0.5, False, []),
        (np.int64(1), 1.0, True, []),
        (np.array(True), 1.0, True, []),
        ({"valid": np.bool_(True), "score": np.float64(0.4)}, 0.4, True, []),
        ({"score": np.int64(85), "score_max": np.int64(100)}, 0.85, True, []),
        (MappingProxyType({"valid": True}), 1.0, True, []),
        # With the fields of an evaluation:
        ({"overall_score": 0.9}, 0.9, True, []),
        ({"overall_score": 0.79, "issues": ["a", "b"]}, 0.79, False, ["a", "b"]),
        ({"overall_score": 0.3, "satisfactory": True}, 0.3, True, []),
        ({"overall_score": 0.9, "satisfactory": False, "feedback": "dull"}, 0.9, False, ["dull"]),
        ({"overall_score": True}, 1.0, True, []),
        ({"overall_score": None, "issues": ["no idea"]}, None, False, ["no idea"]),
        ({"overall_score": "85 %"}, 0.85, True, []),
        ({"overall_score": 0.9, "criteria_scores": {"a": 0.9, "b": None}}, 0.9, False, []),
    ],
)
def test_verdicts_become_evaluations(verdict, score, satisfactory, issues):
    evaluation = evaluation_of(verdict)
    assert evaluation.overall_score == score
    assert evaluation.satisfactory is satisfactory
    assert evaluation.issues == issues


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
        {"score": 1, "score_max": 10**400},
        pytest.param({"score": f"{'9' * 400}/{'9' * 400}"}, id="an infinite scale"),
        {"score": True, "valid": False},
        {"valid": True, "pass": False},
        {"score": 1.1},
        {"valid": "maybe"},
        {"valid": "yes"},
        {"valid": 1},
        {"overall_score": 9},
        {"overall_score": 0.9, "score": 0.1},
        {"overall_score": 0.9, "confidence": 2},
        {"overall_score": 0.9, "criteria_scores": {"a": 9}},
        [True],
        object(),
    ],
)
def test_invalid_verdicts_are_refused(verdict):
    with pytest.raises(OutputError):
        evaluation_of(verdict)


def test_a_mapping_with_the_fields_of_an_evaluation_loses_none_of_them():
    evaluation = ReflectionEvaluation(0.6, {"a": 0.4, "b": 0.8}, False, ["a is short"], ["Say more."], 0.7)
    assert evaluation_of(asdict(evaluation)) == evaluation


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


def test_an_issue_as_the_reason_keeps_its_place():
    issue = Issue("too long", path="/title", line=3)
    (found,) = evaluation_of((False, issue)).issues
    assert (found, found.path, found.line) == (issue, "/title", 3)


def test_plain_strings_are_issues():
    evaluation = ReflectionEvaluation(0.1, issues=["a", Issue("b")], suggestions=["c"])
    assert evaluation.issues == (Issue("a"), Issue("b"))
    assert evaluation.suggestions == ("c",)
    assert ", ".join(str(issue) for issue in evaluation.issues) == "a, b"
    evaluation = ReflectionEvaluation(0.1, issues="too long", suggestions="Cut it.")
    assert (evaluation.issues, evaluation.suggestions) == ((Issue("too long"),), ("Cut it.",))


@pytest.mark.parametrize("output", ["", "x", {}, [], 0, 1.5, False])
def test_outputs_become_drafts(output):
    assert draft_of(output).output == output
    assert draft_of(Draft(output)).output == output


@pytest.mark.parametrize(
    "value", [None, Draft(None), object(), b"x", {1}, ValueError("x"), {"lock": Lock()}, Draft([Lock()])]
)
def test_invalid_outputs_are_refused(value):
    with pytest.raises(OutputError):
        draft_of(value)


class Node(BaseModel):
    inner: Any


def _node(inner):
    return Node.model_construct(inner=inner)


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}, _node])
@pytest.mark.parametrize("field", ["output", "memo"])
def test_a_value_nested_too_deeply_for_a_copy_is_refused(wrap, field):
    value = 1
    for _ in range(5_000):
        value = wrap(value)
    with pytest.raises(OutputError, match=r"^revise returned .* can't be copied \(RecursionError"):
        draft_of(value if field == "output" else Draft("x", memo=value), "revise")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"overall_score": np.float64(0.5)}, {"overall_score": 0.5}),
        ({"overall_score": 1}, {"overall_score": 1.0}),
        ({"satisfactory": "false"}, {"satisfactory": False}),
        ({"satisfactory": "True"}, {"satisfactory": True}),
        ({"satisfactory": np.bool_(True)}, {"satisfactory": True}),
        ({"satisfactory": None}, {"satisfactory": False}),
        ({"confidence": None}, {"confidence": 1.0}),
        ({"confidence": np.float32(0.5)}, {"confidence": 0.5}),
        ({"issues": None}, {"issues": ()}),
        ({"issues": "dull"}, {"issues": (Issue("dull"),)}),
        (
            {"issues": [{"message": "dull", "criterion": "tone", "line": 3}]},
            {"issues": (Issue("dull", "tone", None, 3),)},
        ),
        ({"issues": [7, Issue("dull", "tone")]}, {"issues": (Issue("7"), Issue("dull", "tone"))}),
        ({"suggestions": None}, {"suggestions": ()}),
        ({"suggestions": [1]}, {"suggestions": ("1",)}),
        ({"suggestions": "shorten"}, {"suggestions": ("shorten",)}),
        ({"suggestions": ({"suggestion": "shorten"},)}, {"suggestions": ("shorten",)}),
        ({"criteria_scores": None}, {"criteria_scores": {}}),
        (
            {"criteria_scores": {"a": True, "b": None, "c": np.float64(0.5)}},
            {"criteria_scores": {"a": 1.0, "b": None, "c": 0.5}},
        ),
        ({"spread": None}, {"spread": 0.0}),
        ({"samples": [{"a": 1, "b": None}]}, {"samples": ({"a": 1.0},)}),
        ({"samples": None}, {"samples": ()}),
        ({"agreement": None}, {"agreement": 1.0}),
        ({"usage": None}, {"usage": NOTHING_USED}),
        ({"usage": TokenUsage(np.int64(3), 1, requests=1)}, {"usage": TokenUsage(3, 1, requests=1)}),
        ({"usage": TokenUsage(0, 50)}, {"usage": TokenUsage(0, 50, requests=1)}),
        ({"usage": TokenUsage(50, failed_requests=1)}, {"usage": TokenUsage(50, failed_requests=1)}),
        (
            {"generated": ["a"], "opinions": "a", "unmet": ["a"]},
            {"generated": ("a",), "opinions": ("a",), "unmet": ("a",)},
        ),
        ({"gates_passed": "true"}, {"gates_passed": True}),
    ],
)
def test_odd_fields_of_an_evaluation_are_repaired(fields, expected):
    evaluation = ReflectionEvaluation(**({"overall_score": 0.9} | _for_constructor(fields)))
    for name, value in fields.items():
        setattr(evaluation, name, value)  # what the constructor repairs by itself, too
    found = evaluation_of(evaluation)
    for name, value in expected.items():
        assert getattr(found, name) == value
        assert isinstance(getattr(found, name), type(value))
    assert from_record(ReflectionEvaluation, json.loads(json.dumps(to_record(found)))) == found


def _for_constructor(fields):
    return {name: value for name, value in fields.items() if name not in ("issues", "suggestions")}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("overall_score", value) for value in ("0.5", float("nan"), 7, -0.1, float("inf"), True, [0.5])],
        *[("satisfactory", value) for value in ("yes", 1, 0.9, [])],
        *[("confidence", value) for value in ("high", float("nan"), 2, -1, True)],
        ("issues", 7),
        ("suggestions", 7),
        *[
            ("criteria_scores", value)
            for value in ([0.5], "x", {"a": "x"}, {"a": 7}, {"a": float("nan")}, {1: 0.5}, {"a": [1]})
        ],
        *[("spread", value) for value in ("x", -1, float("nan"), float("inf"))],
        *[("samples", value) for value in ("x", [0.5], {"a": 1}, [{"a": "x"}])],
        *[("agreement", value) for value in ("x", 2)],
        *[("preferred", value) for value in ("x", 2)],
        *[("gates_passed", value) for value in ("maybe", 1)],
        *[
            ("usage", value)
            for value in (
                5,
                {"input_tokens": 5},
                TokenUsage("5"),
                TokenUsage(-5),
                TokenUsage(2**70),
                TokenUsage(1.5),
                TokenUsage(1, cost_usd="x"),
                TokenUsage(1, cost_usd=-1.0),
                TokenUsage(1, cost_usd=float("nan")),
            )
        ],
        *[("shown", value) for value in ("all", {"a": "all"}, {1: True}, {"a": 1.0})],
        ("generated", 7),
    ],
)
def test_a_field_of_an_evaluation_that_cannot_be_used_is_named(name, value):
    evaluation = ReflectionEvaluation(0.9)
    setattr(evaluation, name, value)
    with pytest.raises(OutputError, match=rf"^{name} of the evaluation is .*; expected "):
        evaluation_of(evaluation)
    result = reflect_sync("Task.", generate=lambda _: "draft", evaluate=lambda _: evaluation)
    assert result.best_output == "draft"
    assert result.final_evaluation.overall_score is None
    assert f"{name} of the evaluation" in result.final_evaluation.issues[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"improvements": "shortened"}, {"improvements": ("shortened",)}),
        ({"improvements": None}, {"improvements": ()}),
        ({"improvements": ["a", 2]}, {"improvements": ("a", "2")}),
        ({"notes": "odd"}, {"notes": ("odd",)}),
        ({"usage": None}, {"usage": NOT_REPORTED}),
        ({"strategy": None}, {"strategy": "draft"}),
        ({"model": None}, {"model": ""}),
        ({"advice": None}, {"advice": ()}),
        ({"advice": [ADVICE]}, {"advice": (ADVICE,)}),
        ({"choice": Choice("why", None, None, None)}, {"choice": Choice("why")}),
        ({"conversation": Conversation(None, None)}, {"conversation": Conversation()}),
    ],
)
def test_odd_fields_of_a_draft_are_repaired(fields, expected):
    draft = draft_of(Draft("x", **fields))
    assert {name: getattr(draft, name) for name in expected} == expected
    assert from_record(Draft, json.loads(json.dumps(to_record(draft)))) == draft


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("improvements", 7),
        ("usage", 5),
        ("usage", TokenUsage(-1)),
        ("strategy", 7),
        ("model", 7),
        ("notes", 7),
        ("conversation", "hello"),
        ("conversation", Conversation("hello")),
        ("conversation", Conversation([], ["thought"])),
        ("choice", "first"),
        ("choice", Choice(5)),
        ("choice", Choice("why", [5])),
        ("choice", Choice("why", rejected=["x"])),
        ("choice", Choice("why", usage={"generation": 5})),
        ("choice", Choice("why", usage={5: TokenUsage()})),
        ("advice", 7),
        ("advice", ["Be brief."]),
        ("evaluation", 0.9),
        ("evaluation", ReflectionEvaluation("x")),
    ],
)
def test_a_field_of_a_draft_that_cannot_be_used_is_named(name, value):
    is_inside = isinstance(value, Choice | Conversation | ReflectionEvaluation)
    owner = f"of the {name if is_inside else 'draft of generate'}"
    with pytest.raises(OutputError, match=rf"^\w+ {owner} is .*; expected a"):
        draft_of(Draft("x", **{name: value}))


def test_an_evaluation_that_is_used_again_is_copied():
    evaluation = ReflectionEvaluation(0.2, {"a": 0.2}, True, issues=("first",))
    first = evaluation_of(evaluation)
    assert first == evaluation
    evaluation.overall_score, evaluation.issues = 1.0, ("second",)
    evaluation.criteria_scores["a"] = 1.0
    assert (first.overall_score, first.criteria_scores, first.issues) == (0.2, {"a": 0.2}, ("first",))
