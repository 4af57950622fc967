"""Rows of CSV and JSON lines."""

from __future__ import annotations

import csv
import io
from typing import Any

from redraft.errors import ConfigError
from redraft.text.json import load_json

CSV, JSON_LINES = ".csv", ".jsonl"
ROW_FILES = (CSV, JSON_LINES)
"""Suffixes of files that hold rows."""


def rows_of(text: str, source: str) -> list[Any]:
    """Parse the rows of a file whose name, `source`, ends with one of `ROW_FILES`.

    Rows of CSV are mappings; rows of JSON lines are any JSON value. Raises `ConfigError` with the
    line of a mistake.
    """
    return _csv_rows(text, source) if source.casefold().endswith(CSV) else _json_rows(text, source)


def _csv_rows(text: str, source: str) -> list[Any]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    rows: list[Any] = []
    try:
        header = list(reader.fieldnames or ())
        if twice := next((name for name in header if header.count(name) > 1), None):
            raise ConfigError(f"{source}: the column {twice!r} is there twice.")
        for row in reader:
            if None in row or None in row.values():
                raise ConfigError(
                    f"{source}, line {reader.line_num}: expected {len(header)} cells, as in the first line."
                )
            rows.append(row)
    except csv.Error as error:
        raise ConfigError(f"{source}, line {reader.line_num}: not readable as CSV: {error}.") from error
    return rows


def _json_rows(text: str, source: str) -> list[Any]:
    rows: list[Any] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(load_json(line, repeats_keys=False))
            except ValueError as error:
                raise ConfigError(f"{source}, line {number}: this is not JSON: {error}.") from error
    return rows
