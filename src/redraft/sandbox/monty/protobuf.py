"""Protobuf, as far as monty's protocol needs it: fields of whole numbers, bytes and messages."""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Bytes: TypeAlias = bytes | memoryview
"""A field that is read is a view of the message that it is in: messages may be long, and copies take time."""

_NUMBER, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_SKIPPED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_MORE_FOLLOW = 0x80
_MOST_BYTES = 10
_LONGEST_CHARACTER = 4


def number(field: int, value: int) -> bytes:
    """Return a field that holds a whole number from 0 on."""
    return _varint(field << 3 | _NUMBER) + _varint(value)


def data(field: int, *parts: Bytes) -> bytes:
    """Return a field that holds bytes, a text in UTF-8, or a message made of its fields."""
    value = b"".join(parts)
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def fields(message: Bytes) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and the value of each field; raises `ValueError` where that is no message.

    Values of the kinds that are of no use here (floats) are left out.
    """
    message = memoryview(message)
    at, end = 0, len(message)
    while at < end:
        key, at = _read(message, at)
        field, kind = key >> 3, key & 7
        if kind == _NUMBER:
            value, at = _read(message, at)
            yield field, value
            continue
        length, at = _read(message, at) if kind == _BYTES else (_SKIPPED.get(kind, end), at)
        if at + length > end:
            raise ValueError("a message is cut short")
        if kind == _BYTES:
            yield field, message[at : at + length]
        at += length


def number_in(message: Bytes, field: int) -> int:
    """Return the whole number in a field, the last if it repeats, 0 if it is absent."""
    found = 0
    for each, value in fields(message):
        if each == field and isinstance(value, int):
            found = value
    return found


def all_in(message: Bytes, field: int) -> list[memoryview]:
    """Return the bytes in a field that repeats."""
    return [value for each, value in fields(message) if each == field and not isinstance(value, int)]


def data_in(message: Bytes, field: int) -> memoryview:
    """Return the bytes in a field, the last if it repeats, none if it is absent."""
    return (all_in(message, field) or [memoryview(b"")])[-1]


def text_in(message: Bytes, field: int, most: int | None = None) -> str:
    """Return the text in a field, or no more than its first `most` characters."""
    value = data_in(message, field)
    if most is None or len(value) <= most:
        return str(value, "utf-8")
    return getincrementaldecoder("utf-8")().decode(value[: _LONGEST_CHARACTER * most])[:most]


def _varint(value: int) -> bytes:
    """Write a number by seven bits, the lowest first; all but the last byte say that more follow."""
    if value < _MORE_FOLLOW:
        return bytes((value,))
    return bytes((value % _MORE_FOLLOW | _MORE_FOLLOW,)) + _varint(value >> 7)


def _read(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it."""
    if at < len(message) and (byte := message[at]) < _MORE_FOLLOW:  # as most do
        return byte, at + 1
    value, shift = 0, 0
    for byte in message[at : at + _MOST_BYTES]:
        at += 1
        if byte < _MORE_FOLLOW:
            return value + (byte << shift), at
        value += (byte - _MORE_FOLLOW) << shift
        shift += 7
    raise ValueError("a number has no end")
