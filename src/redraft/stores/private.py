"""Files and folders that are for their owner only, whatever the umask."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
