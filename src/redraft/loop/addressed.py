"""Addressed: which points of a critique a later version has dealt with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.core.evaluation import Issue
from redraft.loop.stop import same_issue

if TYPE_CHECKING:
    from redraft.core.evaluation import ReflectionEvaluation


@dataclass(frozen=True, slots=True)
class Point:
    """Hold an issue of the older version; `addressed` where the newer one does not have it any more.

    None where the newer version was not judged, so that nobody knows.
    """

    issue: Issue
    addressed: bool | None


@dataclass(frozen=True, slots=True)
class Critique:
    """Hold the issues of the older of two versions, and those that only the newer one has."""

    points: tuple[Point, ...]
    new: tuple[Issue, ...]


def addressed(older: ReflectionEvaluation, newer: ReflectionEvaluation) -> Critique:
    """Say of each issue of `older` whether it was addressed: no issue of `newer` is the same one."""
    judged = newer.overall_score is not None
    points = tuple(
        Point(issue, not _is_among(issue, newer.issues) if judged else None) for issue in older.issues
    )
    return Critique(points, tuple(issue for issue in newer.issues if not _is_among(issue, older.issues)))


def _is_among(issue: Issue, others: tuple[Issue, ...]) -> bool:
    return any(same_issue(issue, other) for other in others)
