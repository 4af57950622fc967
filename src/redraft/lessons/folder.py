"""The files of an agent's lessons, which are the truth."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
import unicodedata
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.errors import LessonFileError, StoreError
from redraft.lessons.lesson import Lesson, Status
from redraft.lessons.markdown import parse, render

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from redraft.lessons.lesson import Content

ENDING = ".md"
LOCK_WAIT = 10.0
_LOCK_PAUSE = 0.005


def add_file(folder: Path, stem: str, data: bytes, *, is_taken: Callable[[str], bool]) -> str:
    """Make a new file in a folder, and return its name without the ending: the stem, or that with a number.

    `is_taken` says of a name that it is in use somewhere else. Raises what the system raises.
    """
    for name in _free_names(stem):
        if is_taken(name):
            continue
        with suppress(FileExistsError):
            _write_new(folder / f"{name}{ENDING}", data)
            return name
    raise AssertionError("names never end")


def write_over(path: Path, data: bytes) -> None:
    """Put a file where there is one, with its mode, or none; raises what the system raises."""
    temporary = _temporary(path)
    try:
        _write(temporary, data)
        with suppress(FileNotFoundError):
            temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def naming(path: Path | str) -> Generator[None]:
    """Raise what the system says about a path as a `StoreError` that names it."""
    try:
        yield
    except FileExistsError:  # part of the search for a free name
        raise
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}.") from error


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold a folder, which is made if need be, for this thread alone; not to be held twice.

    The lock is on the folder itself, so that no file of its own comes into anyone's git. Raises `StoreError`
    when another holds it for longer than `LOCK_WAIT` seconds.
    """
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    until = time.monotonic() + LOCK_WAIT
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise StoreError(
                    f"{folder}: another process has held it for {LOCK_WAIT:g} s; is it stopped?"
                ) from None
        time.sleep(_LOCK_PAUSE)


def _free_names(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}-{number}"
        number += 1


def _write_new(path: Path, data: bytes) -> None:
    """Make a file that was not there, whole at once; raises `FileExistsError`."""
    temporary = _temporary(path)
    try:
        _write(temporary, data)
        os.link(temporary, path)  # unlike a rename, it never takes the place of another's file
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name[:80]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


WORDS = 5
LONGEST = 60
# What Windows keeps for devices, with or without an ending.
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
)


def short_title(summary: str) -> str:
    """Return at most five words of a summary, in lowercase with hyphens. Reflexion Protocol, section 4."""
    words = _slug(summary).split("-")[:WORDS]
    return "-".join(words)[:LONGEST].strip("-") or "untitled"


def folder_name(agent: str) -> str:
    """Return the folder of an agent: its name where that is a plain one, else one that no other agent has.

    The folder of an agent that is named like a folder is that folder.
    """
    slug = _slug(agent)[:LONGEST].strip("-")
    if slug and slug == agent and slug not in _DEVICES:
        return slug
    suffix = sha256(agent.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug[: LONGEST - 1 - len(suffix)].strip('-') or 'agent'}-{suffix}"


def _slug(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text).casefold()
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")


REFLECTIONS = "reflections"
ARCHIVE = "archive"
RULES = "rules.md"
"""What lies in the folder of an agent besides its lessons: its rules, which are no lesson."""
KEPT = 30
"""How many active lessons an agent has; older ones go to the archive of their year."""
MOST_BYTES = 1_000_000

_LONGEST_STEM = 250
"""Bytes; a longer name no file can have."""
_YEAR = re.compile(r"[0-9]{4}")
_DATED = re.compile(r"[0-9]{4}-")


@dataclass(frozen=True, slots=True)
class Entry:
    """Name a file of a lesson, with what tells whether it was changed."""

    id: str
    file: str
    changed_ns: int
    size: int
    archived: bool = False

    @property
    def path(self) -> Path:
        """Where the file is; made when it is asked for, as few of 100,000 are."""
        return Path(self.file)

    @property
    def day(self) -> date:
        """The day on which the file was last changed: that of a lesson which does not say its own."""
        return datetime.fromtimestamp(self.changed_ns / 1e9, UTC).date()


class LessonFolder:
    """Keep the lessons of one agent as files under `<path>/reflections/<agent>/`.

    Every write is whole or not there, whatever is killed; many processes may write at once. `path` is the
    folder for all agents (`memory`). Raises `StoreError` where a file can't be read or written.
    Reflexion Protocol, section 4.
    """

    def __init__(self, path: Path, agent: str) -> None:
        self.agent = agent
        self.name = folder_name(agent)
        self._folder = Path(path) / REFLECTIONS / self.name

    def add(self, lesson: Lesson) -> Lesson:
        """File a lesson under a name of its own, and return it with its id."""
        stem = f"{lesson.day}-{short_title(lesson.summary)}"
        text = render(lesson).encode()
        with naming(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            name = add_file(self._folder, stem, text, is_taken=lambda name: self._archived(name).exists())
        return replace(lesson, id=f"{self.name}/{name}")

    def write(self, lesson: Lesson) -> Lesson:
        """Put a lesson in the place of the file of its id."""
        path = self.path_of(lesson.id)
        with naming(path):
            write_over(path, render(lesson).encode())
        return lesson

    def read(self, lesson_id: str) -> Lesson:
        """Return a lesson by its id; raises `LessonFileError` for a file that is none."""
        return self.read_entry(self.entry_of(lesson_id))

    def read_entry(self, entry: Entry) -> Lesson:
        """Return the lesson of a file; raises `LessonFileError` for a file that is none."""
        return parse(self.text_of(entry), entry.id, self.agent, entry.day)

    def text_of(self, entry: Entry) -> str:
        """Return what a file says; raises `LessonFileError` for one that can't be that of a lesson."""
        if entry.size > MOST_BYTES:
            raise LessonFileError(f"{entry.size:,} bytes are no lesson.", file=entry.id)
        try:
            with naming(entry.file):
                mode = os.lstat(entry.file).st_mode
            if stat.S_ISLNK(mode):  # it may lead anywhere
                raise LessonFileError("It is a link, which is not followed.", file=entry.id)
            if not stat.S_ISREG(mode):  # a pipe would be read for ever
                raise LessonFileError("It is no file.", file=entry.id)
            with naming(entry.file):
                return entry.path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise LessonFileError(f"It is not UTF-8: {error.reason}.", file=entry.id) from error

    def entries(self) -> Iterator[Entry]:
        """Name the files that are there, the archived ones last."""
        for folder in self.folders():
            archived = folder != self._folder
            for name, stem, found in sorted(_files(folder)):
                yield Entry(
                    f"{self.name}/{stem}", f"{folder}/{name}", found.st_mtime_ns, found.st_size, archived
                )

    def folders(self) -> list[Path]:
        """Return the folder of the active lessons, and those of the years in the archive."""
        archive = self._folder / ARCHIVE
        try:
            with os.scandir(archive) as years:
                found = [one.name for one in years if _YEAR.fullmatch(one.name) and _is_folder(one)]
        except (FileNotFoundError, NotADirectoryError):
            found = []
        return [self._folder, *(archive / year for year in sorted(found))]

    def path_of(self, lesson_id: str) -> Path:
        """Return where the file of an id is; raises `LessonFileError` where there is none."""
        return self.entry_of(lesson_id).path

    def entry_of(self, lesson_id: str) -> Entry:
        """Return the file of an id as it is now; raises `LessonFileError` where there is none."""
        folder, _, stem = lesson_id.partition("/")
        if not _is_name(stem):
            wanted = "expected <agent>/<name of the file without .md>"
            raise LessonFileError(f"This is not the id of a lesson; {wanted}.", file=f"{lesson_id!r:.100}")
        if folder != self.name:
            raise LessonFileError(f"This is a lesson of {folder!r}, not of {self.agent!r}.", file=lesson_id)
        for place in self._places(stem):
            if found := _state_of(file := f"{place}/{stem}{ENDING}"):
                return Entry(lesson_id, file, found.st_mtime_ns, found.st_size)
        raise LessonFileError("There is no such lesson (any more).", file=lesson_id)

    def _places(self, stem: str) -> Iterator[Path | str]:
        """Yield the folders where a lesson may be."""
        yield self._folder
        if _DATED.match(stem):
            yield f"{self._folder}/{ARCHIVE}/{stem[:4]}"
        else:
            yield from self.folders()[1:]

    def archive(self, keep: int = KEPT) -> list[str]:
        """Move the oldest lessons to the archive of their year, and return their ids; nothing is deleted.

        `keep` stay of the active ones, as many of those in quarantine, and as many of all others. A file that
        can't be read stays where it is.
        """
        entries = [entry for entry in self.entries() if not entry.archived]
        moved: list[str] = []
        if len(entries) <= keep:
            return moved
        by_status: dict[str, list[tuple[date, Entry]]] = {}
        for entry in entries:
            with suppress(StoreError):
                lesson = self.read_entry(entry)
                group = lesson.status if lesson.status in ("active", "quarantined") else "other"
                by_status.setdefault(group, []).append((lesson.day, entry))
        for group in by_status.values():
            group.sort(key=lambda one: (one[0], one[1].changed_ns))
            for day, entry in group[: max(0, len(group) - keep)]:
                goal = self._archived(entry.path.stem, day.year)
                with naming(goal), suppress(FileNotFoundError):  # another process was quicker
                    goal.parent.mkdir(parents=True, exist_ok=True)
                    entry.path.rename(goal)
                    moved.append(entry.id)
        return moved

    def _archived(self, stem: str, year: int = 0) -> Path:
        """Return where a lesson is archived: in the year of its name, else in the one that is given."""
        place = stem[:4] if _DATED.match(stem) else f"{year:04}"
        return self._folder / ARCHIVE / place / f"{stem}{ENDING}"


def agents_in(path: Path) -> list[str]:
    """Return the names of the folders of the agents that have lessons under a path."""
    try:
        with os.scandir(Path(path) / REFLECTIONS) as folders:
            found = [one.name for one in folders if _is_folder(one)]
    except FileNotFoundError:
        return []
    return sorted(name for name in found if not name.startswith("."))


def _files(folder: Path) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield the name, the name without its ending and the state of each file, without opening any."""
    with naming(folder), suppress(FileNotFoundError), os.scandir(folder) as found:
        for one in found:
            stem, dot, ending = one.name.rpartition(".")
            if stem and dot + ending == ENDING and one.name != RULES and not stem.startswith("."):
                with suppress(FileNotFoundError):  # it was moved or deleted just now
                    yield one.name, stem, one.stat(follow_symlinks=False)


def _state_of(file: str) -> os.stat_result | None:
    """Return the state of a file; None where there is none, or something else."""
    # As texts, not as a `Path`, which takes ten times as long: a search asks for each file that it finds.
    with naming(file), suppress(FileNotFoundError, NotADirectoryError, ValueError):  # no name of a file
        found = os.lstat(file)
        return found if stat.S_ISREG(found.st_mode) else None
    return None


def _is_name(stem: str) -> bool:
    is_short = len(stem.encode("utf-8", "surrogatepass")) <= _LONGEST_STEM
    return bool(stem) and is_short and "/" not in stem and not stem.startswith(".")


def _is_folder(one: os.DirEntry[str]) -> bool:
    return one.is_dir(follow_symlinks=False)


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
