"""Filing: put what was learnt among an agent's files, once."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from redraft.core.errors import StoreError
from redraft.lessons.files import locked
from redraft.lessons.folder import KEPT, REFLECTIONS, LessonFolder
from redraft.lessons.lesson import Lesson, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redraft.lessons.content import Content

NEARLY = 0.8
"""The share of words that two lessons have in common when they say the same."""
CONFIRMED = 0.1
"""By how much it raises the confidence of a lesson that its like was learnt again."""
GIVEN_UP: tuple[Status, ...] = ("retired", "superseded")
"""How a lesson stands that somebody, or what was counted, decided against."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Filed:
    """Hold a lesson as it is filed, and whether it is new."""

    lesson: Lesson
    is_new: bool = True


class Filing:
    """File lessons of one agent; many processes may do so at once."""

    def __init__(self, path: Path, agent: str) -> None:
        self.folder = LessonFolder(path, agent)
        self._place = path / REFLECTIONS / self.folder.name

    def file(self, lesson: Lesson, *, by_hand: bool = False) -> Filed:
        """File a lesson unless it is there already, and move what is too much to the archive.

        One of the same kind from the same run is the same. One that says in nearly the same words what
        another of its kind and status says is not filed: it raises the other's confidence by 0.1. What was
        retired or superseded is not learnt anew, unless it is filed `by_hand`: it stays as it is.
        """
        with locked(self._place):
            known = list(self.lessons())
            found = self._known(lesson, known, by_hand=by_hand)
            filed = Filed(self.folder.add(lesson)) if found is None else Filed(found, is_new=False)
            if filed.is_new:
                self.folder.archive(KEPT)
        return filed

    def lessons(self, *, archived: bool = False) -> Iterator[Lesson]:
        """Return the lessons that can be read, the oldest first."""
        for entry in self.folder.entries():
            if archived or not entry.archived:
                with suppress(StoreError):
                    yield self.folder.read_entry(entry)

    def change(self, lesson_id: str, **changed: Any) -> Lesson:
        """Write a lesson anew with some fields changed, whoever else is at it; return it.

        Raises `LessonFileError` where there is none.
        """
        with locked(self._place):
            lesson = self.folder.read(lesson_id)
            new = replace(lesson, **changed)
            return lesson if new == lesson else self.folder.write(new)

    def _known(self, lesson: Lesson, known: list[Lesson], *, by_hand: bool) -> Lesson | None:
        alike = [one for one in known if one.kind == lesson.kind]
        for one in alike:
            if lesson.source and one.source == lesson.source:
                return one
        words = words_of(lesson.content)
        nearly = [one for one in alike if overlap(words, words_of(one.content)) >= NEARLY]
        for one in nearly:
            if one.status == lesson.status:
                surer = min(1.0, round(one.confidence + CONFIRMED, 2))
                return self.folder.write(replace(one, confidence=surer))
        return None if by_hand else next((one for one in nearly if one.status in GIVEN_UP), None)


def words_of(content: Content) -> frozenset[str]:
    """Return the words that a lesson says."""
    return words_in(" ".join(str(getattr(content, one.name)) for one in fields(content)))


def words_in(text: str) -> frozenset[str]:
    """Return the words of a text, each once."""
    return frozenset(_WORD.findall(text.casefold()))


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share (0..1) of the words of two lessons that both have."""
    return len(one & other) / len(one | other) if one or other else 1.0
