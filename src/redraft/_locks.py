"""File locks and owner-only files."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

_IGNORE_ALL = "# What Redraft keeps is not for git.\n*\n"


def make_folder(folder: Path) -> None:
    """Make a folder of mode 0700 that ignores itself in git, unless it is there."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(0o700)
        folder.chmod(0o700)
        try:
            (folder / ".gitignore").write_text(_IGNORE_ALL, "utf-8")
        except OSError:  # a full disk: never leave a folder that git would take
            (folder / ".gitignore").unlink(missing_ok=True)
            folder.rmdir()
            raise


def make_file(path: Path) -> None:
    """Make an empty file of mode 0600, unless it is there.

    A file that is there is not so much as opened: to close it would end the locks that SQLite holds on it.
    """
    with suppress(FileExistsError):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o600)
        finally:
            os.close(file)


_files: set[int] = set()
"""The open files of all locks. A forked child lets go of them, or it would hold its dead parent's locks."""


class FileLock:
    """Hold an exclusive `flock` on a file of its own, which the kernel grants to those who wait by turns.

    For one thread at a time. The file is made with mode 0600 when it is first needed, and stays. `wait` is
    how many seconds to wait for other processes.
    """

    def __init__(self, path: Path, wait: float) -> None:
        self._path = path
        self._wait = wait
        self._depth = 0
        self._file: int | None = None

    def held(self) -> AbstractContextManager[None]:
        """Hold the lock; within itself at once. Raises `TimeoutError`, and `OSError` of the lock's file."""
        return self

    def __enter__(self) -> None:
        if self._depth == 0:
            self._acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file, and of the lock with it."""
        if self._file is not None:
            _close(self._file)
            self._file = None

    def _acquire(self) -> None:
        if self._file is None:
            make_file(self._path)
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            _files.add(self._file)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not _Queueing(self._file).granted(self._wait):
                self._file = None  # the thread still waits with it, and will close it
                raise TimeoutError from None


class _Queueing:
    """A thread that waits for a lock: `flock` knows no end of waiting, and who keeps trying has no turn."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._deciding = Lock()
        self._granted = Event()
        self._given_up = False
        Thread(target=self._queue, name="redraft-lock", daemon=True).start()

    def granted(self, within: float) -> bool:
        """Say if the lock was granted in time; if not, it is given back as soon as it is."""
        self._granted.wait(within)
        with self._deciding:
            self._given_up = not self._granted.is_set()
        return not self._given_up

    def _queue(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._deciding:
            if self._given_up:
                _close(self._file)
            self._granted.set()


def _close(file: int) -> None:
    _files.discard(file)
    os.close(file)


def _close_all() -> None:
    for file in tuple(_files):
        _close(file)


os.register_at_fork(after_in_child=_close_all)
