"""Runs whose outputs a scripted model judged, to be labelled."""

import json
import re

from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel

CLEAR = QualityCriterion("clear", "Is it clear?")
SHORT = QualityCriterion("short", "Is it short?")


def judging_model(score, *, draft=lambda number: f"Draft {number} of it."):
    """A model that drafts, and scores an output by `score(output, criterion)`."""
    drafts = iter(range(10_000))

    def answer(request):
        if request.role != "evaluation":
            return draft(next(drafts))
        system, asked = request.messages[0].content, request.messages[-1].content
        output = asked.rpartition("The output")[2] or asked
        names = re.findall(r'"(\w+)": \{"reason"', system + asked)
        scores = {name: {"reason": "so", "score": score(output, name)} for name in dict.fromkeys(names)}
        return json.dumps({"criteria": scores, "issues": [], "suggestions": [], "confidence": 0.9})

    return ScriptedModel(answer)


async def judged_runs(store, count=30, *, score=None, criteria=(CLEAR, SHORT), draft=None, **options):
    """Store runs of an agent that made one draft each; its number decides the score unless `score` does."""

    def by_number(output, _name):
        number = int(re.search(r"Draft (\d+)", output)[1])
        return 0.9 if number % 3 else 0.4

    model = judging_model(score or by_number, **({"draft": draft} if draft else {}))
    pattern = ReflectionPattern(0, quality_criteria=list(criteria), reflection_model=model, **options)
    agent = Agent(model, pattern=pattern, name="writer", keep=store)
    return [await agent.run(f"Task {number}.") for number in range(count)]
