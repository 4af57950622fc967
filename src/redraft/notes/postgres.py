"""PostgresReflectionStore: notes in a database that many machines share."""

from __future__ import annotations

from redraft.notes.note_store import NoteStore
from redraft.stores.place import server_space


class PostgresReflectionStore(NoteStore):
    """Keep notes in a PostgreSQL database: `dsn` is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.

    Projects in one database each see their own notes; those of one name are one project. The name is
    `project`, else what the settings say: REDRAFT_PROJECT, else this machine and folder. Raises `ConfigError`
    for what is no such URL, and `MissingExtraError` where `redraft[postgres]` is not installed.
    """

    def __init__(self, dsn: str, project: str | None = None) -> None:
        from redraft.stores.postgres import PostgresStore  # noqa: PLC0415 (imported on first use)

        super().__init__(PostgresStore(dsn, server_space() if project is None else project))
