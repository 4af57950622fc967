"""rows_of: a CSV file as data."""

from __future__ import annotations

import csv
import re
from collections import deque
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, BinaryIO

from redraft.core.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_ROWS = 100_000
MOST_BYTES = 200_000_000

# No leading zeros, which are those of an id; no more digits than every reader of JSON keeps.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(\.\d{1,15})?([eE][+-]?\d{1,3})?", re.ASCII)


def rows_of(path: Path, delimiter: str = ",", last: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a CSV file (UTF-8, with a header line), only the `last` so many where it is given.

    Numbers become numbers, but not what has a leading zero; an empty cell is None. Raises `OutputError` with
    the file's name and the line for what is no such table, and for more than 100,000 rows; `OSError` where
    the file can't be read.
    """
    if not path.is_file():
        raise OutputError(f"There is no file {path.name!r}; its path is seen from the agent's file.")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise OutputError(f"{path.name!r} has {size:,} bytes; at most {MOST_BYTES:,} are read.")
    with path.open("rb") as file:
        lines = _Lines(file)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            rows = _rows(reader, _header(reader))
            return _kept(rows, last)
        except (csv.Error, UnicodeDecodeError, _BrokenRowError) as error:
            raise OutputError(f"{path.name!r}, line {lines.number}: {error}.") from error


class _BrokenRowError(Exception):
    """Say what is wrong with a row."""


class _Lines:
    """Yield the lines of a file as text, and know the `number` of the one that came last."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.number += 1
            yield line.decode("utf-8-sig" if self.number == 1 else "utf-8")


def _header(reader: Iterator[list[str]]) -> list[str]:
    names = [name.strip() for name in next(reader, list[str]())]
    if not any(names):
        raise _BrokenRowError("expected a header line with the names of the columns")
    if "" in names:
        raise _BrokenRowError(f"column {names.index('') + 1} has no name")
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise _BrokenRowError(f"two columns are named {twice!r}")
    return names


def _rows(reader: Iterator[list[str]], names: list[str]) -> Iterator[dict[str, Any]]:
    for cells in reader:
        if not cells:  # an empty line
            continue
        if len(cells) != len(names):
            raise _BrokenRowError(f"expected {len(names)} cells, got {len(cells)}")
        yield dict(zip(names, map(_value, cells), strict=True))


def _kept(rows: Iterator[dict[str, Any]], last: int | None) -> list[dict[str, Any]]:
    if last is not None:
        return list(deque(rows, min(last, MOST_ROWS)))
    kept = list(islice(rows, MOST_ROWS + 1))
    if len(kept) > MOST_ROWS:
        raise _BrokenRowError(f"there are more than {MOST_ROWS:,} rows; read only the 'last' so many")
    return kept


def _value(cell: str) -> Any:
    text = cell.strip()
    if not text:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        return cell
    if found.group(1) is None and found.group(2) is None:
        return int(text)
    number = float(text)
    return number if isfinite(number) else cell
