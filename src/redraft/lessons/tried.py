"""Attempts at a task: how each ended, what was learnt from it, and how the next one is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft.core.evaluation import Issue, ReflectionEvaluation
from redraft.core.feedback import render_critique
from redraft.core.result import ReflectionResult
from redraft.core.texts import as_text
from redraft.lessons.content import Content, headings_of, is_empty
from redraft.lessons.ended import outcome_of, score_of
from redraft.lessons.lesson import Lesson
from redraft.lessons.outcome import Outcome
from redraft.text.fence import fenced
from redraft.text.middle import without_middle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.task import Task

_MOST_FIELD = 800
_MOST_SHOWN = 400
"""Characters of what is said of an attempt besides its lesson: its error, its output."""
_OF_THE_RUN = "what_happened"
_BEFORE = (
    "This task was tried {times} before, and failed. Do not do again what failed, and make use of what was "
    "learnt from it."
)


@dataclass(frozen=True, slots=True)
class Tried:
    """Tell how one attempt at a task ended: with a value and what is said of it, or with an exception.

    `lesson` is what was learnt from one that failed, None where nothing could be.
    """

    value: Any = None
    verdict: ReflectionEvaluation | None = None
    error: Exception | None = None
    lesson: Lesson | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it was good enough."""
        return self.verdict is not None and self.verdict.satisfactory

    def is_better_than(self, earlier: Tried) -> bool:
        """Say whether it did better than one before: it succeeded, or scores more, beyond the noise."""
        if self.succeeded or self.verdict is None or earlier.verdict is None:
            return self.succeeded
        score, before = self.verdict.overall_score, earlier.verdict.overall_score
        noise = max(self.verdict.spread, earlier.verdict.spread)
        return score is not None and before is not None and score - before > noise

    def outcome(self, task: Task) -> Outcome:
        """Return how it ended, to be reflected on."""
        ended = outcome_of(self.value) if isinstance(self.value, ReflectionResult) else None
        if ended is not None:
            status = "failed" if ended.status == "success" else ended.status  # as `succeeded` says
            return replace(ended, status=status, error=ended.error or self.why)
        output = "" if self.value is None else as_text(self.value)
        return Outcome(task, "failed", output=output, error=self.why, tools=task.tools)

    @property
    def why(self) -> str:
        """What made it a failure, in the words of the program."""
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return "" if self.verdict is None else render_critique(self.verdict)


def verdict_of(value: Any) -> ReflectionEvaluation:
    """Say whether what a function returned is good enough where nobody else says it.

    A run of the loop knows; any other value is, since nothing was raised.
    """
    if not isinstance(value, ReflectionResult):
        return ReflectionEvaluation(1.0, satisfactory=True)
    issues = value.history.best_version.evaluation.issues
    if value.error is not None:
        issues = (*issues, Issue(f"{type(value.error).__name__}: {value.error}"))
    return ReflectionEvaluation(score_of(value), satisfactory=value.success, issues=issues)


def told(attempts: Sequence[Tried]) -> str:
    """Render what was tried and learnt, for the next attempt; empty for the first.

    What was learnt more than once is told once.
    """
    if not attempts:
        return ""
    said = "\n\n".join(_told(attempts, at) for at in range(len(attempts)))
    times = "once" if len(attempts) == 1 else f"{len(attempts)} times"
    return f"{_BEFORE.format(times=times)}\n{fenced(said, 'record of earlier attempts')}"


def _told(attempts: Sequence[Tried], at: int) -> str:
    attempt = attempts[at]
    lines = [f"Attempt {at + 1} failed. {_short(attempt.why)}".rstrip()]
    if attempt.value is not None:
        output = attempt.value.best_output if isinstance(attempt.value, ReflectionResult) else attempt.value
        lines.append(f"It gave: {_short(as_text(output))}")
    if attempt.lesson is not None:
        contents = [one.lesson.content if one.lesson else None for one in attempts]
        first = contents.index(attempt.lesson.content)
        again = f"It taught the same as attempt {first + 1}."
        lines += _learnt(attempt.lesson.content) if first == at else [again]
    return "\n".join(lines)


def _learnt(content: Content) -> list[str]:
    lines: list[str] = []
    for name, heading in headings_of(type(content)).items():
        said = getattr(content, name)
        if name != _OF_THE_RUN and not is_empty(said):
            asked = heading if heading.endswith("?") else f"{heading}:"
            lines.append(f"{asked} {without_middle(said, _MOST_FIELD)}")
    return lines


def _short(text: str) -> str:
    return without_middle(text, _MOST_SHOWN)
