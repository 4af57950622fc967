"""The judge: one structured call to a model for all the criteria that it judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.errors import ModelError, over_budget
from redraft.core.evaluation import Issue, ReflectionEvaluation
from redraft.evaluate.ask import ask
from redraft.evaluate.form import Form
from redraft.evaluate.judging import Judging
from redraft.evaluate.merge import weighted_mean
from redraft.evaluate.probability import by_probability
from redraft.evaluate.prompts import judge_messages
from redraft.evaluate.together import charged, settle, spent
from redraft.evaluate.verdict import SKIPPED, shortfall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.chat import Message
    from redraft.core.context import RunContext
    from redraft.core.criterion import QualityCriterion
    from redraft.core.protocols import ChatModel, Evaluator
    from redraft.core.usage import TokenUsage
    from redraft.core.version import Output
    from redraft.evaluate.ask import Answer
    from redraft.evaluate.form import Reading

    Sample = Answer[Reading]


def judge(
    criteria: Sequence[QualityCriterion], model: ChatModel, judging: Judging | None = None
) -> Evaluator:
    """Let a model judge an output by all criteria at once; `criteria_scores` has one of them each.

    A reply that can't be used is asked for again once with what is wrong; a criterion without a usable score
    is then None. Raises `ModelError` when the provider failed (of several samples: all of them), and
    `UnfinishedError` where the run's budget allows no call; of several samples, those count that it allows.
    """
    how = judging or Judging()
    if how.kind == "probability":
        return by_probability(criteria, model, how)
    form = Form(criteria, how.structured)
    schema = form.schema

    async def sample(messages: tuple[Message, ...]) -> Sample:
        return await ask(model, messages, schema, form.read)

    async def evaluate(output: Output, run: RunContext, /) -> ReflectionEvaluation:
        if run.free_only:
            return SKIPPED
        messages = judge_messages(form, how.prompt, output, run, with_history=how.include_history)
        if how.samples == 1:
            answer = await sample(messages)
            return _evaluation(criteria, [answer], answer.usage)
        answers, errors = await settle([sample(messages) for _ in range(how.samples)])
        for error in errors:
            if not answers or not (isinstance(error, ModelError) or over_budget(error)):
                others = [other for other in errors if other is not error]
                raise charged(error, spent(answers, others))
        return _evaluation(criteria, answers, spent(answers, errors))

    return evaluate


def _evaluation(
    criteria: Sequence[QualityCriterion], answers: Sequence[Sample], usage: TokenUsage
) -> ReflectionEvaluation:
    """Make one evaluation of the samples: medians, and the critique of the sample nearest to them."""
    readings = [answer.value for answer in answers]
    scores: dict[str, float | None] = {
        c.name: _median([reading.scores[c.name] for reading in readings if c.name in reading.scores])
        for c in criteria
    }
    overall = weighted_mean(criteria, scores)
    overalls = [weighted_mean(criteria, reading.scores) for reading in readings]
    known = [(value, reading) for value, reading in zip(overalls, readings, strict=True) if value is not None]
    if overall is None or not known:
        spread, nearest = 0.0, readings[0]
    else:
        spread = round(max(value for value, _ in known) - min(value for value, _ in known), 12)
        nearest = min(known, key=lambda pair: abs(pair[0] - overall))[1]
    confidence = _median([reading.confidence for _, reading in known]) if known else 0.0
    problem = next((answer.problem for answer in answers if answer.problem), "")
    return ReflectionEvaluation(
        overall,
        scores,
        all((score := scores[c.name]) is not None and score >= c.threshold for c in criteria),
        (*nearest.issues, *_left_unsaid(criteria, scores, nearest, problem)),
        nearest.suggestions,
        max(0.0, (confidence or 0.0) - spread),
        spread,
        usage=usage,
    )


def _left_unsaid(
    criteria: Sequence[QualityCriterion], scores: dict[str, float | None], reading: Reading, problem: str
) -> list[Issue]:
    """Say what the critique left out: criteria below their threshold, and those that were not judged."""
    said = {issue.criterion for issue in reading.issues}
    issues: list[Issue] = []
    for criterion in criteria:
        score = scores[criterion.name]
        if score is None:
            issues.append(Issue(f"Not judged: the judge's reply can't be used. {problem}", criterion.name))
        elif score < criterion.threshold and criterion.name not in said:
            issues.append(shortfall(criterion, score, reading.reasons.get(criterion.name, "")))
    return issues


def _median(values: Sequence[float]) -> float | None:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return None
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
