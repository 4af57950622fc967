"""reflection.evaluate, and the evaluators behind it: schema, llm and custom."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft.core.adapt import evaluation_of
from redraft.core.chat import ChatReply, Message
from redraft.core.codec import to_json
from redraft.core.errors import ConfigError, OutputError, SandboxError
from redraft.core.evaluation import Issue, ReflectionEvaluation
from redraft.evaluate.ask import ask
from redraft.text.fence import fenced
from redraft.text.json_reply import json_of
from redraft.text.schema import Schema
from redraft.workflow.code import run_code
from redraft.workflow.made import FailedAttempt, Made
from redraft.workflow.params import checked
from redraft.workflow.scope import template
from redraft.workflow.spec import EvaluateParams, Evaluator

if TYPE_CHECKING:
    from redraft.workflow.bench import Bench
    from redraft.workflow.scope import Scope

FORM = (
    'Reply with one JSON object: {"valid": true or false, "score": a number from 0.0 to 1.0, '
    '"reason": "one sentence", "errors": ["what is wrong"], "suggestions": ["what to do"]}.'
)


async def evaluate_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Judge `data`; return `{valid, score, errors, suggestions}`, score None where it could not be judged."""
    given = checked(EvaluateParams, params, "reflection.evaluate")
    data = scope.state.get("reflection_output") if given.data is None else scope.render(given.data)
    evaluator = given.evaluator()
    check_evaluator(evaluator)
    output = candidate(evaluator, data, bench)
    evaluation = await judge(evaluator, output, scope.adding({"reflection_output": output}), bench)
    return Made(verdict_of(evaluation), evaluation.usage)


def check_evaluator(evaluator: Evaluator) -> None:
    """Raise `ConfigError` for an evaluator that lacks what its type needs, or has what it can't use."""
    needed = {"schema": "schema", "llm": "prompt", "custom": "run"}[evaluator.type]
    has = {"schema": evaluator.schema_, "prompt": evaluator.prompt, "run": evaluator.run}
    if has[needed] is None:
        raise ConfigError(f"an evaluator of the type {evaluator.type!r} needs {needed!r}")
    for key, value in has.items():
        if key != needed and value is not None:
            raise ConfigError(f"{key!r} is not for an evaluator of the type {evaluator.type!r}")


def candidate(evaluator: Evaluator, value: Any, bench: Bench) -> Any:
    """Return an output as it is judged and kept: for a schema, JSON read out of text, and coerced."""
    if evaluator.type != "schema" or isinstance(value, FailedAttempt):
        return value
    return schema_of(evaluator, bench).check(value).value


def schema_of(evaluator: Evaluator, bench: Bench) -> Schema:
    """Return the compiled schema of an evaluator; raises `ConfigError` for one that can't be used."""
    return _compiled(json.dumps(evaluator.schema_), bench.folder)


@lru_cache(maxsize=256)
def _compiled(schema: str, folder: str) -> Schema:
    return Schema(json.loads(schema), Path(folder) if folder else None)


async def judge(evaluator: Evaluator, output: Any, scope: Scope, bench: Bench) -> ReflectionEvaluation:
    """Judge a candidate; its errors, as they are shown to templates, are the evaluation's memo."""
    if isinstance(output, FailedAttempt):
        return _evaluation(0.0, valid=False, errors=[{"message": output.message}])
    if evaluator.type == "schema":
        found = schema_of(evaluator, bench).check(output)
        errors = [problem.as_dict() for problem in found.errors]
        return _evaluation(found.score, valid=found.valid, errors=errors, suggestions=found.suggestions)
    if evaluator.type == "llm":
        return await _asked(evaluator, output, scope, bench)
    return await _run(evaluator, output, scope, bench)


async def _asked(evaluator: Evaluator, output: Any, scope: Scope, bench: Bench) -> ReflectionEvaluation:
    source = str(evaluator.prompt)
    told = scope.text(source)
    if not template(source).mentions("state.reflection_output"):
        told = f"{told}\n\n{fenced(_text(output), 'output')}"
    examples = [
        message
        for example in evaluator.examples
        for message in (Message("user", _text(example.input)), Message("assistant", _text(example.output)))
    ]
    messages = (Message("system", FORM), *examples, Message("user", told))

    def read(reply: ChatReply) -> tuple[ReflectionEvaluation | None, str]:
        try:
            return evaluation_of(_strict(json_of(reply.text)), evaluator.threshold), ""
        except OutputError as error:
            return None, str(error)

    answered = await ask(bench.model_for(evaluator.model, scope), messages, None, read)
    if answered.value is None:
        message = f"Not judged: {answered.problem}"
        unjudged = _evaluation(None, valid=False, errors=[{"message": message}])
        return replace(unjudged, usage=answered.usage, confidence=0.0)
    return replace(_with_memo(answered.value), usage=answered.usage)


def _strict(value: Any) -> Any:
    given = cast("dict[str, Any]", value if isinstance(value, dict) else {})
    if not {"valid", "score"} & set(given):
        raise OutputError("expected a JSON object with 'valid' or 'score'")
    return given


async def _run(evaluator: Evaluator, output: Any, scope: Scope, bench: Bench) -> ReflectionEvaluation:
    names = {"output": output, "reflection_output": output}
    inside = scope.adding(
        {"reflection_output": output},
        **names,
        reflection_errors=scope.state.get("reflection_errors", []),
        reflection_iteration=scope.state.get("reflection_iteration", 1),
    )
    try:
        made = await run_code(evaluator.language, str(evaluator.run), evaluator.sandbox, inside, bench)
        value = made.value
        if isinstance(value, Mapping):
            return _with_memo(evaluation_of(value, evaluator.threshold), cast("Mapping[str, Any]", value))
        return _with_memo(evaluation_of(value, evaluator.threshold))
    except (SandboxError, OutputError) as error:
        return _evaluation(0.0, valid=False, errors=[{"message": f"The evaluator failed: {error}"}])


def _evaluation(
    score: float | None,
    *,
    valid: bool,
    errors: list[dict[str, Any]],
    suggestions: Sequence[str] = (),
) -> ReflectionEvaluation:
    issues = tuple(Issue(str(error["message"]), path=error.get("path") or None) for error in errors)
    return ReflectionEvaluation(
        score,
        satisfactory=valid,
        issues=issues,
        suggestions=tuple(suggestions),
        memo={"errors": errors},
    )


def _with_memo(
    evaluation: ReflectionEvaluation, said: Mapping[str, Any] | None = None
) -> ReflectionEvaluation:
    """Keep the errors as the evaluator said them; those that are plain texts become objects."""
    given: list[Any] = list((said or {}).get("errors") or map(to_json, evaluation.issues))
    errors: list[Any] = [error if isinstance(error, dict) else {"message": str(error)} for error in given]
    return replace(evaluation, memo={"errors": errors})


def verdict_of(evaluation: ReflectionEvaluation) -> dict[str, Any]:
    """Return an evaluation as the documented return value of `reflection.evaluate`."""
    return {
        "valid": evaluation.satisfactory,
        "score": evaluation.overall_score,
        "errors": errors_of(evaluation),
        "suggestions": list(evaluation.suggestions),
    }


def errors_of(evaluation: ReflectionEvaluation) -> list[dict[str, Any]]:
    """Return what is wrong, as templates and code see it."""
    if evaluation.memo is None:  # one that the loop itself made, of a draft that was not judged
        return [{"message": issue.message} for issue in evaluation.issues]
    return list(evaluation.memo["errors"])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else template("{{ value | tojson }}").render({"value": value})
