"""Scripted models that judge."""

from redraft import ScriptedModel
from redraft.protocols import ChatReply


def verdict(request, score):
    """A judge's reply: this score for each criterion in the request's schema."""
    names = request.schema["properties"]["criteria"]["properties"]
    return {
        "criteria": {name: {"reason": "so", "score": score} for name in names},
        "issues": [] if score > 0.8 else [{"message": "too dull", "criterion": next(iter(names))}],
        "suggestions": [],
        "confidence": 0.9,
    }


def judge_scoring(score):
    """A model that gives every criterion this score, and writes "draft" when it does not judge."""

    def answer(request):
        if request.role != "evaluation":
            return "draft"
        if request.logprobs:
            return ChatReply("yes", logprobs=({"yes": -0.05, "no": -3.0},))
        return verdict(request, score)

    return ScriptedModel(answer)
