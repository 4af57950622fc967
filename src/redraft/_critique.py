"""Render the critique of an output for its next revision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft._prompts import mistake_text
from redraft._texts import as_text, is_short
from redraft.types import in_one_line, in_prose, indented

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.protocols import Attempt
    from redraft.types import Issue, Output, ReflectionEvaluation, ReflectionVersion

ASKED = "asked to mend: "
"""Prefix of an improvement that names a problem to fix, not a change that was made."""
SHOWN_ISSUES = 5
STRONG = 0.7
"""The score (0..1) from which a criterion counts as a strength; it is the threshold of most criteria."""


def render_feedback(attempt: Attempt) -> str:
    """Render the critique for an attempt; empty for a first draft."""
    if attempt.evaluation is None:
        return ""
    parts = [render_critique(attempt.evaluation, attempt.previous)]
    if attempt.failed is not None:
        parts.append(render_failure(attempt.failed, attempt.evaluation.issues))
    if attempt.mode == "fresh":
        parts.append("Start anew: an earlier attempt failed in these ways, and changing it led nowhere.")
    elif attempt.temperature is not None:
        parts.append("The last revision changed nothing.")
    parts.append(mistake_text(attempt.advice))
    return "\n\n".join(part for part in parts if part)


def render_failure(failed: ReflectionVersion, earlier: Sequence[Issue] = ()) -> str:
    """Render a change that made things worse and the issues it led to, without `earlier` issues."""
    changes = [change for change in failed.improvements_applied if not change.startswith(ASKED)]
    new = [issue for issue in failed.evaluation.issues if issue not in earlier]
    issues = "\n".join(issue_item(issue) for issue in new[:SHOWN_ISSUES])
    text = "An earlier attempt to fix this made it worse, so do something else."
    if changes:
        text = f"{text} It {'; '.join(changes)}."
    return f"{text} It led to:\n{issues}" if issues else text


def render_retry(prompt: str, attempt: Attempt) -> str:
    """Append the previous answer and its critique to a prompt."""
    feedback = render_feedback(attempt)
    if attempt.mode == "fresh":
        return f"{prompt}\n\n{feedback}"
    return f"{prompt}\n\nYour previous answer:\n{as_text(attempt.previous)}\n\n{feedback}"


def render_critique(evaluation: ReflectionEvaluation, output: Output = "") -> str:
    """Render the evaluation of an output as lists of issues, suggestions and strengths, without empty lists.

    Strengths are named only for a long output, where there is much to lose: a small model that reads the
    strengths of a short output tends to return it unchanged.
    """
    parts: list[str] = []
    if evaluation.issues:
        parts.append("What is wrong:\n" + "\n".join(map(issue_item, evaluation.issues)))
    if evaluation.suggestions:
        parts.append("What to do:\n" + "\n".join(f"- {indented(text)}" for text in evaluation.suggestions))
    if parts and not is_short(output) and (strengths := _strengths(evaluation)):
        parts.append("What is right, and must stay right:\n" + "\n".join(f"- {name}" for name in strengths))
    if not parts and not evaluation.satisfactory:
        weak = ", ".join(f"{name} ({score:.2f})" for name, score in _lowest(evaluation))
        parts.append(f"It was not good enough. Lowest scores: {weak}." if weak else "It was not good enough.")
    return "\n\n".join(parts)


def issue_item(issue: Issue) -> str:
    """Render an issue as an item of a list, on one line; its line breaks are escaped."""
    return f"- {in_one_line(render_issue(issue))}"


def render_issue(issue: Issue) -> str:
    """Render an issue with its place."""
    criterion = issue.criterion or ""
    if issue.startswith((criterion, in_prose(criterion))):
        criterion = ""
    path = f"at {issue.path}" if issue.path and not issue.startswith(f"{issue.path}: ") else ""
    line = "" if issue.line is None else f"line {issue.line}"
    place = ", ".join(part for part in (criterion, path, line) if part)
    return f"{issue.message} ({place})" if place else issue.message


def _strengths(evaluation: ReflectionEvaluation) -> list[str]:
    """The criteria that are met, without those that have issues."""
    named = {issue.criterion for issue in evaluation.issues}
    return [
        name
        for name, score in evaluation.criteria_scores.items()
        if score is not None and score >= STRONG and name not in named
    ]


def _lowest(evaluation: ReflectionEvaluation) -> list[tuple[str, float]]:
    """The lowest scores, without criteria that are met."""
    unmet = evaluation.unmet
    judged = [
        (name, score)
        for name, score in evaluation.criteria_scores.items()
        if score is not None and (unmet is None or name in unmet)
    ]
    return sorted(judged, key=lambda pair: pair[1])[:3]
