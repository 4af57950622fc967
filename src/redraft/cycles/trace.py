"""Trace: the prompts and replies of the model calls of a cycle, as they are recorded and stored."""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redraft._codec import failure_to_json, to_record
from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from redraft.loop.journal import StepData
    from redraft.protocols import Step

P = ParamSpec("P")
R = TypeVar("R")

TRACE = "trace"
"""The kind of the record; its key is the number of the cycle modulo `KEPT`."""
KEPT = 100
"""How many of the newest cycles keep their trace, in a record each that a later cycle overwrites."""
MAX_TRACE = 1_000_000
"""Characters of JSON of the trace of one cycle; calls beyond that are left out."""


def recorder(step: str, calls: list[StepData]) -> Step:
    """Return the step for effects inside a step without a journal: it adds each call to a list."""

    async def record(
        name: str, _returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        given = [to_record(argument) for argument in args]
        data: dict[str, Any] = {"step": step, "name": name, "given": given, "began": monotonic()}
        try:
            value = await fn(*args, **kwargs)
        except Exception as error:
            calls.append({**data, "elapsed": monotonic(), "error": failure_to_json(error)})
            raise
        calls.append({**data, "elapsed": monotonic(), "result": to_record(value)})
        return value

    return record


def calls_in(steps: Mapping[str, StepData]) -> list[StepData]:
    """Return the model calls among the steps of a journal, each with the `step` inside which it was made."""
    inner = [(place, data) for place, data in steps.items() if "/" in place]
    outer = [steps.get(place.partition("/")[0], {}).get("name", "") for place, _ in inner]
    return [{"step": name, **data} for name, (_, data) in zip(outer, inner, strict=True)]


def trace_key(number: int) -> str:
    """Return the key of the trace of a cycle."""
    return f"{number % KEPT:03d}"


def trace_record(number: int, calls: Iterable[StepData]) -> Record:
    """Return the record of the trace of a cycle; what goes beyond `MAX_TRACE` is counted, not kept."""
    kept: list[StepData] = []
    room, left_out = MAX_TRACE, 0
    for call in calls:
        room -= (size := len(json.dumps(call, ensure_ascii=False)))
        if room < 0:
            room, left_out = room + size, left_out + 1
        else:
            kept.append(call)
    return Record(TRACE, trace_key(number), {"calls": kept, "left_out": left_out, "cycle": number})
