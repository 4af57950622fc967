"""Judge outputs outside the runs that made them: to grade them, or to judge them a second time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from redraft._codec import from_json
from redraft.loop.pattern import starting_draft
from redraft.loop.run import Verbs, run_and_store
from redraft.loop.verbs import judges_of
from redraft.types import QualityCriterion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.loop.journal import RunKey
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.record import Origin, RunRecord
    from redraft.loop.run import Judges
    from redraft.protocols import Step
    from redraft.types import Draft, Output, PlainTask, ReflectionResult

SECOND, STABILITY = "second judgement", "stability"
"""Names of runs that judge an output of another run again, for consistency and for stability."""


async def judge_alone(
    task: PlainTask,
    output: Output | Draft,
    pattern: ReflectionPattern,
    judges: Judges,
    step: Step,
    origin: Origin,
) -> ReflectionResult:
    """Judge an output, or a draft with the conversation that led to it, as a run without revisions."""
    verbs = Verbs(None, judges, _unchanged)
    return await run_and_store(pattern, task, verbs, step, starting_draft(output), origin)


async def _unchanged(output: Output, _evaluation: object, _run: object, /) -> Output:
    raise AssertionError(f"nothing is revised, but {output!r} was")


def criteria_of_judge(record: RunRecord) -> list[QualityCriterion]:
    """Criteria of a run that a model judges."""
    stored = cast("Sequence[Mapping[str, Any]]", record.options.get("criteria", ()))
    return [from_json(QualityCriterion, entry) for entry in stored if entry.get("evaluator", "llm") == "llm"]


async def judge_again(
    task: PlainTask,
    output: Output | Draft,
    criteria: Sequence[QualityCriterion],
    pattern: ReflectionPattern,
    key: RunKey,
    origin: Origin,
) -> ReflectionResult:
    """Judge an output of a stored run by `criteria` with the judge of a pattern.

    For a draft with its conversation, the judge also sees the results of tool calls. Evidence that criteria
    name is collected again: files are read and commands run as they are now. The pattern's budgets don't
    apply, because several judgements share them. Any error propagates.
    """
    pattern = replace(
        pattern,
        max_iterations=0,
        # Only the score matters; a threshold of 0 avoids a second judgement to confirm the verdict.
        quality_criteria=[replace(criterion, threshold=0.0) for criterion in criteria],
        quality_threshold=0.0,
        on_failure="raise",
        budget_tokens=None,
        budget_usd=None,
        budget_seconds=None,
        advisors=(),
        callbacks=None,
        until=None,
    )
    judges = judges_of(pattern, None, task.task_type)
    return await judge_alone(task, output, pattern, judges, key.step(), origin)
