"""Files that people edit, too: written atomically, and read only if they are regular files."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from redraft._locks import check_regular, flock, remedy
from redraft.errors import LessonFileError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ENDING = ".md"
MOST_BYTES = 1_000_000
LOCK_WAIT = 10.0
"""Seconds to wait for another process that has locked a folder."""


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


def create_file(path: Path, data: bytes) -> None:
    """Create a file atomically; raises `FileExistsError`, and otherwise `OSError`."""
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
    """Turn an `OSError` about a path into a `StoreError` that names it and says what to do."""
    try:
        yield
    except FileExistsError:  # part of the search for a free name
        raise
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}. {remedy(error)}".rstrip()) from error


def make_folder(folder: Path) -> None:
    """Make a folder unless it exists; raises `OSError`, as `NotADirectoryError` where there is a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Lock a folder, created if need be, against other processes and threads; not reentrant.

    The lock is on the folder itself, since a lock file would end up in git. Raises `StoreError` if another
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
"""Matches the name under which a file is written until it is whole."""


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name[:80]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
