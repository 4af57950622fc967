"""What commands ask of the index over the lessons: what fits a task, what is broken, and to be made anew."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.cli.kept_lessons import with_lessons, with_store
from redraft.core.errors import LessonFileError
from redraft.core.settings import load_settings
from redraft.lessons.clean import lesson_redactor
from redraft.lessons.embedding import of_many_machines
from redraft.lessons.folder import agents_in
from redraft.lessons.index import LessonIndex
from redraft.lessons.index_scan import Refreshed
from redraft.lessons.names import folder_name
from redraft.lessons.upkeep import Problem
from redraft.models.embed import embedder_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.cli.lessons_place import LessonsPlace
    from redraft.lessons.query import Found, Query
    from redraft.stores.base import Store

T = TypeVar("T")

AT_ONCE = 256
"""Lessons that are embedded until it is said how far that is."""


@dataclass(frozen=True, slots=True)
class Reindexed:
    """Hold what was found when every file was read again, and how many lessons were embedded anew."""

    found: Refreshed
    embedded: int
    embedder: str

    def as_document(self) -> dict[str, Any]:
        """Return it as plain data."""
        broken = [{"id": one.id, "problem": one.problem} for one in self.found.broken]
        return {
            "lessons": self.found.added,
            "embedded": self.embedded,
            "embedder": self.embedder,
            "broken": broken,
        }


def search_lessons(place: LessonsPlace, query: Query) -> list[Found]:
    """Return the lessons that fit best, with their secrets withheld.

    A person who asks for some words is shown what has them, last, however little it is about the same.
    """
    if not agents_in(place.path):  # an index over nothing need not be made
        return []
    found = _with_index(place, lambda index: index.search(query))
    if len(found) < query.k and embedder_of(None, load_settings()) is not None:
        near = {one.lesson.id for one in found}
        worded = _with_index(place, lambda index: index.search(query), by_meaning=False)
        found += [replace(one, score=0.0) for one in worded if one.lesson.id not in near]
    return lesson_redactor().redact_object(found[: query.k])


def make_index(place: LessonsPlace, tell: Callable[[int], None]) -> Reindexed:
    """Read every file again, and embed what has no vector; `tell` is told how many that are so far."""
    embedder = embedder_of(None, load_settings())

    async def make(store: Store | None) -> Reindexed:
        index = LessonIndex(place.path, embedder, shared=of_many_machines(store))
        try:
            found, embedded = await index.rebuild(), 0
            while some := await index.fill(AT_ONCE):
                embedded += some
                tell(embedded)
        finally:
            await index.aclose()
        return Reindexed(found, embedded, "" if embedder is None else embedder.name)

    return with_store(make)


def problems_of(place: LessonsPlace) -> list[Problem]:
    """Return what a person should look at, with its secrets withheld; the archive for broken files alone."""
    found: dict[tuple[str, str], Problem] = {}
    for folder in place.folders():
        try:
            problems = with_lessons(place, folder.name, lambda lessons: lessons.problems())
        except LessonFileError as error:
            problems = [Problem(error.file, "broken", str(error))]
        found |= {(one.id, one.what): one for one in problems}
    if agents_in(place.path):
        for broken in _with_index(place, lambda index: index.refresh()).broken:
            if place.agent is None or broken.id.partition("/")[0] == folder_name(place.agent):
                found.setdefault((broken.id, "broken"), Problem(broken.id, "broken", broken.problem))
    return lesson_redactor().redact_object(list(found.values()))


def _with_index(
    place: LessonsPlace, use: Callable[[LessonIndex], Awaitable[T]], *, by_meaning: bool = True
) -> T:
    async def using() -> T:
        index = LessonIndex(place.path, embedder_of(None, load_settings()) if by_meaning else None)
        try:
            return await use(index)
        finally:
            await index.aclose()

    return asyncio.run(using())
