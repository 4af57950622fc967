"""The indexer: reads the documents of lessons into the database that searches use."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from redraft._locks import FileLock, make_file, make_folder
from redraft.errors import LessonFileError, StoreError
from redraft.lessons.folder import LessonFolder
from redraft.lessons.full_text import searchable
from redraft.lessons.markdown import parse
from redraft.lessons.safety import lesson_redactor, violation_in
from redraft.stores.sqlite import primary_name
from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from sqlite3 import Connection

    from redraft.lessons.documents import Documents, Entry
    from redraft.lessons.lesson import Lesson, Status
    from redraft.redact.redactor import Redactor
    from redraft.stores.worker import Job

SERIES, VERSION = 1, 4
"""The series is raised with each change of the schema; databases of another one are left alone.

The version is raised when more is written; a database of an earlier one is brought up to date.
"""
SEARCHED: tuple[Status, ...] = ("active", "quarantined")
"""The lessons that may be found, quarantined ones to be tried; 1 and 2 in the column `is_active`."""
AGENT_BITS = 24
"""A lesson's number is its agent's number shifted by so many bits, plus its own.

So the lessons of an agent are one range of row numbers, which full-text search can be limited to.
"""
BATCH = 500
"""Files written per transaction."""
WAIT = 300.0
"""Seconds to wait for another process, which may be building the whole index."""
YOUNG_NS = 100_000_000
"""A file changed this recently may change again without a new modification time."""
LONGEST_MEANING = 1_000
"""Characters of a lesson that are embedded: about what a small model reads."""

SCHEMA = """
CREATE TABLE agents (
    agent INTEGER PRIMARY KEY, folder TEXT NOT NULL UNIQUE,
    changed_ns INTEGER NOT NULL,  -- when the folder was changed; -1 if it may have changed since
    revision INTEGER NOT NULL     -- raised with each change of a lesson or a vector
);
CREATE TABLE lessons (
    number INTEGER PRIMARY KEY, agent INTEGER NOT NULL, id TEXT NOT NULL UNIQUE,
    changed_ns INTEGER NOT NULL, size INTEGER NOT NULL, file_hash BLOB NOT NULL,
    problem TEXT NOT NULL,        -- why the file is not a lesson
    is_active INTEGER NOT NULL,   -- 1 if active, 2 if quarantined; of all others, what follows is empty
    kind TEXT NOT NULL, day INTEGER NOT NULL, task_type TEXT NOT NULL, tools TEXT NOT NULL,
    length INTEGER NOT NULL,      -- in words
    content TEXT NOT NULL,        -- the fields of its content
    searched TEXT NOT NULL,       -- all of its text
    meaning TEXT NOT NULL, digest BLOB NOT NULL, -- the text that is embedded, and its hash
    confidence REAL NOT NULL DEFAULT 0.7
);
CREATE INDEX lessons_by_agent ON lessons (agent);
CREATE INDEX lessons_by_digest ON lessons (digest);
CREATE INDEX lessons_with_problems ON lessons (id) WHERE problem != '';
CREATE VIRTUAL TABLE words USING fts5(
    searched, content = 'lessons', content_rowid = 'number', columnsize = 0,
    tokenize = "porter unicode61 tokenchars '_'"
);
CREATE TABLE IF NOT EXISTS vectors (
    embedder TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (embedder, digest)
);
"""
ANEW = f"DROP TABLE words; DROP TABLE lessons; DROP TABLE agents; {SCHEMA}"
"""Have all files read again; their vectors stay."""


class Broken(NamedTuple):
    """A file that is not a lesson, and why."""

    id: str
    problem: str


@dataclass(frozen=True, slots=True)
class Refreshed:
    """How many lessons were added, changed and removed, and which files are not lessons."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    broken: tuple[Broken, ...] = ()


class Indexer:
    """Keep the database in step with the documents of all agents.

    A document counts as unchanged while its modification time and size are the same, a lesson while the hash
    of its text is. One process updates the database at a time. Texts are redacted before they are written.
    """

    def __init__(self, documents: Documents, redactor: Redactor | None = None) -> None:
        self.folder = documents.index
        self._documents = documents
        self._given_redactor = redactor

    def update(self, connection: Connection, folder: str | None) -> None:
        """Index the folders whose state has changed: that of an agent, or of all agents."""
        known = dict(connection.execute("SELECT folder, changed_ns FROM agents").fetchall())
        folders = {*self._documents.agents(), *known} if folder is None else {folder}
        changed = [name for name in folders if self._documents.state(name) != known.get(name, 0)]
        if changed:
            with exclusive(self.folder):
                for name in changed:
                    self._index_folder(connection, name)

    def distrust(self, connection: Connection, numbers: Collection[int]) -> None:
        """Make the next update read the files of some lessons, whatever their modification times."""
        with transaction(connection):
            for number in numbers:
                connection.execute("UPDATE lessons SET changed_ns = -1 WHERE number = ?", (number,))
                connection.execute(
                    "UPDATE agents SET changed_ns = -1 WHERE agent = ?", (number >> AGENT_BITS,)
                )

    def refresh(self, connection: Connection) -> Refreshed:
        """Index every file whose modification time or size has changed."""
        with exclusive(self.folder):
            return self._index_all(connection)

    def rebuild(self, connection: Connection) -> Refreshed:
        """Index every file anew, and delete the vectors of texts that are gone."""
        with exclusive(self.folder):
            connection.executescript(f"BEGIN IMMEDIATE; {ANEW} COMMIT;")
            refreshed = self._index_all(connection)
            connection.execute("DELETE FROM vectors WHERE digest NOT IN (SELECT digest FROM lessons)")
        return refreshed

    def purge(self, connection: Connection) -> None:
        """Rebuild the database and overwrite what was deleted; raises `TimeoutError` if it is in use."""
        self.rebuild(connection)
        with exclusive(self.folder):
            connection.execute("VACUUM")
            (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise TimeoutError

    def _index_all(self, connection: Connection) -> Refreshed:
        known = [folder for (folder,) in connection.execute("SELECT folder FROM agents")]
        counts: Counter[str] = Counter()
        for name in sorted({*self._documents.agents(), *known}):
            counts += self._index_folder(connection, name)
        broken = connection.execute("SELECT id, problem FROM lessons WHERE problem != '' ORDER BY id")
        return Refreshed(**counts, broken=tuple(Broken(*row) for row in broken))

    def _index_folder(self, connection: Connection, name: str) -> Counter[str]:
        """Index the files of an agent, and count the lessons added, changed and removed."""
        folder = LessonFolder(self._documents, name)
        changed_ns = _trusted_time(self._documents.state(name))
        agent, known = _known_files(connection, name)
        entries: dict[str, Entry] = {}
        problem = (
            ""
            if folder.name == name
            else f"The lessons of an agent of this name belong in the folder {folder.name!r}."
        )
        try:
            for entry in folder.entries():
                entries.setdefault(entry.id, entry)  # of two files with one name, the archived one is second
        except StoreError as error:
            problem = str(error)
        if problem:  # its lessons stay as they were
            return _write(connection, agent, [(_File(name, 0, 0, b"", problem), IndexRow())], known)
        changed = [
            entry
            for entry in entries.values()
            if known.get(entry.id, ())[1:3] != (entry.changed_ns, entry.size)
        ]
        counts: Counter[str] = Counter()
        for start in range(0, len(changed), BATCH):
            # Parsed and redacted before the transaction, which blocks other processes.
            texts = self._documents.texts(changed[start : start + BATCH], of="a lesson")
            batch = [self._read(folder, entry, text, known.get(entry.id)) for entry, text in texts]
            counts += _write(connection, agent, list(filter(None, batch)), known)
        removed = [file for file in known.values() if file.id not in entries]
        with transaction(connection):
            for file in removed:
                _delete(connection, file.number)
            connection.execute(
                "UPDATE agents SET changed_ns = ?, revision = revision + ? WHERE agent = ?",
                (changed_ns, bool(removed), agent),
            )
            if not entries and not changed_ns:  # the folder itself is gone
                connection.execute("DELETE FROM agents WHERE agent = ?", (agent,))
        counts["removed"] += sum(not file.problem for file in removed)
        return counts

    def _read(
        self, folder: LessonFolder, entry: Entry, text: str | StoreError, known: _File | None
    ) -> tuple[_File, IndexRow] | None:
        """Parse a text; None if the document has just been removed, which the next update will notice."""
        file = _File(entry.id, max(0, _trusted_time(entry.changed_ns)), entry.size, b"")
        try:
            if isinstance(text, StoreError):
                raise text
            file = file._replace(file_hash=digest_of(text))
            if known is not None and known.file_hash == file.file_hash:
                return file._replace(problem=known.problem), IndexRow()
            return file, row_of(parse(text, entry.id, folder.agent, entry.day), self._redactor)
        except StoreError as error:
            if not isinstance(error, LessonFileError) and self._documents.entry(entry.id) is None:
                return None
            return file._replace(problem=self._redactor.redact(str(error)).text), IndexRow()

    @cached_property
    def _redactor(self) -> Redactor:
        return self._given_redactor or lesson_redactor()  # slow to build


# --- the rows ----------------------------------------------------------------------------------------------


class IndexRow(NamedTuple):
    """The columns of a lesson that may be found, from `is_active` on; empty for any other file."""

    is_active: int = 0
    kind: str = ""
    day: int = 0
    task_type: str = ""
    tools: str = ""
    length: int = 0
    content: str = ""
    searched: str = ""
    meaning: str = ""
    digest: bytes = b""
    confidence: float = 0.0


def row_of(lesson: Lesson, redactor: Redactor) -> IndexRow:
    """Return the row of a lesson; an empty one if it is not in use, or says what no lesson may."""
    if lesson.status not in SEARCHED or violation_in(lesson):
        return IndexRow()
    content = [str(getattr(lesson.content, one.name)) for one in fields(lesson.content)]
    texts = [
        lesson.task,
        lesson.summary,
        lesson.error,
        lesson.task_type,
        *lesson.tools,
        *content,
        lesson.title,
    ]
    # Most lessons are clean: one pass over all texts is faster than one for each.
    if not redactor.is_clean("\n".join(texts)):
        texts = [redactor.redact(text).text for text in texts]
        if not redactor.is_clean("\n".join(texts)):  # a secret that is split between two texts
            texts = [redactor.redact("\n".join(texts)).text, *[""] * (len(texts) - 1)]
    task, summary, error, task_type, *rest = texts
    tools, content = rest[: len(lesson.tools)], rest[len(lesson.tools) : -1]
    searched = "\n".join(filter(None, texts))
    meaning = "\n".join(filter(None, [task or summary, error, *content]))[:LONGEST_MEANING]
    return IndexRow(
        is_active=SEARCHED.index(lesson.status) + 1,
        kind=lesson.kind,
        day=lesson.day.toordinal(),
        task_type=normalized(task_type),
        tools="\n".join(sorted(map(normalized, tools))),
        length=len(searched.split()),
        content="\n".join(content),
        searched=searchable(searched),
        meaning=meaning,
        digest=digest_of(meaning),
        confidence=lesson.confidence,
    )


def normalized(name: str) -> str:
    """Return the name of a task type or a tool in the form in which names are compared."""
    return " ".join(without_invisible(name).casefold().split())


def digest_of(text: str) -> bytes:
    """Return a 16-byte hash of a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class _File(NamedTuple):
    """The columns of a file."""

    id: str
    changed_ns: int
    size: int
    file_hash: bytes
    problem: str = ""
    number: int = 0


def _known_files(connection: Connection, name: str) -> tuple[int, dict[str, _File]]:
    """Return the number of the agent with a folder, and the indexed files by id."""
    # The revision begins with the time, so that it differs from that of a deleted agent with this number.
    connection.execute("INSERT OR IGNORE INTO agents VALUES (NULL, ?, 0, ?)", (name, time.time_ns()))
    (agent,) = connection.execute("SELECT agent FROM agents WHERE folder = ?", (name,)).fetchone()
    rows = connection.execute(
        "SELECT id, changed_ns, size, file_hash, problem, number FROM lessons WHERE agent = ?", (agent,)
    )
    return agent, {row[0]: _File(*row) for row in rows}


def _write(
    connection: Connection, agent: int, files: Sequence[tuple[_File, IndexRow]], known: Mapping[str, _File]
) -> Counter[str]:
    """Write files of an agent with their rows, and count the lessons added, changed and removed."""
    counts: Counter[str] = Counter()
    is_changed = False
    with transaction(connection):
        (last,) = connection.execute(
            "SELECT coalesce(max(number), ?) FROM lessons WHERE agent = ?", (agent << AGENT_BITS, agent)
        ).fetchone()
        for file, row in files:
            old = known.get(file.id)
            if old is not None and (old.file_hash, old.problem) == (file.file_hash, file.problem):
                connection.execute(
                    "UPDATE lessons SET changed_ns = ?, size = ? WHERE number = ?",
                    (file.changed_ns, file.size, old.number),
                )
                continue
            if old is None:
                number = last = last + 1
            else:
                number = old.number
                _delete(connection, number)
            values = (number, agent, *file[:5], *row)
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO lessons VALUES ({marks})", values)  # noqa: S608 (only marks)
            if row.kind:
                connection.execute(
                    "INSERT INTO words (rowid, searched) VALUES (?, ?)", (number, row.searched)
                )
            is_changed = True
            was_lesson = old is not None and not old.problem
            if not file.problem:
                counts["changed" if was_lesson else "added"] += 1
            elif was_lesson:
                counts["removed"] += 1
        connection.execute("UPDATE agents SET revision = revision + ? WHERE agent = ?", (is_changed, agent))
    return counts


def _delete(connection: Connection, number: int) -> None:
    # FTS5 has to be told the words that it is to forget.
    connection.execute(
        "INSERT INTO words (words, rowid, searched) "
        "SELECT 'delete', number, searched FROM lessons WHERE number = ? AND is_active",
        (number,),
    )
    connection.execute("DELETE FROM lessons WHERE number = ?", (number,))


def _trusted_time(changed_ns: int) -> int:
    """Return a modification time; -1 if it is so recent that the next change may leave it as it is."""
    return -1 if time.time_ns() - changed_ns < YOUNG_NS else changed_ns


# --- the database ------------------------------------------------------------------------------------------

# Durability is not needed: a transaction lost in a crash is found missing, and read from the files again.
_SETTINGS = "PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_UNUSABLE = (*_DAMAGED, "SQLITE_ERROR", "")
"""As `_DAMAGED`, or without the tables, or of another version."""


class IndexSession:
    """A connection to the newest database in a folder, for the thread of a `Worker`.

    The databases are `lessons-<series>-<n>.db`. A damaged one is replaced by the next `n`: under the same
    name, a process that still has the old one open would delete the new one's journal on closing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._connection: sqlite3.Connection | None = None
        self._path: Path | None = None
        self._inode = 0
        self._damaged: Path | None = None

    def turn(self) -> AbstractContextManager[None]:
        """Never wait: writers take the lock themselves."""
        return nullcontext()

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Run each job, and run it again on a new database if the old one turns out to be damaged."""
        for job in jobs:
            job.run(self._current())
            if isinstance(job.error, sqlite3.Error):
                is_damaged = primary_name(job.error) in _DAMAGED
                self.close()
                if is_damaged:
                    self._damaged = self._path
                    job.run(self._current())

    def close(self) -> None:
        """Close the connection; the next job opens another one."""
        if self._connection is not None:
            with suppress(sqlite3.Error):  # what was committed is safe, and the rest can be derived again
                self._connection.close()
            self._connection = None

    def _current(self) -> sqlite3.Connection:
        if self._path is not None and _inode(self._path) != self._inode:  # the file was removed
            self.close()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        make_folder(self._folder)
        with exclusive(self._folder):
            found = sorted(self._databases().items())
            number, newest = found[-1] if found else (0, None)
            if newest is not None and newest != self._damaged:
                try:
                    return self._connect(newest)
                except OSError:  # it is no regular file
                    pass
                except sqlite3.DatabaseError as error:
                    if primary_name(error) not in _UNUSABLE:
                        raise
            connection = self._connect(self._folder / f"lessons-{SERIES}-{number + 1}.db")
            for old in (path for _, path in found if path.is_file()):
                for suffix in ("", "-wal", "-shm"):
                    old.with_name(f"{old.name}{suffix}").unlink(missing_ok=True)
            return connection

    def _connect(self, path: Path) -> sqlite3.Connection:
        """Connect to a database, creating the tables in a new one; raises `sqlite3.DatabaseError`."""
        make_file(path)
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", timeout=WAIT, isolation_level=None, uri=True)
        try:
            connection.executescript(_SETTINGS)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
                connection.executescript(
                    f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;"
                )
            elif version < VERSION:
                connection.executescript(f"BEGIN IMMEDIATE; {ANEW} PRAGMA user_version = {VERSION}; COMMIT;")
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"{path} has version {version}.")  # noqa: TRY301 (it has to be closed)
            connection.execute("SELECT count(*) FROM agents").fetchone()
        except BaseException:
            connection.close()
            raise
        self._path, self._inode = path, _inode(path)
        return connection

    def _databases(self) -> dict[int, Path]:
        paths = self._folder.glob(f"lessons-{SERIES}-*.db")
        numbered = ((path.stem.rpartition("-")[2], path) for path in paths)
        return {int(number): path for number, path in numbered if number.isdecimal()}


@contextmanager
def exclusive(folder: Path) -> Generator[None]:
    """Hold the lock of an index, which one process updates at a time."""
    lock = FileLock(folder / "lock", WAIT)
    try:
        with lock.held():
            yield
    finally:
        lock.close()


@contextmanager
def transaction(connection: Connection, mode: str = "IMMEDIATE") -> Generator[None]:
    """Write all or nothing; in `DEFERRED` mode, read the state of one moment."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # unless a damaged file or a full disk has ended it
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
