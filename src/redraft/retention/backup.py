"""Backup: write a project to a file, while runs are going on, and restore it."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from gzip import BadGzipFile
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from shutil import copyfile, copyfileobj
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft._files import replace_file
from redraft._locks import check_regular, make_folder
from redraft._texts import abridged, counted
from redraft._validation import checked_path
from redraft.errors import ConfigError, StoreError
from redraft.lessons.documents import INDEX
from redraft.settings import SETTINGS_FILE, hooks_folder, load_settings, project_folder
from redraft.stores.location import DATABASE, project_place
from redraft.stores.sqlite import check_database, copy_database, restore_database

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import IO

    from redraft.settings import Settings
    from redraft.stores.location import Place

FORMAT = 1
"""The version of the layout of a backup; raised when older versions of Redraft can't restore it any more."""
MANIFEST = "manifest.json"
STORE, HOOKS, MEMORY = "store", "hooks", "memory"
"""The folders in a backup."""
LEFT_OUT = (INDEX, ".git")
STAGING = ".redraft-"
"""The prefix of the temporary folders in which backups are made and unpacked."""
MOST_NAMED = 5
CHUNK = 1_000_000


@dataclass(frozen=True, slots=True)
class Backup:
    """The contents of a backup file."""

    created_at: datetime
    redraft: str
    """The version of Redraft that made the backup."""
    files: Mapping[str, int]
    """The size of each file in bytes, by name: the settings, the database under `store/`, sessions of coding
    agents under `hooks/`, and lessons under `memory/`."""
    format: int = FORMAT
    remarks: tuple[str, ...] = ()
    """Data that is missing in the backup."""

    @property
    def bytes(self) -> int:
        """The total size of the files."""
        return sum(self.files.values())


def back_up(target: str | Path, *, force: bool = False, files_only: bool = False) -> Backup:
    """Write a backup of the project in the working folder to a file that only its owner can read.

    Runs may go on meanwhile: the copy of the database is a snapshot. `files_only` leaves the database out.
    Raises `ConfigError` if the file exists, unless `force`, if there is nothing to back up, and for a project
    whose runs are in PostgreSQL; raises `StoreError` if a file can't be read or written, and for a damaged
    database.
    """
    target = checked_path("target", target)
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
        _collect(stage, None if files_only else place, _without_links(target))
        files = _sizes(stage)
        if not files:
            raise ConfigError(
                f"There is nothing to back up in {project_folder()}: no settings, runs, sessions or lessons. "
                "Is it the folder of the project?"
            )
        remarks = _missing(files_only=files_only)
        backup = Backup(datetime.now(UTC), version("redraft"), files, remarks=remarks)
        archive = stage / "backup"
        _pack(archive, stage, backup)
        archive.replace(target)
    return backup


def restore(source: str | Path, *, force: bool = False, check: bool = False) -> Backup:
    """Restore the project in the working folder from a backup.

    The whole backup is unpacked and checked before anything is replaced. Each file is written under a
    temporary name, then renamed; the database is replaced in one transaction. Files that are not in the
    backup stay. With `check`, nothing changes.

    Raises `ConfigError` for a file that is not a backup, is incomplete, or comes from a newer Redraft, and if
    it would replace a file, unless `force`; raises `StoreError` if a file can't be read or written, and if
    the database in the backup is damaged or newer.
    """
    source, folder = checked_path("source", source), project_folder()
    with _reporting(folder), _staging(folder) as stage:
        backup = _unpacked(source, stage)
        settings, place = _settings_after(stage, folder), project_place()
        database = stage / STORE / DATABASE
        if database.exists():
            try:
                check_database(database)
            except StoreError as error:
                message = str(error).replace(str(database), f"The database in {str(source)!r}")
                raise StoreError(message) from error
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
        if (stage / HOOKS).exists() and hooks_folder(folder) is None:
            raise ConfigError("The backup has sessions of coding agents, but REDRAFT_HOME is empty: set it.")
        targets = {name: _target(name, folder, settings) for name in backup.files}
        above = {parent for path in targets.values() for parent in path.parents}
        if blocked := next((path for path in sorted(above) if path.exists() and not path.is_dir()), None):
            raise ConfigError(f"{str(blocked)!r} is a file, and a folder in the backup: move the file away.")
        replaced = [
            path
            for name, path in targets.items()
            if check_regular(path)
            and (path.name == DATABASE or path.read_bytes() != (stage / name).read_bytes())
        ]
        if check or (replaced and not force):
            names = abridged([os.path.relpath(path, folder) for path in replaced], MOST_NAMED)
            warning = f"The backup would replace {counted(len(replaced), 'file')} in {folder}: {names}."
            if check:
                return replace(backup, remarks=(*backup.remarks, *([warning] if replaced else [])))
            raise ConfigError(f"{warning} Restore into an empty folder, or add --force.")
        remarks = backup.remarks
        if (path := targets.pop(f"{STORE}/{DATABASE}", None)) is not None:  # first: it may be in use
            damaged = restore_database(path, database)
            if damaged is not None:
                renamed = os.path.relpath(damaged, folder)
                remarks = (*remarks, f"The damaged database was renamed to {renamed}.")
        for name, path in targets.items():
            _put(stage / name, path, is_private=name.startswith(f"{HOOKS}/"))
    return replace(backup, remarks=remarks)


def _collect(stage: Path, place: Place | None, backup: Path) -> None:
    """Copy the files of the project to a folder, without `backup`, the file that will be replaced."""
    folder, settings = project_folder(), load_settings()
    if (folder / SETTINGS_FILE).is_file():
        copyfile(folder / SETTINGS_FILE, stage / SETTINGS_FILE)
    if place is not None and isinstance(place.database, Path) and place.database.exists():
        (stage / STORE).mkdir()
        try:
            copy_database(place.database, stage / STORE / DATABASE)
        except StoreError as error:
            raise StoreError(
                f"{error} No backup of it could be restored: restore an earlier one, or back up everything "
                "else with --files-only."
            ) from error
    hooks = hooks_folder(folder)
    sources = [] if hooks is None else [(HOOKS, hooks)]
    for name, source in [*sources, (MEMORY, folder / settings.memory)]:
        for at, folders, names in os.walk(source, onerror=_unless_missing):
            folders[:] = [name for name in folders if name not in LEFT_OUT and not name.startswith(STAGING)]
            for file in names:
                path = Path(at, file)
                if path.is_symlink() or not path.is_file():
                    continue
                if file.endswith(".tmp") or _without_links(path) == backup:
                    continue
                target = stage / name / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # archived or replaced just now
                    copyfile(path, target)


def _unless_missing(error: OSError) -> None:
    """Raise an error about a folder, unless the folder does not exist."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _missing(*, files_only: bool) -> tuple[str, ...]:
    """Name the data that is missing in a backup."""
    remarks: list[str] = []
    if files_only:
        remarks.append("The database with the runs is not in it.")
        place = project_place()
        if place is not None and isinstance(place.database, str):
            remarks.append("The lessons are in that database, too.")
    if load_settings().long_term_storage:
        remarks.append(
            "The memory of agents in the long-term storage is not in it: back that up with pg_dump."
        )
    return tuple(remarks)


def _sizes(stage: Path) -> dict[str, int]:
    """The size of each file in a folder in bytes, by name."""
    files = sorted(path for path in stage.rglob("*") if path.is_file())
    return {path.relative_to(stage).as_posix(): path.stat().st_size for path in files}


def _pack(archive: Path, stage: Path, backup: Backup) -> None:
    """Write the file of a backup, with mode 0600."""
    descriptor = os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz") as packed:
            manifest = json.dumps(to_json(backup), indent=2).encode()
            _add(packed, MANIFEST, len(manifest), io.BytesIO(manifest))
            for name, size in backup.files.items():
                with (stage / name).open("rb") as content:
                    _add(packed, name, size, content)
        file.flush()
        os.fsync(file.fileno())


def _add(packed: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, int(datetime.now(UTC).timestamp())
    packed.addfile(member, content)


def _unpacked(source: Path, stage: Path) -> Backup:
    """Unpack a backup into a folder; raises `ConfigError` if it is incomplete or contains other files."""
    try:
        with gzip.open(source) as unzipped, tarfile.open(fileobj=unzipped, mode="r:") as packed:
            first = packed.next()
            content = None if first is None or first.name != MANIFEST else packed.extractfile(first)
            if content is None:
                raise ConfigError(f"{str(source)!r} is not a backup: it has no {MANIFEST}.")
            manifest = _manifest(content, source)
            # Not `extractall`: its filters are missing in the first versions of Python 3.11.
            while (member := packed.next()) is not None:
                content = packed.extractfile(member) if member.isreg() else None
                if content is None or not _is_allowed(member.name):
                    raise ConfigError(
                        f"{str(source)!r} contains {member.name!r}, which does not belong in a backup."
                    )
                target = stage / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as file:  # a duplicate name is an error
                    copyfileobj(content, file, CHUNK)
            while unzipped.read(CHUNK):  # gzip's checksum is at the end
                pass
    except (tarfile.TarError, EOFError, zlib.error, BadGzipFile, FileExistsError) as error:
        raise ConfigError(f"{str(source)!r} is not a backup, or is incomplete: {error}.") from error
    return replace(manifest, files=_sizes(stage))


def _manifest(content: IO[bytes], source: Path) -> Backup:
    """Read the manifest of a backup; the files are added once they are unpacked."""
    try:
        manifest: dict[str, Any] = json.load(content)
        if manifest["format"] > FORMAT:
            raise ConfigError(
                f"{str(source)!r} was written by a newer Redraft ({manifest.get('redraft')}): "
                "upgrade redraft."
            )
        created_at = datetime.fromisoformat(manifest["created_at"])
        return Backup(created_at, manifest["redraft"], {}, remarks=tuple(manifest.get("remarks", ())))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{str(source)!r} is not a backup: its {MANIFEST} can't be read ({error})."
        ) from error


def _is_allowed(name: str) -> bool:
    """Whether a backup may contain a file of this name, which must stay inside the project."""
    path = PurePosixPath(name)
    if str(path) != name or path.is_absolute() or ".." in path.parts or "\0" in name:
        return False
    if name in (SETTINGS_FILE, f"{STORE}/{DATABASE}"):
        return True
    folder, *below = path.parts
    return bool(below) and (folder == HOOKS or (folder == MEMORY and not {*LEFT_OUT} & {*below}))


def _settings_after(stage: Path, folder: Path) -> Settings:
    """The settings that apply once a backup is restored.

    Raises `ConfigError` if its `redraft.toml` would move data out of the project.
    """
    before = load_settings()
    if not (stage / SETTINGS_FILE).exists():
        return before
    after = load_settings(stage)
    for name in ("home", "memory"):
        value = getattr(after, name)
        is_outside = not _without_links(folder / value).is_relative_to(_without_links(folder))
        if value != getattr(before, name) and is_outside:
            raise ConfigError(
                f"The settings in the backup store things outside of the project: {name} = {value!r}. If "
                f"that is intended, set it in the {SETTINGS_FILE} of this folder first."
            )
    return after


def _without_links(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike `resolve`, it does not raise for links in a circle


def _target(name: str, folder: Path, settings: Settings) -> Path:
    """The path to which a file of a backup is restored."""
    places = {MEMORY: folder / settings.memory, STORE: folder / settings.home}
    if (hooks := hooks_folder(folder)) is not None:
        places[HOOKS] = hooks
    first, *below = PurePosixPath(name).parts
    if not below:
        return folder / name
    target = places[first].joinpath(*below)
    if not _without_links(target.parent).is_relative_to(_without_links(places[first])):
        raise ConfigError(f"{target.parent} is a link that leads out of {places[first]}: remove it first.")
    return target


def _put(source: Path, target: Path, *, is_private: bool) -> None:
    if is_private:
        make_folder(target.parent.parent)
        target.parent.mkdir(mode=0o700, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, source.read_bytes())
    if is_private:
        target.chmod(0o600)


@contextmanager
def _staging(folder: Path) -> Generator[Path]:
    """Create a temporary folder that only its owner can read."""
    try:
        stage = tempfile.TemporaryDirectory(prefix=STAGING, dir=folder)
    except OSError as error:  # its random name would not help
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
