"""The `Store` protocol and its records, and what all backends share: rows and queries."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    runtime_checkable,
)
from zlib import crc32

from redraft._codec import from_record
from redraft._validation import check_count, named_error
from redraft.errors import ConfigError, DamagedRecordError, StoreError
from redraft.redact.log import warn_once

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

Scalar: TypeAlias = str | int | float | bool | None
Where: TypeAlias = Mapping[str, Scalar | tuple[Scalar, ...]]
"""A filter: each named field of `data` equals the value, or one of a tuple of values.

Values are compared as JSON: True is not 1, "1" is not 1, but 1 is 1.0; an absent field is None. The name of a
field may not contain quotes, backslashes or control characters.
"""


@dataclass(frozen=True, slots=True)
class Record:
    """One stored item: plain JSON data under a kind and a key.

    Kinds and keys are strings of at most 1,000 bytes without NUL. The store sets `revision`, `created_at` and
    `updated_at` on each write, whatever values the written record has.

    Lists include damaged records, so that one of them doesn't hide the others: `damage` says what is wrong,
    and reading their `data` raises `DamagedRecordError`.
    """

    kind: str
    """What the data describes, such as `run` or `step`."""
    key: str
    """Unique within the kind."""
    data: Mapping[str, Any]
    """Anything that JSON can hold, with string keys: tuples come back as lists, NaN is rejected, and any
    string survives."""
    schema_version: int = 1
    """The form of the data."""
    revision: int = 0
    """Number of writes of this record; 0 if it is not stored yet."""
    created_at: datetime | None = None
    """Time of the first write, in UTC to the microsecond."""
    updated_at: datetime | None = None
    """Time of the last write, in UTC to the microsecond."""

    @property
    def damage(self) -> str:
        """What is wrong with the record as stored; empty if it is intact."""
        return self.data.damage if isinstance(self.data, DamagedData) else ""


class DamagedData(dict[str, Any]):
    """Placeholder for data that can't be trusted; any access raises `DamagedRecordError`."""

    __slots__ = ("damage",)

    def __init__(self, damage: str) -> None:
        super().__init__()
        self.damage = damage

    def _raise(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise DamagedRecordError(self.damage)

    __getitem__ = __contains__ = __iter__ = __len__ = __eq__ = __or__ = __ror__ = _raise  # pyright: ignore[reportAssignmentType] (each raises)
    get = keys = values = items = copy = _raise  # pyright: ignore[reportAssignmentType] (each raises)
    __hash__ = None  # pyright: ignore[reportAssignmentType] (as for any dict)

    def __repr__(self) -> str:
        return f"<{self.damage}>"


class StoredData(dict[str, Any]):
    """The data of a stored record; a missing field raises `DamagedRecordError`, not `KeyError`."""

    __slots__ = ("name",)

    def __init__(self, data: Mapping[str, Any], name: tuple[str, str]) -> None:
        super().__init__(data)
        self.name = name

    def __missing__(self, field: str) -> NoReturn:
        raise DamagedRecordError(damage_of(*self.name, f"it has no field {field!r}"))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def damage_of(kind: str, key: str, what: str) -> str:
    """The message for a damaged record."""
    return (
        f"The record {kind!r} {key!r} is damaged: {what}. Restore it from a backup, or "
        f"remove it with `store.delete({kind!r}, {key!r})`."
    )


@contextmanager
def reading(record: Record) -> Generator[None]:
    """Convert errors about missing or wrong fields of a record to `DamagedRecordError`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        why = f"no field {error}" if isinstance(error, KeyError) else named_error(error)
        what = f"its fields can't be read ({why})".rstrip(".")
        raise DamagedRecordError(damage_of(record.kind, record.key, what)) from error


def intact(records: Sequence[Record]) -> list[Record]:
    """Undamaged records; each damaged one is logged once as a warning."""
    for record in records:
        if record.damage:
            warn_once(f"{record.damage} Until then, the record is skipped.")
    return [record for record in records if not record.damage]


def restored(records: Sequence[Record], read: Callable[[Record], T]) -> dict[str, T]:
    """Values read from records, by key; each unreadable record is logged once as a warning."""
    values: dict[str, T] = {}
    for record in intact(records):
        try:
            values[record.key] = read(record)
        except StoreError as error:
            warn_once(f"The record {record.key!r} of the kind {record.kind!r} is left out: {error}")
    return values


def values_of(records: Sequence[Record], kind: type[T]) -> list[T]:
    """Values of a `kind` from records; each unreadable record is logged once as a warning."""
    return [*restored(records, lambda record: from_record(kind, record.data)).values()]


async def listed(store: Store, kind: str, key: str) -> Record | None:
    """The record with a key, damaged or not, so that a list can continue after it."""
    records = await store.find(kind, prefix=key, limit=1)
    return records[0] if records and records[0].key == key else None


@runtime_checkable
class Store(Protocol):
    """Stores records, safely for many tasks, threads and processes at once.

    When a write returns, it is durable if the store is; if its task is cancelled, it still happens. A task
    sees its own writes. A store shows the records of one space (a project, say) and never those of another.
    Returned records belong to the caller: changing them does not change what is stored.

    Every method raises `StoreError` for a record that can't be stored, naming the part that is wrong, and if
    the store can't be read or written, with the reason and what to do; it works again once the cause is
    gone. Asking for a single damaged record raises `DamagedRecordError`; in lists, such a record has
    `damage`.
    """

    async def put(self, record: Record, /) -> Record:
        """Store a record, replacing any with its key; return it as stored."""
        ...

    async def put_all(self, records: Sequence[Record], /) -> list[Record]:
        """Store records as `put` does, all or none; return them as stored.

        Records are written in order, so the last of two with the same key wins. All get the same time.
        """
        ...

    async def put_if_absent(self, record: Record, /) -> tuple[Record, bool]:
        """Store a record unless its key is taken; return the stored one, and whether it is the new one."""
        ...

    async def replace(self, record: Record, /) -> Record | None:
        """Store a record if the stored one still has its `revision`; None if it was changed or deleted.

        A record that was deleted and stored again doesn't match if `created_at` is set.
        """
        ...

    async def get(self, kind: str, key: str, /) -> Record | None:
        """The record with a key; None if there is none."""
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
        """List the records of a kind, ordered by key or newest first.

        Keys are ordered by code point; the newest record is the one created last (of equals, the last key).
        `prefix` is matched exactly. `after` is the last record of the previous page, in the same order,
        whether it still exists or not; `limit` is the most records of a page, at least 1. Paging shows every
        record that is not deleted meanwhile exactly once. Raises `ConfigError` for invalid arguments.
        """
        ...

    async def delete(self, kind: str, key: str, /) -> bool:
        """Delete a record; return whether it existed."""
        ...

    async def aclose(self) -> None:
        """Finish pending writes and close files and connections; the next use reopens them."""
        ...


@runtime_checkable
class FencedStore(Store, Protocol):
    """A `Store` that can fence off a replaced writer: it writes only while another record allows it.

    All of Redraft's stores can do this; it is optional for a user's own store.
    """

    async def put_all_if(
        self, kind: str, key: str, where: Where, records: Sequence[Record], /
    ) -> list[Record] | None:
        """Store records as `put_all` does if the record with this kind and key has these fields.

        No other process can change that record between the check and the write. Returns None and writes
        nothing if the fields have other values or there is no such record.
        """
        ...


class KindSize(NamedTuple):
    """How many records of a kind there are, and the bytes of their data."""

    records: int
    bytes: int


@runtime_checkable
class ManagedStore(Store, Protocol):
    """A `Store` that can report its size and problems, and reclaim the space of deleted records.

    All of Redraft's stores can do this; it is optional for a user's own store.
    """

    async def kinds(self) -> dict[str, KindSize]:
        """Number and size of the records of each kind, sorted by kind."""
        ...

    async def size(self) -> int:
        """Bytes in use, by the whole database file or else by the records."""
        ...

    async def problems(self) -> list[str]:
        """What is wrong with the store, apart from single records: one sentence per problem."""
        ...

    async def scrub(self) -> str:
        """Overwrite the remains of deleted records, and free their space.

        Returns what an administrator still has to do; empty if nothing. Waits for other processes, and
        raises `StoreError` if they keep the store busy.
        """
        ...


class RecordVersion(NamedTuple):
    """Which version of a record is stored; with its key, this identifies the data."""

    key: str
    revision: int
    created_at: datetime
    updated_at: datetime
    matches: bool
    """Whether the record has the fields of the query."""


@runtime_checkable
class SharedStore(Store, Protocol):
    """A `Store` on a server, which many machines share: it also lists records without their data.

    So a reader fetches only the records that have changed since its last query.
    """

    async def versions(
        self, kind: str, /, *, prefix: str = "", where: Where | None = None
    ) -> list[RecordVersion]:
        """Versions of the records of a kind, ordered by key; `where` only sets `matches`."""
        ...


LONGEST_NAME = 1000
"""Maximum bytes of a kind, a key or a space, so that every database can index it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = frozenset({str, int, bool, type(None)})
# No check for cycles: they raise RecursionError.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()


class Row(NamedTuple):
    """A record as databases hold it; the fields are in the order of the columns.

    `data` is JSON text, times are microseconds since 1970 in UTC. Bytes that are not UTF-8 are read as lone
    surrogates.
    """

    kind: str
    key: str
    data: str
    schema_version: int
    checksum: int = 0
    revision: int = 0
    created_at: int = 0
    updated_at: int = 0

    def record(self, data: Mapping[str, Any] | None = None) -> Record:
        """Convert the row to a new record, which has `damage` if it does not match its checksum.

        `data` is the parsed JSON, if the caller has it and doesn't share it.
        """
        created = updated = _EPOCH
        key: Any = self.key
        if isinstance(key, bytes):  # SQLite puts anything into any column
            key = key.decode("utf-8", "backslashreplace")
        try:
            created = updated = time_of(self.created_at)
            if self.updated_at != self.created_at:
                updated = time_of(self.updated_at)
            if data is None:
                data = self._read()
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            data = DamagedData(damage_of(self.kind, key, str(error).rstrip(".")))
        return Record(self.kind, str(key), data, self.schema_version, self.revision, created, updated)

    def _read(self) -> dict[str, Any]:
        if not isinstance(self.key, str):  # pyright: ignore[reportUnnecessaryIsInstance] (SQLite may hold bytes)
            raise TypeError("its key is not a text")
        if not is_whole(self.checksum, *self[:4]):
            raise ValueError("it does not match its checksum")
        data = json.loads(self.data)
        if not isinstance(data, dict):
            raise TypeError("its data is no object")
        return StoredData(cast("dict[str, Any]", data), (self.kind, self.key))

    def intact(self) -> Record:
        """Convert the row to a record; raises `DamagedRecordError` if it is damaged."""
        record = self.record()
        if record.damage:
            raise DamagedRecordError(record.damage)
        return record


def checksum(kind: bytes, key: bytes, data: bytes, schema_version: int) -> int:
    """CRC-32 of a record's content, which detects any change of up to 32 consecutive bits."""
    # Names contain no NUL, so content can't move unnoticed from one field to the next.
    return crc32(data, crc32(b"%b\0%b\0%d\0" % (kind, key, schema_version)))


def is_whole(stored: object, kind: Any, key: Any, data: Any, schema_version: Any) -> bool:
    """Whether a record matches its stored checksum; strings may come as bytes."""
    try:
        return stored == checksum(_bytes(kind), _bytes(key), _bytes(data), schema_version)
    except (TypeError, AttributeError):  # a number instead of a string, say
        return False


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def time_of(microseconds: int) -> datetime:
    """The time of microseconds since 1970 in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def microseconds(time: datetime) -> int:
    """A time as microseconds since 1970 in UTC."""
    return (time - _EPOCH) // timedelta(microseconds=1)


class NewRow(NamedTuple):
    """A record to be stored: its row, and a copy of its data as they will be read back."""

    row: Row
    data: dict[str, Any]

    @classmethod
    def of(cls, record: Record) -> Self:
        """Convert a record; raises `StoreError`, naming the part that can't be stored."""
        check_name("kind", record.kind)
        check_name("key", record.key)
        try:
            _check_version(record.schema_version)
            text, data = _text_and_copy(_named_fields(record.data))
            names = record.kind.encode(), record.key.encode()
            crc = checksum(*names, text.encode(), record.schema_version)
        except (TypeError, ValueError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            reason = "data is nested too deeply, or holds itself" if deep else error
            message = f"The record {record.kind!r} {record.key!r} can't be stored: {reason}."
            raise StoreError(message) from error
        return cls(Row(record.kind, record.key, text, record.schema_version, crc), data)

    def stored(self, revision: int, created_at: int, updated_at: int) -> NewRow:
        """A copy with the fields that the store sets."""
        return NewRow(Row(*self.row[:5], revision, created_at, updated_at), self.data)

    def record(self) -> Record:
        """The stored record."""
        return self.row.record(self.data)


def _check_version(version: Any) -> None:
    if not isinstance(version, int) or not 0 <= version < 2**31:
        raise ValueError(f"schema_version must be a whole number from 0, got {version!r}")


def _named_fields(data: object) -> dict[str, Any]:
    if data.__class__ is dict:  # as nearly all are
        return cast("dict[str, Any]", data)
    if isinstance(data, Mapping):
        return dict(cast("Mapping[str, Any]", data))
    raise TypeError(f"data is a {type(data).__name__}, not an object with named fields")


def json_text(value: Any) -> str:
    """Encode as JSON that any database can hold: lone surrogates, which are not valid UTF-8, are escaped."""
    text = _ENCODER.encode(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _text_and_copy(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Data as JSON text, and as it will be read back.

    Raises `TypeError`, naming the place, for anything that would be read back differently.
    """
    from pydantic_core import from_json, to_json  # noqa: PLC0415 (slow to load, and reading needs none)

    try:
        encoded = to_json(data)
        copy = from_json(encoded, allow_inf_nan=False)
    except ValueError:
        return _text_and_copy_of_any(data)
    # pydantic_core also accepts what JSON lacks, such as sets: those don't compare equal when read back.
    return (encoded.decode(), copy) if copy == data else _text_and_copy_of_any(data)


def _text_and_copy_of_any(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The slow path of `_text_and_copy`: for tuples, lone surrogates, and data to be rejected."""
    try:
        text = json_text(data)
        copy, _ = _DECODER.raw_decode(text)  # faster than `loads`, which also looks around the value
    except (TypeError, ValueError) as error:
        raise TypeError(f"data{_fault(data) or f': {error}'}") from error
    # Most data are equal, and comparing is faster than checking each value.
    if copy != data and (fault := _fault(data)):
        raise TypeError(f"data{fault}")
    return text, copy


def _fault(value: Any) -> str:
    """The first value that would not be read back as written, and its place; empty if none."""
    if type(value) in _PLAIN:
        return ""
    if isinstance(value, dict):
        return _fault_in(cast("dict[Any, Any]", value).items(), str)
    if isinstance(value, list | tuple):
        return _fault_in(enumerate(cast("list[Any]", value)), int)
    if isinstance(value, float) and not isfinite(value):
        return f" is {value!r}, and JSON has no such number"
    return (
        ""
        if isinstance(value, str | int | float)
        else f" is a {type(value).__name__}, which JSON doesn't have"
    )


def _fault_in(items: Iterable[tuple[Any, Any]], keys: type) -> str:
    for key, item in items:
        if not isinstance(key, keys):
            return f" has the key {key!r}, but JSON keys must be texts"
        if fault := _fault(item):
            return f"[{key!r}]{fault}"
    return ""


def check_name(what: str, name: str, longest: int = LONGEST_NAME) -> None:
    """Raise `StoreError` for a kind, key or space that not every database can hold and index."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        raise StoreError(f"A {what} must be a text, got {name!r}.")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise StoreError(f"The {what} {name!r} is not a valid text: {error.reason}.") from error
    if "\0" in name or size > longest:
        raise StoreError(
            f"The {what} {name[:80]!r} ({size} bytes) must have at most {longest} and no NUL character."
        )


_LAST = "\U0010ffff"


class Query(NamedTuple):
    """A checked query."""

    kind: str
    prefix: str
    fields: Mapping[str, frozenset[str]]
    """The allowed JSON texts of each field."""
    newest_first: bool
    after: tuple[int, str] | None
    """Creation time and key of the last record of the previous page."""
    limit: int | None

    @classmethod
    def of(
        cls,
        kind: str,
        *,
        prefix: str = "",
        where: Where | None = None,
        newest_first: bool = False,
        after: Record | None = None,
        limit: int | None = None,
    ) -> Self:
        """Check the arguments of `find`; raises `ConfigError` for invalid ones."""
        check_name("kind", kind)
        if prefix:
            check_name("prefix", prefix)
        if limit is not None:
            check_count("limit", limit, 1)
        cursor = None
        if after is not None:
            if after.created_at is None:
                raise ConfigError(f"after: the record {after.key!r} was not returned by a store.")
            cursor = microseconds(after.created_at), after.key
        return cls(kind, prefix, allowed_texts(where), newest_first, cursor, limit)


def allowed_texts(where: Where | None) -> dict[str, frozenset[str]]:
    """The JSON texts that each field may have; an absent field counts as `null`.

    As JSON, True is not 1, "1" is not 1, and 1 is 1.0, so a number has several texts. Raises `ConfigError`
    for a field that can't be named in a JSON path, and for a value that is not a scalar.
    """
    fields: dict[str, frozenset[str]] = {}
    for field, value in (where or {}).items():
        if not field or any(char in '"\\' or not char.isprintable() for char in field):
            raise ConfigError(
                f"where: {field!r} is not the name of a field; names have no quotes, backslashes or "
                "control characters."
            )
        values = value if isinstance(value, tuple) else (value,)
        fields[field] = frozenset(text for item in values for text in _texts(field, item))
    return fields


def matches(data: Mapping[str, Any], fields: Mapping[str, frozenset[str]]) -> bool:
    """Whether each field of the data has one of its allowed texts."""
    return all(json_text(data.get(field)) in texts for field, texts in fields.items())


def after_all_with(prefix: str) -> str:
    """The smallest string that sorts after every key with a prefix."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return _LAST * LONGEST_NAME
    following = "\ue000" if stem[-1] == "\ud7ff" else chr(ord(stem[-1]) + 1)  # skip the surrogates
    return stem[:-1] + following


def _texts(field: str, value: Scalar) -> set[str]:
    if value is not None and not isinstance(value, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        raise ConfigError(
            f"where: {field!r} must be a text, a number, a bool, None, or a tuple of those; got {value!r}."
        )
    if isinstance(value, float) and not isfinite(value):
        return set()  # JSON has no such number, so neither has any record
    texts = {json_text(value)}
    if isinstance(value, int | float) and not isinstance(value, bool):
        from pydantic_core import to_json  # noqa: PLC0415 (as above)

        same = _same_numbers(value)
        # pydantic_core, which writes the records, spells some floats differently: 0.00001, not 1e-05.
        texts |= {json_text(number) for number in same} | {to_json(number).decode() for number in same}
    return texts


def _same_numbers(value: float) -> list[float]:
    """All forms of a number that are equal to it: int, float, and negative zero."""
    if value == 0:
        return [0, 0.0, -0.0]
    try:
        forms = [int(value), float(value)]
    except OverflowError:  # an int beyond all floats
        return []
    return [cast("float", form) for form in forms if form == value]
