"""Verdicts: what evaluators of a workflow say, as an evaluation, and as templates and code see it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from redraft.core.adapt import evaluation_of
from redraft.core.evaluation import Issue, ReflectionEvaluation


def verdict(
    score: float | None,
    *,
    valid: bool,
    errors: Sequence[Any],
    suggestions: Sequence[str] = (),
    candidate: bool = True,
) -> ReflectionEvaluation:
    """Return an evaluation; its memo keeps the errors as they were said, as objects with a `message`.

    What is no `candidate`, such as a text without JSON where an object is wanted, is never the best attempt.
    """
    objects = [_object(error) for error in errors]
    issues = tuple(Issue(error["message"], path=str(error.get("path") or "") or None) for error in objects)
    return ReflectionEvaluation(
        score,
        satisfactory=valid,
        issues=issues,
        suggestions=tuple(suggestions),
        memo={"errors": objects} if candidate else {"errors": objects, "candidate": False},
    )


def verdict_said(value: Any, threshold: float, score_max: float | None = None) -> ReflectionEvaluation:
    """Return the evaluation that code or a judge said: a bool, a number, or an object.

    An object has `valid` or `score`, and may have `reason`, `errors` and `suggestions`. `valid` decides;
    a score alone is valid from `threshold` on. Where `score_max` is declared, scores go up to it, not to 1.
    Raises `OutputError` for anything else.
    """
    errors: list[Any] = []
    if isinstance(value, Mapping):
        said = dict(cast("Mapping[str, Any]", value))
        given = said.pop("errors", None)
        errors = cast("list[Any]", given) if isinstance(given, list) else [] if not given else [given]
        value = said
    read = evaluation_of(value, threshold, score_max)
    if not errors:  # the reason of what is not valid
        errors = [issue.message for issue in read.issues]
    return verdict(read.overall_score, valid=read.satisfactory, errors=errors, suggestions=read.suggestions)


def unjudged(why: str) -> ReflectionEvaluation:
    """Return the evaluation of what could not be judged: no score, and not valid."""
    return replace(verdict(None, valid=False, errors=[f"Not judged: {why}"]), confidence=0.0)


def evaluator_failed(why: object) -> ReflectionEvaluation:
    """Return the evaluation of what the evaluator's code failed on: not valid, and nothing is known of it."""
    failed = verdict(0.0, valid=False, errors=[f"The evaluator failed: {why}"])
    return replace(failed, confidence=0.0)


def is_candidate(evaluation: ReflectionEvaluation) -> bool:
    """Say whether the output that was judged may be the best attempt."""
    return evaluation.memo is None or evaluation.memo.get("candidate", True)


def shown_verdict(evaluation: ReflectionEvaluation) -> dict[str, Any]:
    """Return an evaluation as the documented return value of `reflection.evaluate`.

    `success` says that the data could be judged, whatever the verdict.
    """
    return {
        "success": evaluation.confidence > 0,
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


def _object(error: Any) -> dict[str, Any]:
    if not isinstance(error, Mapping):
        return {"message": str(error)}
    said = dict(cast("Mapping[str, Any]", error))
    message = said.get("message")
    # A template that shows `error.message` must find one, whatever a model called it.
    return said | {"message": json.dumps(said, ensure_ascii=False) if message is None else str(message)}
