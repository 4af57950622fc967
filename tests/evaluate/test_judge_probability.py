"""The judge by probability: yes/no questions, answered by log probabilities."""

from dataclasses import replace
from math import log

import pytest

from redraft.errors import ModelError, OutputError
from redraft.evaluate.judge import JudgeOptions
from redraft.evaluate.judge_probability import ProbabilityJudge
from redraft.models.testing import ScriptedModel
from redraft.protocols import ChatReply
from redraft.types import Issue, QualityCriterion, TokenUsage
from support.evaluation import RUN, evaluate

CRITERIA = (QualityCriterion("clarity", "Easy to read."), QualityCriterion("tone", "Friendly."))
HOW = JudgeOptions("probability")
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


NEITHER = "the judge answered neither yes nor no"
FEW = "the model returned only {}, too few to tell yes from no"


@pytest.mark.parametrize(
    ("alternatives", "score", "why"),
    [
        ({"Yes": 0.6, "No": 0.2}, 0.75, ""),
        ({"Yes": 0.3, " yes": 0.2, "YES": 0.1, "no": 0.1, " No": 0.1}, 0.75, ""),
        ({"▁Yes": 0.3, "Ġno": 0.1, "**Yes": 0.3, "\nNo": 0.1}, 0.75, ""),
        ({"Yes": 1.0}, 1.0, ""),
        ({"No": 0.9, "Maybe": 0.1}, 0.0, ""),
        ({"Maybe": 0.9, "Yesterday": 0.05, "Nothing": 0.05}, None, NEITHER),
        ({"Maybe": 0.999, "Yes": 0.0009, "No": 0.0001}, None, NEITHER),
        # A probability that depends on alternatives that were not returned is unknown.
        ({"Yes": 0.34}, None, FEW.format("1 alternative")),
        ({"No": 0.5}, None, FEW.format("1 alternative")),
        ({"Yes": 0.34, "Sure": 0.3}, None, FEW.format("2 alternatives")),
        ({"Yes": 0.99}, 1.0, ""),
        ({"No": 0.95}, 0.0, ""),
        ({"Yes": 0.34, "No": 0.33, "Sure": 0.01}, 0.34 / 0.67, ""),
        ({"Yes": 0.8, "Maybe": 0.02}, 1.0, ""),
    ],
)
def test_is_the_share_of_yes(alternatives, score, why):
    critique = {"issues": [], "suggestions": [], "confidence": 1}
    model = answering(critique, clarity=tokens(**alternatives))
    evaluation = evaluate(ProbabilityJudge(CRITERIA[:1], model, HOW), "x")
    assert evaluation.criteria_scores["clarity"] == (score and pytest.approx(score))
    if why:
        assert evaluation.issues == (Issue(f"Not judged: {why}.", "clarity"),)
        assert (evaluation.confidence, evaluation.satisfactory) == (0.0, False)


def test_asks_one_short_question_per_criterion():
    model = answering(clarity=tokens(Yes=0.8, No=0.2), tone=tokens(Yes=0.9))
    evaluation = evaluate(ProbabilityJudge(CRITERIA, model, HOW), "x")
    assert [(r.max_tokens, r.logprobs, r.schema, r.role) for r in model.requests] == [
        (1, 20, None, "evaluation")
    ] * 2
    assert evaluation.satisfactory
    assert evaluation.issues == ()
    assert evaluation.confidence == pytest.approx(0.8)
    assert evaluation.usage == TokenUsage(20, 2, requests=2, cost_usd=1.0)


def test_questions_share_a_prefix():
    model = answering(clarity=tokens(Yes=0.9), tone=tokens(Yes=0.9))
    evaluate(ProbabilityJudge(CRITERIA, model, HOW), "x")
    first, second = (request.messages for request in model.requests)
    assert first[0] == second[0]
    assert first[1].content.split("\nclarity: ")[0] == second[1].content.split("\ntone: ")[0]


def test_asks_for_a_critique_below_the_threshold():
    critique = {
        "issues": [{"message": "stiff", "criterion": "tone"}],
        "suggestions": ["greet"],
        "confidence": 0.7,
    }
    model = answering(critique, clarity=tokens(Yes=0.9), tone=tokens(Yes=0.2, No=0.8))
    evaluation = evaluate(ProbabilityJudge(CRITERIA, model, HOW), "x")
    assert evaluation.criteria_scores["tone"] == pytest.approx(0.2)
    assert (evaluation.issues, evaluation.suggestions) == ((Issue("stiff", "tone"),), ("greet",))
    assert not evaluation.satisfactory
    assert len(model.requests) == 3
    asked = model.requests[-1]
    assert "Easy to read." not in asked.messages[0].content
    assert list(asked.schema["properties"]) == ["issues", "suggestions", "confidence"]


def test_unusable_critique_is_retried_once():
    model = answering("prose", clarity=tokens(No=0.9), tone=tokens(Yes=0.9))
    evaluation = evaluate(ProbabilityJudge(CRITERIA, model, HOW), "x")
    assert len(model.requests) == 4
    assert evaluation.criteria_scores == {"clarity": 0.0, "tone": 1.0}
    assert evaluation.issues == ()


def test_prose_critique_has_no_score_lines():
    model = answering("Issues:\n- [clarity] long", clarity=tokens(No=0.9))
    evaluation = evaluate(ProbabilityJudge(CRITERIA[:1], model, replace(HOW, structured=False)), "x")
    assert evaluation.issues == (Issue("long", "clarity"),)
    assert "clarity: <0.0" not in model.requests[-1].messages[0].content


def test_with_a_custom_prompt():
    model = answering(clarity=tokens(Yes=0.9))
    evaluate(ProbabilityJudge(CRITERIA[:1], model, replace(HOW, prompt="Mine: {output}")), "It.")
    assert model.requests[0].messages[1].content.startswith("Mine: The output stands between")


def test_without_logprobs_is_an_error():
    model = answering(clarity=ChatReply("Yes", usage=USED, model="plain"), tone=tokens(Yes=0.9))
    with pytest.raises(
        OutputError, match=r"'plain' returned no log probabilities.*use the judge 'score'"
    ) as caught:
        evaluate(ProbabilityJudge(CRITERIA, model, HOW), "x")
    assert caught.value.usage == TokenUsage(20, 2, requests=2, cost_usd=1.0)


def test_failed_critique_carries_the_usage_of_the_questions():
    down = ModelError("overloaded", usage=TokenUsage(failed_requests=1))
    model = answering(down, clarity=tokens(No=0.9))
    with pytest.raises(ModelError) as caught:
        evaluate(ProbabilityJudge(CRITERIA[:1], model, HOW), "x")
    assert caught.value.usage == TokenUsage(10, 1, requests=1, failed_requests=1, cost_usd=0.5)


def test_no_budget_no_questions():
    judge = ProbabilityJudge(CRITERIA, ScriptedModel([]), HOW)
    assert evaluate(judge, "x", replace(RUN, free_only=True)).overall_score is None
