"""The index over the lessons: full text and vectors."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import time
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache, partial
from hashlib import blake2b
from heapq import nlargest
from importlib import import_module
from itertools import chain, islice
from math import log, sqrt
from operator import itemgetter, mul
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from redraft._locks import FileLock, make_file, make_folder
from redraft._validation import check_count
from redraft.errors import LessonFileError, ModelError, OutputError, StoreError
from redraft.lessons.folder import REFLECTIONS, Entry, LessonFolder, agents_in, folder_name
from redraft.lessons.lesson import KINDS, Lesson, LessonKind
from redraft.lessons.markdown import parse
from redraft.lessons.safety import violation_in
from redraft.redact.log import logger
from redraft.redact.redactor import EVERY_CATEGORY, redactor_of_environment
from redraft.stores.base import Record
from redraft.stores.memory import MemoryStore
from redraft.stores.sqlite import explained, name_of
from redraft.stores.worker import Worker
from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from sqlite3 import Connection

    from redraft.models.embed import NamedEmbedder
    from redraft.redact.redactor import Redactor
    from redraft.stores.base import Store
    from redraft.stores.worker import Job

_LARGEST = 127


@cache
def numpy() -> Any:
    """Return numpy, or None where it is not installed: it comes with the offline embedder's runtime."""
    try:
        return import_module("numpy")
    except ImportError:
        return None


def packed(vector: Sequence[float]) -> bytes:
    """Return a byte for each number, the largest as 127: cosines come out right to a thousandth."""
    found = numpy()
    if found is None:
        most = max(map(abs, vector))
        return array("b", [round(number * _LARGEST / most) for number in vector]).tobytes()
    row = found.asarray(vector, "f8")
    return found.rint(row * _LARGEST / found.abs(row).max()).astype("i1").tobytes()


def cosine(one: bytes, other: bytes) -> float:
    """Return the cosine of two packed vectors of one dimension."""
    found = numpy()
    if found is None:
        first, second = array("b", one), array("b", other)
        lengths = sum(map(mul, first, first)) * sum(map(mul, second, second))
        return sum(map(mul, first, second)) / sqrt(lengths)
    rows = found.frombuffer(one + other, "i1").reshape(2, -1).astype("f4")
    (length, product), (_, other_length) = (rows @ rows.T).tolist()
    return product / sqrt(length * other_length)


def signs_of(vector: bytes) -> bytes:
    """Return a bit for each number of a packed vector that is above zero, filled up to whole 8 bytes.

    The nearer two vectors are in direction, the fewer of these bits differ (Charikar, 2002).
    """
    found = numpy()
    width = -(-len(vector) // 64) * 64
    if found is None:
        bits = "".join("1" if 0 < number <= _LARGEST else "0" for number in vector)
        return int(bits.ljust(width, "0"), 2).to_bytes(width // 8)
    return found.packbits(found.frombuffer(vector, "i1") > 0).tobytes().ljust(width // 8, b"\0")


class Vectors:
    """Hold packed vectors of one dimension, in parts as they are stored."""

    def __init__(self, parts: Sequence[bytes], dimension: int) -> None:
        found = numpy()
        joined = parts[0] if len(parts) == 1 else b"".join(parts)
        self._dimension = dimension
        self._bytes = joined
        self._rows: Any = None if found is None else found.frombuffer(joined, "i1").reshape(-1, dimension)

    def __len__(self) -> int:
        return len(self._bytes) // self._dimension

    def cosines(self, question: Sequence[float], places: Sequence[int] | None = None) -> list[float]:
        """Return the cosine with a vector of unit length of all of them, or of those at some places."""
        if numpy() is None:
            every = range(len(self)) if places is None else places
            return [self._cosine(question, place) for place in every]
        return self._cosines(question, places).tolist()

    def nearest(self, question: Sequence[float], places: Sequence[int], most: int) -> list[tuple[int, float]]:
        """Return at most so many of some places whose cosines are the largest, with these, in no order."""
        found = numpy()
        if found is None:
            return nlargest(most, zip(places, self.cosines(question, places), strict=True), key=itemgetter(1))
        cosines = self._cosines(question, places)
        best = found.argpartition(cosines, -most)[-most:] if most < len(cosines) else slice(None)
        return list(zip(found.asarray(places)[best].tolist(), cosines[best].tolist(), strict=True))

    def _cosines(self, question: Sequence[float], places: Sequence[int] | None) -> Any:
        found = numpy()
        rows: Any = (self._rows if places is None else self._rows.take(places, axis=0)).astype("f4")
        lengths = found.sqrt(found.einsum("ij,ij->i", rows, rows))
        # Not by `@`: for so few rows, the threads of its library take longer to meet than to multiply.
        return found.einsum("ij,j->i", rows, found.asarray(question, "f4")) / lengths

    def _cosine(self, question: Sequence[float], place: int) -> float:
        start = place * self._dimension
        row = array("b", self._bytes[start : start + self._dimension])
        return sum(map(mul, row, question)) / sqrt(sum(map(mul, row, row)))


class Signs:
    """Hold the signs of many vectors, to find in a millisecond those of 100,000 that may be the nearest."""

    def __init__(self, parts: Sequence[bytes], width: int) -> None:
        found = numpy()
        codes = b"".join(parts)
        self._count = len(codes) // width
        if found is not None and hasattr(found, "bitwise_count"):  # numpy 2
            # A row for each 8 bytes, so that what is added up lies side by side.
            self._rows: Any = found.ascontiguousarray(
                found.frombuffer(codes, "u8").reshape(self._count, -1).T
            )
        else:
            self._rows = None
            self._codes = [int.from_bytes(codes[at : at + width]) for at in range(0, len(codes), width)]

    def nearest(self, question: bytes, count: int) -> Sequence[int]:
        """Return the places of at least so many signs that differ least from some, in no order."""
        if count >= self._count:
            return range(self._count)
        if self._rows is None:
            one = int.from_bytes(question)
            apart = [(one ^ other).bit_count() for other in self._codes]
            return sorted(range(self._count), key=apart.__getitem__)[:count]
        found = numpy()
        distance = found.zeros(self._count, "u2")
        for row, part in zip(self._rows, found.frombuffer(question, "u8"), strict=True):
            distance += found.bitwise_count(row ^ part)
        # Distances are few: to count them is ten times as quick as to sort by them.
        enough = int(found.searchsorted(found.bincount(distance).cumsum(), count))
        return found.flatnonzero(distance <= enough)


SCHEMA = """
CREATE VIRTUAL TABLE words USING fts5(
    text, content = '', columnsize = 0, tokenize = "porter unicode61 tokenchars '_'"
);
"""
COMMON = 400
"""A word that more lessons have than this tells nothing where all agents' are searched."""
FEW, OFTEN = 50, 0.4
"""Likewise one that more than so many, and more than this share of an agent's lessons have."""
NAME_WEIGHT = 2.0
"""What the word for a whole name counts: who says it means it."""
MOST_WORDS = 48
"""Words of a question that are looked up; names come first."""

_LAST = 2**63 - 1
"""The largest number that SQLite knows."""

# A name: has a digit, `_`, `/`, `--`, a dot inside, or a capital inside a word.
_NAME = re.compile(r"(?<!\w)(?:--\w[\w-]*|[./~]*\w+(?:[./:\\-]+\w+)*)")
_TELLING = re.compile(r"\d|_|/|\\|^--|\w\.\w|::|[a-z][A-Z]|[A-Z]{2}[a-z]")
_WORD = re.compile(r"\w+")
_PARTS = re.compile(r"[/\\:]+")
_JOINTS = re.compile(r"\W+")
_EDGES = re.compile(r"^\W+|\W+$")
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been but by can could did do does for from had has have how i if in into is "
        "it its me my no not of on or our should so such than that the their them then there these they this "
        "to up was we were what when where which who why will with would you your",
    )
)


def names_in(text: str) -> list[str]:
    """Return the identifiers of a text as they stand there: error codes, file, option and tool names."""
    found = (one for one in _NAME.findall(text) if not one[1:].islower() or not one.isalpha())  # most words
    return list(dict.fromkeys(one for one in found if _TELLING.search(one)))


def folded(name: str) -> list[str]:
    """Return the words that stand for a name as a whole, and for each part of a path."""
    parts = [part for part in _PARTS.split(name) if part]
    whole = [name, *parts] if len(parts) > 1 else [name]
    joined = (_JOINTS.sub("_", _EDGES.sub("", one)).lower() for one in whole)
    return list(dict.fromkeys(one for one in joined if one))


def searchable(text: str) -> str:
    """Return a text with the words that stand for its names: SQLite would take these apart."""
    apart = (word for name in names_in(text) if _JOINTS.search(name) for word in folded(name))
    return " ".join([text, *dict.fromkeys(apart)])


def words_in(text: str) -> list[str]:
    """Return what is looked up for a question, each word once: its names, then its other words."""
    names = (word for name in names_in(text) for word in folded(name))
    others = (word for word in _WORD.findall(text.lower()) if word not in _EMPTY)
    return list(dict.fromkeys([*names, *others]))[:MOST_WORDS]


class FullText:
    """Search the words of active lessons: those of all agents, or those whose numbers are `among` two.

    SQLite's own `bm25()` counts each word in all documents for every search, which takes 25 ms and more for a
    common word of 100,000 lessons. So a word's weight comes of the lessons that are searched alone, and that
    a lesson has a word counts, not how often: lessons are short. The words that tell nothing are remembered.
    For one thread's connection at a time.
    """

    def __init__(self, among: tuple[int, int] | None = None) -> None:
        self._among = among or (0, _LAST)
        self._most = -1 if among else COMMON + 1
        self._common: set[str] = set()

    def scores(self, connection: Connection, text: str, count: int) -> dict[int, float]:
        """Return the lessons that have words of a text, each with the sum of the words' weights.

        `count` is how many are searched. What has none of the rarer words is found if nothing has, and it has
        all the common ones.
        """
        found: dict[int, float] = {}
        common: list[str] = []
        names = {folded(name)[0] for name in names_in(text) if not name.isdecimal()}
        often = COMMON if self._most > 0 else max(FEW, int(count * OFTEN))
        for word in words_in(text):
            numbers = [] if word in self._common else self._having(connection, word, often + 1)
            if word in self._common or len(numbers) > often:
                common.append(word)
                continue
            weight = log(1 + (count - len(numbers) + 0.5) / (len(numbers) + 0.5)) if numbers else 0.0
            if word in names:
                weight *= NAME_WEIGHT
            for number in numbers:
                found[number] = found.get(number, 0.0) + weight
        self._common.update(common)
        if not found and common:
            found = dict.fromkeys(self._having(connection, '" AND "'.join(common), self._most), 1.0)
        return found

    def having(self, connection: Connection, name: str) -> set[int]:
        """Return the lessons that hold a name as a whole."""
        return {number for word in folded(name)[:1] for number in self._having(connection, word, self._most)}

    def _having(self, connection: Connection, words: str, most: int) -> list[int]:
        rows = connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?",
            (f'"{words}"', *self._among, most),
        )
        return [number for (number,) in rows]


VERSION = 2
"""Raise it with each change of what is kept: an older index is left alone, and another one made."""
WAIT = 300.0
"""Seconds to wait for another process, which may be making the whole index."""

_SCHEMA = f"""
CREATE TABLE agents (
    place INTEGER PRIMARY KEY, folder TEXT NOT NULL UNIQUE, seen INTEGER NOT NULL, revision INTEGER NOT NULL,
    active INTEGER NOT NULL
);
CREATE TABLE lessons (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, changed_ns INTEGER NOT NULL, size INTEGER NOT NULL,
    archived INTEGER NOT NULL, file_hash BLOB NOT NULL, problem TEXT NOT NULL, kind TEXT NOT NULL,
    status TEXT NOT NULL, day INTEGER NOT NULL, task_type TEXT NOT NULL, tools TEXT NOT NULL,
    length INTEGER NOT NULL, digest BLOB NOT NULL
);
CREATE INDEX lessons_by_digest ON lessons (digest);
CREATE INDEX lessons_with_problems ON lessons (id) WHERE problem != '';
CREATE TABLE texts (
    number INTEGER PRIMARY KEY, said TEXT NOT NULL, searched TEXT NOT NULL, meaning TEXT NOT NULL
);
{SCHEMA}
CREATE TABLE vectors (
    number INTEGER PRIMARY KEY, embedder TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB NOT NULL,
    signs BLOB NOT NULL, UNIQUE (embedder, digest)
);
CREATE TABLE shelves (
    place INTEGER NOT NULL, embedder TEXT NOT NULL, revision INTEGER NOT NULL, numbers BLOB NOT NULL,
    rows BLOB NOT NULL, ranked BLOB NOT NULL, signs BLOB NOT NULL, vectors BLOB NOT NULL,
    PRIMARY KEY (place, embedder)
);
"""
# It is derived from the files: what a crash of the machine takes is found to be missing, and read again.
_SETTINGS = (
    "PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; "
    "PRAGMA cache_size = -16000; PRAGMA mmap_size = 268435456;"
)
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_UNUSABLE = (*_DAMAGED, "SQLITE_ERROR", "")
"""Likewise without our tables, or of another version."""


class IndexFile:
    """Hold one thread's connection to the newest database of an index: the session of a `Worker`.

    The databases are `lessons-<version>-<n>.db` in a folder of their own, of mode 0700, that ignores itself
    in git. One that is damaged gives way to the next `n`: a process that still has the old one open can't do
    any harm to the new one by closing it, as it could if they had one name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._connection: sqlite3.Connection | None = None
        self._path: Path | None = None
        self._inode = 0
        self._damaged: Path | None = None

    def turn(self) -> AbstractContextManager[None]:
        """Wait for nobody: who writes takes the lock itself."""
        return nullcontext()

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Run each job, once more with a new database where the one there was is damaged or gone."""
        for job in jobs:
            job.run(self._current())
            if isinstance(job.error, sqlite3.Error) and name_of(job.error) in _DAMAGED:
                self._give_up()
                job.run(self._current())
            elif isinstance(job.error, sqlite3.Error):
                self.close()

    def close(self) -> None:
        """Let go of the connection; the next job opens another one."""
        if self._connection is not None:
            with suppress(sqlite3.Error):  # what was committed is safe, and the rest can be made again
                self._connection.close()
            self._connection = None

    def _current(self) -> sqlite3.Connection:
        if self._connection is not None and self._path is not None and _inode(self._path) != self._inode:
            self.close()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        make_folder(self._folder)
        lock = lock_of(self._folder)
        with lock.held():
            try:
                found = sorted(self._databases().items())
                number, newest = found[-1] if found else (0, None)
                if newest is not None and newest != self._damaged:
                    try:
                        return self._connected(newest)
                    except sqlite3.DatabaseError as error:
                        if name_of(error) not in _UNUSABLE:
                            raise
                number += 1
                connection = self._connected(self._folder / f"lessons-{VERSION}-{number}.db")
                for _, old in found:
                    _remove(old)
                return connection
            finally:
                lock.close()

    def _connected(self, path: Path) -> sqlite3.Connection:
        """Return a connection to a database with our tables; raises `sqlite3.DatabaseError`."""
        make_file(path)
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", timeout=WAIT, isolation_level=None, uri=True)
        try:
            connection.executescript(_SETTINGS)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
                connection.executescript(
                    f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;"
                )
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"{path} has version {version}.")  # noqa: TRY301 (it has to be closed)
            connection.execute("SELECT count(*) FROM agents").fetchone()
        except BaseException:
            connection.close()
            raise
        self._path, self._inode = path, _inode(path)
        return connection

    def _databases(self) -> dict[int, Path]:
        found: dict[int, Path] = {}
        for path in self._folder.glob(f"lessons-{VERSION}-*.db"):
            number = path.stem.rpartition("-")[2]
            if number.isdecimal():
                found[int(number)] = path
        return found

    def _give_up(self) -> None:
        self.close()
        self._damaged = self._path


def lock_of(folder: Path) -> FileLock:
    """Return the lock that one process at a time holds while it brings an index up to date."""
    return FileLock(folder / "lock", WAIT)


def _remove(path: Path) -> None:
    for side in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{side}").unlink(missing_ok=True)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


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
    is_barred = lesson.status == "active" and violation_in(lesson)
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


BATCH = 500
"""Files that are written in one transaction."""
MANY = 10_000
"""Lessons that are written before the full text is put in order, which takes a second for 100,000."""
PLACES = 24
"""Bits of a lesson's number that count the lessons of its agent; above them is the agent's place."""
YOUNG_NS = 100_000_000
"""What was changed so shortly ago may be changed again without its time being another: it is read again."""


class Broken(NamedTuple):
    """Name a file that is no lesson that can be understood, and say what is wrong with it."""

    id: str
    problem: str


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Count the lessons that were added, changed and removed (a broken one is none), and list the broken."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    broken: tuple[Broken, ...] = ()


class _Known(NamedTuple):
    """What the index knows of a file."""

    number: int
    changed_ns: int
    size: int
    archived: bool
    file_hash: bytes
    problem: str


class _Read(NamedTuple):
    """A file that was read: its lesson's row, or what is wrong with it."""

    entry: Entry
    known: _Known | None
    changed_ns: int
    file_hash: bytes
    row: IndexRow | None
    problem: str


class Scan:
    """Bring an index up to date, agent by agent; for the one process that holds the index's lock.

    A file counts as unchanged while its time and size are the same, and as unchanged in what it says while
    its hash is. What is read and redacted is so before the transaction that writes it.
    """

    def __init__(self, connection: Connection, path: Path, redactor: Redactor) -> None:
        self._connection = connection
        self._path = path
        self._redactor = redactor
        self._counts = {"added": 0, "changed": 0, "removed": 0}

    def all(self) -> Refreshed:
        """Look at the files of all agents."""
        known = [folder for (folder,) in self._connection.execute("SELECT folder FROM agents")]
        self.agents(sorted({*agents_in(self._path), *known}))
        rows = self._connection.execute("SELECT id, problem FROM lessons WHERE problem != '' ORDER BY id")
        return Refreshed(**self._counts, broken=tuple(Broken(*row) for row in rows))

    def agents(self, names: Iterable[str]) -> None:
        """Look at the files of some agents."""
        for name in names:
            self.agent(name)
        if self._counts["added"] + self._counts["changed"] >= MANY:
            # What was written bit by bit lies in many pieces, and a search would look through each of them.
            self._connection.execute("INSERT INTO words (words) VALUES ('optimize')")

    def agent(self, name: str, *, trusting: bool = True) -> None:
        """Look at the files of one agent; unless `trusting`, read them all, whatever their times say."""
        folder = LessonFolder(self._path, name)
        place = self._place(name)
        known = self._known(place)
        try:
            seen = settled(folder.path)
            entries = list(_each_once(folder.entries()))
            problem = "" if folder.name == name else f"An agent of this name has the folder {folder.name!r}."
        except StoreError as error:
            problem, seen, entries = str(error), 0, []
        if problem:  # what can't be looked at has not changed
            self._write(place, [_Read(_nowhere(name), known.get(name), 0, b"", None, problem)])
            return
        waiting: list[tuple[Entry, _Known | None]] = []
        for entry in entries:
            one = known.pop(entry.id, None)
            if one is None or not trusting or (one.changed_ns, one.size) != (entry.changed_ns, entry.size):
                waiting.append((entry, one))
            elif one.archived != entry.archived:
                self._connection.execute(
                    "UPDATE lessons SET archived = ? WHERE number = ?", (entry.archived, one.number)
                )
        for start in range(0, len(waiting), BATCH):
            read = [self._read(folder, *each) for each in waiting[start : start + BATCH]]
            self._write(place, [one for one in read if one is not None])
        with transaction(self._connection):
            for one in known.values():
                self._remove(one)
            if known:
                self._changed(place)
            self._connection.execute("UPDATE agents SET seen = ? WHERE place = ?", (seen, place))
            if not entries and seen == 0:  # there is no such folder any more
                self._connection.execute("DELETE FROM agents WHERE place = ?", (place,))

    def _place(self, name: str) -> int:
        # The first revision is no number that an agent before it had at this place.
        self._connection.execute(
            "INSERT OR IGNORE INTO agents VALUES (NULL, ?, 0, ?, 0)", (name, time.time_ns())
        )
        (place,) = self._connection.execute("SELECT place FROM agents WHERE folder = ?", (name,)).fetchone()
        return place

    def _known(self, place: int) -> dict[str, _Known]:
        rows = self._connection.execute(
            "SELECT id, number, changed_ns, size, archived, file_hash, problem FROM lessons "
            "WHERE number BETWEEN ? AND ?",
            numbers_of(place),
        )
        return {found: _Known(*rest) for found, *rest in rows}

    def _read(self, folder: LessonFolder, entry: Entry, known: _Known | None) -> _Read | None:
        """Read a file; None for one that is gone by now, which the next look will find."""
        changed_ns = 0 if time.time_ns() - entry.changed_ns < YOUNG_NS else entry.changed_ns
        file_hash = b""
        try:
            text = folder.text_of(entry)
            file_hash = digest_of(text)
            if known is not None and known.file_hash == file_hash:
                return _Read(entry, known, changed_ns, file_hash, None, known.problem)
            row = row_of(parse(text, entry.id, folder.agent, entry.day), self._redactor)
        except StoreError as error:
            if not isinstance(error, LessonFileError) and not entry.path.exists():
                return None
            problem = self._redactor.redact(str(error)).text
            return _Read(entry, known, changed_ns, file_hash, None, problem)
        return _Read(entry, known, changed_ns, file_hash, row, "")

    def _write(self, place: int, read: list[_Read]) -> None:
        first, last = numbers_of(place)
        with transaction(self._connection):
            (taken,) = self._connection.execute(
                "SELECT max(number) FROM lessons WHERE number BETWEEN ? AND ?", (first, last)
            ).fetchone()
            number = first - 1 if taken is None else taken
            is_changed = False
            for one in read:
                known = one.known
                if known is not None and one.row is None and known.problem == one.problem:
                    self._connection.execute(
                        "UPDATE lessons SET changed_ns = ?, size = ?, archived = ? WHERE number = ?",
                        (one.changed_ns, one.entry.size, one.entry.archived, known.number),
                    )
                    continue
                self._count(known, one)
                if known is not None:
                    self._erase(known)
                number += 1
                self._insert(number, one)
                is_changed = True
            if is_changed:
                self._changed(place)

    def _count(self, known: _Known | None, one: _Read) -> None:
        was_lesson = known is not None and not known.problem
        if one.row is not None:
            self._counts["changed" if was_lesson else "added"] += 1
        elif was_lesson:
            self._counts["removed"] += 1

    def _insert(self, number: int, one: _Read) -> None:
        entry, row = one.entry, one.row
        kept = ("", "", 0, "", "[]", 0) if row is None else row[:6]
        self._connection.execute(
            "INSERT INTO lessons VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(number, entry.id, one.changed_ns, entry.size, entry.archived, one.file_hash, one.problem),
                *kept,
                b"" if row is None else row.digest,
            ),
        )
        if row is None:
            return
        self._connection.execute(
            "INSERT INTO texts VALUES (?, ?, ?, ?)", (number, row.said, row.searched, row.meaning)
        )
        if row.status == "active":  # no other is ever recalled
            self._connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, row.searched))

    def _remove(self, known: _Known) -> None:
        self._counts["removed"] += not known.problem
        self._erase(known)

    def _erase(self, known: _Known) -> None:
        number = (known.number,)
        self._connection.execute(
            "INSERT INTO words (words, rowid, text) SELECT 'delete', number, searched "
            "FROM lessons JOIN texts USING (number) WHERE number = ? AND status = 'active'",
            number,
        )
        self._connection.execute("DELETE FROM texts WHERE number = ?", number)
        self._connection.execute("DELETE FROM lessons WHERE number = ?", number)

    def _changed(self, place: int) -> None:
        """Tell all processes that what they remember of an agent is no longer so."""
        self._connection.execute(
            "UPDATE agents SET revision = revision + 1, active = "
            "(SELECT count(*) FROM lessons WHERE number BETWEEN ? AND ? AND status = 'active') "
            "WHERE place = ?",
            (*numbers_of(place), place),
        )


def numbers_of(place: int) -> tuple[int, int]:
    """Return the first and the last number that a lesson of an agent can have."""
    return place << PLACES, (place + 1 << PLACES) - 1


def settled(path: str | Path) -> int:
    """Return when a file or folder was changed; -1 if that was so shortly ago that it may change unseen."""
    changed = modified(path)
    return -1 if time.time_ns() - changed < YOUNG_NS else changed


def modified(path: str | Path) -> int:
    """Return when a file or folder was changed, in nanoseconds; 0 if it is not there."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 (a third of what Path takes; asked for 100 agents at once)
    except OSError:
        return 0


def _each_once(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Leave out of two files with one name the archived one, which comes later."""
    seen: set[str] = set()
    for entry in entries:
        if entry.id not in seen:
            seen.add(entry.id)
            yield entry


def _nowhere(name: str) -> Entry:
    return Entry(name, name, 0, 0)


@contextmanager
def transaction(connection: Connection) -> Generator[None]:
    """Write all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a damaged file or a full disk has ended it
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


_RANKED = "number, kind, day, length"
_KINDS = tuple(KINDS)
# A cross join keeps SQLite from going through all vectors of the embedder instead of a few lessons.
_WITH_VECTORS = "FROM lessons CROSS JOIN vectors ON embedder = ? AND vectors.digest = lessons.digest"


class AgentRow(NamedTuple):
    """Say where an agent's lessons are in the index, which change was the last, and how many are active."""

    place: int
    revision: int
    active: int


class Placed(NamedTuple):
    """Hold what an active lesson is ranked by."""

    number: int
    kind: str
    day: int
    length: int


class Part(NamedTuple):
    """Hold the packed vectors of an agent's active lessons, one after the other, and the lessons' numbers.

    `rows` are the numbers of the vectors themselves, by which a few are read without the others. `ranked` is
    what else a lesson is ranked by, three numbers each: the kind's place, the day and the length.
    """

    revision: int
    numbers: bytes
    rows: bytes
    ranked: bytes
    signs: bytes
    vectors: bytes


def placed(connection: Connection, numbers: Iterable[int]) -> dict[int, Placed]:
    """Return the active ones of some lessons, by their numbers."""
    rows = connection.execute(
        f"SELECT {_RANKED} FROM json_each(?) CROSS JOIN lessons ON number = value WHERE status = 'active'",  # noqa: S608 (columns)
        (listed(numbers),),
    )
    return {row[0]: Placed(*row) for row in rows}


def listed(numbers: Iterable[int]) -> str:
    """Return numbers as what `json_each` makes a table of: a statement without them in it is read once."""
    return f"[{', '.join(map(str, numbers))}]"


def part_of(connection: Connection, embedder: str, agent: AgentRow, *, with_vectors: bool = True) -> Part:
    """Return the vectors of an agent's lessons, put together anew unless they are since its last change."""
    vectors = "vectors" if with_vectors else "x''"
    row = connection.execute(
        f"SELECT revision, numbers, rows, ranked, signs, {vectors} FROM shelves "  # noqa: S608 (a column)
        "WHERE place = ? AND embedder = ?",
        (agent.place, embedder),
    ).fetchone()
    if row is not None and row[0] == agent.revision:
        return Part(*row)
    rows = connection.execute(
        f"SELECT lessons.number, vectors.number, kind, day, length, signs, vector {_WITH_VECTORS} "
        "WHERE lessons.number BETWEEN ? AND ? AND status = 'active'",
        (embedder, *numbers_of(agent.place)),
    ).fetchall()
    part = Part(
        agent.revision,
        array("q", [number for number, *_ in rows]).tobytes(),
        array("q", [vector for _, vector, *_ in rows]).tobytes(),
        array("i", chain.from_iterable((_KINDS.index(one[2]), *one[3:5]) for one in rows)).tobytes(),
        b"".join(signs for *_, signs, _ in rows),
        b"".join(vector for *_, vector in rows),
    )
    connection.execute(
        "INSERT OR REPLACE INTO shelves VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (agent.place, embedder, *part)
    )
    return part


def vector_of_lesson(connection: Connection, embedder: str, number: int) -> bytes:
    """Return the packed vector of a lesson; empty where it has none."""
    row = connection.execute(
        f"SELECT vector {_WITH_VECTORS} WHERE lessons.number = ?", (embedder, number)
    ).fetchone()
    return b"" if row is None else row[0]


def unembedded(connection: Connection, embedder: str, agent: AgentRow) -> dict[bytes, int]:
    """Return a lesson for each text of an agent without a vector, by the text's digest, the newest first."""
    rows = connection.execute(
        "SELECT digest, number FROM lessons WHERE number BETWEEN ? AND ? AND status = 'active' "
        "AND NOT EXISTS (SELECT 1 FROM vectors WHERE embedder = ? AND vectors.digest = lessons.digest) "
        "ORDER BY day DESC",
        (*numbers_of(agent.place), embedder),
    )
    return dict(rows.fetchall())


class Shelf:
    """Hold the active lessons of one agent, with their vectors ready to be compared: exactly, all of them."""

    def __init__(self, connection: Connection, agent: AgentRow, embedder: str) -> None:
        self.revision = agent.revision
        self.words = FullText(numbers_of(agent.place))
        self.lessons: dict[int, Placed] = {}
        self._types: dict[str, set[int]] = {}
        self._tools: dict[str, set[int]] = {}
        rows = connection.execute(
            f"SELECT task_type, tools, {_RANKED} FROM lessons "  # noqa: S608 (columns)
            "WHERE number BETWEEN ? AND ? AND status = 'active'",
            numbers_of(agent.place),
        )
        for task_type, tools, *ranked in rows:
            one = Placed(*ranked)
            self.lessons[one.number] = one
            self._types.setdefault(task_type, set()).add(one.number)
            for tool in json.loads(tools):
                self._tools.setdefault(tool, set()).add(one.number)
        part = part_of(connection, embedder, agent) if embedder else Part(0, *[b""] * 5)
        numbers = array("q", part.numbers)
        self._places = {number: place for place, number in enumerate(numbers)}
        self._vectors = Vectors([part.vectors], len(part.vectors) // len(numbers)) if numbers else None

    @property
    def is_embedded(self) -> bool:
        """Whether each lesson has a vector."""
        return len(self._places) == len(self.lessons)

    def of_type(self, task_type: str) -> set[int]:
        """Return the lessons about a type of task."""
        return self._types.get(task_type, set()) if task_type else set()

    def with_tool(self, tool: str) -> set[int]:
        """Return the lessons that name a tool as theirs."""
        return self._tools.get(tool, set())

    def cosines(self, question: Sequence[float] | None, numbers: Collection[int]) -> dict[int, float]:
        """Return the cosine of each of some lessons that has a vector, by its number."""
        if question is None or self._vectors is None:
            return {}
        having = [number for number in numbers if number in self._places]
        places = [self._places[number] for number in having]
        return dict(zip(having, self._vectors.cosines(question, places), strict=True))


class Shelves:
    """Hold the vectors of all agents' active lessons: 100,000 of 384 dimensions take 90 MB.

    Their signs are a small part of that. Only these are read for the first question, which is all that a
    process may ever ask; it is answered with the vectors of the lessons that the signs leave. What was read
    stays until the agent's lessons change.
    """

    def __init__(self, embedder: str) -> None:
        self._embedder = embedder
        self._agents: list[AgentRow] = []
        self._parts: dict[int, Part] = {}
        self._numbers = array("q")
        self._rows = array("q")
        self._ranked = array("i")
        self._signs: Signs | None = None
        self._vectors: Vectors | None = None
        self._was_asked = False

    def __len__(self) -> int:
        return len(self._numbers)

    def update(self, connection: Connection, agents: Iterable[AgentRow]) -> None:
        """Read what has changed since the last time."""
        agents = sorted(agents)  # by their places, so that the lessons' numbers rise
        if agents == self._agents:
            return
        parts: dict[int, Part] = {}
        for agent in agents:
            known = self._parts.get(agent.place)
            if known is None or known.revision != agent.revision:
                known = part_of(connection, self._embedder, agent, with_vectors=self._was_asked)
            parts[agent.place] = known
        self._agents, self._parts, self._vectors = agents, parts, None
        filled = [part for part in parts.values() if part.numbers]
        self._numbers = array("q", b"".join(part.numbers for part in filled))
        self._rows = array("q", b"".join(part.rows for part in filled))
        self._ranked = array("i", b"".join(part.ranked for part in filled))
        codes = [part.signs for part in filled]
        self._signs = Signs(codes, sum(map(len, codes)) // len(self._numbers)) if filled else None

    def nearest(
        self, connection: Connection, question: Sequence[float], depth: int, most: int
    ) -> dict[int, float]:
        """Return the cosines of the nearest lessons, at most so many, out of the `depth` nearest by signs."""
        if self._signs is None:
            return {}
        places = self._signs.nearest(signs_of(packed(question)), depth)
        if self._was_asked and self._vectors is None:
            self._vectors = self._loaded(connection)
        self._was_asked = True
        if self._vectors is None:
            found = self._read(connection, question, places, most)
        else:
            found = self._vectors.nearest(question, places, most)
        return {self._numbers[place]: cosine for place, cosine in found}

    def cosines(
        self, connection: Connection, question: Sequence[float], numbers: Iterable[int]
    ) -> dict[int, float]:
        """Return the cosine of each of a few lessons that has a vector, by its number."""
        places = [place for number in numbers if (place := self._place(number)) is not None]
        if not places:
            return {}
        if self._vectors is None:
            found = self._read(connection, question, places, len(places))
        else:
            found = zip(places, self._vectors.cosines(question, places), strict=True)
        return {self._numbers[place]: cosine for place, cosine in found}

    def placed(self, numbers: Iterable[int]) -> dict[int, Placed]:
        """Return those of some lessons that have vectors, by their numbers."""
        found: dict[int, Placed] = {}
        for number in numbers:
            if (place := self._place(number)) is not None:
                kind, day, length = self._ranked[3 * place : 3 * place + 3]
                found[number] = Placed(number, _KINDS[kind], day, length)
        return found

    def _place(self, number: int) -> int | None:
        place = bisect_left(self._numbers, number)
        return place if place < len(self) and self._numbers[place] == number else None

    def _read(
        self, connection: Connection, question: Sequence[float], places: Sequence[int], most: int
    ) -> list[tuple[int, float]]:
        """Do what `Vectors.nearest` does, and read no more vectors than that takes."""
        found = dict(
            connection.execute(
                "SELECT number, vector FROM json_each(?) CROSS JOIN vectors ON number = value",
                (listed(self._rows[place] for place in places),),
            ).fetchall()
        )
        still_there = [int(place) for place in places if self._rows[place] in found]
        vectors = Vectors([found[self._rows[place]] for place in still_there], len(question))
        nearest = vectors.nearest(question, range(len(still_there)), most)
        return [(still_there[at], cosine) for at, cosine in nearest]

    def _loaded(self, connection: Connection) -> Vectors | None:
        """Return the vectors of all; None where another process has just put others in their place."""
        for place, part in self._parts.items():
            if part.numbers and not part.vectors:
                row = connection.execute(
                    "SELECT vectors FROM shelves WHERE place = ? AND embedder = ? AND revision = ?",
                    (place, self._embedder, part.revision),
                ).fetchone()
                if row is None:
                    return None
                self._parts[place] = part._replace(vectors=row[0])
        blobs = [part.vectors for part in self._parts.values()]
        return Vectors(blobs, sum(map(len, blobs)) // len(self._numbers))


KIND = "lesson_vector"
QUESTIONS = 256
"""Vectors of questions that are remembered."""
UNUSED = timedelta(days=90)
"""How old a shared vector is that is swept if no lesson here has its text: nobody will want it any more."""
PAGE = 500
"""Shared vectors that are looked at in one go."""
REST = 60.0
"""Seconds for which a store that could not be used is not asked again."""


class Embedding:
    """Turn questions and what lessons say into vectors, by an embedder where there is one.

    `name` is that of the embedder, empty without one. `shared` is a store that other machines use, too: what
    one of them has embedded no other embeds again. It holds a record for each text, under the names of the
    embedder and the digest of the text; never the text. Without that store everything is embedded here.
    """

    def __init__(self, embedder: NamedEmbedder | None, shared: Store | None = None) -> None:
        self.name = "" if embedder is None else embedder.name
        self._embedder = embedder
        self._shared = shared
        self._rests_until = 0.0
        self._dimension: int | None = None
        self._questions: OrderedDict[str, list[float]] = OrderedDict()

    async def of_question(self, text: str) -> list[float] | None:
        """Return the vector of a question; None, and a warning, where the embedder fails."""
        if not self.name or not text:
            return None
        known = self._questions.get(text)
        if known is None:
            try:
                [row] = await self._made([text])
            except (ModelError, OutputError) as error:
                logger.warning("Lessons are searched by full text alone: %s", error)
                return None
            known = self._questions[text] = list(row)
        self._questions.move_to_end(text)
        if len(self._questions) > QUESTIONS:
            self._questions.popitem(last=False)
        return known

    async def of_texts(self, texts: Mapping[bytes, str]) -> dict[bytes, Sequence[float]]:
        """Return the vectors of some texts, both by the texts' digests; raises what the embedder raises.

        A vector of another dimension than the embedder's is left out: its name was another one's before.
        """
        known = await self._known(texts)
        missing = [digest for digest in texts if digest not in known]
        if missing:
            rows = await self._made([texts[digest] for digest in missing])
            made = dict(zip(missing, rows, strict=True))
            await self._share(made)
            known |= made
        return {digest: row for digest, row in known.items() if self._fits(row)}

    async def sweep(self, digests: Collection[bytes]) -> int:
        """Delete the shared vectors of long ago of texts other than these; return how many that were.

        Another machine that wants one after all embeds the text again.
        """
        store, last, swept = self._store(), None, 0
        before = datetime.now(UTC) - UNUSED
        try:
            while store is not None and (page := await store.find(KIND, after=last, limit=PAGE)):
                last = page[-1]
                old = [one.key for one in page if _digest_of(one) not in digests and _is_older(one, before)]
                swept += sum(await asyncio.gather(*(store.delete(KIND, key) for key in old)))
        except StoreError as error:
            self._rest(error)
        return swept

    async def _made(self, texts: list[str]) -> Sequence[Sequence[float]]:
        if self._embedder is None:
            return []
        rows = await self._embedder(texts)
        self._dimension = len(rows[0])
        return rows

    def _fits(self, row: Sequence[float]) -> bool:
        return self._dimension in {None, len(row)}

    # What follows costs nothing but embedding where the store is away.

    async def _known(self, digests: Mapping[bytes, str]) -> dict[bytes, Sequence[float]]:
        store = self._store()
        if store is None:
            return {}
        try:
            # All at once: a store on a server sends and reads them together.
            found = await asyncio.gather(*(store.get(KIND, self._key(digest)) for digest in digests))
        except StoreError as error:
            self._rest(error)
            return {}
        return {
            digest: one.vector
            for digest, one in zip(digests, found, strict=True)
            if one is not None and one.vector is not None and self._fits(one.vector)
        }

    async def _share(self, made: Mapping[bytes, Sequence[float]]) -> None:
        store = self._store()
        if store is None:
            return
        try:
            await store.put_all(
                [Record(KIND, self._key(digest), {}, vector=row) for digest, row in made.items()]
            )
        except StoreError as error:
            self._rest(error)

    def _store(self) -> Store | None:
        return self._shared if monotonic() >= self._rests_until else None

    def _rest(self, error: StoreError) -> None:
        self._rests_until = monotonic() + REST
        logger.warning("The vectors of lessons are not shared for %.0f seconds: %s", REST, error)

    def _key(self, digest: bytes) -> str:
        return f"{self.name}/{digest.hex()}"


def _digest_of(record: Record) -> bytes:
    return bytes.fromhex(record.key.rpartition("/")[2])


def _is_older(record: Record, before: datetime) -> bool:
    return record.updated_at is not None and record.updated_at < before


def of_many_machines(store: Store | None) -> Store | None:
    """Return a store if it is one that machines share; one in a file is no nearer than the index itself."""
    if store is None or isinstance(store, MemoryStore):
        return None
    from redraft.stores.postgres import PostgresStore  # noqa: PLC0415 (what is kept nowhere needs none)

    return store if isinstance(store, PostgresStore) else None


BOOST = 0.3
"""What the names that both hold add to a similarity at most. Equal weights would hurt."""
NEAR = 0.3
"""The least similarity at which a lesson of another task type and other tools is shown."""
ALIKE = 0.8
"""The share of words that two lessons have in common if one of them is enough."""
SAME, SHARED = 0.95, 0.4
"""The similarity, and the share of words, from which two lessons say the same in other words.

Neither is enough: lessons about one task are similar, whatever they say of it. Of pairs of recorded
reflections on one task, together they join 22 of 28 that are similar without the task's text, too (0.9), and
3 of 56 that are not.
"""


class Candidate(NamedTuple):
    """Hold what a lesson is ranked by; `number` names it in the index.

    `similarity` is the cosine of the embeddings, None where there is none. `text` is its share (0..1) of the
    best score of the full text. `day` counts days. `tools` are those that the task may use, too.
    """

    number: int
    day: int
    same_type: bool = False
    tools: tuple[str, ...] = ()
    similarity: float | None = None
    text: float = 0.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """Order lessons by how near they are to a question.

    `has_names`: it holds identifiers, which embeddings don't know, so the full text counts beside them.
    `embedded`: there is an embedder, so that nearness is similarity.
    """

    has_names: bool
    embedded: bool

    def score(self, one: Candidate) -> float:
        """Return how near a lesson is in meaning."""
        if one.similarity is not None:
            return one.similarity + (BOOST * one.text if self.has_names else 0.0)
        # Until it has a vector, a lesson can't be compared with those that have one: it comes among them, but
        # not before one that is truly near.
        return one.text / 2 if self.embedded else one.text

    def ordered(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the relevant ones, best first; of those that are equally near to a hundredth, the newest."""
        return sorted(filter(self._is_relevant, candidates), key=self._key)

    def _is_relevant(self, one: Candidate) -> bool:
        if one.same_type or one.tools:
            return True
        if one.similarity is None:
            return one.text > 0
        return one.similarity >= NEAR or (self.has_names and self.score(one) >= NEAR)

    def _key(self, one: Candidate) -> tuple[float, int, float]:
        score = self.score(one)
        return -round(score, 2), -one.day, -score


def reason_of(one: Candidate, task_type: str, names: Sequence[str]) -> str:
    """Say in a few words why a lesson was chosen; `names` are those that it and the question hold."""
    reasons: list[str] = []
    if one.same_type:
        reasons.append(f"same task type {task_type!r}")
    if one.tools:
        reasons.append(f"tool {', '.join(one.tools)}")
    if one.similarity is not None:
        reasons.append(f"similarity {one.similarity:.2f}")
    if names:
        reasons.append(f"names {', '.join(names[:3])}")
    elif one.similarity is None and one.text:
        reasons.append("shares words")
    return "; ".join(reasons)


def without_alike(
    ordered: Iterable[Candidate],
    said_by: Callable[[Sequence[Candidate]], Sequence[str]],
    vector_of: Callable[[Candidate], bytes],
    batch: int = 12,
) -> Iterator[Candidate]:
    """Yield each one but those that say nearly what an earlier one says; the best stands for them.

    `said_by` returns what so many of them say, at most a `batch`; `vector_of` the packed vector of one, empty
    where it has none.
    """
    kept: list[tuple[Candidate, frozenset[str]]] = []

    def is_said(one: Candidate, words: frozenset[str]) -> bool:
        for other, others in kept:
            both = len(words & others)
            either = len(words) + len(others) - both
            if both >= ALIKE * either:
                return True
            if both >= SHARED * either and _is_same(vector_of(one), vector_of(other)):
                return True
        return False

    waiting = iter(ordered)
    while some := list(islice(waiting, batch)):
        for one, said in zip(some, said_by(some), strict=True):
            words = frozenset(_WORD.findall(said.lower()))
            if not is_said(one, words):
                kept.append((one, words))
                yield one


def _is_same(one: bytes, other: bytes) -> bool:
    return 0 < len(one) == len(other) and cosine(one, other) >= SAME


@dataclass(frozen=True, slots=True)
class Query:
    """Ask for the `k` lessons that are most relevant to a task.

    `tools` are those that the task may use, `error` what went wrong just now. `agent` is whose lessons are
    asked for: those of its task type come first, then those of its tools, then the nearest in meaning, and
    of equally near ones the newest. None asks for the lessons of all agents, by meaning first. `kinds` leaves
    only these. Reflexion Protocol, sections 5 and 7.
    """

    task: str
    task_type: str = ""
    tools: tuple[str, ...] = ()
    error: str = ""
    agent: str | None = None
    k: int = 3
    kinds: Collection[LessonKind] | None = None

    def __post_init__(self) -> None:
        check_count("k", self.k, 1)

    @property
    def text(self) -> str:
        """What is searched for, the task and what went wrong, without what no eye can see."""
        return without_invisible(f"{self.task}\n{self.error}").strip()


@dataclass(frozen=True, slots=True)
class Found:
    """Hold a lesson as its file has it now, how near it is, and in a few words why it was chosen.

    `score` is its similarity to the query (cosine, up to 1) plus up to 0.3 for names that both hold; without
    an embedder it is its share (0..1) of the full text's best score.
    """

    lesson: Lesson
    score: float
    reason: str


DEPTH = 1_000
"""Lessons of all agents whose vectors are compared exactly: those whose signs are the nearest."""
NEAREST = 50
"""Lessons that are ranked because of their meaning, and because of their words."""
FLOOD = 5_000
"""Likewise where those few are all alike."""
SHELVES = 32
"""Agents whose vectors stay in memory."""


_parsed = lru_cache(512)(parse)


class _Kept(NamedTuple):
    """What the index holds of a lesson that was chosen."""

    id: str
    file_hash: bytes
    searched: str


class StaleError(Exception):
    """Say that a file is not what the index holds of it."""

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self.agent = agent


class Search:
    """Answer queries, and remember what they need; for one thread.

    One agent's lessons are compared exactly, all of them. Those of all agents are first narrowed down to the
    1,000 whose vectors' signs are nearest, which are then compared exactly: of 100,000, these hold more than
    99 % of the three nearest (`benchmarks/lessons_ranking.py`).
    """

    def __init__(self, path: Path, embedder: str) -> None:
        self._path = path
        self._embedder = embedder
        self._words = FullText()
        self._shelf_of: OrderedDict[int, Shelf] = OrderedDict()
        self._shelves = Shelves(embedder)
        self._folders: dict[str, LessonFolder] = {}

    def of_agent(
        self, connection: Connection, query: Query, vector: Sequence[float] | None, agent: AgentRow
    ) -> list[Found]:
        """Return an agent's lessons that are relevant, best first."""
        shelf = self._shelf(connection, agent)
        ranking = Ranking(has_names=bool(names_in(query.text)), embedded=vector is not None)
        texts: Mapping[int, float] = {}
        if ranking.has_names or vector is None or not shelf.is_embedded:
            scores = shelf.words.scores(connection, query.text, len(shelf.lessons))
            texts = _shares(scores, shelf.lessons)
        typed = shelf.of_type(same(query.task_type))
        tools: dict[int, tuple[str, ...]] = {}
        for tool in dict.fromkeys(query.tools):
            for number in shelf.with_tool(same(tool)) | shelf.words.having(connection, tool):
                tools[number] = (*tools.get(number, ()), tool)

        def groups() -> Iterator[tuple[set[int], Mapping[int, float]]]:
            for group in (typed & tools.keys(), typed - tools.keys(), tools.keys() - typed):
                yield group, shelf.cosines(vector, group)
            others = shelf.lessons.keys() - typed - tools.keys()
            similar = shelf.cosines(vector, others)
            scores = {number: similar.get(number, 0.0) + texts.get(number, 0.0) for number in others}
            nearest = set(nlargest(NEAREST, scores, key=scores.__getitem__))
            yield nearest, similar
            yield others - nearest, similar

        # The later groups are looked at only if the earlier ones are not enough.
        ordered = chain.from_iterable(
            ranking.ordered(
                Candidate(
                    number,
                    shelf.lessons[number].day,
                    number in typed,
                    tools.get(number, ()),
                    similar.get(number),
                    texts.get(number, 0.0),
                )
                for number in group
                if query.kinds is None or shelf.lessons[number].kind in query.kinds
            )
            for group, similar in groups()
        )
        return self._found(connection, query, ranking, ordered)

    def of_all(
        self,
        connection: Connection,
        query: Query,
        vector: Sequence[float] | None,
        agents: Collection[AgentRow],
    ) -> list[Found]:
        """Return the relevant lessons of all agents, best first."""
        ranking = Ranking(has_names=bool(names_in(query.text)), embedded=vector is not None)
        count = sum(agent.active for agent in agents)
        if vector is not None:
            self._shelves.update(connection, agents)
        scores: dict[int, float] = {}
        if ranking.has_names or vector is None or len(self._shelves) < count:
            scores = self._words.scores(connection, query.text, count)
        found: list[Found] = []
        for depth, most in ((DEPTH, NEAREST), (len(self._shelves), FLOOD)):
            named = self._placed(connection, nlargest(most, scores, key=scores.__getitem__))
            texts = _shares(scores, named)
            near = {} if vector is None else self._shelves.nearest(connection, vector, depth, most)
            similar = near
            if vector is not None and (missing := named.keys() - near.keys()):
                similar = near | self._shelves.cosines(connection, vector, missing)
            lessons = named | self._placed(connection, near.keys() - named.keys())
            candidates = (
                Candidate(number, one.day, similarity=similar.get(number), text=texts.get(number, 0.0))
                for number, one in lessons.items()
                if query.kinds is None or one.kind in query.kinds
            )
            found = self._found(connection, query, ranking, ranking.ordered(candidates))
            more_near = len(near) == most and min(near.values()) >= NEAR
            more_named = vector is None and len(named) == most
            if len(found) >= query.k or not (more_near or more_named):
                break
        return found

    def _placed(self, connection: Connection, numbers: Collection[int]) -> dict[int, Placed]:
        """Return the active ones of some lessons, by their numbers: from memory, as far as they are there."""
        found = self._shelves.placed(numbers)
        missing = [number for number in numbers if number not in found]
        return found | placed(connection, missing) if missing else found

    def _shelf(self, connection: Connection, agent: AgentRow) -> Shelf:
        shelf = self._shelf_of.get(agent.place)
        if shelf is None or shelf.revision != agent.revision:
            shelf = self._shelf_of[agent.place] = Shelf(connection, agent, self._embedder)
        self._shelf_of.move_to_end(agent.place)
        if len(self._shelf_of) > SHELVES:
            self._shelf_of.popitem(last=False)
        return shelf

    def _found(
        self, connection: Connection, query: Query, ranking: Ranking, ordered: Iterable[Candidate]
    ) -> list[Found]:
        """Return the best as their files have them now; raises `StaleError` for one that has changed."""

        def said_by(some: Sequence[Candidate]) -> list[str]:
            texts = _said(connection, [one.number for one in some])
            return [texts.get(one.number, "") for one in some]

        @cache
        def vector_of(one: Candidate) -> bytes:
            return vector_of_lesson(connection, self._embedder, one.number)

        chosen = list(islice(without_alike(ordered, said_by, vector_of, 2 * query.k), query.k))
        rows = connection.execute(
            "SELECT number, lessons.id, file_hash, searched FROM json_each(?) "
            "CROSS JOIN lessons ON number = value CROSS JOIN texts USING (number)",
            (listed(one.number for one in chosen),),
        )
        kept = {number: _Kept(*rest) for number, *rest in rows}
        names = names_in(query.text)
        return [
            Found(
                self._read(kept[one.number]),
                ranking.score(one),
                reason_of(one, query.task_type, _shared(names, kept[one.number].searched)),
            )
            for one in chosen
        ]

    def _read(self, kept: _Kept) -> Lesson:
        agent = kept.id.partition("/")[0]
        folder = self._folders.get(agent) or self._folders.setdefault(agent, LessonFolder(self._path, agent))
        try:
            entry = folder.entry_of(kept.id)
            text = folder.text_of(entry)
            if digest_of(text) != kept.file_hash:
                raise StaleError(agent)
            return _parsed(text, kept.id, folder.agent, entry.day)
        except StoreError as error:
            raise StaleError(agent) from error


def _said(connection: Connection, numbers: Sequence[int]) -> dict[int, str]:
    return dict(
        connection.execute(
            "SELECT number, said FROM json_each(?) CROSS JOIN texts ON number = value", (listed(numbers),)
        ).fetchall()
    )


def _shared(names: Sequence[str], searched: str) -> list[str]:
    words = set(searched.lower().split())
    return [name for name in names if words.intersection(folded(name)[:1])]


def _shares(scores: Mapping[int, float], lessons: Mapping[int, Placed]) -> dict[int, float]:
    """Return the scores of lessons as shares of the best one; a long lesson has more words by chance.

    The fourth root, the name's weight of 2 and `BOOST` do best on recorded reflections.
    """
    weighed = {
        number: score / lessons[number].length ** 0.25
        for number, score in scores.items()
        if number in lessons
    }
    best = max(weighed.values(), default=0.0)
    return {number: score / best for number, score in weighed.items()} if best > 0 else {}


T = TypeVar("T")
FOLDER = ".index"
EMBEDDED = 32
"""Lessons that are embedded and written down together."""
TRIES = 3
"""Searches until a file that changes all the time is given up."""


class LessonIndex:
    """Find lessons by task type, tool, words and meaning, in what their files say.

    `path` is the folder of all agents' lessons (`memory`). The index lies in `.index` in it, for its owner
    only and not for git, and is always local, whatever store a project has: it is made of files that are
    local. `shared` is a store in which machines share vectors. The rules:

    - The files are the truth. A search looks at the times of the agents' folders, and picks up what was
      added, replaced or deleted there, or moved to the archive; what was edited in place, or in the archive,
      is noticed when it is found, and by `refresh`, which looks at every file's time and size. No file is
      ever changed.
    - A missing or damaged index, and one of another version, is made anew by whoever needs it; meanwhile,
      other processes wait.
    - What is written into it went through the redactor first.
    - Vectors belong to the `embedder` of their name, and to the text they were made of: they outlive a
      rebuild. `fill` makes those that are missing, which takes long. Until then, and without an embedder, the
      full text finds lessons.
    - Only `active` lessons are found, archived ones, too. Nearly equal ones count once.

    Serves all tasks, threads and event loops of a process; any number of processes may use it at once. Raises
    `StoreError` where the index can't be written.
    """

    def __init__(
        self,
        path: str | Path,
        embedder: NamedEmbedder | None = None,
        *,
        redactor: Redactor | None = None,
        shared: Store | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        self._folder = self._path / FOLDER
        self._embedding = Embedding(embedder, shared)
        self._name = self._embedding.name
        self._redactor = redactor
        self._search = Search(self._path, self._name)
        self._remembered: Connection | None = None
        self._lock = lock_of(self._folder)
        self._worker = Worker("redraft-lessons", partial(IndexFile, self._folder))
        self._listed = -1
        self._rows: dict[str, tuple[AgentRow, int]] = {}
        self._version: tuple[int, int] | None = None

    async def search(self, query: Query) -> list[Found]:
        """Return the `k` most relevant lessons, best first; fewer where no more are relevant.

        Where the embedder fails, the full text alone is searched, and a warning logged.
        """
        vector = await self._embedding.of_question(query.text)
        return await self._do(partial(self._searched, query, vector))

    async def refresh(self) -> Refreshed:
        """Look at every file, and say what was found since the last time, and which files are broken."""
        return await self._do(self._refreshed)

    async def rebuild(self) -> Refreshed:
        """Read every file again, and sweep the shared vectors that have no lesson any more."""
        found, digests = await self._do(self._rebuilt)
        if swept := await self._embedding.sweep(digests):
            logger.info("%d shared vectors of texts that no lesson has any more were deleted.", swept)
        return found

    async def fill(self, most: int | None = None, agent: str | None = None) -> int:
        """Embed texts of lessons that have no vector yet, of an agent or of all; return how many that were.

        They are at most `most`. A vector that is shared is taken as it is. It picks up what a search would.
        The agents whose folders changed last come first, and of an agent the newest lessons. What is done
        stays done if it is cancelled. Raises what the embedder raises.
        """
        done = 0
        folder = None if agent is None else folder_name(agent)
        waiting = await self._do(partial(self._without_vector, most, folder)) if self._name else []
        while done < len(waiting):
            texts = await self._do(partial(self._meanings, waiting[done : done + EMBEDDED]))
            await self._do(partial(self._keep, await self._embedding.of_texts(texts)))
            done += EMBEDDED
        return len(waiting)

    async def aclose(self) -> None:
        """Let go of the index; the next use opens it again."""
        await self._worker.stop()

    async def _do(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._worker.do(work)
        except (sqlite3.Error, OSError) as error:
            raise explained(error, self._folder / "lessons.db", WAIT) from error

    # What follows runs in the worker's thread.

    def _searched(self, query: Query, vector: list[float] | None, connection: Connection) -> list[Found]:
        search = self._memory(connection)
        if vector is not None:
            self._only_dimension(connection, len(vector))
        for _ in range(TRIES):
            folder = None if query.agent is None else folder_name(query.agent)
            agents = self._agents(connection, folder)
            try:
                if folder is None:
                    return search.of_all(connection, query, vector, agents.values())
                if folder not in agents:
                    return []
                return search.of_agent(connection, query, vector, agents[folder])
            except StaleError as stale:
                with self._lock.held():
                    self._scan(connection).agent(stale.agent, trusting=False)
        return []

    def _refreshed(self, connection: Connection) -> Refreshed:
        self._memory(connection)
        with self._lock.held():
            return self._scan(connection).all()

    def _rebuilt(self, connection: Connection) -> tuple[Refreshed, set[bytes]]:
        """Return what was found, and the digests of all texts."""
        self._memory(connection)
        with self._lock.held():
            with transaction(connection):
                connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
                connection.execute("DELETE FROM texts")
                connection.execute("DELETE FROM lessons")
                connection.execute("UPDATE agents SET seen = 0, revision = revision + 1, active = 0")
            found = self._scan(connection).all()
            connection.execute("DELETE FROM vectors WHERE digest NOT IN (SELECT digest FROM lessons)")
            return found, {digest for (digest,) in connection.execute("SELECT digest FROM lessons")}

    def _agents(self, connection: Connection, folder: str | None) -> dict[str, AgentRow]:
        """Return what is known of the agents, or of one, once their folders have been looked at."""
        asked = self._known(connection)
        if folder is not None:
            asked = {folder: asked[folder]} if folder in asked else {}
        folders = f"{self._path / REFLECTIONS}/"
        stale = [name for name, (_, seen) in asked.items() if modified(folders + name) != seen]
        if folder is not None:
            stale += [folder] if not asked and (self._path / REFLECTIONS / folder).is_dir() else []
        elif modified(self._path / REFLECTIONS) != self._listed:
            listed = settled(self._path / REFLECTIONS)
            stale += [name for name in agents_in(self._path) if name not in asked]
            self._listed = listed
        if stale:
            with self._lock.held():
                self._scan(connection).agents(stale)
            asked = self._known(connection)
        return {name: row for name, (row, _) in asked.items() if folder in {None, name}}

    def _known(self, connection: Connection) -> dict[str, tuple[AgentRow, int]]:
        """Return what the index holds of the agents, and when their folders were changed when it was made."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()  # tells what others have written
        version = version, connection.total_changes
        if version != self._version:
            rows = connection.execute("SELECT folder, place, revision, active, seen FROM agents")
            self._rows = {name: (AgentRow(*row), seen) for name, *row, seen in rows}
            self._version = version
        return self._rows

    def _memory(self, connection: Connection) -> Search:
        """Return what is remembered of this very database."""
        if self._remembered is not connection:
            self._remembered, self._search = connection, Search(self._path, self._name)
            self._listed, self._version = -1, None
            self._lock.close()  # the folder may be another one
        return self._search

    def _scan(self, connection: Connection) -> Scan:
        if self._redactor is None:
            self._redactor = redactor_of_environment(also=EVERY_CATEGORY)
        return Scan(connection, self._path, self._redactor)

    def _without_vector(self, most: int | None, folder: str | None, connection: Connection) -> list[int]:
        """Return a lesson for each text that has no vector, at most so many."""
        self._memory(connection)
        self._agents(connection, folder)
        # An agent whose shelf holds all its lessons has been looked at since its last change.
        agents = connection.execute(
            "SELECT agents.place, agents.revision, active FROM agents LEFT JOIN shelves ON "
            "shelves.place = agents.place AND embedder = ? AND shelves.revision = agents.revision "
            "WHERE (numbers IS NULL OR length(numbers) < 8 * active) AND folder = coalesce(?, folder) "
            "ORDER BY seen < 0 DESC, seen DESC",
            (self._name, folder),
        ).fetchall()
        waiting: dict[bytes, int] = {}
        for agent in map(AgentRow._make, agents):
            missing = unembedded(connection, self._name, agent)
            if not missing:
                part_of(connection, self._name, agent, with_vectors=False)
            waiting |= missing
            if most is not None and len(waiting) >= most:
                break
        return list(waiting.values())[:most]

    def _meanings(self, numbers: list[int], connection: Connection) -> dict[bytes, str]:
        marks = ", ".join(map(str, numbers))
        return dict(
            connection.execute(
                f"SELECT digest, meaning FROM lessons JOIN texts USING (number) WHERE number IN ({marks})"  # noqa: S608 (numbers)
            )
        )

    def _keep(self, vectors: dict[bytes, Sequence[float]], connection: Connection) -> None:
        with transaction(connection):
            for digest, vector in vectors.items():
                row = packed(vector)
                connection.execute(
                    "INSERT OR IGNORE INTO vectors (embedder, digest, vector, signs) VALUES (?, ?, ?, ?)",
                    (self._name, digest, row, signs_of(row)),
                )
            connection.executemany(
                "UPDATE agents SET revision = revision + 1 "
                "WHERE place IN (SELECT number >> ? FROM lessons WHERE digest = ?)",
                [(PLACES, digest) for digest in vectors],
            )

    def _only_dimension(self, connection: Connection, dimension: int) -> None:
        """Throw away vectors of another dimension: what has the name of the embedder is another one now."""
        row = connection.execute(
            "SELECT length(vector) FROM vectors WHERE embedder = ? LIMIT 1", (self._name,)
        ).fetchone()
        if row is not None and row[0] != dimension:
            with transaction(connection):
                connection.execute("DELETE FROM vectors WHERE embedder = ?", (self._name,))
                connection.execute("UPDATE agents SET revision = revision + 1")
