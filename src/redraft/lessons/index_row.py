"""IndexRow: what the index holds of a lesson, after it went through the redactor."""

from __future__ import annotations

import json
from dataclasses import fields
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from redraft.lessons.fulltext import searchable
from redraft.lessons.trust import refusal_of
from redraft.text.invisible import without_invisible

if TYPE_CHECKING:
    from redraft.lessons.lesson import Lesson
    from redraft.redact.redactor import Redactor

BARRED = "barred"
"""The status of an active lesson that says what none may: nobody is told it."""
MEANING = 1_000
"""Characters of a lesson that are embedded: about what a small model reads."""


class IndexRow(NamedTuple):
    """Hold what a lesson is found by.

    `said` is what its fields say, `searched` all its words, `meaning` what is embedded: the task, the error,
    and what it says, as far as there is room; `digest` stands for it. `length` counts the words. `task_type`
    and `tools` (a JSON list) are as they are compared.
    """

    kind: str
    status: str
    day: int
    task_type: str
    tools: str
    length: int
    said: str
    searched: str
    meaning: str
    digest: bytes


def row_of(lesson: Lesson, redactor: Redactor) -> IndexRow:
    """Return what the index is to hold of a lesson, without what must not be written down."""
    said = [str(getattr(lesson.content, one.name)) for one in fields(lesson.content)]
    texts = [lesson.task, lesson.summary, lesson.error, lesson.task_type, *lesson.tools, *said]
    # Most are clean: one look at all the texts together is quicker than one at each.
    if not redactor.is_clean("\n".join(texts)):
        texts = [redactor.redact(text).text for text in texts]
        if not redactor.is_clean("\n".join(texts)):  # what only shows when they are side by side
            texts = [redactor.redact("\n".join(texts)).text, *[""] * (len(texts) - 1)]
    task, summary, error, task_type, *rest = texts
    tools, said = rest[: len(lesson.tools)], rest[len(lesson.tools) :]
    searched = "\n".join(filter(None, texts))
    meaning = "\n".join(filter(None, [task or summary, error, *said]))[:MEANING]
    is_barred = lesson.status == "active" and refusal_of(lesson)
    return IndexRow(
        kind=lesson.kind,
        status=BARRED if is_barred else lesson.status,
        day=lesson.day.toordinal(),
        task_type=same(task_type),
        tools=json.dumps(sorted({same(tool) for tool in tools})),
        length=len(searched.split()),
        said="\n".join(said),
        searched=searchable(searched),
        meaning=meaning,
        digest=digest_of(meaning),
    )


def same(name: str) -> str:
    """Return the name of a task type or a tool as it is compared: without case, and what can't be seen."""
    return " ".join(without_invisible(name).casefold().split())


def digest_of(text: str) -> bytes:
    """Return what stands for a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
