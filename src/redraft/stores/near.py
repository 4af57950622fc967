"""The vectors nearest to one, exactly."""

from __future__ import annotations

from importlib import import_module
from math import fsum, sqrt
from operator import mul
from typing import TYPE_CHECKING, Any

from redraft.core.errors import StoreError
from redraft.stores.row import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Sequence

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
