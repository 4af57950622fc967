"""Files and folders that people may edit, too: atomic writes, and locks."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from redraft._locks import check_regular, flock, remedy
from redraft.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

LOCK_WAIT = 10.0
"""Seconds to wait for another process that has locked a folder."""


def create_file(path: Path, data: bytes) -> None:
    """Create a file atomically; raises `FileExistsError` or another `OSError`."""
    temporary = _temporary(path)
    try:
        _write(temporary, data)
        os.link(temporary, path)  # unlike a rename, it never replaces a file
    finally:
        temporary.unlink(missing_ok=True)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file atomically, keeping the mode of an existing one.

    Raises `OSError`, also for anything but a regular file: a pipe or a device is not replaced.
    """
    check_regular(path)
    temporary = _temporary(path)
    try:
        _write(temporary, data)
        with suppress(FileNotFoundError):
            temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def reporting(path: Path | str) -> Generator[None]:
    """Turn an `OSError` into a `StoreError` that names the path and the remedy."""
    try:
        yield
    except FileExistsError:  # part of the search for a free name
        raise
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}. {remedy(error)}".rstrip()) from error


def make_folder(folder: Path) -> None:
    """Make a folder unless it exists; raises `OSError`, which is a `NotADirectoryError` if it is a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Lock a folder, created if need be, against other processes and threads; not reentrant.

    The lock is on the folder itself, because a lock file would end up in git. Raises `StoreError` if another
    process holds it for longer than `LOCK_WAIT` seconds.
    """
    with reporting(folder):
        make_folder(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            flock(descriptor, LOCK_WAIT)
        except TimeoutError:
            raise StoreError(
                f"{folder}: another process has had it locked for {LOCK_WAIT:g} s; is that process suspended?"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


TEMPORARY = ".*.*-*.tmp"
"""Matches the name of a file that is being written."""


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name[:80]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
