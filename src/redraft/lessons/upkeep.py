"""Upkeep: what people, and what is counted, make of lessons that are there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redraft.core.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.filing import NEARLY, overlap, words_of
from redraft.lessons.folder import RULES
from redraft.lessons.playbooks import PLAYBOOKS, Playbooks
from redraft.lessons.rules import Rules
from redraft.lessons.trust import refusal_of
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redraft.lessons.content import Content
    from redraft.lessons.learning import Learning
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.memory import Memory


@dataclass(frozen=True, slots=True)
class Problem:
    """Name a lesson that a person should look at, and say why.

    `broken`: its file can't be understood; `duplicate`: it says what another says; `hidden`: it is put before
    nobody, for it is in quarantine, retired, superseded, or says what no lesson may. `other` is the lesson
    that a duplicate repeats.
    """

    id: str
    what: Literal["broken", "duplicate", "hidden"]
    why: str
    other: str = ""


class Upkeep:
    """Change the standing of lessons in the memory of an agent."""

    def __init__(self, memory: Memory, learning: Learning) -> None:
        self._memory = memory
        self._learning = learning

    async def follow(self, lesson: Lesson) -> None:
        """Let what came with a lesson go where a person's edit of its file has put the lesson."""
        if lesson.status == "active":
            await self._learning.admit(lesson)
        elif lesson.status != "quarantined":
            await self._drop(lesson.id)
        self._memory.backlog.begin()

    async def approve(self, lesson_id: str, why: str = "") -> Lesson:
        """Let a lesson be put before the model; its rule and its steps come with it."""
        lesson = await self.change(lesson_id, status="active", why=why, superseded_by="")
        await self.follow(lesson)
        return lesson

    async def retire(self, lesson_id: str, why: str) -> Lesson:
        """Put a lesson before nobody any more; nor the rule and the steps that came with it."""
        if not why.strip():
            raise ConfigError(f"To retire the lesson {lesson_id!r}, say why.")
        lesson = await self.change(lesson_id, status="retired", why=why)
        await self.follow(lesson)
        return lesson

    async def supersede(self, lesson_id: str, by: str) -> Lesson:
        """Let another lesson take the place of one; raises `LessonFileError` where one is not there."""
        if lesson_id == by:
            raise ConfigError(f"The lesson {lesson_id!r} can't take its own place.")
        await self.get(by)
        lesson = await self.change(lesson_id, status="superseded", superseded_by=by)
        await self.follow(lesson)
        return lesson

    async def merge(self, lesson_ids: Sequence[str], keep: str | None = None) -> Lesson:
        """Make one of lessons that say the same, and return it.

        `keep` stays as it is worded, without it the surest, of equally sure ones the newest; it is as sure as
        none of them being wrong, and is found by the tools of all. The others are superseded by it.
        """
        ids = list(dict.fromkeys(lesson_ids))
        if len(ids) < 2:  # noqa: PLR2004 (one has nothing to be merged with)
            raise ConfigError(f"Merging takes at least two lessons, got {ids!r}.")
        if keep is not None and keep not in ids:
            raise ConfigError(f"keep must be one of the lessons that are merged, got {keep!r}.")
        lessons = [await self.get(one) for one in ids]
        best = max(
            (one for one, its_id in zip(lessons, ids, strict=True) if keep in (None, its_id)),
            key=lambda one: (one.status == "active", one.confidence, one.day, one.id),
        )
        doubt = 1.0
        for one in lessons:
            doubt *= 1 - one.confidence
        tools = tuple(dict.fromkeys(tool for one in (best, *lessons) for tool in one.tools))
        merged = await self.change(best.id, tools=tools, confidence=round(1 - doubt, 2))
        for one in lessons:
            if one.id != best.id:
                await self.supersede(one.id, best.id)
        return merged

    async def get(self, lesson_id: str) -> Lesson:
        """Return a lesson as its file has it; raises `LessonFileError` where there is none."""
        return await asyncio.to_thread(self._read, lesson_id)

    async def edit(self, lesson_id: str, content: Content) -> Lesson:
        """Put other words, redacted already, in the place of a lesson's."""
        lesson = await self.change(lesson_id, content=content)
        self._memory.backlog.begin()
        return lesson

    async def change(self, lesson_id: str, **changed: Any) -> Lesson:
        """Write a lesson anew with some fields changed."""
        filing = self._memory.filing_of(lesson_id)
        return await asyncio.to_thread(lambda: filing.change(lesson_id, **changed))

    def problems(self) -> list[Problem]:
        """Return what a person should look at among the lessons of the agent, the archive left out."""
        folder = self._memory.filing.folder
        found: list[Problem] = []
        lessons: list[Lesson] = []
        for entry in folder.entries():
            if not entry.archived:
                try:
                    lessons.append(folder.read_entry(entry))
                except StoreError as error:
                    found.append(_broken(error, entry.id))
        found += broken_in(self._memory.rules, self._memory.playbooks, self._memory.folder)
        return [*found, *problems_among(lessons)]

    def _read(self, lesson_id: str) -> Lesson:
        return self._memory.filing_of(lesson_id).folder.read(lesson_id)

    async def _drop(self, lesson_id: str) -> None:
        """Take out what came with a lesson."""
        await self._memory.waiting.leave(lesson_id)
        folder = lesson_id.partition("/")[0]
        try:
            await asyncio.to_thread(Rules(self._memory.path, folder).drop, lesson_id)
        except LessonFileError as error:
            logger.warning("The rule of the lesson %s may still stand: %s", lesson_id, error)
        await asyncio.to_thread(Playbooks(self._memory.path, folder).drop, lesson_id)


def broken_in(rules: Rules, playbooks: Playbooks, folder: str) -> Iterator[Problem]:
    """Name the rules and playbooks in an agent's folder that can't be understood."""
    for kept, name in ((rules, RULES), (playbooks, PLAYBOOKS)):
        place = f"{folder}/{name}"
        try:
            yield from (_broken(error, place) for error in kept.broken())
        except StoreError as error:  # nothing of it can be read
            yield _broken(error, place)


def problems_among(lessons: Sequence[Lesson]) -> Iterator[Problem]:
    """Name the lessons that are put before nobody, and those that nearly say what one before them says."""
    yield from (_hidden(lesson) for lesson in lessons if lesson.status != "active")
    barred = ((lesson, refusal_of(lesson)) for lesson in lessons if lesson.status == "active")
    yield from (Problem(lesson.id, "hidden", f"it holds {what}") for lesson, what in barred if what)
    yield from _duplicates([lesson for lesson in lessons if lesson.status == "active"])


def _broken(error: StoreError, place: str) -> Problem:
    return Problem(error.file if isinstance(error, LessonFileError) else place, "broken", str(error))


def _hidden(lesson: Lesson) -> Problem:
    why = lesson.why or (f"by {lesson.superseded_by}" if lesson.superseded_by else "")
    return Problem(lesson.id, "hidden", f"{lesson.status}: {why}" if why else lesson.status)


def _duplicates(lessons: Sequence[Lesson]) -> Iterator[Problem]:
    """Name each lesson that nearly says what one before it says."""
    known = [(one, words_of(one.content)) for one in lessons]
    for number, (one, words) in enumerate(known):
        for other, others in known[:number]:
            if one.kind == other.kind and overlap(words, others) >= NEARLY:
                yield Problem(one.id, "duplicate", f"It says nearly what {other.id} says.", other.id)
                break
