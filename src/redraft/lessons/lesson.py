"""Lesson: one thing learned, in words, with where it comes from and whether it may be used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal

from redraft.lessons.content import Content, LessonKind

Status = Literal["active", "quarantined", "retired", "superseded"]
STATUSES: tuple[Status, ...] = ("active", "quarantined", "retired", "superseded")

CONFIDENCE = 0.7
"""How sure a lesson is of which nothing else is said."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Hold one lesson as its file has it.

    `id` is `<agent>/<file name without .md>`, empty until it is filed; `summary` the task in a few words.
    `task`, `task_type`, `tools` and `error` are what it is recalled by. `confidence` is in 0..1. Only
    `active` ones are put before a model: a `quarantined` one was drawn from text that nobody vouches for and
    waits for a person, or for an attempt that did better with it; a `superseded` one names its successor in
    `superseded_by`; `why` says what retired or hid it. `source` is the run that taught it. Reflexion
    Protocol, sections 3 and 4.
    """

    content: Content
    agent: str
    day: date
    summary: str
    task: str = ""
    task_type: str = ""
    tools: tuple[str, ...] = ()
    error: str = ""
    confidence: float = CONFIDENCE
    status: Status = "active"
    why: str = ""
    superseded_by: str = ""
    source: str = ""
    id: str = ""

    @property
    def kind(self) -> LessonKind:
        """What sort of lesson it is."""
        return self.content.kind
