"""Lessons as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.codec import to_json
from redraft.lessons.lesson_document import lesson_document

if TYPE_CHECKING:
    from redraft.cli.kept_lessons import KeptLesson
    from redraft.lessons.duties import Duty
    from redraft.lessons.query import Found


def kept_document(kept: KeptLesson) -> dict[str, Any]:
    """Describe a lesson with its file and its counters."""
    return {
        **lesson_document(kept.lesson),
        "archived": kept.archived,
        "file": kept.file,
        "counters": kept.counters,
    }


def duty_document(duty: Duty) -> dict[str, Any]:
    """Describe what is due of a run, and how that ended."""
    return {"run_id": duty.run_id, "agent": duty.agent, "kind": duty.kind, "outcome": to_json(duty.outcome)}


def found_document(found: Found) -> dict[str, Any]:
    """Describe a lesson that was found, and why."""
    return {"score": found.score, "reason": found.reason, "lesson": lesson_document(found.lesson)}
