"""Verdicts on single criteria, and the score of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.types import Issue, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redraft.types import QualityCriterion

PASSED = ReflectionEvaluation(1.0, satisfactory=True)
"""The criterion is met, and there is nothing else to say."""

NOT_APPLICABLE = ReflectionEvaluation(None, satisfactory=True)
"""There is nothing to judge, and nothing to object to: no score, yet satisfactory."""

SKIPPED = ReflectionEvaluation(None)
"""Nothing was asked: not judged, and no complaint about it."""


def failed(*issues: Issue) -> ReflectionEvaluation:
    """Return the verdict that a criterion is not met, for these reasons."""
    return ReflectionEvaluation(0.0, {}, issues=issues)


def unknown(criterion: QualityCriterion, why: str) -> ReflectionEvaluation:
    """Return the verdict that a criterion could not be judged."""
    issue = Issue(f"Not judged: {why}", criterion.name)
    return ReflectionEvaluation(None, issues=(issue,), confidence=0.0)


def applies(evaluation: ReflectionEvaluation) -> bool:
    """Return whether a criterion applied: it has a score, or complains that it has none."""
    return evaluation.overall_score is not None or not evaluation.satisfactory


def shortfall(criterion: QualityCriterion, score: float | None, reason: str = "") -> Issue:
    """Return the issue that a criterion missed its threshold, for when nothing more specific was said."""
    if score is None or score >= criterion.threshold:
        missed = f"{criterion.name} was refused by its own evaluator"
    else:
        missed = f"{criterion.name} scored {score:.2f}, needs {criterion.threshold:.2f}"
    return Issue(f"{missed}: {reason}" if reason else missed, criterion.name)


def weighted_mean(criteria: Iterable[QualityCriterion], scores: Mapping[str, float | None]) -> float | None:
    """Return the weighted mean of the known scores; None if no criterion with a weight has one."""
    known = [
        (criterion.weight, score)
        for criterion in criteria
        if criterion.weight and (score := scores.get(criterion.name)) is not None
    ]
    if not known:
        return None
    if len(known) == 1:
        return known[0][1]
    # Rounded, so that three scores of 0.7 reach a threshold of 0.7.
    return round(sum(weight * score for weight, score in known) / sum(weight for weight, _ in known), 12)
