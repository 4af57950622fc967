"""Cases that an answer meets if it says "good", and an agent's usual mistake: first drafts of odd tasks."""

from __future__ import annotations

from redraft import EvalCase, QualityCriterion, TokenUsage
from redraft.types import PlainTask

GOOD = QualityCriterion("good", evaluator="regex", evaluator_config={"pattern": "good"})
CALL = TokenUsage(100, 10, requests=1, cost_usd=0.01)
"""What each call of a model costs."""


def cases(count, **fields):
    return [EvalCase(f"case-{n}", PlainTask(f"Task {n}."), (GOOD,), **fields) for n in range(count)]


def drafts_an_odd_task(request):
    """Whether a request asks for the first draft of an odd task."""
    if request.role != "generation":
        return False
    number = request.messages[-1].content.partition("Task ")[2].partition(".")[0]
    return int(number or 0) % 2 == 1
