"""Store and Record: the one way in which anything is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn, Protocol, TypeAlias, runtime_checkable

from redraft.core.errors import DamagedRecordError

Scalar: TypeAlias = str | int | float | bool | None
Where: TypeAlias = Mapping[str, Scalar | tuple[Scalar, ...]]
"""Which records are meant: each named field of `data` equals the value, or one of a tuple of values.

Values are compared as JSON: True is not 1, "1" is not 1, but 1 is 1.0; a field that is absent is None. A
field's name has no quotes, backslashes and control characters.
"""


@dataclass(frozen=True, slots=True)
class Record:
    """Hold one thing that is kept: plain JSON data under a kind and a key.

    `kind` says what the data describes (`run`, `step`), `schema_version` in which form. `key` is unique
    within its kind; both are texts of at most 1,000 bytes without NUL. `data` holds what JSON can, with texts
    as keys: tuples come back as lists, NaN is refused, any text survives. `vector` is what `near` compares,
    of unit length, as float32. The store fills in the rest, whatever a record to be stored says: `revision`
    counts the writes of this record from 1 (0: not stored yet), `created_at` is when it was first stored and
    `updated_at` when it was last, in UTC to the microsecond.

    A record that a store finds damaged is listed all the same, so that it hides no other: `damage` says what
    is wrong, and whoever looks at its `data` gets a `DamagedRecordError`.
    """

    kind: str
    key: str
    data: Mapping[str, Any]
    schema_version: int = 1
    vector: Sequence[float] | None = None
    revision: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def damage(self) -> str:
        """What is wrong with the record as it is stored; empty for one that is whole."""
        return self.data.damage if isinstance(self.data, DamagedData) else ""


class DamagedData(dict[str, Any]):
    """Stand for data that can't be trusted: whoever looks at them gets a `DamagedRecordError`."""

    __slots__ = ("damage",)

    def __init__(self, damage: str) -> None:
        super().__init__()
        self.damage = damage

    def _raise(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise DamagedRecordError(self.damage)

    __getitem__ = __contains__ = __iter__ = __len__ = __eq__ = __or__ = __ror__ = _raise  # pyright: ignore[reportAssignmentType] (each raises)
    get = keys = values = items = copy = _raise  # pyright: ignore[reportAssignmentType] (likewise)
    __hash__ = None  # pyright: ignore[reportAssignmentType] (as that of any dict)

    def __repr__(self) -> str:
        return f"<{self.damage}>"


def intact(records: Sequence[Record]) -> list[Record]:
    """Return the records that are not damaged; a warning in the log names each of the others once."""
    for record in records:
        if record.damage:
            _warn(record.damage)
    return [record for record in records if not record.damage]


async def listed(store: Store, kind: str, key: str) -> Record | None:
    """Return the record with a key, be it damaged: for a list to go on after it."""
    found = await store.find(kind, prefix=key, limit=1)
    return found[0] if found and found[0].key == key else None


@lru_cache(maxsize=1000)
def _warn(damage: str) -> None:
    from redraft.redact.log import logger  # noqa: PLC0415 (nothing is damaged, as a rule)

    logger.warning("%s Until then it is left out.", damage)


@runtime_checkable
class Store(Protocol):
    """Keep records, safely under many tasks, threads and processes at once.

    A write that returned is durable where the store is; one whose task is cancelled is carried out all the
    same. Writes of one task are seen by its later reads. A store holds records of one space (a project, say)
    and never shows those of another. What it returns is the caller's: to change it changes nothing stored.

    Every method raises `StoreError` for a record that can't be stored, naming what of it, and when the store
    can't be read or written, with the reason and what to do; it works again when the reason is gone. A record
    that is damaged raises `DamagedRecordError` where it alone is asked for; among others, it has `damage`.
    """

    async def put(self, record: Record, /) -> Record:
        """Store a record in place of the one with its key, if there is one; return it as it is stored."""
        ...

    async def put_all(self, records: Sequence[Record], /) -> list[Record]:
        """Store records as `put` does, all of them or none; return them as they are stored.

        They are put one after the other, so of two with one key the last one stays. All have one time.
        """
        ...

    async def put_if_absent(self, record: Record, /) -> tuple[Record, bool]:
        """Store a record unless its key is taken; return the one that is stored, and whether it is this."""
        ...

    async def replace(self, record: Record, /) -> Record | None:
        """Store a record if the stored one still has its `revision`; None if it was changed or deleted.

        One that was stored anew after it was deleted is another: `created_at` tells, if the record has it.
        """
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

        Keys are ordered by code points; the newest is what was created last (among equals the last key).
        `prefix` is how their keys begin, letter by letter. `after` is the last record of the page before, in
        the same order, whether it is still there or not; `limit` is how many a page holds at most (from 1).
        A page after a page shows each record that stays once. Raises `ConfigError` for what can't be asked.
        """
        ...

    async def delete(self, kind: str, key: str, /) -> bool:
        """Remove a record; say if there was one."""
        ...

    async def near(
        self, kind: str, vector: Sequence[float], /, *, where: Where | None = None, limit: int = 3
    ) -> list[tuple[Record, float]]:
        """Return the records whose vectors are nearest, with the cosine similarity (-1..1), nearest first.

        The search is exact; among equally near ones the first key is first. Raises `StoreError` for a vector
        without a direction (zero, NaN), and where the stored ones have other dimensions.
        """
        ...

    async def aclose(self) -> None:
        """Write what is still to be written, and let go of files and connections; the next use opens anew."""
        ...


@runtime_checkable
class FencedStore(Store, Protocol):
    """Write only while another record says who may: a `Store` that keeps a writer out that was replaced.

    The stores of Redraft are such; of a user's own store it is asked for, not required.
    """

    async def put_all_if(
        self, kind: str, key: str, where: Where, records: Sequence[Record], /
    ) -> list[Record] | None:
        """Store records as `put_all` does if the record of this kind and key has these fields.

        No other process changes that record between the look and the write. Returns None, and has written
        nothing, where the fields have other values or there is no such record.
        """
        ...
