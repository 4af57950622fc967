"""explained: why a database file could not be read or written, and what to do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from redraft.core.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

_DAMAGED = (
    "is damaged as a file, not in single records, and was left as it is: restore a backup, or save what can "
    "still be read with `sqlite3 FILE .recover`"
)
_SAYS = {
    "SQLITE_NOTADB": "is no SQLite database, and was left as it is: give the store another path",
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_FULL": "can't grow, because the disk is full: free some space",
    "SQLITE_IOERR": "can't be read or written by the system: see if the disk is full or a quota reached",
    "SQLITE_READONLY": "can't be written: see who may write to the file and to its folder",
    "SQLITE_PERM": "can't be used: see who may write to the file and to its folder",
    "SQLITE_CANTOPEN": "can't be opened: see who may write to the file and to its folder",
    "SQLITE_TOOBIG": "can't hold so much in one record (SQLite's limit is 1 GB)",
}


def name_of(error: Exception) -> str:
    """Return SQLite's name for an error, without its finer kind; empty where it comes from Python."""
    return "_".join(str(getattr(error, "sqlite_errorname", "")).split("_")[:2])


def explained(error: Exception, path: Path, wait: float) -> StoreError:
    """Return the `StoreError` that says what an error of the database, the system or the lock means."""
    if isinstance(error, StoreError):
        return type(error)(*error.args)
    if os.path.isdir(path):  # noqa: PTH112 (unlike Path.is_dir, it says no where one may not look)
        return StoreError(f"{path} is a folder: give the store the path of a file.")
    if isinstance(error, TimeoutError) or name_of(error) == "SQLITE_BUSY":
        return StoreError(
            f"{path} has been locked by another program for {wait:g} s: see if one hangs, or try again later."
        )
    if isinstance(error, OSError):
        return StoreError(f"{path} can't be used ({error}): see who may write to it and to its folder.")
    says = _SAYS.get(name_of(error), "can't be used")
    return StoreError(f"{path} {says} ({error}).")
