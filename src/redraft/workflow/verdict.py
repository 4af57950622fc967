"""`reflection.evaluate`, and the judge of `reflection.loop`: a JSON Schema, a model, or code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from redraft._texts import short_repr
from redraft._verdicts import DECISIONS, evaluation_of, fields_of
from redraft.errors import ConfigError, ModelError, OutputError, SandboxError
from redraft.evaluate.ask import Answer, ask, samples, total_usage, verdict_of
from redraft.evaluate.judge import SAMPLE_TEMPERATURE, JudgeId
from redraft.evaluate.requirements import requirements_in, rubric_of, rubric_text
from redraft.protocols import ChatReply, Message
from redraft.stats import standard_error
from redraft.text.replies import fenced, json_of
from redraft.text.schema import Schema, SchemaResult
from redraft.text.templates import template
from redraft.types import NOT_JUDGED, Issue, QualityCriterion, ReflectionEvaluation
from redraft.workflow.runtime import (
    OUTPUT,
    ActionResult,
    Resources,
    Scope,
    as_template_text,
    read_params,
    run_code,
)
from redraft.workflow.spec import EVALUATE, EvaluateParams, EvaluatorSpec

if TYPE_CHECKING:
    from collections.abc import Sequence


async def evaluate_action(params: Mapping[str, Any], scope: Scope, resources: Resources) -> ActionResult:
    """Judge `data`; the value is `{success, valid, score, errors, suggestions}`.

    `success` is False if the data could not be judged; the score is then None.
    """
    options = read_params(EvaluateParams, params, EVALUATE)
    if options.data is None and options.evaluator_type != "custom" and OUTPUT not in scope.state:
        raise ConfigError(f"{EVALUATE}: give 'data', or set state.{OUTPUT}, else there is nothing to judge.")
    data = scope.state.get(OUTPUT) if options.data is None else scope.render(options.data)
    judge = Judge(options.evaluator(), resources)
    output = judge.candidate(data)
    evaluation = await judge(output, scope.inside_loop({OUTPUT: output}))
    value = {
        "success": evaluation.confidence > 0,
        "valid": evaluation.satisfactory,
        "score": evaluation.overall_score,
        "errors": errors_of(evaluation),
        "suggestions": list(evaluation.suggestions),
    }
    return ActionResult(value, evaluation.usage)


class FailedAttempt(BaseModel):
    """Placeholder for the output of an attempt whose generator failed."""

    message: str
    unreachable: bool = False
    """Whether the model could not be called; then the attempt says nothing about the output's quality."""


@dataclass(slots=True)
class Judge:
    """Judges outputs by the `evaluator` of a file."""

    evaluator: EvaluatorSpec
    resources: Resources
    name: str = ""
    """The name of the criterion of a judging model, such as `WORKFLOW/NODE`."""
    schema: Schema | None = field(init=False, default=None)
    checked: SchemaResult | None = field(init=False, default=None)
    """The schema's result for the last candidate."""

    def __post_init__(self) -> None:
        if self.evaluator.type == "schema":
            self.schema = self.resources.schema(self.evaluator.schema_)

    @property
    def criteria(self) -> tuple[QualityCriterion, ...]:
        """The criterion of a judging model, for people who compare its verdicts with their own."""
        if self.evaluator.type != "llm":
            return ()
        return (QualityCriterion(self.name, str(self.evaluator.prompt), threshold=self.evaluator.threshold),)

    @property
    def rubric(self) -> str:
        """The evaluator's requirements, as far as its schema or the messages in its code state them."""
        evaluator = self.evaluator
        if evaluator.type == "schema":
            config = {"schema": evaluator.schema_}
            return rubric_of([QualityCriterion("schema", evaluator="schema", evaluator_config=config)])
        if evaluator.type == "custom" and evaluator.language == "python":
            return rubric_text(requirements_in(str(evaluator.run)))
        return ""

    def judge_id(self, scope: Scope) -> JudgeId | None:
        """The identity of the judging model; None if no model judges, or none has been chosen yet.

        Its rubric is the unrendered prompt with the examples; the threshold is not part of it.
        """
        evaluator = self.evaluator
        if evaluator.type != "llm":
            return None
        model = self.resources.full_name(scope.render(evaluator.model), scope)
        examples = [
            (as_template_text(example.input), as_template_text(example.output))
            for example in evaluator.examples
        ]
        return None if model is None else JudgeId.of(model, self.name, FORM, evaluator.prompt, examples)

    def candidate(self, value: Any) -> Any:
        """The output to judge and to store: with a schema, JSON parsed from text and coerced."""
        if self.schema is None:
            return value
        self.checked = self.schema.check(value)
        return self.checked.value

    async def __call__(self, output: Any, scope: Scope) -> ReflectionEvaluation:
        """Judge a candidate; the score is None if code fails or a model's reply can't be read.

        Raises `ModelError` if the provider failed for good, and `ConfigError`.
        """
        if isinstance(output, FailedAttempt):
            score = None if output.unreachable else 0.0
            verdict = _verdict(score, valid=False, errors=[output.message], is_candidate=False)
            return replace(verdict, confidence=0.0) if output.unreachable else verdict
        if self.schema is not None:
            return self._by_schema(output, self.schema)
        return await (self._by_model if self.evaluator.type == "llm" else self._by_code)(output, scope)

    def _by_schema(self, output: Any, schema: Schema) -> ReflectionEvaluation:
        checked = self.checked
        # An output from the journal has not been checked yet. `repr`, because 1 == True.
        if checked is None or repr(checked.value) != repr(output):
            checked = schema.check(output)
        return _verdict(
            checked.score,
            valid=checked.valid,
            errors=[problem.as_dict() for problem in checked.errors],
            suggestions=checked.suggestions,
            is_candidate=not checked.wrong_type,
        )

    async def _by_model(self, output: Any, scope: Scope) -> ReflectionEvaluation:
        evaluator = self.evaluator
        source = str(evaluator.prompt)
        prompt = scope.text(source)
        if not template(source).mentions("state.reflection_output"):
            prompt = f"{prompt}\n\n{fenced(as_template_text(output), 'output')}"
        examples = (
            message
            for example in evaluator.examples
            for message in (
                Message("user", as_template_text(example.input)),
                Message("assistant", as_template_text(example.output)),
            )
        )
        messages = (Message("system", FORM), *examples, Message("user", prompt))

        def read(reply: ChatReply) -> tuple[ReflectionEvaluation | None, str]:
            try:
                value = verdict_of(reply, as_template_text(output))
                if not isinstance(value, dict):
                    return None, "expected a JSON object with 'valid' or 'score'"
                return self._read(value), ""
            except OutputError as error:
                return None, str(error)

        model = self.resources.model_for(scope.render(evaluator.model), scope)

        async def sample() -> Answer[ReflectionEvaluation | None]:
            try:
                return await ask(model, messages, None, read, temperature=SAMPLE_TEMPERATURE)
            except ModelError as error:
                if not error.refuses_temperature:
                    raise
                answer = await ask(model, messages, None, read)
                return replace(answer, usage=total_usage([answer], [error]))

        if evaluator.judge_samples == 1:
            calls = [ask(model, messages, None, read)]
        else:
            calls = [sample() for _ in range(evaluator.judge_samples)]
        answers, usage = await samples(calls)
        verdicts = [answer.value for answer in answers if answer.value is not None]
        if not verdicts:
            return replace(_not_judged(answers[0].problem), usage=usage)
        return replace(_mean(verdicts, evaluator), usage=usage, opinions=(self.name,))

    async def _by_code(self, output: Any, scope: Scope) -> ReflectionEvaluation:
        inside = scope.inside_loop({"reflection_output": output})
        try:
            value = (await run_code(self.evaluator, inside, self.resources)).value
            return self._read(_decided_by_errors(value))
        except (SandboxError, OutputError) as error:
            return _not_judged(f"the evaluator failed: {error}{_hint_for(output)}")

    def _read(self, value: Any) -> ReflectionEvaluation:
        """Read the verdict of code or a model: a bool, a number, or an object with `valid` or `score`.

        A bool or a number may come in a list with its reason: JSON has no tuples. An object may also have
        `reason`, `errors` and `suggestions`. Without `valid`, the output is valid if the score reaches the
        threshold. Raises `OutputError` for any other value.
        """
        errors: list[Any] = []
        if isinstance(value, Mapping):
            fields = dict(cast("Mapping[str, Any]", value))
            listed = fields.pop("errors", None)
            errors = cast("list[Any]", listed) if isinstance(listed, list) else [listed] if listed else []
            value = fields
        elif isinstance(value, list):
            value = tuple(cast("list[Any]", value))
        read = evaluation_of(value, self.evaluator.threshold, self.evaluator.score_max)
        if read.overall_score is None:
            raise OutputError(f"the verdict {short_repr(value)} has no score")
        if not errors:  # the issues contain the reason, if the verdict has a reason
            errors = [issue.message for issue in read.issues]
        return _verdict(
            read.overall_score, valid=read.satisfactory, errors=errors, suggestions=read.suggestions
        )


def _decided_by_errors(value: Any) -> Any:
    """Add `valid` to the verdict of code that has neither that nor a score, but lists errors, or none."""
    fields = fields_of(value)
    errors = fields.get("errors", fields.get("issues"))
    if isinstance(errors, list | str | dict) and fields.keys().isdisjoint(VERDICT_KEYS):
        return {**fields, "valid": not errors}
    return value


def _hint_for(output: Any) -> str:
    """Advice for code that failed on an output that is JSON, but as text; empty for other outputs."""
    if not isinstance(output, str):
        return ""
    try:
        json_of(output)
    except OutputError:
        return ""
    return (
        " The output is JSON, but as text; to judge it as data, give the generator's 'llm.call' a 'schema', "
        "such as {type: object}."
    )


def _mean(verdicts: Sequence[ReflectionEvaluation], evaluator: EvaluatorSpec) -> ReflectionEvaluation:
    """Combine several verdicts: the mean score, the majority's validity, and the errors closest to the mean.

    Every verdict counts, even if it equals another. A tie is not valid.
    """
    scores = [verdict.overall_score or 0.0 for verdict in verdicts]  # none of them is None
    mean, share = fmean(scores), fmean(verdict.satisfactory for verdict in verdicts)
    majority = [verdict for verdict in verdicts if verdict.satisfactory is (share > 0.5)]  # noqa: PLR2004 (half)
    closest = min(majority, key=lambda verdict: abs((verdict.overall_score or 0.0) - mean))
    spread = evaluator.judge_margin * standard_error(scores)
    return replace(
        closest,
        overall_score=round(mean, 12),
        confidence=max(0.0, closest.confidence - spread),
        spread=round(spread, 12),
        agreement=len(majority) / len(verdicts),
        repeats_itself=len(verdicts) > 1 and all(verdict == verdicts[0] for verdict in verdicts),
    )


VERDICT_KEYS = (*DECISIONS, "score", "overall_score")
"""The keys that decide whether an output is valid."""
FORM = (
    'Reply with one JSON object: {"valid": true or false, "score": a number from 0.0 to 1.0, '
    '"reason": "one sentence", "errors": ["what is wrong"], "suggestions": ["what to do"]}.'
)


def errors_of(evaluation: ReflectionEvaluation) -> list[dict[str, Any]]:
    """The errors of an evaluation as templates and code see them."""
    if evaluation.memo is None:  # made by the loop itself, for a draft that was not judged
        return [{"message": issue.message} for issue in evaluation.issues]
    return list(evaluation.memo["errors"])


def is_candidate(evaluation: ReflectionEvaluation) -> bool:
    """Whether the judged output may be the best attempt."""
    return evaluation.memo is None or evaluation.memo.get("candidate", True)


def _verdict(
    score: float | None,
    *,
    valid: bool,
    errors: Sequence[Any],
    suggestions: Sequence[str] = (),
    is_candidate: bool = True,
) -> ReflectionEvaluation:
    """An evaluation whose memo has the errors as objects with a `message`.

    An output that is not a candidate is never the best attempt: it is missing, or it is text where the schema
    expects an object.
    """
    objects = [_object(error) for error in errors]
    issues = tuple(Issue(error["message"], path=str(error.get("path") or "") or None) for error in objects)
    return ReflectionEvaluation(
        score,
        satisfactory=valid,
        issues=issues,
        suggestions=tuple(suggestions),
        memo={"errors": objects} if is_candidate else {"errors": objects, "candidate": False},
    )


def _not_judged(why: str) -> ReflectionEvaluation:
    return replace(_verdict(None, valid=False, errors=[f"{NOT_JUDGED}{why}"]), confidence=0.0)


def _object(error: Any) -> dict[str, Any]:
    if not isinstance(error, Mapping):
        return {"message": str(error)}
    fields = dict(cast("Mapping[str, Any]", error))
    message = fields.get("message")
    # Templates show `error.message`, whatever key a model used.
    return fields | {"message": json.dumps(fields, ensure_ascii=False) if message is None else str(message)}
