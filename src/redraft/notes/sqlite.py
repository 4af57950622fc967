"""SqliteReflectionStore: notes in a file that many processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.notes.note_store import NoteStore

if TYPE_CHECKING:
    from pathlib import Path


class SqliteReflectionStore(NoteStore):
    """Keep notes in a SQLite database; the file at `path` and its folder are made by the first write.

    The database of a project, `.redraft/redraft.db`, may be the one.
    """

    def __init__(self, path: str | Path) -> None:
        from redraft.stores.sqlite import SqliteStore  # noqa: PLC0415 (sqlite3 is imported on first use)

        super().__init__(SqliteStore(path))
