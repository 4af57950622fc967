"""The folder of an agent's lessons: Markdown documents, from which the index is derived."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from redraft._words import overlap, words_in
from redraft.errors import LessonFileError, StoreError
from redraft.lessons.documents import documents_at, parsed, text_of
from redraft.lessons.lesson import NEAR_DUPLICATE, CorrectedAnswer, Lesson, Status, advice_lines, words_of
from redraft.lessons.markdown import parse, render
from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from datetime import date
    from pathlib import Path

    from redraft.lessons.documents import Documents, Entry
    from redraft.lessons.lesson import Content

MOST_LESSONS = 30
"""Newest active lessons outside the archive; the same limit holds for quarantined and for other lessons."""
CONFIRMATION = 0.1
"""Added to the confidence of a lesson each time it is learned again."""
MOST_FACTS = 100
"""Active facts outside the archive. There are more of them, since each is about a different thing."""
REJECTED: tuple[Status, ...] = ("retired", "superseded")
"""The statuses of lessons that a person or their effect on runs rejected."""

_LONGEST_STEM = 250
"""Bytes in a file name without its ending; file systems allow no more."""


class LessonFolder:
    """The lessons of one agent, as documents in a folder.

    `place` holds the documents of all agents: `Documents`, or the path of a folder such as `memory`. The id
    of a lesson is `<agent>/<stem>`; it stays the same when the document moves to the archive. Writes are
    atomic, and many processes may write concurrently. Raises `StoreError` if a document can't be read or
    written, and `LessonFileError` if it is not a lesson.
    """

    def __init__(self, place: Documents | Path | str, agent: str) -> None:
        self.agent = agent
        self.name = folder_name(agent)
        self.documents = documents_at(place)

    def file(
        self,
        lesson: Lesson,
        *,
        by_hand: bool = False,
        by_advice: bool = False,
        recalled: Collection[str] = (),
    ) -> tuple[Lesson, bool]:
        """Write a lesson unless it repeats another, and say which lesson is on file and whether it is new.

        A run leaves one lesson of each kind. A near-duplicate of a lesson of the same kind and status raises
        that lesson's confidence by 0.1. With `by_advice`, this also holds for a lesson whose whole advice is
        in other lessons of its status, whatever their kind. Lessons that the run had `recalled`, by their
        ids, gain nothing. Retired and superseded lessons are not learned again, except `by_hand`. The oldest
        lessons beyond 30 move to the archive.
        """
        with self.documents.locked(self.name):
            if existing := self._duplicate_of(
                lesson, by_hand=by_hand, by_advice=by_advice, recalled=recalled
            ):
                return existing, False
            new = self.add(lesson)
            self.archive()
        return new, True

    def add(self, lesson: Lesson, *, archived: bool = False) -> Lesson:
        """Write a lesson to a new document, even a duplicate, with a new id if it has none."""
        stem = lesson.id.partition("/")[2] or f"{lesson.day}-{short_title(lesson.name)}"
        year = lesson.day.year if archived else None
        return replace(lesson, id=self.documents.add(f"{self.name}/{stem}", render(lesson), year=year))

    def change(self, lesson_id: str, **changed: Any) -> Lesson:
        """Change fields of a lesson in its document."""
        with self.documents.locked(self.name):
            entry = self.entry_of(lesson_id)
            lesson = self.read_entry(entry)
            new = replace(lesson, **changed)
            if new != lesson:
                self.documents.replace(entry, render(new))
            return new

    def write(self, lesson: Lesson) -> Lesson:
        """Replace the document of a lesson."""
        self.documents.replace(self.entry_of(lesson.id), render(lesson))
        return lesson

    def delete(self, entry: Entry) -> None:
        """Delete the document of a lesson, if it is still there."""
        with self.documents.locked(self.name):
            self.documents.delete(entry)

    def read(self, lesson_id: str) -> Lesson:
        """The lesson with an id."""
        return self.read_entry(self.entry_of(lesson_id))

    def read_entry(self, entry: Entry) -> Lesson:
        """The lesson of a document."""
        return parse(self.text_of(entry), entry.id, self.agent, entry.written)

    def text_of(self, entry: Entry) -> str:
        """The text of a document."""
        return text_of(self.documents, entry, of="a lesson")

    def read_all(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, str, Lesson | StoreError]]:
        """Documents with their texts and their lessons, or the errors of those that can't be read."""
        return parsed(
            self.documents,
            entries,
            lambda text, entry: parse(text, entry.id, self.agent, entry.written),
            of="a lesson",
        )

    def lessons(self, *, archived: bool = False) -> Iterator[Lesson]:
        """The lessons by name; documents that can't be read are skipped."""
        for _, _, lesson in self.read_all(self.entries(archived=archived)):
            if isinstance(lesson, Lesson):
                yield lesson

    def entries(self, *, archived: bool = True) -> Iterator[Entry]:
        """The documents by name, archived ones last, without reading them."""
        return self.documents.entries(self.name, archived=archived)

    def entry_of(self, lesson_id: str) -> Entry:
        """The current document of an id."""
        folder, _, stem = lesson_id.partition("/")
        is_short = len(stem.encode("utf-8", "surrogatepass")) <= _LONGEST_STEM
        if not stem or not is_short or "/" in stem or stem.startswith("."):
            expected = "expected <agent>/<file name without .md>"
            raise LessonFileError(f"This is not the id of a lesson; {expected}.", file=f"{lesson_id!r:.100}")
        if folder != self.name:
            raise LessonFileError(f"This is a lesson of {folder!r}, not of {self.agent!r}.", file=lesson_id)
        entry = self.documents.entry(lesson_id)
        if entry is None:
            raise LessonFileError("No such lesson; it may have been deleted.", file=lesson_id)
        return entry

    def archive(self, keep: int = MOST_LESSONS) -> list[str]:
        """Move the oldest lessons to the archive of their year, and list their ids.

        The newest `keep` active lessons stay, and as many quarantined and as many other lessons, and the
        newest 100 active facts. Documents that can't be read stay.
        """
        entries = list(self.entries(archived=False))
        if len(entries) <= keep:
            return []
        by_status: dict[str, list[tuple[date, Entry]]] = {}
        today = datetime.now(UTC).date()
        for entry, _, lesson in self.read_all(entries):
            if isinstance(lesson, Lesson):
                if lesson.day > today + timedelta(days=1):  # from a wrong clock: it would never be the oldest
                    lesson = replace(lesson, day=today)  # noqa: PLW2901 (written again, so that it ages)
                    self.documents.replace(entry, render(lesson))
                group = lesson.status if lesson.status in ("active", "quarantined") else "other"
                group = "facts" if group == "active" and lesson.kind == "fact" else group
                by_status.setdefault(group, []).append((lesson.day, entry))
        moved: list[str] = []
        for name, group in by_status.items():
            # Of lessons of the same day, those confirmed last stay.
            group.sort(key=lambda dated_entry: (dated_entry[0], dated_entry[1].changed_ns))
            most = max(keep, MOST_FACTS) if name == "facts" else keep
            for day, entry in group[: max(0, len(group) - most)]:
                if self.documents.archive(entry, day.year):
                    moved.append(entry.id)
        return moved

    def _duplicate_of(
        self, lesson: Lesson, *, by_hand: bool, by_advice: bool, recalled: Collection[str]
    ) -> Lesson | None:
        """The lesson on file that a new lesson would repeat, with its confidence raised if need be."""
        filed = list(self.lessons())
        alike = [other for other in filed if other.kind == lesson.kind]
        for other in alike:
            if lesson.source and other.source == lesson.source:
                return other
        words = words_of(lesson.content)
        same = [
            other
            for other in alike
            if overlap(words, words_of(other.content)) >= NEAR_DUPLICATE
            and _changes_alike(lesson.content, other.content)
        ]
        current = [other for other in same if other.status == lesson.status][:1]
        rejected = [other for other in same if other.status in REJECTED]
        if by_advice:
            current = (
                _sources_of_advice(lesson, [other for other in filed if other.status == lesson.status])
                or current
            )
            # Advice is not new either if part of it was rejected and the rest is on file.
            rejected += _sources_of_advice(
                lesson, [other for other in filed if other.status in (lesson.status, *REJECTED)]
            )
        if confirmed := [other if other.id in recalled else self._confirmed(other) for other in current]:
            return confirmed[0]
        return None if by_hand else next(iter(rejected), None)

    def _confirmed(self, lesson: Lesson) -> Lesson:
        return self.write(replace(lesson, confidence=min(1.0, round(lesson.confidence + CONFIRMATION, 2))))


_TITLE_WORDS = 5
_FILLERS = frozenset(("a", "an", "the", "is", "are"))
"""Words that a long title loses first."""
_LONGEST_NAME = 60
_LONGEST_NAME_BYTES = 120
# Windows reserves these names for devices, with or without an ending.
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
)


def folder_name(agent: str) -> str:
    """The name of an agent's folder: the agent's name if it is plain, otherwise a slug with a hash.

    The name of a folder is returned unchanged.
    """
    letters = unicodedata.normalize("NFKD", agent).casefold()
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    slug = re.sub("[^a-z0-9]+", "-", plain).strip("-")[:_LONGEST_NAME].strip("-")
    if slug and slug == agent and slug not in _DEVICES:
        return slug
    suffix = sha256(agent.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug[: _LONGEST_NAME - 1 - len(suffix)].strip('-') or 'agent'}-{suffix}"


def short_title(title: str) -> str:
    """At most five words of a title in any script, lowercase, with hyphens, as a file name.

    Accents of Latin letters are dropped; of other scripts, letters, marks and digits stay. A title of more
    words loses its articles first.
    """
    words = _letters(without_invisible(title)).split()
    if len(words) > _TITLE_WORDS:
        words = [word for word in words if word not in _FILLERS] or words
    name = unicodedata.normalize("NFC", "-".join(words[:_TITLE_WORDS])[:_LONGEST_NAME])
    return name.encode()[:_LONGEST_NAME_BYTES].decode(errors="ignore").strip("-") or "untitled"


def _letters(text: str) -> str:
    """The letters, marks and digits of a text, in lower case, with spaces in place of all else."""
    letters: list[str] = []
    for letter in unicodedata.normalize("NFKD", text).casefold():
        category = unicodedata.category(letter)[0]
        if category == "M" and (not letters or letters[-1].isascii()):
            continue  # an accent, or a mark without a letter
        if category == "C":
            continue  # a joiner
        letters.append(letter if category in "LMN" else " ")
    return "".join(letters)


def _changes_alike(one: Content, other: Content) -> bool:
    """Whether two corrections have nearly the same changes; True for other lessons.

    A long answer outweighs what was changed in it.
    """
    if not (isinstance(one, CorrectedAnswer) and isinstance(other, CorrectedAnswer)):
        return True
    return overlap(words_in(one.changes), words_in(other.changes)) >= NEAR_DUPLICATE


def _sources_of_advice(lesson: Lesson, others: Sequence[Lesson]) -> list[Lesson]:
    """The lessons that together give all of a lesson's advice; empty if some of it is new.

    If several lessons give a line, the lesson with the least other advice counts.
    """
    advice = {other.id: advice_lines(other.content) for other in others}
    sources: dict[str, Lesson] = {}
    for line in advice_lines(lesson.content):
        givers = [other for other in others if line in advice[other.id]]
        if not givers:
            return []
        source = min(givers, key=lambda other: len(advice[other.id]))
        sources[source.id] = source
    return list(sources.values())
