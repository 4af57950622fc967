from __future__ import annotations

import asyncio
from dataclasses import replace
from math import log

import pytest

from evaluating import RUN, evaluate
from redraft.core.chat import ChatReply
from redraft.core.criterion import QualityCriterion
from redraft.core.errors import ModelError, OutputError
from redraft.core.evaluation import Issue
from redraft.core.usage import TokenUsage
from redraft.evaluate.judge import judge
from redraft.evaluate.judging import Judging
from redraft.models.scripted import ScriptedModel

CRITERIA = (QualityCriterion("clarity", "Easy to read."), QualityCriterion("tone", "Friendly."))
HOW = Judging("probability")
USED = TokenUsage(10, 1, requests=1, cost_usd=0.5)


def tokens(**probabilities):
    return ChatReply("x", logprobs=({text: log(p) for text, p in probabilities.items()},), usage=USED)


def answering(critique=None, **by_name):
    """A model that answers the question for each criterion, and then the critique."""

    def answer(request):
        if request.max_tokens is None:
            return critique
        text = request.messages[-1].content
        return next(reply for name, reply in by_name.items() if f"\n{name}: " in text)

    return ScriptedModel(answer)


@pytest.mark.parametrize(
    ("alternatives", "score"),
    [
        ({"Yes": 0.6, "No": 0.2}, 0.75),
        ({"Yes": 0.3, " yes": 0.2, "YES": 0.1, "no": 0.1, " No": 0.1}, 0.75),
        ({"▁Yes": 0.3, "Ġno": 0.1, "**Yes": 0.3, "\nNo": 0.1}, 0.75),
        ({"Yes": 1.0}, 1.0),
        ({"No": 0.9, "Maybe": 0.1}, 0.0),
        ({"Maybe": 0.9, "Yesterday": 0.05, "Nothing": 0.05}, None),
        ({"Maybe": 0.999, "Yes": 0.0009, "No": 0.0001}, None),
    ],
)
def test_the_score_is_the_share_of_yes(alternatives, score):
    critique = {"issues": [], "suggestions": [], "confidence": 1}
    evaluation = evaluate(judge(CRITERIA[:1], answering(critique, clarity=tokens(**alternatives)), HOW), "x")
    found = evaluation.criteria_scores["clarity"]
    assert found == (None if score is None else pytest.approx(score))
    if score is None:
        issue = Issue("Not judged: the judge answered neither yes nor no.", "clarity")
        assert (evaluation.issues, evaluation.confidence) == ((issue,), 0.0)


def test_one_short_question_a_criterion_and_no_critique_where_all_is_well():
    model = answering(clarity=tokens(Yes=0.8, No=0.2), tone=tokens(Yes=0.9))
    evaluation = evaluate(judge(CRITERIA, model, HOW), "x")
    assert [(r.max_tokens, r.logprobs, r.schema, r.role) for r in model.requests] == [
        (1, 20, None, "evaluation")
    ] * 2
    assert evaluation.satisfactory
    assert evaluation.issues == ()
    assert evaluation.confidence == pytest.approx(0.8)
    assert evaluation.usage == TokenUsage(20, 2, requests=2, cost_usd=1.0)


def test_the_questions_share_their_beginning():
    model = answering(clarity=tokens(Yes=0.9), tone=tokens(Yes=0.9))
    evaluate(judge(CRITERIA, model, HOW), "x")
    first, second = (request.messages for request in model.requests)
    assert first[0] == second[0]
    assert first[1].content.split("\nclarity: ")[0] == second[1].content.split("\ntone: ")[0]


def test_the_questions_are_asked_at_once():
    everybody = asyncio.Barrier(2)

    async def answer(request):
        await asyncio.wait_for(everybody.wait(), 5)
        return tokens(Yes=0.9)

    assert evaluate(judge(CRITERIA, ScriptedModel(answer), HOW), "x").overall_score == 1.0


def test_one_critique_of_what_is_below_its_threshold():
    critique = {
        "issues": [{"message": "stiff", "criterion": "tone"}],
        "suggestions": ["greet"],
        "confidence": 0.7,
    }
    model = answering(critique, clarity=tokens(Yes=0.9), tone=tokens(Yes=0.2, No=0.8))
    evaluation = evaluate(judge(CRITERIA, model, HOW), "x")
    assert evaluation.criteria_scores["tone"] == pytest.approx(0.2)
    assert (evaluation.issues, evaluation.suggestions) == ((Issue("stiff", "tone"),), ("greet",))
    assert not evaluation.satisfactory
    assert len(model.requests) == 3
    asked = model.requests[-1]
    assert "Easy to read." not in asked.messages[0].content
    assert list(asked.schema["properties"]) == ["issues", "suggestions", "confidence"]


def test_a_critique_that_cannot_be_used_is_asked_for_once_more():
    model = answering("prose", clarity=tokens(No=0.9), tone=tokens(Yes=0.9))
    evaluation = evaluate(judge(CRITERIA, model, HOW), "x")
    assert len(model.requests) == 4
    assert evaluation.criteria_scores == {"clarity": 0.0, "tone": 1.0}
    assert evaluation.issues == ()


def test_a_critique_in_prose_has_no_score_lines():
    model = answering("Issues:\n- [clarity] long", clarity=tokens(No=0.9))
    evaluation = evaluate(judge(CRITERIA[:1], model, replace(HOW, structured=False)), "x")
    assert evaluation.issues == (Issue("long", "clarity"),)
    assert "clarity: <0.0" not in model.requests[-1].messages[0].content


def test_a_prompt_of_ones_own_asks_the_questions_too():
    model = answering(clarity=tokens(Yes=0.9))
    evaluate(judge(CRITERIA[:1], model, replace(HOW, prompt="Mine: {output}")), "It.")
    assert model.requests[0].messages[1].content.startswith("Mine: The output stands between")


def test_a_model_that_tells_no_probabilities_is_an_error_that_says_so():
    model = answering(clarity=ChatReply("Yes", usage=USED, model="plain"), tone=tokens(Yes=0.9))
    with pytest.raises(
        OutputError, match=r"'plain' tells no log probabilities.*use the judge 'score'"
    ) as caught:
        evaluate(judge(CRITERIA, model, HOW), "x")
    assert caught.value.usage == TokenUsage(20, 2, requests=2, cost_usd=1.0)


def test_a_critique_that_fails_carries_what_the_questions_used():
    down = ModelError("overloaded", usage=TokenUsage(failed_requests=1))
    model = answering(down, clarity=tokens(No=0.9))
    with pytest.raises(ModelError) as caught:
        evaluate(judge(CRITERIA[:1], model, HOW), "x")
    assert caught.value.usage == TokenUsage(10, 1, requests=1, failed_requests=1, cost_usd=0.5)


def test_without_budget_no_model_is_asked():
    model = ScriptedModel([])
    assert evaluate(judge(CRITERIA, model, HOW), "x", replace(RUN, free_only=True)).overall_score is None
