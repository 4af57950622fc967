"""call_function: call a function of the program that the agent file names."""

from __future__ import annotations

import inspect
from asyncio import CancelledError, current_task, timeout
from functools import partial
from typing import TYPE_CHECKING, Any

from redraft.core.calls import awaited
from redraft.core.codec import to_json
from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.cycles.data import plain_data
from redraft.cycles.rendering import outward_scopes, render
from redraft.cycles.thread import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec_parts import MayCall


async def call_function(
    cycle: Cycle,
    name: str,
    given: Mapping[str, Any],
    action: Mapping[str, Any] | None = None,
    idempotency_key: str = "",
    *,
    timeout_ms: int | None = None,
) -> Any:
    """Return what a function gives as plain JSON data; one that is not async runs in a thread.

    It is called with `given`, rendered, as keywords; a parameter `state` is filled with a copy of the
    cycle's state, `idempotency_key` with that of the action. Raises what the function raises, `OutputError`
    for what is no plain data, `TimeoutError` where it takes longer than `timeout_ms`; one in a thread goes on
    all the same.
    """
    function = cycle.means.functions.get(name)
    if function is None:
        known = nearest(name, list(cycle.means.functions))
        raise ConfigError(f"The program gave no function {name!r}; {known}")
    keywords = render(given, outward_scopes(cycle, action))
    takes = _parameters(function).difference(keywords)
    if "state" in takes:
        keywords["state"] = to_json(cycle.state.scopes())
    if "idempotency_key" in takes:
        keywords["idempotency_key"] = idempotency_key
    limit = timeout(None if timeout_ms is None else timeout_ms / 1000)
    try:
        async with limit:
            value = await _called(function, keywords)
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"the function {name!r} has not ended within {timeout_ms:,} ms") from error
        raise
    except CancelledError as error:
        if (task := current_task()) is not None and task.cancelling():
            raise
        raise RuntimeError(f"the function {name!r} was cancelled, and the cycle was not") from error
    return plain_data(value, f"The function {name!r}")


async def answer_of(cycle: Cycle, step: str, config: MayCall) -> Any:
    """Return what the function gives that a substage names, as one step; None where it names none."""
    if config.function is None:
        return None
    return await cycle.step(
        step, object, call_function, cycle, config.function, {}, timeout_ms=config.timeout_ms
    )


async def _called(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    if awaited(function) is function:
        return await function(**keywords)
    value = await in_thread(partial(function, **keywords))
    return await value if inspect.isawaitable(value) else value  # a lambda around an async function


# An agent calls the same functions in every cycle, and inspecting one takes longer than many a call. By id,
# since not every callable can be hashed, and with the function, so that no other gets that id.
_known: dict[int, tuple[Callable[..., Any], frozenset[str]]] = {}
REMEMBERED = 1_024


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    if id(function) not in _known:
        if len(_known) >= REMEMBERED:
            _known.clear()
        _known[id(function)] = function, _inspected(function)
    return _known[id(function)][1]


def _inspected(function: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of some that are written in C nothing is known
        return frozenset()
