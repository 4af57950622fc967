"""What the evaluators of single criteria answer, where there is little to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.evaluation import Issue, ReflectionEvaluation

if TYPE_CHECKING:
    from redraft.core.criterion import QualityCriterion

PASSED = ReflectionEvaluation(1.0, satisfactory=True)
"""The criterion is met, and there is nothing else to say."""

DOES_NOT_APPLY = ReflectionEvaluation(None, satisfactory=True)
"""There is nothing to judge, and nothing to object: no score, and satisfactory all the same."""

SKIPPED = ReflectionEvaluation(None)
"""Nobody asked: not judged, and no complaint about it."""


def failed(*issues: Issue) -> ReflectionEvaluation:
    """Say that the criterion is not met, and why."""
    evaluation = ReflectionEvaluation(0.0, {})
    evaluation.issues = issues  # not as an argument: these need no looking at
    return evaluation


def unknown(criterion: QualityCriterion, why: str) -> ReflectionEvaluation:
    """Say that the criterion could not be judged, and why."""
    issue = Issue(f"Not judged: {why}", criterion.name)
    return ReflectionEvaluation(None, issues=(issue,), confidence=0.0)


def applies(evaluation: ReflectionEvaluation) -> bool:
    """Say whether a criterion's evaluation is one: without a score, it must at least complain."""
    return evaluation.overall_score is not None or not evaluation.satisfactory


def shortfall(criterion: QualityCriterion, score: float | None, reason: str = "") -> Issue:
    """Say that a criterion missed its threshold, where nothing more telling was said."""
    if score is None or score >= criterion.threshold:
        missed = f"{criterion.name} was refused by its own evaluator"
    else:
        missed = f"{criterion.name} scored {score:.2f}, needs {criterion.threshold:.2f}"
    return Issue(f"{missed}: {reason}" if reason else missed, criterion.name)
