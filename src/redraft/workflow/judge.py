"""reflection.evaluate, and the evaluators behind it: schema, llm and custom."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from redraft.core.chat import ChatReply, Message
from redraft.core.errors import ConfigError, OutputError, SandboxError
from redraft.evaluate.ask import ask
from redraft.text.condition import template
from redraft.text.fence import fenced
from redraft.text.json_reply import verdict_json_of
from redraft.text.schema import Schema, SchemaResult
from redraft.workflow.bench import Bench
from redraft.workflow.code import run_code
from redraft.workflow.made import FailedAttempt, Made
from redraft.workflow.params import checked
from redraft.workflow.spec import EvaluateParams, Evaluator
from redraft.workflow.verdict import evaluator_failed, shown_verdict, unjudged, verdict, verdict_said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.workflow.scope import Scope

FORM = (
    'Reply with one JSON object: {"valid": true or false, "score": a number from 0.0 to 1.0, '
    '"reason": "one sentence", "errors": ["what is wrong"], "suggestions": ["what to do"]}.'
)


async def evaluate_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Judge `data`; return `{success, valid, score, errors, suggestions}`.

    `success` is False where the data could not be judged; the score is then None, or 0 where code failed.
    """
    given = checked(EvaluateParams, params, "reflection.evaluate")
    data = scope.state.get("reflection_output") if given.data is None else scope.render(given.data)
    judge = Judge.of(given.evaluator(), bench)
    output = judge.candidate(data)
    evaluation = await judge(output, scope.adding({"reflection_output": output}))
    return Made(shown_verdict(evaluation), evaluation.usage)


def check_evaluator(evaluator: Evaluator) -> None:
    """Raise `ConfigError` for an evaluator that lacks what its type needs, or has what it can't use."""
    needed = {"schema": "schema", "llm": "prompt", "custom": "run"}[evaluator.type]
    has = {"schema": evaluator.schema_, "prompt": evaluator.prompt, "run": evaluator.run}
    if has[needed] is None:
        raise ConfigError(f"an evaluator of the type {evaluator.type!r} needs {needed!r}")
    for key, value in has.items():
        if key != needed and value is not None:
            raise ConfigError(f"{key!r} is not for an evaluator of the type {evaluator.type!r}")


@dataclass(slots=True)
class Judge:
    """Judge outputs as an evaluator of a file says. `found` is what its schema said of the last candidate."""

    evaluator: Evaluator
    bench: Bench
    schema: Schema | None
    found: SchemaResult | None = None

    @classmethod
    def of(cls, evaluator: Evaluator, bench: Bench) -> Judge:
        """Return the judge that an evaluator describes; raises `ConfigError` for one that can't be used."""
        check_evaluator(evaluator)
        schema = bench.schema(evaluator.schema_) if evaluator.type == "schema" else None
        return cls(evaluator, bench, schema)

    def candidate(self, value: Any) -> Any:
        """Return an output as it is judged and kept: for a schema, JSON read out of text, and coerced."""
        if self.schema is None:
            return value
        self.found = self.schema.check(value)
        return self.found.value

    async def __call__(self, output: Any, scope: Scope) -> ReflectionEvaluation:
        """Judge a candidate; one that code can't judge is not valid, one that a model can't has no score.

        Raises `ModelError` where the provider failed for good, and `ConfigError`.
        """
        if isinstance(output, FailedAttempt):
            return verdict(0.0, valid=False, errors=[output.message])
        if self.schema is not None:
            found = self.found
            # One out of the journal was not looked at yet. To `==`, 1 and True are the same, to a schema not.
            if found is None or repr(found.value) != repr(output):
                found = self.schema.check(output)
            errors = [problem.as_dict() for problem in found.errors]
            return verdict(
                found.score,
                valid=found.valid,
                errors=errors,
                suggestions=found.suggestions,
                candidate=not found.wrong_type,
            )
        return await (self._asked if self.evaluator.type == "llm" else self._run)(output, scope)

    async def _asked(self, output: Any, scope: Scope) -> ReflectionEvaluation:
        evaluator = self.evaluator
        source = str(evaluator.prompt)
        told = scope.text(source)
        if not template(source).mentions("state.reflection_output"):
            told = f"{told}\n\n{fenced(_text(output), 'output')}"
        examples = [
            message
            for example in evaluator.examples
            for message in (
                Message("user", _text(example.input)),
                Message("assistant", _text(example.output)),
            )
        ]
        messages = (Message("system", FORM), *examples, Message("user", told))

        def read(reply: ChatReply) -> tuple[ReflectionEvaluation | None, str]:
            try:
                return verdict_said(_object(reply.text), evaluator.threshold, evaluator.score_max), ""
            except OutputError as error:
                return None, str(error)

        answered = await ask(self.bench.model_for(scope.render(evaluator.model), scope), messages, None, read)
        judged = answered.value or unjudged(answered.problem)
        return replace(judged, usage=answered.usage)

    async def _run(self, output: Any, scope: Scope) -> ReflectionEvaluation:
        inside = scope.adding(
            {"reflection_output": output},
            output=output,
            reflection_output=output,
            reflection_errors=scope.state.get("reflection_errors", []),
            reflection_iteration=scope.state.get("reflection_iteration", 1),
        )
        try:
            made = await run_code(self.evaluator, inside, self.bench)
            return verdict_said(made.value, self.evaluator.threshold, self.evaluator.score_max)
        except (SandboxError, OutputError) as error:
            return evaluator_failed(error)


def _object(reply: str) -> dict[str, Any]:
    value = verdict_json_of(reply)
    if not isinstance(value, dict):
        raise OutputError("expected a JSON object with 'valid' or 'score'")
    return cast("dict[str, Any]", value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else template("{{ value | tojson }}").render({"value": value})
