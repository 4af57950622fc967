"""Backup: a project in one file, made while runs are going on, and restored from there."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from gzip import BadGzipFile
from hashlib import file_digest
from importlib.metadata import version
from math import ceil
from pathlib import Path, PurePosixPath
from shutil import copyfile, copyfileobj, disk_usage
from typing import TYPE_CHECKING, Any, Self

from redraft._codec import from_json, to_json
from redraft._locks import make_folder
from redraft._texts import counted, sized
from redraft._validation import check_count
from redraft.errors import ConfigError, StoreError
from redraft.lessons.files import replace_file, reporting
from redraft.settings import SETTINGS_FILE, load_settings, project_folder
from redraft.stores.location import DATABASE, project_place
from redraft.stores.sqlite import check_database, copy_database, restore_database

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import IO

    from redraft.settings import Settings
    from redraft.stores.location import Place

FORMAT = 1
"""The version of the layout of a backup; raised when an older Redraft could no longer restore it."""
MANIFEST = "manifest.json"
STORE, HOOKS, MEMORY = "store", "hooks", "memory"
"""The folders in a backup."""
INDEX = ".index"
"""The search index of lessons, which is derived from their files."""
LEFT_OUT = (INDEX, ".git")
STAGING = ".redraft-"
"""How the name begins of a folder in which a backup is made or unpacked."""
MOST_NAMED = 5
MOST_BYTES = 1_000_000_000
MOST_TIMES = 100
"""A backup may unpack to `MOST_BYTES`, or to this many times its own size, without being asked for: data that
compresses better than this is rare, and a bomb."""
MOST_OF_MANIFEST = 64_000_000
"""Bytes of a manifest: some 300,000 files."""
LONGEST_HEADER = 100_000
"""Bytes before a file in an archive; the name in it has some 4,000 at most."""
ROOM = 100_000_000
"""Bytes of a disk that a restored backup leaves free."""
BLOCK = 4_096
"""Bytes that a file takes on a disk in addition to its content, at most."""


@dataclass(frozen=True, slots=True)
class FileInBackup:
    """The size of a file and its SHA-256."""

    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise ValueError(f"a file can't have {self.bytes:,} bytes")

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read a file."""
        with path.open("rb") as file:
            return cls(path.stat().st_size, file_digest(file, "sha256").hexdigest())


@dataclass(frozen=True, slots=True)
class Backup:
    """What is in the file of a backup: when it was made, by which version of Redraft, and its files.

    `files` are the settings, the database under `store/`, sessions of coding agents under `hooks/`, and
    lessons under `memory/`. `remarks` say what is not in it.
    """

    created_at: datetime
    redraft: str
    files: Mapping[str, FileInBackup]
    format: int = FORMAT
    remarks: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(one.bytes for one in self.files.values())


def back_up(target: str | Path, *, force: bool = False, files_only: bool = False) -> Backup:
    """Write a backup of the project in the working folder, which only its owner can read; return what it has.

    Runs may go on meanwhile: the database is copied as it is at one moment. `files_only` leaves it out.
    Raises `ConfigError` if there is such a file already, unless `force`, if there is nothing to back up, and
    for a project whose runs are in PostgreSQL; raises `StoreError` where something can't be read or written,
    and for a damaged database.
    """
    target = Path(target)
    with _reporting(target):
        if target.is_dir():
            raise ConfigError(f"{str(target)!r} is a folder: name a file in it.")
        is_taken = target.exists()
    if is_taken and not force:
        raise ConfigError(f"{str(target)!r} already exists: choose another name, or replace it with --force.")
    place = project_place()
    if place is not None and isinstance(place.database, str) and not files_only:
        raise ConfigError(
            f"The runs of this project are in PostgreSQL, {place}: back up the database with "
            "pg_dump, and everything else with --files-only."
        )
    if not target.absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {str(target.parent)!r}: create it first, or name another.")
    with _reporting(target), _staging(target.absolute().parent) as stage:
        _collect(stage, None if files_only else place, target.resolve())
        found = sorted(path for path in stage.rglob("*") if path.is_file())
        if not found:
            raise ConfigError(
                f"There is nothing to back up in {project_folder()}: no settings, runs, sessions or lessons. "
                "Is it the folder of the project?"
            )
        files = {str(path.relative_to(stage)): FileInBackup.of(path) for path in found}
        backup = Backup(datetime.now(UTC), version("redraft"), files, remarks=_missing(files_only=files_only))
        archive = stage / "backup"
        _pack(archive, stage, backup)
        archive.replace(target)
    return backup


def restore(
    source: str | Path, *, force: bool = False, check: bool = False, max_bytes: int | None = None
) -> Backup:
    """Restore the project in the working folder from a backup; return what was in it.

    The whole file is checked first: its layout, its versions, the names and sizes in it, each file's SHA-256
    and the integrity of the database. Files that are not in the backup stay. With `check`, nothing is
    changed. `max_bytes` bounds the size of all files; the default is 1 GB, or 100 times the size of the
    backup if that is more.

    Raises `ConfigError` for a file that is not a backup, is damaged, is too large, or comes from a newer
    Redraft, and if it would replace something, unless `force`; raises `StoreError` where something can't be
    read or written, or has no room on the disk, and if the database in it is damaged or newer.
    """
    if max_bytes is not None:
        check_count("max_bytes", max_bytes, 0)
    source, folder = Path(source), project_folder()
    with _reporting(source), _staging(folder) as stage:
        backup = _unpacked(source, stage, max_bytes)
        settings, place = _settings_after(stage, folder), project_place()
        database = stage / STORE / DATABASE
        if database.exists():
            _check_copy(database, f"The database in {str(source)!r}")
            if place is None or not settings.home:
                raise ConfigError(
                    "The backup has a database, but the settings here store no runs: set `home` "
                    "(REDRAFT_HOME)."
                )
            if isinstance(place.database, str):
                raise ConfigError(
                    f"The backup has a database file, but the settings here store runs in {place}: unset "
                    "`database_url` (REDRAFT_DATABASE_URL) to restore it."
                )
        if (stage / HOOKS).exists() and not settings.home:
            raise ConfigError(
                "The backup has sessions of coding agents, but the settings here store none: set `home` "
                "(REDRAFT_HOME)."
            )
        targets = _targets(stage, folder, settings)
        replaced = [name for name, path in targets.items() if _is_other(path, stage / name)]
        if check or (replaced and not force):
            files = counted(len(replaced), "file")
            names = [os.path.relpath(targets[name], folder) for name in replaced[:MOST_NAMED]]
            more = f" and {len(replaced) - MOST_NAMED} more" if len(replaced) > MOST_NAMED else ""
            there = f"The backup would replace {files} in {folder}: {', '.join(names)}{more}."
            if check:
                return replace(backup, remarks=(there,) if replaced else ())
            raise ConfigError(f"{there} Restore into an empty folder, or add --force.")
        by_disk: defaultdict[int, list[str]] = defaultdict(list)
        for name, path in targets.items():
            by_disk[_existing(path).stat().st_dev].append(name)
        for names in by_disk.values():
            _check_room(targets[names[0]].parent, [backup.files[name] for name in names])
        remarks: tuple[str, ...] = ()
        if (path := targets.pop(str(PurePosixPath(STORE, DATABASE)), None)) is not None:  # it may be in use
            damaged = restore_database(path, database)
            if damaged is not None:
                remarks = (f"The damaged database was renamed to {os.path.relpath(damaged, folder)}.",)
        for name, path in targets.items():
            _put(stage / name, path, is_private=name.startswith(f"{HOOKS}/"))
    return replace(backup, remarks=remarks)


def _collect(stage: Path, place: Place | None, backup: Path) -> None:
    """Copy what belongs into a backup to a folder; an earlier `backup` that it replaces does not."""
    folder, settings = project_folder(), load_settings()
    if (folder / SETTINGS_FILE).is_file():
        copyfile(folder / SETTINGS_FILE, stage / SETTINGS_FILE)
    if place is not None and isinstance(place.database, Path) and place.database.exists():
        (stage / STORE).mkdir()
        copy_database(place.database, stage / STORE / DATABASE)
        try:
            _check_copy(stage / STORE / DATABASE, str(place.database))
        except StoreError as error:
            raise StoreError(
                f"{error} No backup of it could be restored: restore an earlier one, or back up everything "
                "else with --files-only."
            ) from error
    sources = [(HOOKS, folder / settings.home / HOOKS)] if settings.home else []
    for name, source in [*sources, (MEMORY, folder / settings.memory)]:
        for at, folders, names in os.walk(source, onerror=_unless_missing):
            folders[:] = [one for one in folders if one not in LEFT_OUT and not one.startswith(STAGING)]
            for one in names:
                path = Path(at, one)
                if path.is_symlink() or not path.is_file():  # first: a link to itself can't be resolved
                    continue
                if one.endswith(".tmp") or path.resolve() == backup:
                    continue
                target = stage / name / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # archived or replaced just now
                    copyfile(path, target)


def _check_copy(database: Path, called: str) -> None:
    """Check a database as `check_database` does; errors name what it is a copy of, or comes from."""
    try:
        check_database(database)
    except StoreError as error:
        raise StoreError(str(error).replace(str(database), called)) from error


def _unless_missing(error: OSError) -> None:
    """Raise an error about a folder, unless there is no such folder."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _missing(*, files_only: bool) -> tuple[str, ...]:
    """Say what is not in a backup."""
    remarks: list[str] = []
    if files_only:
        remarks.append("The database with the runs is not in it.")
    if load_settings().long_term_storage:
        remarks.append(
            "The memory of agents in the long-term storage is not in it: back that up with pg_dump."
        )
    return tuple(remarks)


def _pack(archive: Path, stage: Path, backup: Backup) -> None:
    """Write the file of a backup, with mode 0600."""
    descriptor = os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz") as packed:
            text = json.dumps(to_json(backup), indent=2).encode()
            _add(packed, MANIFEST, len(text), io.BytesIO(text))
            for name, known in backup.files.items():
                with (stage / name).open("rb") as content:
                    _add(packed, name, known.bytes, content)
        file.flush()
        os.fsync(file.fileno())


def _add(packed: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, int(datetime.now(UTC).timestamp())
    packed.addfile(member, content)


def _unpacked(source: Path, stage: Path, max_bytes: int | None) -> Backup:
    """Unpack a backup into a folder; raises `ConfigError` unless it is whole and has nothing else in it."""
    try:
        with _Unzipped(source) as unzipped, tarfile.open(fileobj=unzipped, mode="r:") as packed:
            unzipped.expect(MOST_OF_MANIFEST)
            backup = _manifest(packed, source)
            _check_size(backup, source, max_bytes)
            _check_room(stage, backup.files.values())
            unzipped.expect(LONGEST_HEADER)
            while (member := packed.next()) is not None:
                _check_member(member, backup, source)
                target = stage / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                content = packed.extractfile(member)
                unzipped.expect(member.size)
                with reporting(target), target.open("xb") as file:  # a name that comes twice is an error
                    if content is not None:
                        copyfileobj(content, file)
                unzipped.expect(LONGEST_HEADER)
    except (tarfile.TarError, EOFError, zlib.error, ValueError, BadGzipFile, FileExistsError) as error:
        raise ConfigError(f"{str(source)!r} is not a backup, or is incomplete: {error}.") from error
    for name, known in backup.files.items():
        path = stage / name
        if not path.is_file() or FileInBackup.of(path) != known:
            raise ConfigError(f"{name!r} in {str(source)!r} is missing or damaged: use another backup.")
    return backup


class _Unzipped(gzip.GzipFile):
    """The content of a compressed archive, of which no more is read than is expected next."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self._end = LONGEST_HEADER

    def expect(self, size: int) -> None:
        """Allow this many more bytes to be read."""
        self._end = self.tell() + size

    def read(self, size: int | None = -1) -> bytes:
        """Read some bytes; raises `tarfile.ReadError` if they are damaged, or more than expected."""
        if size is None or size < 0 or self.tell() + size > self._end:
            raise tarfile.ReadError("it contains more than a backup does at this point")
        try:
            return super().read(size)
        except BadGzipFile as error:  # an OSError, as if a file could not be written
            raise tarfile.ReadError(str(error)) from error


def _check_member(member: tarfile.TarInfo, backup: Backup, source: Path) -> None:
    """Raise `ConfigError` unless a member of an archive is a file as the manifest says."""
    known = backup.files.get(member.name)
    if known is None or not member.isreg() or member.issparse() or not _is_allowed(member.name):
        raise ConfigError(f"{str(source)!r} contains {member.name!r}, which does not belong in a backup.")
    if member.size != known.bytes:
        raise ConfigError(
            f"{member.name!r} in {str(source)!r} has {member.size:,} bytes, but {MANIFEST} says "
            f"{known.bytes:,}: use another backup."
        )


def _manifest(packed: tarfile.TarFile, source: Path) -> Backup:
    first = packed.next()
    content = None if first is None or first.name != MANIFEST else packed.extractfile(first)
    if first is None or content is None:
        raise ConfigError(f"{str(source)!r} is not a backup: it has no {MANIFEST}.")
    if first.size > MOST_OF_MANIFEST:
        raise ConfigError(
            f"{str(source)!r} is not a backup: its {MANIFEST} has {sized(first.size)}, more than the "
            f"{sized(MOST_OF_MANIFEST)} allowed."
        )
    text = io.BytesIO()
    copyfileobj(content, text)
    try:
        found: dict[str, Any] = json.loads(text.getvalue())
        if found["format"] > FORMAT:
            raise ConfigError(
                f"{str(source)!r} was written by a newer Redraft ({found.get('redraft')}): upgrade redraft."
            )
        return from_json(Backup, found)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{str(source)!r} is not a backup: its {MANIFEST} can't be read ({error})."
        ) from error


def _check_size(backup: Backup, source: Path, max_bytes: int | None) -> None:
    """Raise `ConfigError` for a backup that says of itself that it is large, and far larger than its file."""
    size = source.stat().st_size
    most = max(MOST_BYTES, MOST_TIMES * size) if max_bytes is None else max_bytes
    if backup.bytes > most:
        raise ConfigError(
            f"{str(source)!r} ({sized(size)}) would unpack to {sized(backup.bytes)}, more than the "
            f"{sized(most)} allowed. If you trust it, add --max-size {ceil(backup.bytes / 1_000_000)}MB."
        )


def _check_room(folder: Path, files: Collection[FileInBackup]) -> None:
    """Raise `StoreError` if the disk of a folder has no room for these files."""
    needed, free = sum(one.bytes + BLOCK for one in files) + ROOM, disk_usage(_existing(folder)).free
    if needed > free:
        raise StoreError(
            f"Restoring the backup needs {sized(needed)} in {folder}, where only {sized(free)} are free."
        )


def _existing(path: Path) -> Path:
    """Return a path, or the next one above it that exists."""
    return next(one for one in (path, *path.parents) if one.exists())


def _is_allowed(name: str) -> bool:
    """Return whether a backup may have a file of this name: one that leads nowhere else."""
    path = PurePosixPath(name)
    if str(path) != name or path.is_absolute() or ".." in path.parts or "\0" in name:
        return False
    if name in (SETTINGS_FILE, f"{STORE}/{DATABASE}"):
        return True
    folder, *below = path.parts
    return bool(below) and (folder == HOOKS or (folder == MEMORY and not {*LEFT_OUT} & {*below}))


def _settings_after(stage: Path, folder: Path) -> Settings:
    """Return the settings that will apply once a backup is restored.

    Raises `ConfigError` if its `redraft.toml` would store things outside of the project, where they are not
    stored now.
    """
    now = load_settings()
    if not (stage / SETTINGS_FILE).exists():
        return now
    after = load_settings(stage)
    for name in ("home", "memory"):
        value = getattr(after, name)
        if value != getattr(now, name) and not (folder / value).resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"The settings in the backup store things outside of the project: {name} = {value!r}. If "
                f"that is intended, set it in the {SETTINGS_FILE} of this folder first."
            )
    return after


def _targets(stage: Path, folder: Path, settings: Settings) -> dict[str, Path]:
    """Return where each file of a backup belongs."""
    home = folder / settings.home
    places = {MEMORY: folder / settings.memory, HOOKS: home / HOOKS, STORE: home}
    found: dict[str, Path] = {}
    for path in sorted(path for path in stage.rglob("*") if path.is_file()):
        name = path.relative_to(stage)
        within = places.get(name.parts[0])
        target = folder / name if within is None else within / Path(*name.parts[1:])
        if within is not None and not target.parent.resolve().is_relative_to(within.resolve()):
            raise ConfigError(f"{target.parent} is a link that leads out of {within}: remove it first.")
        found[str(name)] = target
    return found


def _is_other(path: Path, source: Path) -> bool:
    """Return whether a file is there and says something else."""
    return path.exists() and (path.name == DATABASE or path.read_bytes() != source.read_bytes())


def _put(source: Path, target: Path, *, is_private: bool) -> None:
    """Write a file, in place of any that is there."""
    if is_private:
        make_folder(target.parent.parent)
        target.parent.mkdir(mode=0o700, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, source.read_bytes())
    if is_private:
        target.chmod(0o600)


@contextmanager
def _staging(folder: Path) -> Generator[Path]:
    """Make a folder that only its owner can read, for as long as the block lasts."""
    try:
        stage = tempfile.TemporaryDirectory(prefix=STAGING, dir=folder)
    except OSError as error:  # the name of the folder that could not be made helps nobody
        raise StoreError(f"A folder can't be created in {folder}: {error.strerror}.") from error
    with stage as name:
        yield Path(name)


@contextmanager
def _reporting(path: Path) -> Generator[None]:
    """Turn an `OSError` into a `StoreError` that names the file."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.filename or path}: {error.strerror or error}.") from error
