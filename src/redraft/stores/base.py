"""Store and Record: the one way in which anything is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
Where: TypeAlias = Mapping[str, Scalar | tuple[Scalar, ...]]
"""Which records are meant: each named field of `data` equals the value, or one of a tuple of values."""


@dataclass(frozen=True, slots=True)
class Record:
    """Hold one thing that is kept: plain JSON data under a kind and a key.

    `kind` says what the data describes (`run`, `step`), `schema_version` in which form. `key` is unique
    within its kind. `vector` is what `near` compares, of unit length. The store fills in the rest: `revision`
    counts the writes of this record from 1 (0: not stored yet), `created_at` and `updated_at` are in UTC.
    """

    kind: str
    key: str
    data: Mapping[str, Any]
    schema_version: int = 1
    vector: Sequence[float] | None = None
    revision: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None


class Store(Protocol):
    """Keep records, safely under many tasks, threads and processes at once.

    A write that returned is durable where the store is. Writes of one task are seen by its later reads. A
    store holds records of one space (a project, say) and never shows those of another. Every method raises
    `StoreError` when the store can't be read or written, with the reason and what to do.
    """

    async def put(self, record: Record, /) -> Record:
        """Store a record in place of the one with its key, if there is one; return it as it is stored."""
        ...

    async def put_if_absent(self, record: Record, /) -> tuple[Record, bool]:
        """Store a record unless its key is taken; return the one that is stored, and whether it is this."""
        ...

    async def replace(self, record: Record, /) -> Record | None:
        """Store a record if the stored one still has its `revision`; None if it was changed or deleted."""
        ...

    async def get(self, kind: str, key: str, /) -> Record | None:
        """Return the record with a key."""
        ...

    async def find(
        self,
        kind: str,
        /,
        *,
        prefix: str = "",
        where: Where | None = None,
        newest_first: bool = False,
        after: Record | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """Return the records of a kind, in the order of their keys or the newest first.

        `prefix` is how their keys begin. `after` is the last record of the page before, in the same order;
        `limit` is how many a page holds at most.
        """
        ...

    async def delete(self, kind: str, key: str, /) -> bool:
        """Remove a record; say if there was one."""
        ...

    async def near(
        self, kind: str, vector: Sequence[float], /, *, where: Where | None = None, limit: int = 3
    ) -> list[tuple[Record, float]]:
        """Return the records whose vectors are nearest, with the cosine similarity (-1..1), nearest first."""
        ...

    async def aclose(self) -> None:
        """Write what is still to be written, and let go of files and connections."""
        ...
