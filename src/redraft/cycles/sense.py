"""Sense: read all sources, and merge their data into the payload."""

from __future__ import annotations

import asyncio
import csv
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from redraft._codec import to_json
from redraft.cycles.calls import call_function
from redraft.cycles.cycle import error_line, render_text
from redraft.cycles.egress import LimitError, PoisonError
from redraft.cycles.mail import AgentMessage
from redraft.cycles.memory import stamp_of
from redraft.cycles.spec import ApiSense, CsvSense, FunctionSense, Sense, SenseSubstage
from redraft.errors import OutputError
from redraft.http import HttpRequest, fetch
from redraft.text.json import bounded_json
from redraft.text.templates import render

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec import Request

MAX_ROWS = 100_000
MAX_CSV_BYTES = 200_000_000

# No leading zeros, which ids have, and no more digits than every JSON parser preserves.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(\.\d{1,15})?([eE][+-]?\d{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reading:
    """The data of a source, or why it failed."""

    value: Any = None
    error: str = ""
    messages: tuple[AgentMessage, ...] = ()
    """The messages that the source took."""


@dataclass(frozen=True, slots=True)
class Readings:
    """The readings of several sources."""

    at: str
    """The time of the readings."""
    sources: Mapping[str, Reading]
    """The readings, by the names of the sources."""


async def sense(stage: Sense, cycle: Cycle) -> None:
    """Write `environmentalData`: `payload`, the `errors` of sources that failed, and `at`.

    Sources that only read are read in parallel, in one step, which a killed cycle may repeat. Sources with
    side effects follow one after another, each as a step of its own, like an action.

    An object is merged into the payload; any other value goes under `into` or the name of its source. The
    first source that sets a key wins, and setting it again is an error. Raises `OutputError`, and takes no
    messages, if a required source failed.
    """
    acting = [
        substage
        for substage in stage.substages
        if isinstance(substage, ApiSense) and not substage.config.is_reading
    ]
    reading = [substage for substage in stage.substages if substage not in acting]
    readings = await cycle.step("sense", Readings, _read_all, reading, cycle)
    sources = dict(readings.sources)
    for substage in acting:
        step = f"sense/{substage.name}"
        sources[substage.name] = await cycle.step(step, Reading, _act, substage, cycle)
    payload: dict[str, Any] = {}
    errors: list[dict[str, str]] = []
    for substage in stage.substages:
        source = sources[substage.name]
        if error := source.error or _merge(payload, substage, source.value):
            errors.append({"source": substage.name, "error": error})
    cycle.state.environmental_data |= {"payload": payload, "errors": errors, "at": readings.at}
    required = {substage.name for substage in stage.substages if substage.config.required}
    for failure in errors:
        if failure["source"] in required:
            raise OutputError(f"The source {failure['source']!r} is required, and failed: {failure['error']}")
    taken = {message.id: message for source in sources.values() for message in source.messages}
    cycle.taken.extend(taken.values())


def _merge(payload: dict[str, Any], substage: SenseSubstage, value: Any) -> str:
    """Merge a value into the payload; return an error if a key is already set."""
    into = substage.config.into
    fields: Mapping[str, Any]
    if into is None and isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
    else:
        fields = {substage.name if into is None else into: value}
    duplicates = sorted(set(fields) & set(payload))
    payload |= {key: item for key, item in fields.items() if key not in duplicates}
    if not duplicates:
        return ""
    return f"{', '.join(map(repr, duplicates))} was already set by an earlier source; give this one an 'into'"


async def _read_all(substages: Sequence[SenseSubstage], cycle: Cycle) -> Readings:
    at = stamp_of(cycle.runtime.clock())
    if len(substages) == 1:  # the usual case needs no task
        return Readings(at, {substages[0].name: await _read_safely(substages[0], cycle)})
    readings = await asyncio.gather(*(_read_safely(substage, cycle) for substage in substages))
    names = [substage.name for substage in substages]
    return Readings(at, dict(zip(names, readings, strict=True)))


async def _act(substage: ApiSense, cycle: Cycle) -> Reading:
    """Read a source with side effects; it fails beyond its limit, and if it has killed its processes."""
    name, limit = f"sense/{substage.name}", substage.config.limit
    key, limits = cycle.idempotency_key(name), {} if limit is None else {name: limit}
    try:
        return await cycle.runtime.egress.act(key, lambda: _read_safely(substage, cycle), limits)
    except (LimitError, PoisonError) as error:
        return Reading(error=str(error))


async def _read_safely(substage: SenseSubstage, cycle: Cycle) -> Reading:
    """Read a source; its error becomes part of the reading."""
    try:
        return await _read(substage, cycle)
    except Exception as error:  # noqa: BLE001 (whatever a source raises becomes an error in the data)
        return Reading(error=cycle.runtime.redact(error_line(error)))  # a server may echo its key


async def _read(substage: SenseSubstage, cycle: Cycle) -> Reading:
    key = cycle.idempotency_key(f"sense/{substage.name}")
    if isinstance(substage, ApiSense):
        request, scopes = substage.config, cycle.outward_scopes()
        return Reading(await fetch(http_request(request, scopes, "" if request.method == "GET" else key)))
    if isinstance(substage, CsvSense):
        table = substage.config
        path = cycle.runtime.folder / render_text(table.path, cycle.outward_scopes())
        return Reading(await asyncio.to_thread(read_csv, path, table.delimiter, table.last))
    if isinstance(substage, FunctionSense):
        call = substage.config
        result = await call_function(
            cycle, call.function, call.with_, idempotency_key=key, timeout_ms=call.timeout_ms
        )
        return Reading(result)
    messages = await cycle.runtime.bus.messages(substage.config.topic, substage.config.most)
    value = bounded_json([to_json(message) for message in messages], "What the bus returned")
    return Reading(value, messages=tuple(messages))


KEY_HEADER = "Idempotency-Key"


def http_request(request: Request, scopes: Mapping[str, Any], idempotency_key: str = "") -> HttpRequest:
    """Render a request of the agent file, with an `Idempotency-Key` if there is a key.

    Raises `TemplateError`.
    """
    key_header = {KEY_HEADER: idempotency_key} if idempotency_key else {}
    return HttpRequest(
        url=render_text(request.url, scopes),
        method=request.method,
        headers={**render(request.headers, scopes), **key_header},
        body=render(request.body, scopes),
        seconds=request.timeout_ms / 1000,
    )


def read_csv(path: Path, delimiter: str = ",", last: int | None = None) -> list[dict[str, Any]]:
    """The rows of a CSV file (UTF-8, with a header line), or only the `last` rows.

    A numeric cell becomes a number unless it has a leading zero; an empty cell is None. Raises `OutputError`,
    with the file's name and the line, for a malformed file and for more than 100,000 rows, and `OSError` if
    the file can't be read.
    """
    if not path.is_file():
        raise OutputError(f"There is no file {path.name!r}; the path is relative to the agent file.")
    if (size := path.stat().st_size) > MAX_CSV_BYTES:
        raise OutputError(f"{path.name!r} has {size:,} bytes; the limit is {MAX_CSV_BYTES:,}.")
    with path.open("rb") as file:
        reader = csv.reader(_lines(file), delimiter=delimiter, strict=True)
        try:
            return _collect(_rows(reader, _header(reader)), last)
        except (csv.Error, UnicodeDecodeError, _BrokenRowError) as error:
            # The reader does not count a line that can't be decoded.
            line = reader.line_num + isinstance(error, UnicodeDecodeError)
            raise OutputError(f"{path.name!r}, line {line}: {error}.") from error


class _BrokenRowError(Exception):
    """A row that does not fit the table."""


def _lines(file: BinaryIO) -> Iterator[str]:
    # Lines are decoded separately, so that an error names its line.
    for number, line in enumerate(file):
        yield line.decode("utf-8" if number else "utf-8-sig")


def _header(reader: Iterator[list[str]]) -> list[str]:
    names = [name.strip() for name in next(reader, list[str]())]
    if not any(names):
        raise _BrokenRowError("expected a header line with the names of the columns")
    if "" in names:
        raise _BrokenRowError(f"column {names.index('') + 1} has no name")
    duplicate = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if duplicate is not None:
        raise _BrokenRowError(f"two columns are named {duplicate!r}")
    return names


def _rows(reader: Iterator[list[str]], names: list[str]) -> Iterator[dict[str, Any]]:
    for cells in reader:
        if not cells:  # an empty line
            continue
        if len(cells) != len(names):
            raise _BrokenRowError(f"expected {len(names)} cells, got {len(cells)}")
        yield dict(zip(names, map(_value, cells), strict=True))


def _collect(rows: Iterator[dict[str, Any]], last: int | None) -> list[dict[str, Any]]:
    if last is not None:
        return list(deque(rows, min(last, MAX_ROWS)))
    collected = list(islice(rows, MAX_ROWS + 1))
    if len(collected) > MAX_ROWS:
        raise _BrokenRowError(f"more than {MAX_ROWS:,} rows; set 'last' to read only the last ones")
    return collected


def _value(cell: str) -> Any:
    text = cell.strip()
    if not text:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        return cell
    if match.group(1) is None and match.group(2) is None:
        return int(text)
    number = float(text)
    return number if isfinite(number) else cell
