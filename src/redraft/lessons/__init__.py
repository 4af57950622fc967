"""Lessons: what agents learned from failures, stored as plain files you can read and edit."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.lessons.lesson import CorrectedAnswer as CorrectedAnswer
    from redraft.lessons.lesson import Decision as Decision
    from redraft.lessons.lesson import Fact as Fact
    from redraft.lessons.lesson import Failure as Failure
    from redraft.lessons.lesson import Lesson as Lesson
    from redraft.lessons.lesson import Partial as Partial
    from redraft.lessons.lesson import Procedure as Procedure
    from redraft.lessons.lessons import Lessons as Lessons
    from redraft.lessons.library import LessonLibrary as LessonLibrary
    from redraft.lessons.outcome import Outcome as Outcome
    from redraft.lessons.retry import retried_with_lessons as retried_with_lessons
    from redraft.lessons.retry import retry_with_lessons as retry_with_lessons

_PLACES = {
    "lesson": ("CorrectedAnswer", "Decision", "Fact", "Failure", "Lesson", "Partial", "Procedure"),
    "lessons": ("Lessons",),
    "library": ("LessonLibrary",),
    "outcome": ("Outcome",),
    "retry": ("retried_with_lessons", "retry_with_lessons"),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
