"""File locks between processes, and files that only their owner can read."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def flock(file: int, wait: float | None = None) -> None:
    """Lock an open file or folder against other processes, until it is closed.

    Waits without limit, or at most `wait` seconds (0: not at all), in a fair queue; then raises
    `TimeoutError`. Close the file after that: its place in the queue remains until the lock is granted.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if wait is None:
            fcntl.flock(file, fcntl.LOCK_EX)
        elif wait == 0 or not _Waiter(file).is_granted(wait):
            raise TimeoutError from None


class FileLock:
    """An exclusive lock on a dedicated file, between processes, and between threads with a `FileLock` each.

    A reentrant context manager, which raises `TimeoutError` after `wait` seconds, and `OSError` if the file
    can't be used. The file is made with mode 0600 on first use, and is never removed. The kernel serves
    waiters in order.
    """

    def __init__(self, path: Path, wait: float) -> None:
        self._path = path
        self._wait = wait
        self._depth = 0
        self._file: int | None = None

    def __enter__(self) -> None:
        if self._depth == 0:
            self._acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which releases the lock."""
        if self._file is not None:
            _close(self._file)
            self._file = None

    def _acquire(self) -> None:
        if self._file is None:
            make_file(self._path)
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            _files.add(self._file)
        try:
            flock(self._file, self._wait)
        except TimeoutError:
            self.close()
            raise


class _Waiter:
    """A thread that waits for a lock: `flock` has no timeout, and polling never gets a turn."""

    def __init__(self, file: int) -> None:
        self._file = os.dup(file)  # because the caller closes its file when it gives up
        _files.add(self._file)
        self._deciding = Lock()
        self._granted = Event()
        self._has_given_up = False
        Thread(target=self._queue, name="redraft-lock", daemon=True).start()

    def is_granted(self, within: float) -> bool:
        """Whether the lock was granted in time. If not, it is released as soon as it is granted."""
        self._granted.wait(within)
        with self._deciding:
            self._has_given_up = not self._granted.is_set()
        return not self._has_given_up

    def _queue(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._deciding:
            if self._has_given_up:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._granted.set()
        _close(self._file)


_files: set[int] = set()
"""The open files of all locks. A forked child closes them, or it would hold the locks of a dead parent."""


def _close(file: int) -> None:
    _files.discard(file)
    os.close(file)


def _close_all() -> None:
    for file in tuple(_files):
        _close(file)


os.register_at_fork(after_in_child=_close_all)


def check_regular(path: Path) -> bool:
    """Whether a file exists; raises `OSError` if it is not a regular file.

    A device or a pipe must not be opened, locked, replaced or given another mode: opening a pipe can hang,
    and root would change the mode of `/dev/null` for the whole machine.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return True


_REMEDIES = {
    errno.ENOSPC: "Free some space, then try again.",
    errno.EDQUOT: "Free some space of your quota, then try again.",
    errno.EROFS: "Make it writable, or choose another folder.",
    errno.EACCES: "Check its permissions, or choose another folder.",
    errno.EPERM: "Check its permissions, or choose another folder.",
    errno.ENOTDIR: "A file is in the place of a folder: move it away.",
    errno.EEXIST: "A file is in the place of a folder: move it away.",
}


def remedy(error: OSError) -> str:
    """Advice for a person on an error of the file system; empty for an unusual error."""
    return _REMEDIES.get(error.errno or 0, "")


def make_folder(folder: Path) -> None:
    """Make a folder of mode 0700 that git ignores, unless it exists."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(0o700)
        folder.chmod(0o700)
        try:
            (folder / ".gitignore").write_text("# Redraft's data; don't commit it.\n*\n", "utf-8")
        except OSError:  # a full disk: never leave a folder that git would take
            (folder / ".gitignore").unlink(missing_ok=True)
            folder.rmdir()
            raise


def make_file(path: Path) -> None:
    """Make an empty file of mode 0600, unless it exists; raises `OSError` for anything but a regular file.

    An existing file is not even opened: closing it would end the locks that SQLite holds on it.
    """
    if check_regular(path):
        return
    with suppress(FileExistsError):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o600)
        finally:
            os.close(file)
