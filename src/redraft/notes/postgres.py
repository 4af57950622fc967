"""PostgresReflectionStore: notes in a database that many machines share."""

from __future__ import annotations

from redraft.notes.note_store import NoteStore


class PostgresReflectionStore(NoteStore):
    """Keep notes in a PostgreSQL database: `dsn` is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.

    Raises `MissingExtraError` where `redraft[postgres]` is not installed.
    """

    def __init__(self, dsn: str) -> None:
        from redraft.stores.postgres import PostgresStore  # noqa: PLC0415 (imported on first use)

        super().__init__(PostgresStore(dsn))
