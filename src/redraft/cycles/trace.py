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
"""The kind of the record; its key is the number of the cycle modulo `MAX_TRACES`."""
MAX_TRACES = 100
"""The number of traces that are stored, one per cycle; later cycles overwrite the oldest."""
MAX_TRACE = 1_000_000
"""The maximum size of the trace of a cycle, in characters of JSON; further calls are left out."""


def recorder(step: str, calls: list[StepData]) -> Step:
    """The step for effects inside a step without a journal: it adds each call to a list."""

    async def record(
        name: str, _returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        arguments = [to_record(argument) for argument in args]
        data: dict[str, Any] = {"step": step, "name": name, "given": arguments, "began": monotonic()}
        try:
            value = await fn(*args, **kwargs)
        except Exception as error:
            calls.append({**data, "elapsed": monotonic(), "error": failure_to_json(error)})
            raise
        calls.append({**data, "elapsed": monotonic(), "result": to_record(value)})
        return value

    return record


def calls_in(steps: Mapping[str, StepData]) -> list[StepData]:
    """The model calls among the steps of a journal, each with the `step` that made it."""
    inner = [(place, data) for place, data in steps.items() if "/" in place]
    outer = [steps.get(place.partition("/")[0], {}).get("name", "") for place, _ in inner]
    return [{"step": name, **data} for name, (_, data) in zip(outer, inner, strict=True)]


def trace_key(number: int) -> str:
    """The key of the trace of a cycle."""
    return f"{number % MAX_TRACES:03d}"


def trace_record(number: int, calls: Iterable[StepData]) -> Record:
    """The record of the trace of a cycle; calls beyond `MAX_TRACE` are counted, but not stored."""
    stored: list[StepData] = []
    left, left_out = MAX_TRACE, 0
    for call in calls:
        left -= (size := len(json.dumps(call, ensure_ascii=False)))
        if left < 0:
            left, left_out = left + size, left_out + 1
        else:
            stored.append(call)
    return Record(TRACE, trace_key(number), {"calls": stored, "left_out": left_out, "cycle": number})
