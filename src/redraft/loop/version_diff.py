"""Version diffs: what changed between two versions, and which issues that resolved."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text
from redraft.text.diff import ABSENT, FieldChange, Op, field_diff, word_diff
from redraft.text.json import load_json
from redraft.types import Issue, ReflectionVersion, same_issue

if TYPE_CHECKING:
    from redraft.types import Output, ReflectionEvaluation


# Models like to wrap JSON in Markdown, even when asked for JSON only.
_FENCED = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)


def version_diff(older: ReflectionVersion, newer: ReflectionVersion) -> VersionDiff:
    """Compare two versions of a run."""
    fields = field_changes(older.output, newer.output)
    words = () if fields is not None else word_diff(as_text(older.output), as_text(newer.output))
    return VersionDiff(older, newer, fields, tuple(words), addressed(older.evaluation, newer.evaluation))


def field_changes(older: Output, newer: Output) -> tuple[FieldChange, ...] | None:
    """The fields that differ between two outputs; None if either is not JSON, or only the layout differs."""
    before, after = _structure(older), _structure(newer)
    if before is None or after is None:
        return None
    fields = tuple(field_diff(before, after))
    both_are_text = isinstance(older, str) and isinstance(newer, str)
    return None if not fields and both_are_text and older != newer else fields


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """What changed between two versions, and which issues of the older version were addressed."""

    older: ReflectionVersion
    newer: ReflectionVersion
    fields: tuple[FieldChange, ...] | None
    """The changed fields, if both outputs are JSON, structured or as text; otherwise None.

    None for texts of the same JSON that differ in their layout, too.
    """
    words: tuple[tuple[Op, str], ...]
    """For other outputs, the unchanged (`=`), removed (`-`) and added (`+`) pieces."""
    critique: Critique

    @property
    def is_same(self) -> bool:
        """Whether the outputs are the same."""
        return not self.fields if self.fields is not None else all(op == "=" for op, _ in self.words)


@dataclass(frozen=True, slots=True)
class Critique:
    """The issues of the older of two versions, and the new issues of the newer version."""

    points: tuple[Point, ...]
    new: tuple[Issue, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """An issue of the older version."""

    issue: Issue
    addressed: bool | None
    """Whether the newer version no longer has it; None if its criterion did not judge the newer version.

    Another message of the same check does not address its only issue, unless the score has risen.
    """


def addressed(older: ReflectionEvaluation, newer: ReflectionEvaluation) -> Critique:
    """Match the issues of two evaluations: an issue of `older` is addressed if `newer` does not have it."""
    points = tuple(
        Point(issue, _is_gone(issue, older, newer) if _is_judged(issue, newer) else None)
        for issue in older.issues
    )
    return Critique(points, tuple(issue for issue in newer.issues if not _is_among(issue, older.issues)))


def _is_judged(issue: Issue, evaluation: ReflectionEvaluation) -> bool:
    """Whether an evaluation shows if an issue is still there."""
    if evaluation.overall_score is None or issue.criterion in evaluation.unjudged:
        return False
    # A judge's issue may name no criterion; after a failed gate, for one, the judge was not asked.
    return issue.number is None or issue.criterion is not None or not evaluation.unjudged


def _is_gone(issue: Issue, older: ReflectionEvaluation, newer: ReflectionEvaluation) -> bool:
    if _is_among(issue, newer.issues):
        return False
    name = issue.criterion
    before, after = older.criteria_scores.get(name or ""), newer.criteria_scores.get(name or "")
    if before is None or after is None or after > before:
        return True
    issues = [
        [other for other in evaluation.issues if other.criterion == name] for evaluation in (older, newer)
    ]
    return any(len(same) != 1 or same[0].number is not None or same[0].path for same in issues)


def _is_among(issue: Issue, others: tuple[Issue, ...]) -> bool:
    return any(same_issue(issue, other) for other in others)


def field_text(value: Any) -> str:
    """Render the value of a field as JSON; a missing value as `(absent)`."""
    return "(absent)" if value is ABSENT else json.dumps(value, ensure_ascii=False)


def diff_document(diff: VersionDiff) -> dict[str, Any]:
    """A diff as plain data; a field missing on one side has no `old` or no `new`."""
    changes: dict[str, Any] = (
        {"words": [{"op": op, "text": text} for op, text in diff.words]}
        if diff.fields is None
        else {"fields": [_field_document(change) for change in diff.fields]}
    )
    return {
        "from": {"version": _number(diff.older), "score": diff.older.evaluation.overall_score},
        "to": {"version": _number(diff.newer), "score": diff.newer.evaluation.overall_score},
        **changes,
        "points": diff.critique.points,
        "new_issues": diff.critique.new,
    }


def _number(version: ReflectionVersion) -> int | str:
    """The number of a version; a rejected candidate has a name such as `1.3`."""
    return version.iteration if version.candidate is None else version.name


def _field_document(change: FieldChange) -> dict[str, Any]:
    sides = {"old": change.old, "new": change.new}
    return {"path": change.path, **{side: value for side, value in sides.items() if value is not ABSENT}}


def _structure(output: Output) -> Any:
    """Parse an output that is a JSON object or list, also as text or in a code fence; None for any other."""
    if not isinstance(output, str):
        value: Any = output
    else:
        try:
            value = load_json(fenced[1] if (fenced := _FENCED.fullmatch(output.strip())) else output)
        except ValueError:
            return None
    return value if isinstance(value, dict | list) else None  # pyright: ignore[reportUnknownVariableType] (any JSON)
