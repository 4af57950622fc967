"""A lesson as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.codec import to_json

if TYPE_CHECKING:
    from redraft.lessons.lesson import Lesson


def lesson_document(lesson: Lesson) -> dict[str, Any]:
    """Describe a lesson: its kind, its fields, and what is in front of them in its file."""
    known = to_json(lesson)
    return {"id": known.pop("id"), "kind": lesson.kind, **known, "day": str(lesson.day)}
