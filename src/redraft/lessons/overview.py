"""Overview: all lessons of an agent, and the problems that need a person."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from redraft._words import overlap
from redraft.errors import LessonFileError, StoreError
from redraft.lessons.documents import PLAYBOOKS, RULES
from redraft.lessons.folder import LessonFolder
from redraft.lessons.lesson import NEAR_DUPLICATE, Lesson, violation_in, words_of
from redraft.lessons.markdown import unknown_keys
from redraft.lessons.playbooks import Playbook, Playbooks
from redraft.lessons.rules import Rule, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from redraft.lessons.documents import Documents


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a lesson that needs a person."""

    id: str
    what: Literal["broken", "duplicate", "hidden", "disobeyed", "ignored"]
    """The type of the problem.

    `broken`: the file can't be parsed. `duplicate`: the lesson nearly repeats the lesson `other`. `hidden`:
    it is not used, because it is quarantined, retired or superseded, or contains what no lesson may contain.
    `disobeyed`: runs with it keep failing in the same way. `ignored`: its front matter has an unknown key.
    """
    why: str
    other: str = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """The lessons of an agent, its rules and playbooks, and problems."""

    lessons: tuple[Lesson, ...]
    """Newest first, archived lessons last."""
    archived_ids: frozenset[str]
    """The ids of the whole archive, whether its lessons were read or not."""
    problems: tuple[Problem, ...]
    rules: tuple[Rule, ...]
    playbooks: tuple[Playbook, ...]

    @classmethod
    def read(
        cls, place: Documents | Path | str, agent: str, *, archived: int = 0, compared: int | None = None
    ) -> Overview:
        """Read the documents of an agent.

        Reads at most `archived` lessons of the archive, the newest by their names. Duplicates are searched
        among the newest `compared` lessons, by default among all lessons outside the archive. Raises
        `StoreError` if the folder can't be read.
        """
        folder = LessonFolder(place, agent)
        entries = list(folder.entries())
        archive = sorted(
            (entry for entry in entries if entry.archived), key=lambda entry: entry.id, reverse=True
        )
        archived_ids = frozenset(entry.id for entry in archive)
        lessons: list[Lesson] = []
        problems: list[Problem] = []
        chosen = [*(entry for entry in entries if not entry.archived), *archive[:archived]]
        for entry, _, lesson in folder.read_all(chosen):
            if isinstance(lesson, StoreError):
                problems.append(_broken(lesson, entry.id))
            else:
                lessons.append(lesson)
        lessons.sort(
            key=lambda lesson: (lesson.id not in archived_ids, lesson.recency, lesson.id), reverse=True
        )
        rules, playbooks = Rules(folder.documents, agent), Playbooks(folder.documents, agent)
        for files, name in ((rules, RULES), (playbooks, PLAYBOOKS)):
            try:
                problems += [_broken(error, f"{folder.name}/{name}") for error in files.broken()]
            except StoreError as error:  # none of it can be read
                problems.append(_broken(error, f"{folder.name}/{name}"))
        current = [lesson for lesson in lessons if lesson.id not in archived_ids]
        problems += _problems_among(current[:compared][::-1])
        every_rule: list[Rule] = []
        active_playbooks: list[Playbook] = []
        with suppress(StoreError):  # it is among the problems
            every_rule = [*rules.permanent(), *rules.proposed(), *rules.active(), *rules.due()]
        with suppress(StoreError):
            active_playbooks = playbooks.active()
        return cls(
            tuple(lessons),
            archived_ids,
            tuple(problems),
            tuple(dict.fromkeys(every_rule)),
            tuple(active_playbooks),
        )

    def duplicate_of(self, lesson_id: str) -> Problem | None:
        """The problem that a lesson nearly repeats an earlier lesson, if it does."""
        return next(
            (problem for problem in self.problems if (problem.id, problem.what) == (lesson_id, "duplicate")),
            None,
        )


def _problems_among(lessons: Sequence[Lesson]) -> Iterator[Problem]:
    """Yield lessons that are not used, are disobeyed, or nearly repeat an earlier lesson."""
    active = [lesson for lesson in lessons if lesson.status == "active"]
    for lesson in lessons:
        yield from (Problem(lesson.id, "ignored", why) for why in unknown_keys(lesson))
    for lesson in lessons:
        if lesson.status != "active":
            why = f"{lesson.status} by {lesson.superseded_by}" if lesson.superseded_by else lesson.status
            yield Problem(lesson.id, "hidden", f"{why}: {lesson.why}" if lesson.why else why)
    for lesson in active:
        if what := violation_in(lesson):
            yield Problem(lesson.id, "hidden", f"it holds {what}")
        if lesson.disobeyed:
            yield Problem(lesson.id, "disobeyed", lesson.disobeyed)
    words = [words_of(lesson.content) for lesson in active]
    for number, lesson in enumerate(active):
        for other, others in zip(active[:number], words, strict=False):
            if lesson.kind == other.kind and overlap(words[number], others) >= NEAR_DUPLICATE:
                yield Problem(lesson.id, "duplicate", f"A near-duplicate of {other.id}.", other.id)
                break


def _broken(error: StoreError, lesson_id: str) -> Problem:
    return Problem(error.file if isinstance(error, LessonFileError) else lesson_id, "broken", str(error))
