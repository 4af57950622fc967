"""Store, Record and Query: the one way in which anything is kept."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from math import fsum, isfinite, sqrt
from operator import mul
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    cast,
    runtime_checkable,
)
from zlib import crc32

from pydantic_core import from_json, to_json

from redraft._validation import check_count
from redraft.errors import ConfigError, DamagedRecordError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

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


LONGEST_NAME = 1000
"""Bytes of a kind, a key or a space: what every database can index."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = frozenset({str, int, bool, type(None)})
# That data hold themselves shows in that they have no end.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()


class Row(NamedTuple):
    """Hold a record's fields as databases take them, in the order of their columns.

    `data` is JSON text, `vector` little-endian float32, the times are microseconds since 1970 in UTC. Text
    that is not UTF-8 comes with lone surrogates in place of the bytes that are wrong.
    """

    kind: str
    key: str
    data: str
    schema_version: int
    vector: bytes | None
    checksum: int = 0
    revision: int = 0
    created_at: int = 0
    updated_at: int = 0

    def record(self, data: Mapping[str, Any] | None = None) -> Record:
        """Return the record, all of it new; one that does not match its checksum has `damage`.

        `data` is what they are as JSON, where that has been read already and is nobody else's.
        """
        created = updated = _EPOCH
        vector = None
        try:
            created = updated = _EPOCH + timedelta(microseconds=self.created_at)
            if self.updated_at != self.created_at:
                updated = _EPOCH + timedelta(microseconds=self.updated_at)
            if data is None:
                data = self._read()
            vector = None if self.vector is None else unpacked(self.vector)
        except (TypeError, ValueError, OverflowError, RecursionError, struct.error) as error:
            what = str(error).rstrip(".")
            data = DamagedData(
                f"The record {self.kind!r} {self.key!r} is damaged: {what}. Restore it from a backup, or "
                f"remove it with `store.delete({self.kind!r}, {self.key!r})`."
            )
        return Record(self.kind, self.key, data, self.schema_version, vector, self.revision, created, updated)

    def _read(self) -> dict[str, Any]:
        if not is_whole(self.checksum, *self[:3], self.schema_version, self.vector):
            raise ValueError("it does not match its checksum")
        return json.loads(self.data)

    def intact(self) -> Record:
        """Return the record; raises `DamagedRecordError` for one that is damaged."""
        record = self.record()
        if record.damage:
            raise DamagedRecordError(record.damage)
        return record


def checksum(kind: bytes, key: bytes, data: bytes, schema_version: int, vector: bytes | None) -> int:
    """Return the CRC-32 of what a record holds: it differs wherever up to 32 bits in a row have changed."""
    # A name has no NUL, so nothing can move from one to the next.
    return crc32(vector or b"", crc32(data, crc32(b"%b\0%b\0%d\0" % (kind, key, schema_version))))


def is_whole(found: object, kind: Any, key: Any, data: Any, schema_version: Any, vector: Any) -> bool:
    """Say whether a record is as it was written; its texts may come as bytes."""
    try:
        named, given = (_bytes(kind), _bytes(key)), _bytes(data)
        return found == checksum(*named, given, schema_version, vector)
    except (TypeError, AttributeError):  # a number where a text was, say
        return False


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def microseconds(time: datetime) -> int:
    """Return a time as it is stored."""
    return (time - _EPOCH) // timedelta(microseconds=1)


class NewRow(NamedTuple):
    """A record that is about to be stored: its row, and a copy of its data as they will be read."""

    row: Row
    data: dict[str, Any]

    @classmethod
    def of(cls, record: Record) -> Self:
        """Put a record into the form in which it is stored; raises `StoreError` that names what can't be."""
        check_name("kind", record.kind)
        check_name("key", record.key)
        try:
            _check_version(record.schema_version)
            text, data = _text_and_copy(_named_fields(record.data))
            vector = None if record.vector is None else packed(record.vector)
            names = record.kind.encode(), record.key.encode()
            crc = checksum(*names, text.encode(), record.schema_version, vector)
        except (TypeError, ValueError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            reason = "data is nested too deeply, or holds itself" if deep else error
            message = f"The record {record.kind!r} {record.key!r} can't be stored: {reason}."
            raise StoreError(message) from error
        return cls(Row(record.kind, record.key, text, record.schema_version, vector, crc), data)

    def stored(self, revision: int, created_at: int, updated_at: int) -> NewRow:
        """Return it with what the store has filled in."""
        return NewRow(Row(*self.row[:6], revision, created_at, updated_at), self.data)

    def record(self) -> Record:
        """Return the record, once it is stored."""
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
    """Return JSON that any database can hold: a lone surrogate, which UTF-8 has not, becomes its escape."""
    text = _ENCODER.encode(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _text_and_copy(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return data as JSON text and as that will be read.

    Raises `TypeError` with the place of what would be read as something else.
    """
    try:
        encoded = to_json(data)
        copy = from_json(encoded, allow_inf_nan=False)
    except ValueError:
        return _text_and_copy_of_any(data)
    # It also takes what JSON has not, a set for a list: what is read is equal to what was written, or else.
    return (encoded.decode(), copy) if copy == data else _text_and_copy_of_any(data)


def _text_and_copy_of_any(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Do the same for what the quicker way does not take: tuples, lone surrogates, what is to be refused."""
    try:
        text = json_text(data)
        copy, _ = _DECODER.raw_decode(text)  # `loads` also looks for what is not JSON around it
    except (TypeError, ValueError) as error:
        raise TypeError(f"data{_fault(data) or f': {error}'}") from error
    # Most are equal, and to see that takes less time than to look at each value.
    if copy != data and (fault := _fault(data)):
        raise TypeError(f"data{fault}")
    return text, copy


def _fault(value: Any) -> str:
    """Return where and what would not be read as it was written; empty if there is nothing."""
    if type(value) in _PLAIN:
        return ""
    if isinstance(value, dict):
        return _fault_in(cast("dict[Any, Any]", value).items(), str)
    if isinstance(value, list | tuple):
        return _fault_in(enumerate(cast("list[Any]", value)), int)
    if isinstance(value, float) and not isfinite(value):
        return f" is {value!r}, and JSON has no such number"
    return "" if isinstance(value, str | int | float) else f" is a {type(value).__name__}, which JSON has not"


def _fault_in(items: Iterable[tuple[Any, Any]], keys: type) -> str:
    for key, item in items:
        if not isinstance(key, keys):
            return f" has the key {key!r}, and keys of JSON are texts"
        if fault := _fault(item):
            return f"[{key!r}]{fault}"
    return ""


def check_name(what: str, name: str, longest: int = LONGEST_NAME) -> None:
    """Refuse a kind, key or space that not every database can hold and index."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] (not all code is typed)
        raise StoreError(f"A {what} must be a text, got {name!r}.")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise StoreError(f"The {what} {name!r} is no valid text: {error.reason}.") from error
    if "\0" in name or size > longest:
        raise StoreError(
            f"The {what} {name[:80]!r} ({size} bytes) must have at most {longest} and no NUL character."
        )


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector as float32; raises `ValueError` for one that has no direction."""
    try:
        blob = struct.pack(f"<{len(vector)}f", *vector)
    except (struct.error, OverflowError, TypeError) as error:
        raise ValueError(f"vector must hold numbers in the range of float32 ({error})") from error
    numbers = unpacked(blob)
    if not all(map(isfinite, numbers)):
        raise ValueError("vector must hold finite numbers, and has NaN or infinity")
    if not any(numbers):
        raise ValueError(f"vector must have a direction, and is all zero ({len(numbers)} numbers)")
    return blob


def unpacked(blob: bytes) -> tuple[float, ...]:
    """Return the numbers of a packed vector."""
    return struct.unpack(f"<{len(blob) // 4}f", blob)


_LAST = "\U0010ffff"


class Question(NamedTuple):
    """Hold which records are wanted: `fields` as JSON texts, `after` as the time and key of a record."""

    kind: str
    prefix: str
    fields: Mapping[str, frozenset[str]]
    newest_first: bool
    after: tuple[int, str] | None
    limit: int | None


def question(
    kind: str,
    *,
    prefix: str = "",
    where: Where | None = None,
    newest_first: bool = False,
    after: Record | None = None,
    limit: int | None = None,
) -> Question:
    """Check and put into form what `find` and `near` take; raises `ConfigError` for what makes no sense."""
    check_name("kind", kind)
    if prefix:
        check_name("prefix", prefix)
    if limit is not None:
        check_count("limit", limit, 1)
    cursor = None
    if after is not None:
        if after.created_at is None:
            raise ConfigError(f"after: the record {after.key!r} is none that a store returned.")
        cursor = microseconds(after.created_at), after.key
    return Question(kind, prefix, wanted(where), newest_first, cursor, limit)


def wanted(where: Where | None) -> dict[str, frozenset[str]]:
    """Return for each field the JSON texts that it may have; one that is absent counts as `null`.

    As JSON, True is not 1, "1" is not 1, and 1 is 1.0: one number has several texts. Raises `ConfigError` for
    a field that can't be named in a JSON path, and for a value that is no scalar.
    """
    fields: dict[str, frozenset[str]] = {}
    for field, value in (where or {}).items():
        if not field or any(char in '"\\' or not char.isprintable() for char in field):
            raise ConfigError(
                f"where: {field!r} can't be asked for; a field has a name without quotes, backslashes and "
                "control characters."
            )
        values = value if isinstance(value, tuple) else (value,)
        fields[field] = frozenset(text for each in values for text in _texts(field, each))
    return fields


def matches(data: Mapping[str, Any], fields: Mapping[str, frozenset[str]]) -> bool:
    """Say whether a record's data has one of the wanted texts in each field."""
    return all(json_text(data.get(field)) in texts for field, texts in fields.items())


def after_all_with(prefix: str) -> str:
    """Return a text that comes after all keys that begin with a prefix, and before all others after it."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return _LAST * LONGEST_NAME
    following = "\ue000" if stem[-1] == "\ud7ff" else chr(ord(stem[-1]) + 1)  # surrogates are no text
    return stem[:-1] + following


def _texts(field: str, value: Scalar) -> set[str]:
    if value is not None and not isinstance(value, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance] (not all code is typed)
        raise ConfigError(
            f"where: {field!r} must be a text, a number, a bool, None, or a tuple of those; got {value!r}."
        )
    if isinstance(value, float) and not isfinite(value):
        return set()  # JSON has no such number, so no record has
    texts = {json_text(value)}
    if isinstance(value, int | float) and not isinstance(value, bool):
        same = _same_numbers(value)
        # What writes records spells some floats in another way: 0.00001, not 1e-05.
        texts |= {json_text(number) for number in same} | {to_json(number).decode() for number in same}
    return texts


def _same_numbers(value: float) -> list[float]:
    """Return the other forms of a whole number: the int, the float, and the zero below zero."""
    if value == 0:
        return [0, 0.0, -0.0]
    try:
        forms = [int(value), float(value)]
    except OverflowError:  # an int beyond all floats
        return []
    return [cast("float", form) for form in forms if form == value]


DIGITS = 6
"""What float32 has; beyond, equal vectors would seem to differ by how their products were added up."""


def nearest(
    rows: Sequence[tuple[str, bytes]], vector: Sequence[float], limit: int
) -> list[tuple[str, float]]:
    """Return the keys of the packed vectors nearest to one, with the cosine similarity, nearest first.

    Equally near ones come in the order of their keys. Raises `StoreError` for vectors of other dimensions.
    """
    wanted = packed_question(vector)
    for key, blob in rows:
        if len(blob) != len(wanted):
            raise StoreError(
                f"The vector of the record {key!r} has {len(blob) // 4} dimensions, the one asked for has "
                f"{len(wanted) // 4}: they come from different embedders, so embed the records anew."
            )
    numpy = _numpy()
    blobs = [blob for _, blob in rows]
    found = _by_hand(blobs, wanted) if numpy is None else _with_numpy(numpy, blobs, wanted)
    similar = [max(-1.0, min(1.0, round(each, DIGITS))) for each in found]
    ranked = sorted(zip((key for key, _ in rows), similar, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return ranked[:limit]


def packed_question(vector: Sequence[float]) -> bytes:
    """Return the vector that is asked for as float32; raises `StoreError` for one without a direction."""
    try:
        return packed(vector)
    except ValueError as error:
        raise StoreError(f"near: the {error}.") from error


def _numpy() -> Any:
    try:
        return import_module("numpy")
    except ImportError:
        return None


def _by_hand(blobs: Sequence[bytes], wanted: bytes) -> list[float]:
    one = unpacked(wanted)
    length = sqrt(fsum(map(mul, one, one)))
    found: list[float] = []
    for blob in blobs:
        other = unpacked(blob)
        product = fsum(map(mul, one, other))
        found.append(product / length / sqrt(fsum(map(mul, other, other))))
    return found


def _with_numpy(numpy: Any, blobs: Sequence[bytes], wanted: bytes) -> list[float]:
    one = numpy.frombuffer(wanted, "<f4").astype("f8")
    others = numpy.frombuffer(b"".join(blobs), "<f4").astype("f8").reshape(len(blobs), len(one))
    lengths = numpy.sqrt(numpy.einsum("ij,ij->i", others, others)) * numpy.sqrt(one @ one)
    return (others @ one / lengths).tolist()
