"""Files that are whole or not there, whoever else writes and whatever is killed."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from redraft.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

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
