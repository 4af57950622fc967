"""Row: a record in the form in which it is stored."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from zlib import crc32

from pydantic_core import from_json, to_json

from redraft.core.errors import DamagedRecordError, StoreError
from redraft.core.made import maker
from redraft.stores.base import DamagedData, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LONGEST_NAME = 1000
"""Bytes of a kind, a key or a space: what every database can index."""

_record = maker(Record)
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
        return _record(
            self.kind, self.key, data, self.schema_version, vector, self.revision, created, updated
        )

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


def row_of(record: Record) -> Row:
    """Return what is to be stored of a record; raises `StoreError` that names what can't be."""
    return row_and_copy(record)[0]


def row_and_copy(record: Record) -> tuple[Row, dict[str, Any]]:
    """Return what `row_of` does, and a copy of the data as they will be read: to know one is to have both."""
    check_name("kind", record.kind)
    check_name("key", record.key)
    try:
        _check_version(record.schema_version)
        text, copy = _text_and_copy(_named_fields(record.data))
        vector = None if record.vector is None else packed(record.vector)
        named = record.kind.encode(), record.key.encode()
        crc = checksum(*named, text.encode(), record.schema_version, vector)
        return Row(record.kind, record.key, text, record.schema_version, vector, crc), copy
    except (TypeError, ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        reason = "data is nested too deeply, or holds itself" if deep else error
        message = f"The record {record.kind!r} {record.key!r} can't be stored: {reason}."
        raise StoreError(message) from error


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
