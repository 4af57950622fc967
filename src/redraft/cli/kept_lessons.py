"""The kept lessons, as commands read and change them: whatever a command shows of them comes through here."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from redraft.core.check import check_choice
from redraft.core.errors import ConfigError, StoreError
from redraft.core.settings import load_settings
from redraft.lessons.clean import lesson_redactor
from redraft.lessons.content import KINDS
from redraft.lessons.counting import Counters, Counting
from redraft.lessons.folder import LessonFolder
from redraft.lessons.lesson import STATUSES, Lesson
from redraft.lessons.lessons import Lessons
from redraft.lessons.rules import Rules
from redraft.stores.place import project_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from redraft.cli.lessons_place import LessonsPlace
    from redraft.lessons.rule import Rule
    from redraft.redact.redactor import Redactor
    from redraft.stores.base import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Filter:
    """Say which lessons are meant; what is None leaves out none."""

    kind: str | None = None
    status: str | None = None
    task_type: str | None = None

    def __post_init__(self) -> None:
        if self.kind is not None:
            check_choice("--kind", self.kind, tuple(KINDS))
        if self.status is not None:
            check_choice("--status", self.status, STATUSES)

    def fits(self, lesson: Lesson) -> bool:
        """Say whether a lesson is meant."""
        return (
            self.kind in (None, lesson.kind)
            and self.status in (None, lesson.status)
            and self.task_type in (None, lesson.task_type)
        )


@dataclass(frozen=True, slots=True)
class KeptLesson:
    """Hold a lesson with its file, what that says, and how often the lesson helped and hurt."""

    lesson: Lesson
    file: str
    archived: bool = False
    counters: Counters = field(default_factory=Counters)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """Hold lessons, the newest first; count the files that can't be read, and those in the archive."""

    lessons: list[KeptLesson]
    broken: int = 0
    archived: int = 0


def read_lessons(place: LessonsPlace, wanted: Filter, *, whole: bool = True) -> Listed:
    """Read the lessons that fit, with their secrets withheld; the archive is only counted.

    Unless they are wanted `whole`, they are fit for a table and nothing else: there secrets are withheld in
    what that shows, which takes a fraction of the time.
    """
    found: list[KeptLesson] = []
    broken = archived = 0
    for folder in place.folders():
        for entry in folder.entries():
            if entry.archived:
                archived += 1
                continue
            try:
                lesson = folder.read_entry(entry)
            except StoreError:
                broken += 1
                continue
            if wanted.fits(lesson):
                found.append(KeptLesson(lesson, _shown_path(entry.path)))
    counted = _counted(place)
    kept = [
        KeptLesson(one.lesson, one.file, counters=counted.get(one.lesson.id, Counters())) for one in found
    ]
    kept.sort(key=lambda one: (one.lesson.day, one.lesson.id), reverse=True)
    redactor = lesson_redactor()
    shown = redactor.redact_object(kept) if whole else _in_rows(kept, redactor)
    return Listed(shown, broken, archived)


def read_lesson(place: LessonsPlace, wanted: str) -> KeptLesson:
    """Read the lesson that is meant, with its secrets withheld; raises `LessonFileError` for a broken one."""
    entry = place.meant(wanted)
    folder = LessonFolder(place.path, entry.id.partition("/")[0])
    lesson, text = folder.read_entry(entry), folder.text_of(entry)
    counters = _counted(place).get(lesson.id, Counters())
    kept = KeptLesson(lesson, _shown_path(entry.path), entry.archived, counters, text)
    return lesson_redactor().redact_object(kept)


def change_lesson(
    place: LessonsPlace, wanted: list[str], change: Callable[[Lessons, list[str]], Awaitable[Lesson]]
) -> Lesson:
    """Change the lessons that are meant; return the one that counts then, with its secrets withheld."""
    ids = [place.meant(one).id for one in wanted]
    agent = ids[0].partition("/")[0]
    return lesson_redactor().redact_object(with_lessons(place, agent, lambda lessons: change(lessons, ids)))


def with_lessons(place: LessonsPlace, agent: str, use: Callable[[Lessons], Awaitable[T]]) -> T:
    """Return what is made of an agent's lessons; they are closed behind it."""

    async def using(store: Store | None) -> T:
        lessons = Lessons(place.path, agent=agent, store=store or False, auto=False)
        try:
            return await use(lessons)
        finally:
            await lessons.aclose()

    return with_store(using)


def permanent_rules(place: LessonsPlace) -> dict[str, list[Rule]]:
    """Read the rules that people made permanent, by the folder of their agent; what can't be read is left."""
    found: dict[str, list[Rule]] = {}
    for folder in place.folders():
        with suppress(StoreError):
            found[folder.name] = Rules(place.path, folder.name).permanent()
    return found


def with_store(use: Callable[[Store | None], Awaitable[T]]) -> T:
    """Return what is made of the project's store, None where it keeps nothing; it is closed behind it."""

    async def using() -> T:
        store = project_store()
        try:
            return await use(store)
        finally:
            if store is not None:
                await store.aclose()

    return asyncio.run(using())


def rate_lesson(place: LessonsPlace, wanted: str, *, helped: bool) -> KeptLesson:
    """Count that a lesson helped or hurt as a person sees it; return it, with its secrets withheld.

    Raises `ConfigError` where nothing is kept, so that it would be forgotten at once.
    """
    if not load_settings().home:
        raise ConfigError("The project keeps nothing (`home` is empty), so there is nowhere to count it.")
    lesson = place.meant(wanted).id
    with_lessons(place, lesson.partition("/")[0], lambda lessons: lessons.rate(lesson, helped))
    return read_lesson(place, lesson)


def helped_of(place: LessonsPlace) -> dict[str, float]:
    """Return for each lesson that was ever used how much more often it helped than it hurt."""
    return {lesson: float(its.helped - its.hurt) for lesson, its in _counted(place).items()}


def active_lessons(place: LessonsPlace) -> list[Lesson]:
    """Read the lessons that are in force, as their files have them; the archive is left out."""
    found: list[Lesson] = []
    for folder in place.folders():
        for entry in folder.entries():
            try:
                lesson = None if entry.archived else folder.read_entry(entry)
            except StoreError:
                continue
            if lesson is not None and lesson.status == "active":
                found.append(lesson)
    return sorted(found, key=attrgetter("id"))


def _in_rows(kept: list[KeptLesson], redactor: Redactor) -> list[KeptLesson]:
    """Return lessons with the secrets withheld in what a table shows."""

    @cache
    def clean(text: str) -> str:
        return redactor.redact(text).text

    return [
        replace(
            one,
            lesson=replace(
                one.lesson,
                id=clean(one.lesson.id),
                agent=clean(one.lesson.agent),
                summary=clean(one.lesson.summary),
                task_type=clean(one.lesson.task_type),
            ),
        )
        for one in kept
    ]


def _counted(place: LessonsPlace) -> Mapping[str, Counters]:
    async def counting(store: Store | None) -> dict[str, Counters]:
        found: dict[str, Counters] = {}
        if store is not None:
            for folder in place.folders():
                found |= await Counting(store, folder.name).all_counters()
        return found

    return with_store(counting)


def _shown_path(path: os.PathLike[str]) -> str:
    """Return a path as it is shortest to type from here."""
    there = os.path.relpath(path)
    return os.fspath(path) if there.startswith("..") else there
