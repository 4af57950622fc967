"""Documents: the Markdown of agents, which is the truth, as files in a folder or as records in a store."""

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
from redraft.errors import LessonFileError, StoreError
from redraft.settings import load_settings, project_folder
from redraft.stores.base import Record, SharedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from redraft.stores.base import Store

T = TypeVar("T")

REFLECTIONS = "reflections"
"""The folder of all agents' folders, under the project's `memory`."""
INDEX = ".index"
"""The folder of the search index, which is derived from the documents."""
ARCHIVE, PLAYBOOKS, RULES = "archive", "playbooks", "rules.md"

ENDING = ".md"
MOST_BYTES = 1_000_000
"""Bytes of the largest file that is read."""

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
        """The file; built on request, since few of 100,000 entries are opened."""
        return Path(self.file)

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self.file or f"record {self.id}"

    @property
    def written(self) -> datetime:
        """When it was created or, for a file, last changed: the time of a lesson without one of its own."""
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
    atomic, and many processes may write at once. The methods block: call them in a thread. They raise
    `StoreError` if a document can't be read or written.
    """

    def agents(self) -> dict[str, int]:
        """Return the agents with documents, each with the time of its last change (ns since 1970)."""
        ...

    def misplaced(self) -> list[str]:
        """Return the names of files that stand where agents' folders are expected."""
        ...

    def state(self, agent: str) -> int:
        """Return a number that changes with each document added or removed; 0 if the agent has none."""
        ...

    def entries(self, folder: str, *, archived: bool = True) -> Iterator[Entry]:
        """Yield the documents in a folder by name, archived ones last, without reading them or the rules."""
        ...

    def entry(self, name: str) -> Entry | None:
        """Return the current version of a document; None if there is none."""
        ...

    def texts(self, entries: Sequence[Entry], *, of: str) -> Iterator[tuple[Entry, str | StoreError]]:
        """Yield each entry with its text, or why it can't be read; `of` is what it should be ("a lesson")."""
        ...

    def add(self, name: str, text: str, *, year: int | None = None) -> str:
        """Store a new document and return its name, numbered if it is taken; with `year`, in the archive."""
        ...

    def replace(self, entry: Entry, text: str) -> None:
        """Replace the text of a document; raises `StoreError` if this version is outdated."""
        ...

    def archive(self, entry: Entry, year: int) -> bool:
        """Move a document to the archive of a year; return False if another process changed it."""
        ...

    def delete(self, entry: Entry) -> None:
        """Delete a document, if it is still there."""
        ...

    def locked(self, folder: str) -> AbstractContextManager[None]:
        """Exclude other writers of a folder, in this process and in others; not reentrant."""
        ...

    def place(self, name: str) -> str:
        """Return where a document or a folder is, for people."""
        ...

    @property
    def index(self) -> Path:
        """The folder of the search index on this machine."""
        ...


def documents_at(place: Documents | Path | str) -> Documents:
    """Return the documents at a place, which may be the path of a folder."""
    return LessonFiles(place) if isinstance(place, str | Path) else place


def documents_of(path: str | Path | None, store: Store | None) -> Documents:
    """Return where lessons are: in the folder `path`, else in a store on a server, else in `memory`.

    The folder `memory` is a setting of the project.
    """
    if path:
        return LessonFiles(path)
    memory = project_folder() / load_settings().memory
    return LessonRecords(store, memory) if isinstance(store, SharedStore) else LessonFiles(memory)


def unused_files(documents: Documents) -> str:
    """Say that lessons are left in the project's folder although it keeps them in a store; else empty."""
    memory = project_folder() / load_settings().memory
    if not isinstance(documents, LessonRecords):
        return ""
    files = LessonFiles(memory)
    number = sum(1 for agent in files.agents() for _ in files.entries(agent))
    if not number:
        return ""
    name = load_settings().memory
    return (
        f"{counted(number, 'lesson')} in {name!r} can't be used, since this project keeps its lessons in "
        f"PostgreSQL. `redraft lessons import {name} --trusted` copies them there; then delete the folder."
    )


def text_of(documents: Documents, entry: Entry, *, of: str) -> str:
    """Return the text of one document; raises `StoreError` if it can't be read."""
    [(_, text)] = documents.texts([entry], of=of)
    if isinstance(text, StoreError):
        raise text
    return text


def parsed(
    documents: Documents, entries: Iterable[Entry], parse: Callable[[str, Entry], T], *, of: str
) -> Iterator[tuple[Entry, str, T | StoreError]]:
    """Yield documents with their texts and what `parse` makes of them, or why that can't be read."""
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
        self._given = path
        self.path = Path(path).absolute()
        self._root = self.path / REFLECTIONS

    def __str__(self) -> str:
        return str(self._given)

    @property
    def index(self) -> Path:
        """The folder of the search index."""
        return self.path / INDEX

    def agents(self) -> dict[str, int]:
        """Return the agents' folders, each with the time when a file was last added, replaced or removed."""
        with reporting(self._root), suppress(FileNotFoundError), os.scandir(self._root) as folders:
            names = [one.name for one in folders if _is_folder(one) and not one.name.startswith(".")]
            return {name: self.state(name) for name in sorted(names)}
        return {}

    def misplaced(self) -> list[str]:
        """Return the names of files without an ending in the folder of all agents."""
        with reporting(self._root), suppress(FileNotFoundError), os.scandir(self._root) as entries:
            return sorted(one.name for one in entries if "." not in one.name and not _is_folder(one))
        return []

    def state(self, agent: str) -> int:
        """Return when files of an agent were last added, replaced or removed, in nanoseconds."""
        try:
            return os.stat(f"{self._root}/{agent}").st_mtime_ns  # noqa: PTH116 (asked of 100 folders, at a third of the price)
        except OSError:
            return 0

    def entries(self, folder: str, *, archived: bool = True) -> Iterator[Entry]:
        """Yield the files by name, archived ones last, without opening them.

        Raises `LessonFileError` if the folder of the playbooks is a link or a file.
        """
        self._check_folder(folder)
        own = self._root / folder
        for place in (own, *(self._archives(own) if archived else ())):
            for name, found in sorted(_files(place).items()):
                file = f"{place}/{name}{ENDING}"
                yield Entry(f"{folder}/{name}", found.st_mtime_ns, found.st_size, place != own, file)

    def entry(self, name: str) -> Entry | None:
        """Return the file of a name as it is now, whatever kind of file it is."""
        folder, _, stem = name.rpartition("/")
        own = self._root / folder
        archives = [own / ARCHIVE / stem[:4]] if _DATED.match(stem) else self._archives(own)
        for place in (own, *archives):
            file = f"{place}/{_file_name(stem)}"
            with (
                reporting(file),
                suppress(FileNotFoundError, NotADirectoryError, ValueError),
            ):  # not a file name
                found = os.lstat(file)
                return Entry(name, found.st_mtime_ns, found.st_size, place != own, file)
        return None

    def texts(self, entries: Sequence[Entry], *, of: str) -> Iterator[tuple[Entry, str | StoreError]]:
        """Yield each file with its text, or why it can't be read."""
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

        def is_taken(stem: str) -> bool:
            return _in_archive(own, stem, year or 0).exists() or (own / f"{stem}{ENDING}").exists()

        with reporting(place):
            make_folder(place)
            if stem == RULES:
                create_file(own / RULES, text.encode())
                return name
            return f"{folder}/{add_file(place, stem, text.encode(), is_taken=is_taken)}"

    def replace(self, entry: Entry, text: str) -> None:
        """Replace a file. Its version is not compared, since writers lock the folder."""
        check_file(entry.file, entry.id)
        with reporting(entry.file):
            replace_file(entry.path, text.encode())

    def archive(self, entry: Entry, year: int) -> bool:
        """Move a file to the archive of a year, by its name or else the one given."""
        target = _in_archive(entry.path.parent, entry.stem, year)
        with reporting(target), suppress(FileNotFoundError):  # another process was quicker
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
        """Return the path of a file or a folder."""
        return str(self._root / name)

    def _check_folder(self, folder: str) -> None:
        path = self._root / folder
        if folder.endswith(f"/{PLAYBOOKS}") and os.path.lexists(path):
            if path.is_symlink():  # it may lead anywhere
                raise LessonFileError("This is a link, and links are not followed.", file=folder)
            if not path.is_dir():
                raise LessonFileError("This is not a folder.", file=folder)

    def _archives(self, folder: Path) -> list[Path]:
        """Return the folders of the years in the archive."""
        archive = folder / ARCHIVE
        with (
            reporting(archive),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(archive) as years,
        ):
            found = [one.name for one in years if _YEAR.fullmatch(one.name) and _is_folder(one)]
            return [archive / year for year in sorted(found)]
        return []


def _in_archive(folder: Path, stem: str, year: int) -> Path:
    """Return the path of a document in the archive, by the year in its name, else by `year`."""
    return folder / ARCHIVE / (stem[:4] if _DATED.match(stem) else f"{year:04}") / f"{stem}{ENDING}"


def _file_name(stem: str) -> str:
    return stem if stem == RULES else f"{stem}{ENDING}"


def _files(folder: Path) -> dict[str, os.stat_result]:
    """Return the state of each Markdown file of a folder but the rules, by its name without the ending."""
    found: dict[str, os.stat_result] = {}
    with reporting(folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
        for one in entries:
            if one.name.endswith(ENDING) and one.name != RULES and not one.name.startswith("."):
                with suppress(FileNotFoundError):  # it was moved or deleted just now
                    found[one.name.removesuffix(ENDING)] = one.stat(follow_symlinks=False)
    return found


def _is_folder(one: os.DirEntry[str]) -> bool:
    return one.is_dir(follow_symlinks=False)


def read_text(path: Path | str, name: str, *, of: str) -> str:
    """Return the text of a file, which errors call `name`; `of` is what it should contain ("a lesson").

    Raises `LessonFileError` for a link, a pipe, a folder, a file of more than a megabyte, or one that is not
    UTF-8, and `StoreError` if it can't be read.
    """
    found = check_file(path, name)
    if found.st_size > MOST_BYTES:
        raise LessonFileError(
            f"The file has {found.st_size:,} bytes, which is too large for {of}.", file=name
        )
    try:
        with reporting(path):
            return Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise LessonFileError(f"This is not UTF-8 ({error.reason}): save it as UTF-8.", file=name) from error


def check_file(path: Path | str, name: str) -> os.stat_result:
    """Return the state of a regular file; raises `LessonFileError` for a link, a pipe or a folder."""
    with reporting(path):
        found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):  # it may lead anywhere
        raise LessonFileError("This is a link, and links are not followed.", file=name)
    if not stat.S_ISREG(found.st_mode):  # reading a pipe would never end
        raise LessonFileError("This is not a file.", file=name)
    return found


def add_file(folder: Path, stem: str, data: bytes, *, is_taken: Callable[[str], bool]) -> str:
    """Create `<stem>.md`, or `<stem>-2.md` and so on, and return its name without the ending.

    Never replaces a file. `is_taken` returns whether a name is in use elsewhere. Raises `OSError`.
    """
    for number in count(1):
        name = stem if number == 1 else f"{stem}-{number}"
        if is_taken(name):
            continue
        with suppress(FileExistsError):
            create_file(folder / f"{name}{ENDING}", data)
            return name
    raise AssertionError("count() never ends")


# --- records -----------------------------------------------------------------------------------------------

LESSON, LOCK = "lesson", "lesson_lock"
"""The kinds of the records: documents, and which process may write to a folder."""
LOOK = 1.0
"""Seconds for which a list of records is used before the store is asked again."""
LEASE = 5.0
"""Seconds after which the lock of a process that has not released it is taken over."""
_PAUSE = 0.02
_CACHED = 2_000
"""Texts that a process keeps, of all agents."""
_AT_ONCE = 100
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
    """Names that the store was asked for since, and does not have."""


@dataclass(slots=True)
class _Cache:
    """What this process knows of the records in a store, for all threads."""

    lock: Lock = field(default_factory=Lock)
    writes: int = 0
    """Writes of this process; a list that was read before one of them is not kept."""
    listings: dict[str, _Listing] = field(default_factory=dict[str, _Listing])
    texts: OrderedDict[Entry, str] = field(default_factory=OrderedDict[Entry, str])
    turns: defaultdict[str, Lock] = field(default_factory=lambda: defaultdict(Lock))


_caches: WeakKeyDictionary[SharedStore, _Cache] = WeakKeyDictionary()
_making_cache = Lock()


class LessonRecords:
    """Documents as records of a store that many machines share.

    The text of a document is the body of its record, and the store counts its versions: a version that is not
    the current one can't be replaced. What another process writes is seen within a second. The search index
    is on this machine, in `memory/.index`.
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
        """Return the agents that have documents, each with the time when one was last written."""
        found: dict[str, int] = {}
        for name, entry in self._listing(_EVERY_AGENT).entries.items():
            agent = name.partition("/")[0]
            found[agent] = max(found.get(agent, 0), entry.changed_ns)
        return dict(sorted(found.items()))

    def misplaced(self) -> list[str]:
        """Return nothing: a record has no place where it should not be."""
        return []

    def state(self, agent: str) -> int:
        """Return a number that differs from one version of the agent's documents to the next."""
        return self._listing(agent).state

    def entries(self, folder: str, *, archived: bool = True) -> Iterator[Entry]:
        """Yield the documents in a folder by name, archived ones last, without reading them."""
        own = self._listing(folder.partition("/")[0]).folders.get(folder, ())
        yield from (one for one in own if archived or not one.archived)

    def entry(self, name: str) -> Entry | None:
        """Return the current version of a document."""
        listing = self._listing(name.partition("/")[0])
        if name not in listing.entries and name not in listing.missing:
            # Another process may have written it since.
            found = {one.id: one for one in self._versions(name)}
            if name in found:
                return found[name]
            listing.missing.add(name)
        return listing.entries.get(name)

    def texts(self, entries: Sequence[Entry], *, of: str) -> Iterator[tuple[Entry, str | StoreError]]:
        """Yield each document with its text; of one that was changed just now, the newer text."""
        del of
        for start in range(0, len(entries), _AT_ONCE):
            some = entries[start : start + _AT_ONCE]
            with self._cache.lock:
                texts: dict[Entry, str | StoreError] = {
                    one: self._cache.texts[one] for one in some if one in self._cache.texts
                }
            if missing := [one for one in some if one not in texts]:
                found = run_sync(self._records(missing))
                texts |= {entry: _text_in(one, entry.id) for entry, one in zip(missing, found, strict=True)}
                current = [
                    entry
                    for entry, one in zip(missing, found, strict=True)
                    if isinstance(one, Record)
                    and (one.revision, one.created_at) == (entry.size, entry.created_at)
                ]
                with self._cache.lock:
                    for entry in current:
                        if isinstance(text := texts[entry], str):
                            self._cache.texts[entry] = text
                    while len(self._cache.texts) > _CACHED:
                        self._cache.texts.popitem(last=False)
            yield from ((one, texts[one]) for one in some)

    async def _records(self, entries: Sequence[Entry]) -> list[Record | BaseException | None]:
        return await asyncio.gather(
            *(self._store.get(LESSON, one.id) for one in entries), return_exceptions=True
        )

    def add(self, name: str, text: str, *, year: int | None = None) -> str:
        """Store a new record."""
        data = _data(text, archived=year is not None)
        for number in count(1):
            key = name if number == 1 else f"{name}-{number}"
            stored, is_new = run_sync(self._store.put_if_absent(Record(LESSON, key, data)))
            # After a connection was lost, the record may be there although the first try failed.
            if is_new or stored.data == data:
                self._forget(name.partition("/")[0])
                return key
        raise AssertionError("count() never ends")

    def replace(self, entry: Entry, text: str) -> None:
        """Replace the text of a version, if it is the current one."""
        if not self._replaced(entry, _data(text, archived=entry.archived)):
            raise StoreError(f"{entry.id}: another process has just changed or deleted it; try again.")

    def archive(self, entry: Entry, year: int) -> bool:
        """Mark a document as archived; return False if this version is not the current one."""
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
        """Return what identifies a record, or the records of a folder."""
        return f"record {name}"

    def _locked(self, folder: str) -> Record:
        """Return the lock of a folder once this process holds it."""
        mine = {"by": uuid4().hex}
        seen: Record | None = None
        since = 0.0
        while True:
            found, is_mine = run_sync(self._store.put_if_absent(Record(LOCK, folder, mine)))
            if is_mine:
                return found
            if seen is None or (seen.revision, seen.created_at) != (found.revision, found.created_at):
                seen, since = found, time.monotonic()
            if not found.data["by"] or time.monotonic() - since > LEASE:
                wanted = Record(LOCK, folder, mine, revision=found.revision, created_at=found.created_at)
                if (held := run_sync(self._store.replace(wanted))) is not None:
                    return held
            time.sleep(_PAUSE)

    def _replaced(self, entry: Entry, data: dict[str, object]) -> bool:
        record = Record(LESSON, entry.id, data, revision=entry.size, created_at=entry.created_at)
        stored = run_sync(self._store.replace(record))
        self._forget(entry.id.partition("/")[0])
        return stored is not None

    def _listing(self, agent: str) -> _Listing:
        """Return the current documents of an agent, or of all, as of at most a second ago."""
        with self._cache.lock:
            known, writes = self._cache.listings.get(agent), self._cache.writes
        if known is not None and time.monotonic() - known.at < LOOK:
            return known
        at = time.monotonic()
        entries = self._versions(f"{agent}/" if agent else "")
        listing = _Listing(at, {one.id: one for one in entries}, _by_folder(entries), _digest(entries))
        with self._cache.lock:
            if self._cache.writes == writes:
                self._cache.listings[agent] = listing
        return listing

    def _versions(self, prefix: str) -> list[Entry]:
        """Ask the store for the current versions of the documents whose names begin with a prefix."""
        found = run_sync(self._store.versions(LESSON, prefix=prefix, where={"archived": True}))
        return [
            Entry(one.key, _nanoseconds(one.updated_at), one.revision, one.matches, created_at=one.created_at)
            for one in found
        ]

    def _forget(self, agent: str) -> None:
        """Have the store asked again: this process has written something, or needs the newest versions."""
        with self._cache.lock:
            self._cache.writes += 1
            for name in (agent, _EVERY_AGENT):
                self._cache.listings.pop(name, None)


def _data(text: str, *, archived: bool) -> dict[str, object]:
    return {"text": text, "archived": archived}


def _text_in(found: Record | BaseException | None, name: str) -> str | StoreError:
    if isinstance(found, StoreError):
        return found
    if isinstance(found, BaseException):
        raise found
    text = None if found is None else found.data.get("text")
    if isinstance(text, str):
        return text
    return LessonFileError("No such lesson; it may have been deleted.", file=name)


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000


def _by_folder(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for one in sorted(entries, key=lambda one: one.archived):
        folder, _, stem = one.id.rpartition("/")
        if stem != RULES:
            found.setdefault(folder, []).append(one)
    return found


def _digest(entries: Sequence[Entry]) -> int:
    """Return a number of 48 bits that identifies versions; 0 without any.

    It is far less than a time in nanoseconds, so the index never takes it for a moment ago.
    """
    if not entries:
        return 0
    versions = repr([(one.id, one.size, one.changed_ns) for one in entries])
    return int.from_bytes(blake2b(versions.encode(), digest_size=6).digest())
