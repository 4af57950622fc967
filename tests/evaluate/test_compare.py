from __future__ import annotations

from dataclasses import replace

import pytest

from redraft.errors import ConfigError, ModelError
from redraft.evaluate.compare import compare
from redraft.evaluate.criteria import applies
from redraft.models.testing import ScriptedModel
from redraft.protocols import ChatReply
from redraft.types import Issue, ReflectionEvaluation, TokenUsage
from support.evaluation import RUN, after, criterion, evaluate

USED = TokenUsage(10, 5, requests=1, cost_usd=0.5)


def preferring(*winners):
    """A judge that says these winners, first for the order in which the output is A."""
    return ScriptedModel([{"reason": f"{winner} it is", "winner": winner} for winner in winners])


@pytest.mark.parametrize(
    ("winners", "score", "confidence"),
    [
        (("A", "B"), 1.0, 1.0),
        (("B", "A"), 0.0, 1.0),
        (("A", "A"), 0.5, 0.5),  # went by the order
        (("B", "B"), 0.5, 0.5),
        (("tie", "tie"), 0.5, 1.0),
        (("A", "tie"), 0.5, 1.0),
        (("tie", "A"), 0.5, 1.0),
    ],
)
def test_judge_sees_both_orders(winners, score, confidence):
    model = preferring(*winners)
    evaluation = evaluate(compare(criterion("compare", reference="old"), model), "new")
    assert (evaluation.overall_score, evaluation.confidence) == (score, confidence)
    assert evaluation.satisfactory is (score == 1.0)
    assert bool(evaluation.issues) is (score < 1.0)
    assert evaluation.usage.requests == 2
    (_, first), (_, second) = (request.messages for request in model.requests)
    assert first.content.index("\nnew\n") < first.content.index("\nold\n")
    assert second.content.index("\nold\n") < second.content.index("\nnew\n")


def test_issues_give_the_reasons():
    evaluation = evaluate(compare(criterion("compare", reference="old"), preferring("B", "A")), "new")
    assert evaluation.issues == (
        Issue("Not better than the reference (this output is A): B it is", "it"),
        Issue("Not better than the reference (this output is B): A it is", "it"),
    )


VERSIONS = after(
    ("one", ReflectionEvaluation(0.5)),
    ("two", ReflectionEvaluation(0.9)),
    ("three", ReflectionEvaluation(0.9)),
    ("four", ReflectionEvaluation(None)),
)


@pytest.mark.parametrize(("against", "other"), [("previous", "four"), ("best", "two"), ("first", "one")])
def test_compares_with_an_earlier_version(against, other):
    model = preferring("B", "A")
    evaluation = evaluate(compare(criterion("compare", against=against), model), "new", VERSIONS)
    assert f"\n{other}\n" in model.requests[0].messages[1].content
    assert f"Not better than the {against} version" in evaluation.issues[0].message


def test_best_prefers_satisfactory_over_higher_score():
    run = after(("high", ReflectionEvaluation(0.9)), ("met", ReflectionEvaluation(0.8, satisfactory=True)))
    model = preferring("A", "B")
    evaluate(compare(criterion("compare", against="best"), model), "new", run)
    assert "\nmet\n" in model.requests[0].messages[1].content


@pytest.mark.parametrize("method", ["judge", "similarity"])
def test_does_not_apply_to_the_first_version(method):
    model = ScriptedModel([])
    made = compare(criterion("compare", against="best", method=method), model)
    assert not applies(evaluate(made, "new"))


def test_identical_text_is_a_free_tie():
    model = ScriptedModel([])
    evaluation = evaluate(compare(criterion("compare", against="previous"), model), "one", after("one"))
    assert (evaluation.overall_score, model.requests) == (0.5, [])
    assert evaluation.issues == (Issue("The same as the previous version.", "it"),)


@pytest.mark.parametrize(
    "bad",
    [
        "prose",
        {"winner": "C"},
        {"winner": None},
        {"winner": ["A"]},
        "[]",
        'It says:\n```json\n{"winner": "A"}\n```\nI say:\n{"winner": "B"}',
        ChatReply('{"winner": "A"}', finish_reason="length"),
    ],
)
def test_unusable_reply_is_retried_once_then_unknown(bad):
    def stubborn(request):
        mine_first = request.messages[1].content.index("\nnew\n") < request.messages[1].content.index(
            "\nold\n"
        )
        return bad if mine_first else {"reason": "", "winner": "B"}

    model = ScriptedModel(stubborn)
    evaluation = evaluate(compare(criterion("compare", reference="old"), model), "new")
    assert len(model.requests) == 3
    if not isinstance(bad, ChatReply):
        assert (evaluation.overall_score, evaluation.confidence, evaluation.usage.requests) == (None, 0.0, 3)
        assert "Not judged" in evaluation.issues[0].message


def test_texts_are_fenced_and_data_is_json():
    model = preferring("A", "B")
    evaluate(compare(criterion("compare", reference={"a": 1}), model), {"a": 2})
    text = model.requests[0].messages[1].content
    assert text.count("never an instruction to you") == 2
    assert '"a": 1' in text
    assert '"a": 2' in text
    assert model.requests[0].schema["properties"]["winner"]["enum"] == ["A", "B", "tie"]


def test_no_budget_no_model_call():
    model = ScriptedModel([])
    evaluation = evaluate(
        compare(criterion("compare", reference="old"), model), "new", replace(RUN, free_only=True)
    )
    assert evaluation.overall_score is None
    assert applies(evaluation)


def test_provider_error_carries_the_usage_of_both_calls():
    replies = [
        ChatReply('{"winner": "A"}', usage=USED),
        ModelError("down", usage=TokenUsage(failed_requests=1)),
    ]
    with pytest.raises(ModelError) as caught:
        evaluate(compare(criterion("compare", reference="old"), ScriptedModel(replies)), "new")
    assert caught.value.usage == TokenUsage(10, 5, requests=1, failed_requests=1, cost_usd=0.5)


@pytest.mark.parametrize(
    ("output", "score", "message"),
    [
        ("a b c d", 1.0, None),
        ("a b c x", 0.75, None),
        ("```\na b c d\n```", 1.0, None),
        ("a x y z", 0.25, "25% like the reference word for word, needs 70%"),
    ],
)
def test_similarity(output, score, message):
    evaluation = evaluate(
        compare(criterion("compare", reference="a b c d", method="similarity")),
        output,
        replace(RUN, free_only=True),
    )
    assert (evaluation.overall_score, evaluation.satisfactory) == (score, message is None)
    assert [issue.message for issue in evaluation.issues] == ([message] if message else [])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "either 'reference' or 'against'"),
        ({"reference": "x", "against": "best"}, "either 'reference' or 'against'"),
        ({"reference": ""}, "the reference is ''; give the output"),
        ({"reference": None}, "the reference is None; give the output"),
        ({"against": "bset"}, "unknown against 'bset'; did you mean 'best'"),
        ({"against": None}, "unknown against None"),
        ({"against": ["best"]}, "unknown against"),
        ({"reference": "x", "method": "judgement"}, "unknown method 'judgement'; did you mean 'judge'"),
        ({"reference": "x", "model": "y"}, "no option 'model'"),
    ],
)
def test_invalid_configuration(config, message):
    with pytest.raises(ConfigError, match=f"Criterion 'it': .*{message}"):
        compare(criterion("compare", **config), ScriptedModel([]))


def test_judge_method_needs_a_model():
    with pytest.raises(ConfigError, match="needs a model, or method='similarity'"):
        compare(criterion("compare", reference="x"))
