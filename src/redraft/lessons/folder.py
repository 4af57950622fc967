"""The folder of an agent's lessons: markdown files, which are the truth."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.errors import LessonFileError, StoreError
from redraft.lessons.files import ENDING, add_file, locked, make_folder, read_text, replace_file, reporting
from redraft.lessons.lesson import NEAR_DUPLICATE, Lesson, Status, advice_lines, overlap, words_of
from redraft.lessons.markdown import parse, render
from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REFLECTIONS = "reflections"
"""The folder of all agents' folders, under the project's `memory`."""
ARCHIVE = "archive"
RULES = "rules.md"
"""The file of the agent's rules, beside its lessons."""
MOST_LESSONS = 30
"""Lessons outside the archive: the newest so many active ones, quarantined ones, and others."""
CONFIRMATION = 0.1
"""Added to the confidence of a lesson each time it is learned again."""
REJECTED: tuple[Status, ...] = ("retired", "superseded")
"""The statuses of lessons that a person or their effect on runs decided against."""

_LONGEST_STEM = 250
"""Bytes in a file name without its ending; file systems allow no more."""
_YEAR = re.compile(r"[0-9]{4}")
_DATED = re.compile(r"[0-9]{4}-")


@dataclass(frozen=True, slots=True)
class Entry:
    """The file of a lesson, with its modification time and size."""

    id: str
    file: str
    changed_ns: int
    size: int
    archived: bool = False

    @property
    def path(self) -> Path:
        """The file; built on request, since few of 100,000 entries are opened."""
        return Path(self.file)

    @property
    def day(self) -> date:
        """The day of the last change, which counts for a lesson without a day of its own."""
        return datetime.fromtimestamp(self.changed_ns / 1e9, UTC).date()


class LessonFolder:
    """Keep the lessons of one agent as files in `<path>/reflections/<agent>/`.

    `path` is the folder of all agents (`memory`). The id of a lesson is `<agent>/<file name without .md>`; it
    stays the same when the file moves to `archive/<year>/`. Writes are atomic, and many processes may write
    at once. Raises `StoreError` if a file can't be read or written, and `LessonFileError` if it is not a
    lesson.
    """

    def __init__(self, path: Path, agent: str) -> None:
        self.agent = agent
        self.name = folder_name(agent)
        self.path = agent_path(path, agent)

    def file(self, lesson: Lesson, *, by_hand: bool = False, by_advice: bool = False) -> tuple[Lesson, bool]:
        """Write a lesson to a new file unless it is known; return it or the known one, and whether it is new.

        A run leaves one lesson of a kind. A near-duplicate of a lesson of the same kind and status raises
        that lesson's confidence by 0.1. With `by_advice`, so does a lesson whose whole advice others of its
        status give, whatever their kind. Retired and superseded lessons are not learned again, except
        `by_hand`. The oldest lessons beyond 30 move to the archive.
        """
        with locked(self.path):
            if known := self._known(lesson, by_hand=by_hand, by_advice=by_advice):
                return known, False
            new = self.add(lesson)
            self.archive()
        return new, True

    def add(self, lesson: Lesson, *, archived: bool = False) -> Lesson:
        """Write a lesson to a new file, even a duplicate, and return it with its id, new if it has none."""
        stem = lesson.id.partition("/")[2] or f"{lesson.day}-{short_title(lesson.name)}"
        place = self._archived(stem, lesson.day.year).parent if archived else self.path
        with reporting(place):
            make_folder(place)
            text = render(lesson).encode()
            name = add_file(place, stem, text, is_taken=self._is_taken)
        return replace(lesson, id=f"{self.name}/{name}")

    def change(self, lesson_id: str, **changed: Any) -> Lesson:
        """Change fields of a lesson in its file, and return it."""
        with locked(self.path):
            lesson = self.read(lesson_id)
            new = replace(lesson, **changed)
            return lesson if new == lesson else self.write(new)

    def write(self, lesson: Lesson) -> Lesson:
        """Replace the file of a lesson."""
        path = self.path_of(lesson.id)
        with reporting(path):
            replace_file(path, render(lesson).encode())
        return lesson

    def delete(self, entry: Entry) -> None:
        """Delete the file of a lesson, if it is still there."""
        with locked(self.path), reporting(entry.file):
            entry.path.unlink(missing_ok=True)

    def read(self, lesson_id: str) -> Lesson:
        """Return the lesson with an id."""
        return self.read_entry(self.entry_of(lesson_id))

    def read_entry(self, entry: Entry) -> Lesson:
        """Return the lesson of a file."""
        return parse(self.text_of(entry), entry.id, self.agent, entry.day)

    def text_of(self, entry: Entry) -> str:
        """Return the text of a file."""
        return read_text(entry.file, entry.id, of="a lesson")

    def lessons(self, *, archived: bool = False) -> Iterator[Lesson]:
        """Yield the lessons by file name, skipping files that can't be read."""
        for entry in self.entries():
            if archived or not entry.archived:
                with suppress(StoreError):
                    yield self.read_entry(entry)

    def entries(self) -> Iterator[Entry]:
        """Yield the files by name, archived ones last, without opening them."""
        for folder in (self.path, *self._archives()):
            archived = folder != self.path
            for name, found in sorted(_files(folder).items()):
                file = f"{folder}/{name}{ENDING}"
                yield Entry(f"{self.name}/{name}", file, found.st_mtime_ns, found.st_size, archived)

    def path_of(self, lesson_id: str) -> Path:
        """Return the file of an id."""
        return self.entry_of(lesson_id).path

    def entry_of(self, lesson_id: str) -> Entry:
        """Return the file of an id as it is now."""
        folder, _, stem = lesson_id.partition("/")
        if not is_file_stem(stem):
            expected = "expected <agent>/<file name without .md>"
            raise LessonFileError(f"This is not the id of a lesson; {expected}.", file=f"{lesson_id!r:.100}")
        if folder != self.name:
            raise LessonFileError(f"This is a lesson of {folder!r}, not of {self.agent!r}.", file=lesson_id)
        for place in self._places(stem):
            if found := _state_of(file := f"{place}/{stem}{ENDING}"):
                return Entry(lesson_id, file, found.st_mtime_ns, found.st_size, place != str(self.path))
        raise LessonFileError("No such lesson; it may have been deleted.", file=lesson_id)

    def archive(self, keep: int = MOST_LESSONS) -> list[str]:
        """Move the oldest lessons to the archive of their year, and return their ids.

        The newest `keep` active lessons stay, as many quarantined ones, and as many of all others. Files that
        can't be read stay.
        """
        entries = [entry for entry in self.entries() if not entry.archived]
        if len(entries) <= keep:
            return []
        by_status: dict[str, list[tuple[date, Entry]]] = {}
        for entry in entries:
            with suppress(StoreError):
                lesson = self.read_entry(entry)
                group = lesson.status if lesson.status in ("active", "quarantined") else "other"
                by_status.setdefault(group, []).append((lesson.day, entry))
        moved: list[str] = []
        for group in by_status.values():
            group.sort(key=lambda one: (one[0], one[1].changed_ns))
            for day, entry in group[: max(0, len(group) - keep)]:
                target = self._archived(entry.path.stem, day.year)
                with reporting(target), suppress(FileNotFoundError):  # another process was quicker
                    make_folder(target.parent)
                    entry.path.rename(target)
                    moved.append(entry.id)
        return moved

    def _known(self, lesson: Lesson, *, by_hand: bool, by_advice: bool) -> Lesson | None:
        """Return the filed lesson that a new one would repeat, with its confidence raised if need be."""
        filed = list(self.lessons())
        alike = [one for one in filed if one.kind == lesson.kind]
        for one in alike:
            if lesson.source and one.source == lesson.source:
                return one
        words = words_of(lesson.content)
        same = [one for one in alike if overlap(words, words_of(one.content)) >= NEAR_DUPLICATE]
        current = [one for one in same if one.status == lesson.status][:1]
        known = [one for one in same if one.status in REJECTED]
        if by_advice:
            current = _givers(lesson, [one for one in filed if one.status == lesson.status]) or current
            # Advice that is partly rejected, and otherwise given already, is not new either.
            known += _givers(lesson, [one for one in filed if one.status in (lesson.status, *REJECTED)])
        if confirmed := [self._confirmed(one) for one in current]:
            return confirmed[0]
        return None if by_hand else next(iter(known), None)

    def _confirmed(self, lesson: Lesson) -> Lesson:
        """Return a lesson that was learned again."""
        return self.write(replace(lesson, confidence=min(1.0, round(lesson.confidence + CONFIRMATION, 2))))

    def _is_taken(self, stem: str) -> bool:
        return self._archived(stem).exists() or (self.path / f"{stem}{ENDING}").exists()

    def _archives(self) -> list[Path]:
        """Return the folders of the years in the archive."""
        archive = self.path / ARCHIVE
        with (
            reporting(archive),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(archive) as years,
        ):
            found = [one.name for one in years if _YEAR.fullmatch(one.name) and _is_folder(one)]
            return [archive / year for year in sorted(found)]
        return []

    def _places(self, stem: str) -> Sequence[str]:
        """Return the folders where a lesson may be."""
        if _DATED.match(stem):
            return str(self.path), f"{self.path}/{ARCHIVE}/{stem[:4]}"
        return list(map(str, (self.path, *self._archives())))

    def _archived(self, stem: str, year: int = 0) -> Path:
        """Return the path of a lesson in the archive, by the year in its name, else by `year`."""
        return self.path / ARCHIVE / (stem[:4] if _DATED.match(stem) else f"{year:04}") / f"{stem}{ENDING}"


def agents_in(path: Path) -> list[str]:
    """Return the names of the agents' folders under a path; raises `StoreError` if it can't be read."""
    reflections = Path(path) / REFLECTIONS
    with reporting(reflections), suppress(FileNotFoundError), os.scandir(reflections) as folders:
        return sorted(one.name for one in folders if _is_folder(one) and not one.name.startswith("."))
    return []


def files_in_place_of_agents(path: Path) -> list[str]:
    """Return the names of files where agents' folders are expected: those without an ending."""
    reflections = Path(path) / REFLECTIONS
    with reporting(reflections), suppress(FileNotFoundError), os.scandir(reflections) as entries:
        return sorted(one.name for one in entries if "." not in one.name and not _is_folder(one))
    return []


def modified_ns(path: Path | str) -> int:
    """Return when a file or folder was changed, in nanoseconds; 0 if it is not there."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 (asked of 100 folders at once, at a third of the price)
    except OSError:
        return 0


def agent_path(path: Path, agent: str) -> Path:
    """Return the folder of an agent under the folder of all agents."""
    return Path(path) / REFLECTIONS / folder_name(agent)


_TITLE_WORDS = 5
_FILLERS = frozenset(("a", "an", "the", "is", "are"))
"""Words that a long title can do without."""
_LONGEST_NAME = 60
_LONGEST_NAME_BYTES = 120
# What Windows reserves for devices, with or without an ending.
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
)


def folder_name(agent: str) -> str:
    """Return the name of an agent's folder: the agent's name if it is a plain one, else one with a hash.

    The name of a folder is returned as it is.
    """
    slug = _slug(agent)[:_LONGEST_NAME].strip("-")
    if slug and slug == agent and slug not in _DEVICES:
        return slug
    suffix = sha256(agent.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug[: _LONGEST_NAME - 1 - len(suffix)].strip('-') or 'agent'}-{suffix}"


def short_title(title: str) -> str:
    """Return at most five words of a title in any script, lowercase, with hyphens, as a file name.

    Accents of Latin letters are dropped; of other scripts, letters, marks and digits stay. A title of more
    words loses its articles first.
    """
    words = _letters(without_invisible(title)).split()
    if len(words) > _TITLE_WORDS:
        words = [word for word in words if word not in _FILLERS] or words
    name = unicodedata.normalize("NFC", "-".join(words[:_TITLE_WORDS])[:_LONGEST_NAME])
    return name.encode()[:_LONGEST_NAME_BYTES].decode(errors="ignore").strip("-") or "untitled"


def _slug(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text).casefold()
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")


def _letters(text: str) -> str:
    """Return the letters, marks and digits of a text, in lower case, with spaces in place of all else."""
    kept: list[str] = []
    for letter in unicodedata.normalize("NFKD", text).casefold():
        category = unicodedata.category(letter)[0]
        if category == "M" and (not kept or kept[-1].isascii()):
            continue  # an accent, or a mark without a letter
        kept.append(letter if category in "LMN" else " ")
    return "".join(kept)


def _givers(lesson: Lesson, others: Sequence[Lesson]) -> list[Lesson]:
    """Return the lessons that together give all of a lesson's advice; empty if some of it is new.

    What several of them advise is given by the one that advises the least besides.
    """
    advice = {one.id: advice_lines(one.content) for one in others}
    found: dict[str, Lesson] = {}
    for line in advice_lines(lesson.content):
        givers = [one for one in others if line in advice[one.id]]
        if not givers:
            return []
        giver = min(givers, key=lambda one: len(advice[one.id]))
        found[giver.id] = giver
    return list(found.values())


def _files(folder: Path) -> dict[str, os.stat_result]:
    """Return the state of each markdown file of a folder, by its name without the ending."""
    found: dict[str, os.stat_result] = {}
    with reporting(folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
        for one in entries:
            if one.name.endswith(ENDING) and one.name != RULES and not one.name.startswith("."):
                with suppress(FileNotFoundError):  # it was moved or deleted just now
                    found[one.name.removesuffix(ENDING)] = one.stat(follow_symlinks=False)
    return found


def _state_of(file: str) -> os.stat_result | None:
    """Return the state of a file; None where there is none, or something else."""
    with reporting(file), suppress(FileNotFoundError, NotADirectoryError, ValueError):  # not a file name
        found = os.lstat(file)
        return found if stat.S_ISREG(found.st_mode) else None
    return None


def is_file_stem(stem: str) -> bool:
    """Return whether a text can be the name of a lesson's file, without its ending."""
    is_short = len(stem.encode("utf-8", "surrogatepass")) <= _LONGEST_STEM
    return bool(stem) and is_short and "/" not in stem and not stem.startswith(".")


def _is_folder(one: os.DirEntry[str]) -> bool:
    return one.is_dir(follow_symlinks=False)
