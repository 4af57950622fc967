"""The database behind the index: what it holds of each file, kept in step with the files."""

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
from redraft.lessons.folder import REFLECTIONS, Entry, LessonFolder, agents_in, modified_ns
from redraft.lessons.markdown import parse
from redraft.lessons.ranking import searchable
from redraft.lessons.safety import lesson_redactor, violation_in
from redraft.stores.sqlite import primary_name
from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from sqlite3 import Connection

    from redraft.lessons.lesson import Lesson
    from redraft.redact.redactor import Redactor
    from redraft.stores.worker import Job

FOLDER = ".index"
VERSION = 1
"""Raised with each change of the schema: another version's database is left alone, and a new one made."""
AGENT_BITS = 24
"""A lesson's number is its agent's, and in these bits its own: full text can search one agent's range."""
BATCH = 500
"""Files that are written in one transaction."""
WAIT = 300.0
"""Seconds to wait for another process, which may be building the whole index."""
YOUNG_NS = 100_000_000
"""A file that was changed so recently may change again without its time being another."""
LONGEST_MEANING = 1_000
"""Characters of a lesson that are embedded: about what a small model reads."""

SCHEMA = """
CREATE TABLE agents (
    agent INTEGER PRIMARY KEY, folder TEXT NOT NULL UNIQUE, changed_ns INTEGER NOT NULL,
    revision INTEGER NOT NULL
);
CREATE TABLE lessons (
    number INTEGER PRIMARY KEY, agent INTEGER NOT NULL, id TEXT NOT NULL UNIQUE, changed_ns INTEGER NOT NULL,
    size INTEGER NOT NULL, file_hash BLOB NOT NULL, problem TEXT NOT NULL, is_active INTEGER NOT NULL,
    kind TEXT NOT NULL, day INTEGER NOT NULL, task_type TEXT NOT NULL, tools TEXT NOT NULL,
    length INTEGER NOT NULL, said TEXT NOT NULL, searched TEXT NOT NULL, meaning TEXT NOT NULL,
    digest BLOB NOT NULL
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


class Broken(NamedTuple):
    """Name a file that is not a lesson, and say what is wrong with it."""

    id: str
    problem: str


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Count the lessons that were added, changed and removed, and list the files that are not lessons."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    broken: tuple[Broken, ...] = ()


class Catalog:
    """Keep the database in step with the files under `path`, the folder of all agents' lessons.

    A file counts as unchanged while its time and size are the same, its lesson while its hash is. Changes are
    made by one process at a time; what is written was redacted before.
    """

    def __init__(self, path: Path, redactor: Redactor | None = None) -> None:
        self.folder = path / FOLDER
        self._path = path
        self._given_redactor = redactor

    def pick_up(self, connection: Connection, folder: str | None, stale: Collection[int] = ()) -> None:
        """Read what was added to or removed from the folder of an agent, or of all.

        Of the agents with the numbers in `stale`, all files are read: one was found changed in place.
        """
        rows = connection.execute("SELECT folder, changed_ns, agent FROM agents").fetchall()
        known = {name: changed_ns for name, changed_ns, _ in rows}
        folders = {*agents_in(self._path), *known} if folder is None else {folder}
        reflections = f"{self._path / REFLECTIONS}/"
        changed = {one for one in folders if modified_ns(reflections + one) != known.get(one, 0)}
        edited = {name for name, _, agent in rows if agent in stale}
        if changed or edited:
            with exclusive(self.folder):
                for one in changed | edited:
                    self._look(connection, one, trusting=one not in edited)

    def refresh(self, connection: Connection) -> Refreshed:
        """Look at all files."""
        with exclusive(self.folder):
            return self._look_at_all(connection)

    def rebuild(self, connection: Connection) -> Refreshed:
        """Read all files anew, and keep the vectors of those that are still there."""
        with exclusive(self.folder):
            connection.executescript(
                f"BEGIN IMMEDIATE; DROP TABLE words; DROP TABLE lessons; DROP TABLE agents; {SCHEMA} COMMIT;"
            )
            refreshed = self._look_at_all(connection)
            connection.execute("DELETE FROM vectors WHERE digest NOT IN (SELECT digest FROM lessons)")
        return refreshed

    def _look_at_all(self, connection: Connection) -> Refreshed:
        known = [folder for (folder,) in connection.execute("SELECT folder FROM agents")]
        counts: Counter[str] = Counter()
        for name in sorted({*agents_in(self._path), *known}):
            counts += self._look(connection, name)
        rows = connection.execute("SELECT id, problem FROM lessons WHERE problem != '' ORDER BY id")
        return Refreshed(**counts, broken=tuple(Broken(*row) for row in rows))

    def _look(self, connection: Connection, name: str, *, trusting: bool = True) -> Counter[str]:
        """Look at an agent's files; unless `trusting`, read even those whose time and size are the same."""
        folder = LessonFolder(self._path, name)
        changed_ns = _settled(modified_ns(self._path / REFLECTIONS / name))
        agent, known = _known(connection, name)
        entries: dict[str, Entry] = {}
        problem = "" if folder.name == name else f"An agent of this name has the folder {folder.name!r}."
        try:
            for entry in folder.entries():
                entries.setdefault(entry.id, entry)  # of one name, the archived file comes second
        except StoreError as error:
            problem = str(error)
        if problem:  # what can't be looked at has not changed
            return _write(connection, agent, [(_File(name, 0, 0, b"", problem), _NOTHING)], known)
        counts: Counter[str] = Counter()
        waiting = [
            entry
            for entry in entries.values()
            if not trusting or known.get(entry.id, ())[1:3] != (entry.changed_ns, entry.size)
        ]
        for start in range(0, len(waiting), BATCH):
            # Read and redacted before the transaction, which keeps others waiting.
            some = waiting[start : start + BATCH]
            read = [self._read(folder, entry, known.get(entry.id)) for entry in some]
            counts += _write(connection, agent, list(filter(None, read)), known)
        gone = [one for one in known.values() if one.id not in entries]
        with transaction(connection):
            for one in gone:
                _delete(connection, one)
            connection.execute(
                "UPDATE agents SET changed_ns = ?, revision = revision + ? WHERE agent = ?",
                (changed_ns, bool(gone), agent),
            )
            if not entries and not changed_ns:  # the folder is gone, too
                connection.execute("DELETE FROM agents WHERE agent = ?", (agent,))
        counts["removed"] += sum(not one.problem for one in gone)
        return counts

    def _read(self, folder: LessonFolder, entry: Entry, known: _File | None) -> tuple[_File, Row] | None:
        """Read a file; None for one that is gone by now, which the next look will find."""
        file = _File(entry.id, max(0, _settled(entry.changed_ns)), entry.size, b"")
        try:
            text = folder.text_of(entry)
            file = file._replace(file_hash=digest_of(text))
            if known is not None and known.file_hash == file.file_hash:
                return file._replace(problem=known.problem), _NOTHING
            return file, row_of(parse(text, entry.id, folder.agent, entry.day), self._redactor)
        except StoreError as error:
            if not isinstance(error, LessonFileError) and not entry.path.exists():
                return None
            return file._replace(problem=self._redactor.redact(str(error)).text), _NOTHING

    @cached_property
    def _redactor(self) -> Redactor:
        return self._given_redactor or lesson_redactor()  # which takes a while to build


class Row(NamedTuple):
    """What the index holds of a lesson that can be recalled, redacted.

    `said` is what its fields say, `searched` all of its words, `meaning` what is embedded, and `digest`
    stands for that.
    """

    kind: str
    day: int
    task_type: str
    tools: str
    length: int
    said: str
    searched: str
    meaning: str
    digest: bytes


_NOTHING = Row("", 0, "", "", 0, "", "", "", b"")
"""What it holds of all other files."""


def row_of(lesson: Lesson, redactor: Redactor) -> Row:
    """Return what the index holds of a lesson."""
    if lesson.status != "active" or violation_in(lesson):
        return _NOTHING
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
    meaning = "\n".join(filter(None, [task or summary, error, *said]))[:LONGEST_MEANING]
    return Row(
        kind=lesson.kind,
        day=lesson.day.toordinal(),
        task_type=normalized(task_type),
        tools="\n".join(sorted(map(normalized, tools))),
        length=len(searched.split()),
        said="\n".join(said),
        searched=searchable(searched),
        meaning=meaning,
        digest=digest_of(meaning),
    )


def normalized(name: str) -> str:
    """Return the name of a task type or a tool as it is compared."""
    return " ".join(without_invisible(name).casefold().split())


def digest_of(text: str) -> bytes:
    """Return what stands for a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class _File(NamedTuple):
    """What the index holds of a file. `problem` says why it is not a lesson, if it is not."""

    id: str
    changed_ns: int
    size: int
    file_hash: bytes
    problem: str = ""
    number: int = 0


def _known(connection: Connection, name: str) -> tuple[int, dict[str, _File]]:
    """Return the number of an agent, and its files as the index has them."""
    # A new agent's first revision is none that an earlier one had under the same number.
    connection.execute("INSERT OR IGNORE INTO agents VALUES (NULL, ?, 0, ?)", (name, time.time_ns()))
    (agent,) = connection.execute("SELECT agent FROM agents WHERE folder = ?", (name,)).fetchone()
    rows = connection.execute(
        "SELECT id, changed_ns, size, file_hash, problem, number FROM lessons WHERE agent = ?", (agent,)
    )
    return agent, {row[0]: _File(*row) for row in rows}


def _write(
    connection: Connection, agent: int, read: Sequence[tuple[_File, Row]], known: Mapping[str, _File]
) -> Counter[str]:
    """Write what was read of an agent's files, and count the lessons that were added, changed and removed."""
    counts: Counter[str] = Counter()
    with transaction(connection):
        (last,) = connection.execute(
            "SELECT coalesce(max(number), ?) FROM lessons WHERE agent = ?", (agent << AGENT_BITS, agent)
        ).fetchone()
        is_changed = False
        for file, row in read:
            old = known.get(file.id)
            if old is not None and (old.file_hash, old.problem) == (file.file_hash, file.problem):
                connection.execute(
                    "UPDATE lessons SET changed_ns = ?, size = ? WHERE number = ?",
                    (file.changed_ns, file.size, old.number),
                )
                continue
            if old is None:
                last += 1
            else:
                _delete(connection, old)
            _insert(connection, last if old is None else old.number, agent, file, row)
            is_changed = True
            was_lesson = old is not None and not old.problem
            if not file.problem:
                counts["changed" if was_lesson else "added"] += 1
            elif was_lesson:
                counts["removed"] += 1
        connection.execute("UPDATE agents SET revision = revision + ? WHERE agent = ?", (is_changed, agent))
    return counts


def _insert(connection: Connection, number: int, agent: int, file: _File, row: Row) -> None:
    values = (number, agent, *file[:5], row is not _NOTHING, *row)
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO lessons VALUES ({marks})", values)  # noqa: S608 (marks alone)
    if row is not _NOTHING:
        connection.execute("INSERT INTO words (rowid, searched) VALUES (?, ?)", (number, row.searched))


def _delete(connection: Connection, file: _File) -> None:
    connection.execute(
        "INSERT INTO words (words, rowid, searched) "
        "SELECT 'delete', number, searched FROM lessons WHERE number = ? AND is_active",
        (file.number,),
    )
    connection.execute("DELETE FROM lessons WHERE number = ?", (file.number,))


def _settled(changed_ns: int) -> int:
    """Return the time of a change; -1 if it is so recent that the next change may have the same."""
    return -1 if time.time_ns() - changed_ns < YOUNG_NS else changed_ns


# What a crash of the machine takes from it is found to be missing, and read again from the files.
_SETTINGS = "PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_UNUSABLE = (*_DAMAGED, "SQLITE_ERROR", "")
"""Likewise without our tables, or of another version."""


class CatalogFile:
    """Hold one thread's connection to the newest database in a folder: the session of a `Worker`.

    The databases are `lessons-<version>-<n>.db`. A damaged one gives way to the next `n`: under the same
    name, a process that still has the old one open would delete the new one's journal when it closes it.
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
        """Run each job, once more with a new database if the old one turns out to be damaged."""
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
            with suppress(sqlite3.Error):  # what was committed is safe, and the rest can be made again
                self._connection.close()
            self._connection = None

    def _current(self) -> sqlite3.Connection:
        if self._path is not None and _inode(self._path) != self._inode:  # somebody removed it
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
                except sqlite3.DatabaseError as error:
                    if primary_name(error) not in _UNUSABLE:
                        raise
            connection = self._connect(self._folder / f"lessons-{VERSION}-{number + 1}.db")
            for _, old in found:
                for side in ("", "-wal", "-shm"):
                    old.with_name(f"{old.name}{side}").unlink(missing_ok=True)
            return connection

    def _connect(self, path: Path) -> sqlite3.Connection:
        """Return a connection to a database with our tables; raises `sqlite3.DatabaseError`."""
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
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"{path} has version {version}.")  # noqa: TRY301 (it has to be closed)
            connection.execute("SELECT count(*) FROM agents").fetchone()
        except BaseException:
            connection.close()
            raise
        self._path, self._inode = path, _inode(path)
        return connection

    def _databases(self) -> dict[int, Path]:
        paths = self._folder.glob(f"lessons-{VERSION}-*.db")
        numbered = ((path.stem.rpartition("-")[2], path) for path in paths)
        return {int(number): path for number, path in numbered if number.isdecimal()}


@contextmanager
def exclusive(folder: Path) -> Generator[None]:
    """Hold the lock of an index, which one process at a time may bring up to date."""
    lock = FileLock(folder / "lock", WAIT)
    try:
        with lock.held():
            yield
    finally:
        lock.close()


@contextmanager
def transaction(connection: Connection, mode: str = "IMMEDIATE") -> Generator[None]:
    """Write all or nothing; with the mode `DEFERRED`, read as of one moment."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a damaged file or a full disk has ended it
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
