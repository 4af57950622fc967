"""The critique as text: what a generator's `feedback` parameter receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.texts import as_text

if TYPE_CHECKING:
    from redraft.core.context import Attempt
    from redraft.core.evaluation import Issue, ReflectionEvaluation
    from redraft.core.version import ReflectionVersion

ASKED = "asked to mend: "
"""How an improvement begins that was only asked for: it names a problem, not a change."""
SHOWN_ISSUES = 5


def render_feedback(attempt: Attempt) -> str:
    """Render what an attempt should do better; empty for a first draft."""
    if attempt.evaluation is None:
        return ""
    parts = [render_critique(attempt.evaluation)]
    if attempt.failed is not None:
        parts.append(render_failure(attempt.failed))
    if attempt.mode == "fresh":
        parts.append("Start anew: an earlier attempt failed in these ways, and changing it led nowhere.")
    return "\n\n".join(part for part in parts if part)


def render_failure(failed: ReflectionVersion) -> str:
    """Name a change that made things worse: what it was, where that is known, and what it led to."""
    changes = [change for change in failed.improvements_applied if not change.startswith(ASKED)]
    what = "; ".join(changes) or f"the change that made version {failed.iteration}"
    issues = "\n".join(f"- {render_issue(issue)}" for issue in failed.evaluation.issues[:SHOWN_ISSUES])
    text = f"This was tried and made it worse, so do something else: {what}."
    return f"{text}\nIt led to:\n{issues}" if issues else text


def render_retry(prompt: str, attempt: Attempt) -> str:
    """Render a prompt again with the critique behind it, for a generator that takes nothing but a prompt."""
    feedback = render_feedback(attempt)
    if attempt.mode == "fresh":
        return f"{prompt}\n\n{feedback}"
    return f"{prompt}\n\nYour previous answer:\n{as_text(attempt.previous)}\n\n{feedback}"


def render_critique(evaluation: ReflectionEvaluation) -> str:
    """Render the issues and suggestions of an evaluation as two lists; empty ones are left out."""
    parts: list[str] = []
    if evaluation.issues:
        parts.append(
            "What is wrong:\n" + "\n".join(f"- {render_issue(issue)}" for issue in evaluation.issues)
        )
    if evaluation.suggestions:
        parts.append("What to do:\n" + "\n".join(f"- {text}" for text in evaluation.suggestions))
    if not parts and not evaluation.satisfactory:
        weak = ", ".join(f"{name} ({score:.2f})" for name, score in _lowest(evaluation))
        parts.append(f"It was not good enough. Lowest scores: {weak}." if weak else "It was not good enough.")
    return "\n\n".join(parts)


def render_issue(issue: Issue) -> str:
    """Render an issue with the place where it was found."""
    place = ", ".join(
        part
        for part in (issue.criterion or "", f"at {issue.path}" if issue.path else "", _line(issue))
        if part
    )
    return f"{issue.message} ({place})" if place else issue.message


def _line(issue: Issue) -> str:
    return f"line {issue.line}" if issue.line is not None else ""


def _lowest(evaluation: ReflectionEvaluation) -> list[tuple[str, float]]:
    judged = [(name, score) for name, score in evaluation.criteria_scores.items() if score is not None]
    return sorted(judged, key=lambda pair: pair[1])[:3]
