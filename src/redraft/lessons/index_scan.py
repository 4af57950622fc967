"""Scan: bring an index up to date with the files, which it never touches."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from redraft.core.errors import LessonFileError, StoreError
from redraft.lessons.folder import Entry, LessonFolder, agents_in
from redraft.lessons.index_row import IndexRow, digest_of, row_of
from redraft.lessons.markdown import parse

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path
    from sqlite3 import Connection

    from redraft.redact.redactor import Redactor

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
            seen = settled(folder.folders()[0])
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
