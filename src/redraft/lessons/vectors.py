"""Vectors: many of them side by side, and the nearest to one, with numpy where it is installed."""

from __future__ import annotations

from array import array
from functools import cache
from heapq import nlargest
from importlib import import_module
from math import sqrt
from operator import itemgetter, mul
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGEST = 127


@cache
def numpy() -> Any:
    """Return numpy, or None where it is not installed: it comes with the offline embedder's runtime."""
    try:
        return import_module("numpy")
    except ImportError:
        return None


def packed(vector: Sequence[float]) -> bytes:
    """Return a byte for each number, the largest as 127: cosines come out right to a thousandth."""
    found = numpy()
    if found is None:
        most = max(map(abs, vector))
        return array("b", [round(number * _LARGEST / most) for number in vector]).tobytes()
    row = found.asarray(vector, "f8")
    return found.rint(row * _LARGEST / found.abs(row).max()).astype("i1").tobytes()


def cosine(one: bytes, other: bytes) -> float:
    """Return the cosine of two packed vectors of one dimension."""
    found = numpy()
    if found is None:
        first, second = array("b", one), array("b", other)
        lengths = sum(map(mul, first, first)) * sum(map(mul, second, second))
        return sum(map(mul, first, second)) / sqrt(lengths)
    rows = found.frombuffer(one + other, "i1").reshape(2, -1).astype("f4")
    (length, product), (_, other_length) = (rows @ rows.T).tolist()
    return product / sqrt(length * other_length)


def signs_of(vector: bytes) -> bytes:
    """Return a bit for each number of a packed vector that is above zero, filled up to whole 8 bytes.

    The nearer two vectors are in direction, the fewer of these bits differ (Charikar, 2002).
    """
    found = numpy()
    width = -(-len(vector) // 64) * 64
    if found is None:
        bits = "".join("1" if 0 < number <= _LARGEST else "0" for number in vector)
        return int(bits.ljust(width, "0"), 2).to_bytes(width // 8)
    return found.packbits(found.frombuffer(vector, "i1") > 0).tobytes().ljust(width // 8, b"\0")


class Vectors:
    """Hold packed vectors of one dimension, in parts as they are stored."""

    def __init__(self, parts: Sequence[bytes], dimension: int) -> None:
        found = numpy()
        joined = parts[0] if len(parts) == 1 else b"".join(parts)
        self._dimension = dimension
        self._bytes = joined
        self._rows: Any = None if found is None else found.frombuffer(joined, "i1").reshape(-1, dimension)

    def __len__(self) -> int:
        return len(self._bytes) // self._dimension

    def cosines(self, question: Sequence[float], places: Sequence[int] | None = None) -> list[float]:
        """Return the cosine with a vector of unit length of all of them, or of those at some places."""
        if numpy() is None:
            every = range(len(self)) if places is None else places
            return [self._cosine(question, place) for place in every]
        return self._cosines(question, places).tolist()

    def nearest(self, question: Sequence[float], places: Sequence[int], most: int) -> list[tuple[int, float]]:
        """Return at most so many of some places whose cosines are the largest, with these, in no order."""
        found = numpy()
        if found is None:
            return nlargest(most, zip(places, self.cosines(question, places), strict=True), key=itemgetter(1))
        cosines = self._cosines(question, places)
        best = found.argpartition(cosines, -most)[-most:] if most < len(cosines) else slice(None)
        return list(zip(found.asarray(places)[best].tolist(), cosines[best].tolist(), strict=True))

    def _cosines(self, question: Sequence[float], places: Sequence[int] | None) -> Any:
        found = numpy()
        rows: Any = (self._rows if places is None else self._rows.take(places, axis=0)).astype("f4")
        lengths = found.sqrt(found.einsum("ij,ij->i", rows, rows))
        # Not by `@`: for so few rows, the threads of its library take longer to meet than to multiply.
        return found.einsum("ij,j->i", rows, found.asarray(question, "f4")) / lengths

    def _cosine(self, question: Sequence[float], place: int) -> float:
        start = place * self._dimension
        row = array("b", self._bytes[start : start + self._dimension])
        return sum(map(mul, row, question)) / sqrt(sum(map(mul, row, row)))


class Signs:
    """Hold the signs of many vectors, to find in a millisecond those of 100,000 that may be the nearest."""

    def __init__(self, parts: Sequence[bytes], width: int) -> None:
        found = numpy()
        codes = b"".join(parts)
        self._count = len(codes) // width
        if found is not None and hasattr(found, "bitwise_count"):  # numpy 2
            # A row for each 8 bytes, so that what is added up lies side by side.
            self._rows: Any = found.ascontiguousarray(
                found.frombuffer(codes, "u8").reshape(self._count, -1).T
            )
        else:
            self._rows = None
            self._codes = [int.from_bytes(codes[at : at + width]) for at in range(0, len(codes), width)]

    def nearest(self, question: bytes, count: int) -> Sequence[int]:
        """Return the places of at least so many signs that differ least from some, in no order."""
        if count >= self._count:
            return range(self._count)
        if self._rows is None:
            one = int.from_bytes(question)
            apart = [(one ^ other).bit_count() for other in self._codes]
            return sorted(range(self._count), key=apart.__getitem__)[:count]
        found = numpy()
        distance = found.zeros(self._count, "u2")
        for row, part in zip(self._rows, found.frombuffer(question, "u8"), strict=True):
            distance += found.bitwise_count(row ^ part)
        # Distances are few: to count them is ten times as quick as to sort by them.
        enough = int(found.searchsorted(found.bincount(distance).cumsum(), count))
        return found.flatnonzero(distance <= enough)
