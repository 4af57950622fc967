"""The rows that came back for texts, looked at before anything is stored by them."""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot, isfinite
from typing import Any

from redraft.core.errors import OutputError
from redraft.core.texts import short_repr


def unit_rows(source: str, given: Any, count: int) -> list[list[float]]:
    """Return vectors as lists of floats of unit length; what makes vectors may give arrays, too.

    Raises `OutputError`, which names the `source`, unless there are `count` rows of one dimension (at least
    1), all of finite numbers, none of which is all zeros.
    """
    rows = [_row(source, row) for row in _items(source, given)]
    if len(rows) != count:
        raise OutputError(f"{source} returned {len(rows)} vectors for {count} texts; expected one a text.")
    for row in rows:
        if len(row) != len(rows[0]):
            raise OutputError(
                f"{source} returned vectors of {len(rows[0])} and of {len(row)} numbers; expected one length."
            )
    return rows


def _items(source: str, given: Any) -> list[Any]:
    if isinstance(given, str | bytes | Mapping):
        raise OutputError(f"{source} returned {short_repr(given)}; expected a list of vectors.")
    try:
        return list(given)
    except TypeError as error:
        raise OutputError(f"{source} returned {short_repr(given)}; expected a list of vectors.") from error


def _row(source: str, given: Any) -> list[float]:
    try:
        row = [float(number) for number in _items(source, given)]
    except (TypeError, ValueError, OverflowError) as error:
        raise OutputError(f"{source} returned the vector {short_repr(given)}; expected numbers.") from error
    length = hypot(*row)
    if not isfinite(length) or not length:
        wrong = "has no direction" if not length else "is not finite"
        raise OutputError(f"{source} returned the vector {short_repr(row)}, which {wrong}.")
    return [number / length for number in row]
