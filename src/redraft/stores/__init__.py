"""Stores: where records are kept."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.stores.base import Record as Record
    from redraft.stores.base import Store as Store
    from redraft.stores.postgres import PostgresStore as PostgresStore
    from redraft.stores.sqlite import MemoryStore as MemoryStore
    from redraft.stores.sqlite import SqliteStore as SqliteStore

_PLACES = {
    "base": ("Record", "Store"),
    "postgres": ("PostgresStore",),
    "sqlite": ("MemoryStore", "SqliteStore"),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
