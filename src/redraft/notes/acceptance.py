"""Acceptance: what guardrails and a review say of inputs and outputs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from redraft.core.adapt import evaluation_of
from redraft.core.calls import awaited
from redraft.core.errors import ConfigError, OutputError
from redraft.core.evaluation import Issue, ReflectionEvaluation
from redraft.core.feedback import render_issue
from redraft.core.texts import copy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redraft.core.version import Output
    from redraft.notes.task import Task

ACCEPTED = ReflectionEvaluation(None, satisfactory=True)


async def check_inputs(task: Task, inputs: Mapping[str, Any]) -> None:
    """Ask the input guardrails of a task in their order; raises `ConfigError` where one refuses."""
    for guardrail in task.input_guardrails:
        verdict = await _asked(task, guardrail, dict(inputs))
        if not verdict.satisfactory:
            raise ConfigError(f"The task {task.title!r} refuses its inputs: {why(verdict)}")


async def accept(task: Task, output: Output, threshold: float) -> ReflectionEvaluation:
    """Ask all guardrails of a task, and if they let an output pass its review; return what was said.

    A number counts as passed from `threshold` on. The evaluation of a refused output is not satisfactory,
    has not passed its gates, and names all that was found. Raises what a guardrail or the review raises, and
    `OutputError` for an answer that is no verdict.
    """
    refusals: list[ReflectionEvaluation] = []
    for guardrail in task.guardrails:
        verdict = await _asked(task, guardrail, copy_of(output), threshold)
        refusals += [] if verdict.satisfactory else [verdict]
    if not refusals and task.review is not None:
        verdict = await _asked(task, task.review, copy_of(output), threshold)
        refusals += [] if verdict.satisfactory else [verdict]
    if not refusals:
        return ACCEPTED
    return ReflectionEvaluation(
        min(verdict.overall_score or 0.0 for verdict in refusals),
        issues=tuple(issue for verdict in refusals for issue in verdict.issues),
        suggestions=tuple(text for verdict in refusals for text in verdict.suggestions),
        gates_passed=False,
    )


def why(refusal: ReflectionEvaluation) -> str:
    """Say in one line why something was refused."""
    return "; ".join(render_issue(issue) for issue in refusal.issues)


async def _asked(
    task: Task, guardrail: Callable[[Any], Any], value: Any, threshold: float | None = None
) -> ReflectionEvaluation:
    answer = await awaited(guardrail)(value)
    if answer is None or answer is True:
        return ACCEPTED
    judge = evaluation_of if threshold is None else partial(evaluation_of, threshold=threshold)
    try:
        verdict = judge(answer)
    except OutputError as error:
        raise OutputError(
            f"{_name(guardrail)} of the task {task.title!r} can't be understood: {error}"
        ) from error
    if verdict.satisfactory or verdict.issues:
        return verdict
    return replace(verdict, issues=(Issue(f"{_name(guardrail)} refused it"),))


def _name(guardrail: Callable[[Any], Any]) -> str:
    name: object = getattr(guardrail, "__name__", None)
    return str(name) if name and name != "<lambda>" else "a guardrail or the review"
