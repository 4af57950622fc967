"""Documents: the Markdown of agents, as files in a folder or as records in a store."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import time
from collections import OrderedDict, defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from hashlib import blake2b
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from redraft._files import create_file, locked, make_folder, replace_file, reporting
from redraft._sync import run_sync
from redraft._texts import counted
from redraft._validation import checked_path
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.settings import load_settings, project_folder
from redraft.stores.base import Record, SharedStore, Store
from redraft.stores.location import project_store
from redraft.text.characters import is_well_formed, well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager


T = TypeVar("T")

REFLECTIONS = "reflections"
"""The folder of all agents' folders, under the project's `memory`."""
INDEX = ".index"
"""The folder of the search index, which is derived from the documents."""
ARCHIVE, PLAYBOOKS, RULES = "archive", "playbooks", "rules.md"

ENDING = ".md"
MOST_BYTES = 1_000_000
"""Maximum bytes of a file that is read."""

_YEAR = re.compile(r"[0-9]{4}")
_DATED = re.compile(r"[0-9]{4}-")


@dataclass(frozen=True, slots=True)
class Entry:
    """A version of a document; its text is not read yet."""

    id: str
    """The name: `<agent>/<stem>`, `<agent>/playbooks/<stem>` or `<agent>/rules.md`."""
    changed_ns: int
    """When it was changed, in nanoseconds since 1970."""
    size: int
    """The bytes of a file, or the number of times that a record was written."""
    archived: bool = False
    file: str = ""
    """The path of a file; empty for a record."""
    created_at: datetime | None = None
    """When a record was created."""

    @property
    def path(self) -> Path:
        """The file; made on demand, since few of 100,000 entries are opened."""
        return Path(self.file)

    @property
    def place(self) -> str:
        """Its location, for people."""
        return self.file or f"record {self.id}"

    @property
    def written(self) -> datetime:
        """When it was created or, for a file, last changed; the default time of a lesson."""
        return self.created_at or datetime.fromtimestamp(self.changed_ns // 1_000_000 / 1e3, UTC)

    @property
    def day(self) -> date:
        """The day of `written`."""
        return self.written.date()

    @property
    def stem(self) -> str:
        """The last part of the name."""
        return self.id.rpartition("/")[2]


class Documents(Protocol):
    """The Markdown documents of all agents: lessons, playbooks and rules.

    A `folder` is `<agent>` or `<agent>/playbooks`. A document keeps its name in the archive. Writes are
    atomic, and many processes may write concurrently. The methods block: call them in a thread. They raise
    `StoreError` if a document can't be read or written.
    """

    def agents(self) -> dict[str, int]:
        """The agents with documents, each with the time of its last change (ns since 1970)."""
        ...

    def state(self, agent: str) -> int:
        """A number that changes with each document added or removed; 0 if the agent has none."""
        ...

    def entries(self, folder: str, *, archived: bool = True) -> Iterator[Entry]:
        """Yield the documents in a folder by name, archived ones last, without reading them or the rules."""
        ...

    def entry(self, name: str) -> Entry | None:
        """The current version of a document; None if there is none."""
        ...

    def texts(self, entries: Sequence[Entry], *, of: str) -> Iterator[tuple[Entry, str | StoreError]]:
        """Each entry with its text, or the error; `of` names what it should contain ("a lesson")."""
        ...

    def add(self, name: str, text: str, *, year: int | None = None) -> str:
        """Store a new document under its name, numbered if it is taken; with `year`, in the archive."""
        ...

    def replace(self, entry: Entry, text: str) -> None:
        """Replace the text of a document; raises `StoreError` if this version is outdated."""
        ...

    def archive(self, entry: Entry, year: int) -> bool:
        """Move a document to the archive of a year; False if another process changed it."""
        ...

    def delete(self, entry: Entry) -> None:
        """Delete a document, if it is still there."""
        ...

    def locked(self, folder: str) -> AbstractContextManager[None]:
        """Exclude other writers of a folder, in this process and in others; not reentrant."""
        ...

    def place(self, name: str) -> str:
        """The location of a document or a folder, for people."""
        ...

    @property
    def index(self) -> Path:
        """The folder of the search index on this machine."""
        ...


def documents_at(place: Documents | Path | str) -> Documents:
    """The documents at a place, which may be the path of a folder."""
    return LessonFiles(place) if isinstance(place, str | Path) else place


def store_of(store: bool | Store) -> Store | None:
    """The project's store (True), none (False), or the `store` itself; raises `ConfigError` for others."""
    if isinstance(store, bool):
        return project_store() if store else None
    if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
        raise ConfigError(f"store must be True for the project's, False for none, or a Store, got {store!r}.")
    return store


def documents_of(path: str | Path | None, store: Store | None) -> Documents:
    """The documents in the folder `path`, by default in a store on a server, otherwise in `memory`.

    The folder `memory` is a setting of the project. Raises `ConfigError` for a `path` that is no path.
    """
    if path is not None and path != "":  # False is no path either
        return LessonFiles(path)
    memory = project_folder() / load_settings().memory
    return LessonRecords(store, memory) if isinstance(store, SharedStore) else LessonFiles(memory)


def unused_files(documents: Documents) -> str:
    """A warning if the project's folder has lessons although they belong in a store; otherwise empty."""
    if not isinstance(documents, LessonRecords):
        return ""
    name = load_settings().memory
    files = LessonFiles(project_folder() / name)
    number = sum(1 for agent in files.agents() for _ in files.entries(agent))
    if not number:
        return ""
    return (
        f"{counted(number, 'lesson')} in {name!r} can't be used, since this project keeps its lessons in "
        f"PostgreSQL. `redraft lessons import {name} --trusted` copies them there; then delete the folder."
    )


def _numbered(name: str) -> Iterator[str]:
    """Yield a name, then the same name with the numbers from 2 on."""
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def text_of(documents: Documents, entry: Entry, *, of: str) -> str:
    """The text of a document; raises `StoreError` if it can't be read."""
    [(_, text)] = documents.texts([entry], of=of)
    if isinstance(text, StoreError):
        raise text
    return text


def parsed(
    documents: Documents, entries: Iterable[Entry], parse: Callable[[str, Entry], T], *, of: str
) -> Iterator[tuple[Entry, str, T | StoreError]]:
    """Yield documents with their texts and the results of `parse`, or with their errors."""
    for entry, text in documents.texts(list(entries), of=of):
        if isinstance(text, StoreError):
            yield entry, "", text
            continue
        try:
            yield entry, text, parse(text, entry)
        except LessonFileError as error:
            yield entry, text, error


# --- files -------------------------------------------------------------------------------------------------


class LessonFiles:
    """Documents as files under `path`, the folder of all agents (`memory`).

    They are in `<path>/reflections/<folder>/<stem>.md`, archived ones in `<folder>/archive/<year>/`.
    """

    def __init__(self, path: str | Path) -> None:
        self._as_passed = path
        self.path = checked_path("path", path).absolute()
        self._root = self.path / REFLECTIONS

    def __str__(self) -> str:
        return str(self._as_passed)

    @property
    def index(self) -> Path:
        """The folder of the search index."""
        return self.path / INDEX

    def agents(self) -> dict[str, int]:
        """The agents' folders, each with the time at which a file was last added, replaced or removed."""
        with reporting(self._root), suppress(FileNotFoundError), os.scandir(self._root) as folders:
            names = [
                well_formed(folder.name)
                for folder in folders
                if _is_folder(folder) and not folder.name.startswith(".")
            ]
            return {name: self.state(name) for name in sorted(names)}
        return {}

    def state(self, agent: str) -> int:
        """When files of an agent were last added, changed or removed, in nanoseconds; not in the archive."""
        folder = f"{self._root}/{agent}"
        try:
            latest = os.stat(folder).st_mtime_ns  # noqa: PTH116 (called for 100 folders, three times as fast)
            with os.scandir(folder) as entries:
                # Many editors write a file in place, which leaves the time of its folder as it is.
                for entry in entries:
                    latest = max(latest, entry.stat(follow_symlinks=False).st_mtime_ns)
        except OSError:
            return 0
        return latest

    def entries(self, folder: str, *, archived: bool = True) -> Iterator[Entry]:
        """Yield the files by name, archived ones last, without opening them.

        Raises `LessonFileError` if the folder of the playbooks is a link or a file.
        """
        self._check_folder(folder)
        own = self._root / folder
        for place in (own, *(self._archives(own) if archived else ())):
            for name, status in sorted(_files(place).items()):
                file = f"{place}/{name}{ENDING}"
                entry_id = f"{folder}/{well_formed(name)}"  # no database takes another
                yield Entry(entry_id, status.st_mtime_ns, status.st_size, place != own, file)

    def entry(self, name: str) -> Entry | None:
        """The current file of a name, of any type."""
        folder, _, stem = name.rpartition("/")
        own = self._root / folder
        archives = [own / ARCHIVE / stem[:4]] if _DATED.match(stem) else self._archives(own)
        file_name = stem if stem == RULES else f"{stem}{ENDING}"
        for place in (own, *archives):
            file = f"{place}/{file_name}"
            with (
                reporting(file),
                suppress(FileNotFoundError, NotADirectoryError, ValueError),
            ):  # ValueError: not a file name
                status = os.lstat(file)
                return Entry(name, status.st_mtime_ns, status.st_size, place != own, file)
        return None

    def texts(self, entries: Sequence[Entry], *, of: str) -> Iterator[tuple[Entry, str | StoreError]]:
        """Each file with its text, or with the error."""
        for entry in entries:
            try:
                yield entry, read_text(entry.file, entry.id, of=of)
            except StoreError as error:
                yield entry, error

    def add(self, name: str, text: str, *, year: int | None = None) -> str:
        """Write a new file."""
        folder, _, stem = name.rpartition("/")
        self._check_folder(folder)
        own = self._root / folder
        place = own if year is None else _in_archive(own, stem, year).parent
        with reporting(place):
            make_folder(place)
            if stem == RULES:
                create_file(own / RULES, text.encode())
                return name
            for new in _numbered(stem):
                taken = (own / f"{new}{ENDING}", _in_archive(own, new, year or 0))
                if not any(path.exists() for path in taken):
                    with suppress(FileExistsError):  # another process was faster
                        create_file(place / f"{new}{ENDING}", text.encode())
                        return f"{folder}/{new}"
        raise AssertionError("the numbers never end")

    def replace(self, entry: Entry, text: str) -> None:
        """Replace a file. Its version is not compared, since writers lock the folder."""
        check_file(entry.file, entry.id)
        with reporting(entry.file):
            replace_file(entry.path, text.encode())

    def archive(self, entry: Entry, year: int) -> bool:
        """Move a file to the archive of the year in its name, else of `year`."""
        target = _in_archive(entry.path.parent, entry.stem, year)
        with reporting(target), suppress(FileNotFoundError):  # another process was faster
            make_folder(target.parent)
            entry.path.rename(target)
            return True
        return False

    def delete(self, entry: Entry) -> None:
        """Delete a file, if it is still there."""
        with reporting(entry.file):
            entry.path.unlink(missing_ok=True)

    def locked(self, folder: str) -> AbstractContextManager[None]:
        """Lock a folder, created if need be."""
        self._check_folder(folder)
        return locked(self._root / folder)

    def place(self, name: str) -> str:
        """The path of a file or a folder."""
        return str(self._root / name)

    def _check_folder(self, folder: str) -> None:
        path = self._root / folder
        if folder.endswith(f"/{PLAYBOOKS}") and os.path.lexists(path):
            if path.is_symlink():  # it may lead anywhere
                raise LessonFileError("This is a link, and links are not followed.", file=folder)
            if not path.is_dir():
                raise LessonFileError("This is not a folder.", file=folder)

    def _archives(self, folder: Path) -> list[Path]:
        """The folders of the years in the archive."""
        archive = folder / ARCHIVE
        with (
            reporting(archive),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(archive) as years,
        ):
            names = [year.name for year in years if _YEAR.fullmatch(year.name) and _is_folder(year)]
            return [archive / name for name in sorted(names)]
        return []


def _in_archive(folder: Path, stem: str, year: int) -> Path:
    """The path of a document in the archive, by the year in its name, else by `year`."""
    return folder / ARCHIVE / (stem[:4] if _DATED.match(stem) else f"{year:04}") / f"{stem}{ENDING}"


def _files(folder: Path) -> dict[str, os.stat_result]:
    """The status of each Markdown file of a folder except the rules, by its name without the extension."""
    statuses: dict[str, os.stat_result] = {}
    with reporting(folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ENDING) and entry.name != RULES and not entry.name.startswith("."):
                with suppress(FileNotFoundError):  # just moved or deleted
                    statuses[entry.name.removesuffix(ENDING)] = entry.stat(follow_symlinks=False)
    return statuses


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def read_text(path: Path | str, name: str, *, of: str) -> str:
    """The text of a file with a `name` for errors; `of` is what it should contain ("a lesson").

    Raises `LessonFileError` for a link, a pipe, a folder, a file of more than a megabyte or not in UTF-8, and
    `StoreError` if it can't be read.
    """
    status = check_file(path, name)
    if status.st_size > MOST_BYTES:
        raise LessonFileError(
            f"The file has {status.st_size:,} bytes, which is too large for {of}.", file=name
        )
    try:
        with reporting(path):
            return Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise LessonFileError(f"This is not UTF-8 ({error.reason}): save it as UTF-8.", file=name) from error


def check_file(path: Path | str, name: str) -> os.stat_result:
    """The status of a regular file.

    Raises `LessonFileError` for a link, a pipe or a folder, and for a name that is not UTF-8.
    """
    with reporting(path):
        status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):  # it may lead anywhere
        raise LessonFileError("This is a link, and links are not followed.", file=name)
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would never end
        raise LessonFileError("This is not a file.", file=name)
    if not is_well_formed(Path(path).name):
        raise LessonFileError("The name of this file is not UTF-8: rename it.", file=name)
    return status


# --- records -----------------------------------------------------------------------------------------------

LESSON, LOCK = "lesson", "lesson_lock"
"""The kinds of records: documents, and locks of folders."""
LISTING_AGE = 1.0
"""Seconds for which a list of records is used before the store is read again."""
LEASE = 5.0
"""Seconds after which an unreleased lock is taken over."""
_PAUSE = 0.02
_CACHED = 2_000
"""Texts that a process caches, of all agents."""
_CONCURRENT_READS = 100
_EVERY_AGENT = ""


@dataclass(slots=True)
class _Listing:
    """The current versions of an agent's documents by name, read at a monotonic time."""

    at: float
    entries: dict[str, Entry]
    folders: dict[str, list[Entry]]
    """Without the rules, archived documents last."""
    state: int
    missing: set[str] = field(default_factory=set[str])
    """Names that the store turned out not to have."""


@dataclass(slots=True)
class _Cache:
    """The records of a store that this process has read, for all threads."""

    lock: Lock = field(default_factory=Lock)
    writes: int = 0
    """Writes of this process; a list that was read before the latest write is not cached."""
    listings: dict[str, _Listing] = field(default_factory=dict[str, _Listing])
    texts: OrderedDict[Entry, str] = field(default_factory=OrderedDict[Entry, str])
    turns: defaultdict[str, Lock] = field(default_factory=lambda: defaultdict(Lock))


_caches: WeakKeyDictionary[SharedStore, _Cache] = WeakKeyDictionary()
_making_cache = Lock()


class LessonRecords:
    """Documents as records of a store that many machines share.

    The text of a document is the body of its record, and the store counts its versions: an outdated version
    can't be replaced. Writes of other processes are visible within a second. The search index is on this
    machine, in `memory/.index`.
    """

    def __init__(self, store: SharedStore, memory: Path) -> None:
        self._store = store
        self._memory = memory.absolute()
        with _making_cache:
            self._cache = _caches.setdefault(store, _Cache())

    def __str__(self) -> str:
        return str(self._store)

    @property
    def index(self) -> Path:
        """The folder of the search index, of this store only."""
        return self._memory / INDEX / blake2b(repr(self._store).encode(), digest_size=8).hexdigest()

    def agents(self) -> dict[str, int]:
        """The agents with documents, each with the time of the last write."""
        agents: dict[str, int] = {}
        for name, entry in self._listing(_EVERY_AGENT).entries.items():
            agent = name.partition("/")[0]
            agents[agent] = max(agents.get(agent, 0), entry.changed_ns)
        return dict(sorted(agents.items()))

    def state(self, agent: str) -> int:
        """A number that differs between versions of the agent's documents."""
        return self._listing(agent).state

    def entries(self, folder: str, *, archived: bool = True) -> Iterator[Entry]:
        """Yield the documents in a folder by name, archived ones last, without reading them."""
        own = self._listing(folder.partition("/")[0]).folders.get(folder, ())
        yield from (entry for entry in own if archived or not entry.archived)

    def entry(self, name: str) -> Entry | None:
        """The current version of a document."""
        listing = self._listing(name.partition("/")[0])
        if name not in listing.entries and name not in listing.missing:
            # Another process may have written it since.
            entries = {entry.id: entry for entry in self._versions(name)}
            if name in entries:
                return entries[name]
            listing.missing.add(name)
        return listing.entries.get(name)

    def texts(self, entries: Sequence[Entry], *, of: str) -> Iterator[tuple[Entry, str | StoreError]]:
        """Yield each document with its text, or with a newer text if it has just changed."""
        del of
        for start in range(0, len(entries), _CONCURRENT_READS):
            some = entries[start : start + _CONCURRENT_READS]
            with self._cache.lock:
                texts: dict[Entry, str | StoreError] = {
                    entry: self._cache.texts[entry] for entry in some if entry in self._cache.texts
                }
            if missing := [entry for entry in some if entry not in texts]:
                records = run_sync(self._records(missing))
                texts |= {
                    entry: _text_in(record, entry.id) for entry, record in zip(missing, records, strict=True)
                }
                current = [
                    entry
                    for entry, record in zip(missing, records, strict=True)
                    if isinstance(record, Record)
                    and (record.revision, record.created_at) == (entry.size, entry.created_at)
                ]
                with self._cache.lock:
                    for entry in current:
                        if isinstance(text := texts[entry], str):
                            self._cache.texts[entry] = text
                    while len(self._cache.texts) > _CACHED:
                        self._cache.texts.popitem(last=False)
            yield from ((entry, texts[entry]) for entry in some)

    async def _records(self, entries: Sequence[Entry]) -> list[Record | BaseException | None]:
        return await asyncio.gather(
            *(self._store.get(LESSON, entry.id) for entry in entries), return_exceptions=True
        )

    def add(self, name: str, text: str, *, year: int | None = None) -> str:
        """Store a new record."""
        data = _data(text, archived=year is not None)
        for key in _numbered(name):
            stored, is_new = run_sync(self._store.put_if_absent(Record(LESSON, key, data)))
            # If the connection was lost, the record may exist although the first attempt failed.
            if is_new or stored.data == data:
                self._forget(name.partition("/")[0])
                return key
        raise AssertionError("the numbers never end")

    def replace(self, entry: Entry, text: str) -> None:
        """Replace the text of a version, if it is current."""
        if not self._replaced(entry, _data(text, archived=entry.archived)):
            raise StoreError(f"{entry.id}: another process has just changed or deleted it; try again.")

    def archive(self, entry: Entry, year: int) -> bool:
        """Mark a document as archived; False if this version is outdated."""
        del year
        return self._replaced(entry, _data(text_of(self, entry, of="a document"), archived=True))

    def delete(self, entry: Entry) -> None:
        """Delete a record, if it is still there."""
        run_sync(self._store.delete(LESSON, entry.id))
        self._forget(entry.id.partition("/")[0])

    @contextmanager
    def locked(self, folder: str) -> Generator[None]:
        """Hold the lock of a folder. The lock of a process that died is taken over after five seconds."""
        with self._cache.lock:
            turn = self._cache.turns[folder]
        with turn:
            held = self._locked(folder)
            self._forget(folder.partition("/")[0])
            try:
                yield
            finally:
                released = Record(
                    LOCK, folder, {"by": ""}, revision=held.revision, created_at=held.created_at
                )
                run_sync(self._store.replace(released))

    def place(self, name: str) -> str:
        """The name of a record, or of the records of a folder, for people."""
        return f"record {name}"

    def _locked(self, folder: str) -> Record:
        """Wait until this process holds the lock of a folder."""
        mine = {"by": uuid4().hex}
        seen: Record | None = None
        since = 0.0
        while True:
            lock, is_mine = run_sync(self._store.put_if_absent(Record(LOCK, folder, mine)))
            if is_mine:
                return lock
            if seen is None or (seen.revision, seen.created_at) != (lock.revision, lock.created_at):
                seen, since = lock, time.monotonic()
            if not lock.data["by"] or time.monotonic() - since > LEASE:
                taken = Record(LOCK, folder, mine, revision=lock.revision, created_at=lock.created_at)
                if (held := run_sync(self._store.replace(taken))) is not None:
                    return held
            time.sleep(_PAUSE)

    def _replaced(self, entry: Entry, data: dict[str, object]) -> bool:
        record = Record(LESSON, entry.id, data, revision=entry.size, created_at=entry.created_at)
        stored = run_sync(self._store.replace(record))
        self._forget(entry.id.partition("/")[0])
        return stored is not None

    def _listing(self, agent: str) -> _Listing:
        """The current documents of an agent, or of all, at most a second old."""
        with self._cache.lock:
            cached, writes = self._cache.listings.get(agent), self._cache.writes
        if cached is not None and time.monotonic() - cached.at < LISTING_AGE:
            return cached
        at = time.monotonic()
        entries = self._versions(f"{agent}/" if agent else "")
        folders: dict[str, list[Entry]] = {}
        for entry in sorted(entries, key=lambda entry: entry.archived):
            folder, _, stem = entry.id.rpartition("/")
            if stem != RULES:
                folders.setdefault(folder, []).append(entry)
        listing = _Listing(at, {entry.id: entry for entry in entries}, folders, _digest(entries))
        with self._cache.lock:
            if self._cache.writes == writes:
                self._cache.listings[agent] = listing
        return listing

    def _versions(self, prefix: str) -> list[Entry]:
        """Ask the store for the current versions of the documents whose names begin with a prefix."""
        versions = run_sync(self._store.versions(LESSON, prefix=prefix, where={"archived": True}))
        return [
            Entry(
                version.key,
                int(version.updated_at.timestamp() * 1_000_000) * 1_000,
                version.revision,
                version.matches,
                created_at=version.created_at,
            )
            for version in versions
        ]

    def _forget(self, agent: str) -> None:
        """Drop cached lists, since this process has written a document or needs the newest versions."""
        with self._cache.lock:
            self._cache.writes += 1
            for name in (agent, _EVERY_AGENT):
                self._cache.listings.pop(name, None)


def _data(text: str, *, archived: bool) -> dict[str, object]:
    return {"text": text, "archived": archived}


def _text_in(record: Record | BaseException | None, name: str) -> str | StoreError:
    if isinstance(record, StoreError):
        return record
    if isinstance(record, BaseException):
        raise record
    text = None if record is None else record.data.get("text")
    if isinstance(text, str):
        return text
    return LessonFileError("No such lesson; it may have been deleted.", file=name)


def _digest(entries: Sequence[Entry]) -> int:
    """A number of 48 bits that identifies versions; 0 without any.

    It is far less than a time in nanoseconds, so the index never takes it for a recent time.
    """
    if not entries:
        return 0
    versions = repr([(entry.id, entry.size, entry.changed_ns) for entry in entries])
    return int.from_bytes(blake2b(versions.encode(), digest_size=6).digest())
