"""Sense: read all sources at once, and merge what they gave."""

from __future__ import annotations

import asyncio
import csv
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from redraft._codec import to_json
from redraft.cycles.asking import call_function
from redraft.cycles.http import HttpCall, fetched
from redraft.cycles.mail import AgentMessage
from redraft.cycles.memory import stamp_of
from redraft.cycles.spec import ApiSense, CsvSense, FunctionSense, MessagesSense, Sense, SenseSubstage
from redraft.cycles.state import outward_scopes, plain_data, render, render_text, said
from redraft.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.cycles.spec import Request
    from redraft.cycles.state import Cycle

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


@dataclass(frozen=True, slots=True)
class Sensed:
    """Hold what one source gave, or why it gave nothing, and the messages that it took."""

    value: Any = None
    error: str = ""
    messages: tuple[AgentMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class SensedAll:
    """Hold what each source gave, by its name, and when."""

    at: str
    sources: Mapping[str, Sensed]


async def sense(stage: Sense, cycle: Cycle) -> None:
    """Write `environmentalData`: `payload`, the `errors` of sources that failed, and `at`.

    An object is merged into the payload, all else goes under the name of its source, or under `into`. A key
    that an earlier source has given stays as it is, and the later one is an error. Raises `OutputError`
    where a required source failed; no message counts as taken then.
    """
    sensed = await cycle.step("sense", SensedAll, _looked, stage.substages, cycle)
    payload: dict[str, Any] = {}
    errors: list[dict[str, str]] = []
    for substage in stage.substages:
        found = sensed.sources[substage.name]
        error = found.error or _merged(payload, substage, found.value)
        if error:
            errors.append({"source": substage.name, "error": error})
    cycle.state.environmental_data |= {"payload": payload, "errors": errors, "at": sensed.at}
    required = {substage.name for substage in stage.substages if substage.config.required}
    for failed in errors:
        if failed["source"] in required:
            raise OutputError(f"The source {failed['source']!r} is required, and failed: {failed['error']}")
    taken = {message.id: message for found in sensed.sources.values() for message in found.messages}
    cycle.taken.extend(taken.values())


def _merged(payload: dict[str, Any], substage: SenseSubstage, value: Any) -> str:
    """Merge a value into the payload; return what could not be."""
    into = substage.config.into
    given: Mapping[str, Any]
    if into is None and isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
    else:
        given = {substage.name if into is None else into: value}
    taken = sorted(set(given) & set(payload))
    payload |= {key: item for key, item in given.items() if key not in taken}
    if not taken:
        return ""
    return f"{', '.join(map(repr, taken))} came from an earlier source already; give an 'into'"


async def _looked(substages: Sequence[SenseSubstage], cycle: Cycle) -> SensedAll:
    at = stamp_of(cycle.means.clock())
    if len(substages) == 1:  # as often; it needs no task of its own
        return SensedAll(at, {substages[0].name: await _source(substages[0], cycle)})
    found = await asyncio.gather(*(_source(substage, cycle) for substage in substages))
    return SensedAll(at, {substage.name: one for substage, one in zip(substages, found, strict=True)})


async def _source(substage: SenseSubstage, cycle: Cycle) -> Sensed:
    try:
        return await _asked(substage, cycle)
    except Exception as error:  # noqa: BLE001 (a source that fails, however, is an error in the data)
        return Sensed(error=cycle.means.redacted(said(error)))  # a server may send back the key that it got


async def _asked(substage: SenseSubstage, cycle: Cycle) -> Sensed:
    if isinstance(substage, ApiSense):
        return Sensed(await fetched(http_call(substage.config, outward_scopes(cycle))))
    if isinstance(substage, CsvSense):
        return Sensed(await _csv(substage, cycle))
    if isinstance(substage, FunctionSense):
        config = substage.config
        value = await call_function(cycle, config.function, config.with_, timeout_ms=config.timeout_ms)
        return Sensed(value)
    return await _messages(substage, cycle)


async def _csv(substage: CsvSense, cycle: Cycle) -> list[dict[str, Any]]:
    config = substage.config
    path = cycle.means.folder / Path(render_text(config.path, outward_scopes(cycle)))
    return await asyncio.to_thread(rows_of, path, config.delimiter, config.last)


async def _messages(substage: MessagesSense, cycle: Cycle) -> Sensed:
    messages = await cycle.means.bus.messages(substage.config.topic, substage.config.most)
    value = plain_data([to_json(message) for message in messages], "The bus")
    return Sensed(value, messages=tuple(messages))


def http_call(request: Request, scopes: Mapping[str, Any]) -> HttpCall:
    """Return a request of the file, rendered. Raises `TemplateError`."""
    return HttpCall(
        url=render_text(request.url, scopes),
        method=request.method,
        headers=render(request.headers, scopes),
        body=render(request.body, scopes),
        seconds=request.timeout_ms / 1000,
    )
