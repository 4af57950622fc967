"""Vectors as PostgreSQL sends and takes them: arrays of real, in binary."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING

from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format

from redraft.stores.postgres_records import Vector

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.abc import Buffer

REAL = 700
ARRAY_OF_REAL = 1021
_HEAD = Struct(">iiiii")
"""Dimensions, whether there are nulls, the type, the length, the first index; then come items with sizes."""


class VectorDumper(Dumper):
    """Write a packed vector as an array of real."""

    format = Format.BINARY
    oid = ARRAY_OF_REAL

    def dump(self, obj: Vector) -> Buffer:
        """Return the array in binary."""
        numbers = array("I", obj)
        items = array("I", bytes(2 * len(obj)))
        items[0::2] = array("I", b"\4\0\0\0" * len(numbers))
        items[1::2] = numbers
        items.byteswap()
        return _HEAD.pack(1, 0, REAL, len(numbers), 1) + items.tobytes()


class VectorLoader(Loader):
    """Read an array of real as a packed vector."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        """Return the numbers as little-endian float32."""
        items = array("I", bytes(data)[_HEAD.size :])
        items.byteswap()
        return items[1::2].tobytes()


def register(connection: Connection) -> None:
    """Let a connection write `Vector` and read it back as bytes."""
    connection.adapters.register_dumper(Vector, VectorDumper)
    connection.adapters.register_loader(ARRAY_OF_REAL, VectorLoader)
