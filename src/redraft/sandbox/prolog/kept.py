"""The folder in which the compiled interpreter is kept between processes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_OTHERS = 0o077


def kept_folder() -> str | None:
    """Return a folder that only this user can write to or read, made if need be; None if there can be none.

    What lies in it is run as machine code: a folder of somebody else, one that others may write to, and a
    link are not taken.
    """
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser() / "redraft" / "prolog"
    try:
        if not folder.is_absolute():
            return None
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(folder):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except (OSError, RuntimeError):  # read-only, or no home
        return None
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS
    return str(folder) if mine else None
