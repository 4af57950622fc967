"""Sense: look at all sources at once, and merge what they gave."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft.core.codec import to_json
from redraft.core.errors import OutputError
from redraft.cycles.csv_file import rows_of
from redraft.cycles.data import plain_data, said
from redraft.cycles.functions import call_function
from redraft.cycles.http import HttpCall, fetched
from redraft.cycles.message import AgentMessage
from redraft.cycles.rendering import outward_scopes, render, render_text
from redraft.cycles.spec_sense import ApiSense, CsvSense, FunctionSense, MessagesSense, Sense, SenseSubstage
from redraft.cycles.stamp import stamp_of

if TYPE_CHECKING:
    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec_parts import Request


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
