"""Verdicts on single criteria, and how they merge into one evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.types import NOTHING_USED, Issue, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redraft.types import QualityCriterion

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


def merge(
    criteria: Sequence[QualityCriterion],
    threshold: float,
    found: Mapping[str, ReflectionEvaluation],
    judged: ReflectionEvaluation | None,
    *,
    gates_passed: bool | None = True,
) -> ReflectionEvaluation:
    """Merge the evaluations of single criteria and the judge's one of all its criteria.

    A criterion that does not apply is left out; one that nobody could judge is None. A criterion is met when
    its score reaches its threshold, unless its own evaluator says that it is not; with a threshold of 0 it is
    wished for, and never required. The judge's spread counts as much as its criteria weigh.
    """
    scores: dict[str, float | None] = {}
    unmet: list[QualityCriterion] = []
    all_met = True
    for criterion in criteria:
        evaluation = found.get(criterion.name)
        if evaluation is None:
            score, agreed = judged.criteria_scores.get(criterion.name) if judged else None, True
        elif applies(evaluation):
            score, agreed = evaluation.overall_score, evaluation.satisfactory
        else:
            continue
        scores[criterion.name] = score
        if score is None:
            all_met = False
        elif score < criterion.threshold or not (agreed or criterion.threshold == 0):
            unmet.append(criterion)
    overall = weighted_mean(criteria, scores)
    parts = (*found.values(), judged) if judged else found.values()
    said: list[Issue] = []
    suggestions: list[str] = []
    usage = NOTHING_USED
    confidence = 1.0
    for part in parts:
        said += part.issues
        suggestions += part.suggestions
        usage += part.usage
        confidence = min(confidence, part.confidence)
    issues = unique_issues(said)
    complaining = {issue.criterion for issue in issues} if unmet else ()
    for criterion in unmet:
        if criterion.name not in complaining:
            issues += (shortfall(criterion, scores[criterion.name]),)
    merged = ReflectionEvaluation(
        overall,
        scores,
        all_met and not unmet and overall is not None and overall >= threshold,
        (),
        tuple(dict.fromkeys(suggestions)) if suggestions else (),
        confidence,
        _spread(criteria, scores, judged) if judged else 0.0,
        gates_passed,
        usage,
    )
    merged.issues = issues  # not as an argument: these need no looking at
    return merged


def weighted_mean(criteria: Iterable[QualityCriterion], scores: Mapping[str, float | None]) -> float | None:
    """Return the mean of the known scores by weight; None where nothing that counts is known."""
    known = [
        (criterion.weight, score)
        for criterion in criteria
        if criterion.weight and (score := scores.get(criterion.name)) is not None
    ]
    if len(known) < 2:  # noqa: PLR2004 (one alone is the mean)
        return known[0][1] if known else None
    # Rounded, so that three scores of 0.7 reach a threshold of 0.7.
    return round(sum(weight * score for weight, score in known) / sum(weight for weight, _ in known), 12)


def unique_issues(issues: Sequence[Issue]) -> tuple[Issue, ...]:
    """Leave out issues that say the same of the same place, but for case and spacing."""
    if len(issues) < 2:  # noqa: PLR2004 (one alone is unique)
        return tuple(issues)
    kept: dict[tuple[object, ...], Issue] = {}
    for issue in issues:
        said = " ".join(issue.message.casefold().split()).rstrip(".")
        kept.setdefault((said, issue.criterion, issue.path, issue.line), issue)
    return tuple(kept.values())


def _spread(
    criteria: Sequence[QualityCriterion],
    scores: Mapping[str, float | None],
    judged: ReflectionEvaluation,
) -> float:
    if not judged.spread:
        return 0.0
    known = [criterion for criterion in criteria if scores.get(criterion.name) is not None]
    total = sum(criterion.weight for criterion in known)
    by_judge = sum(c.weight for c in known if c.name in judged.criteria_scores)
    return judged.spread * by_judge / total if total else 0.0
