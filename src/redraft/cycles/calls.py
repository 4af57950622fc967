"""Calls: ask a model and call a function of the program, on behalf of a cycle."""

from __future__ import annotations

import inspect
import json
from asyncio import CancelledError, current_task, timeout
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft._calls import awaited, in_daemon_thread, parameters_by_name
from redraft._codec import to_json
from redraft._texts import as_text, estimate_tokens
from redraft._validation import nearest
from redraft.cycles.memory import confidence_of, past_stamps
from redraft.errors import ConfigError, ModelError, OutputError, RedraftError
from redraft.evaluate.ask import ask
from redraft.models.metered import MeteredModel
from redraft.protocols import Message
from redraft.text.json import bounded_json
from redraft.text.schema import compiled_schema
from redraft.text.templates import render, template
from redraft.types import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.memory import Item
    from redraft.cycles.spec import FunctionOption
    from redraft.protocols import ChatModel, ChatReply
    from redraft.text.templates import Template

MODEL_TIMEOUT_MS = 600_000
"""How long a model may take by default, which no provider promises to keep."""
MIN_ITEM_TOKENS = 12
"""Tokens that even an empty memory item takes, for its id and timestamp."""
MAX_MISSES = 10
"""After so many items that did not fit into the prompt no further one is tried."""

Ranked: TypeAlias = tuple[float, str, int, str]
"""What makes a memory item worth showing (confidence, timestamp, position), and its key."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer of a model, and what all its replies used."""

    value: Any
    usage: TokenUsage


async def ask_model(
    cycle: Cycle,
    step: str,
    prompt: str,
    schema: Mapping[str, Any] | None,
    model: str | None,
    *,
    timeout_ms: int | None = None,
    reasoning: bool = False,
) -> Any:
    """Return a model's answer: the JSON value that follows `schema`, or without one the text.

    A reply that does not follow the schema is asked for once more, with what is wrong with it. Values in the
    prompt come from outside and stay data: templates in them are not rendered. What all replies used, failed
    calls included, is added to the cycle. `reasoning` marks a prompt of Reason, whose memory items
    `cycle.rendered` collects.

    Raises `TemplateError` for a prompt that can't be rendered, `ModelError` when the provider failed for good
    or has not answered, the second time included, within `timeout_ms` (None: ten minutes), and `OutputError`
    when the second reply is unusable, too.
    """
    compiled = template(prompt)
    scopes, note = prompt_scopes(cycle, compiled, reasoning=reasoning)
    parts = (as_text(compiled.render(scopes)), note, _schema_instruction(schema))
    text = "\n\n".join(part for part in parts if part)
    chat = cycle.runtime.model_for(model or cycle.spec.model)
    try:
        seconds = (timeout_ms or MODEL_TIMEOUT_MS) / 1000
        answer = await cycle.step(step, ModelAnswer, _ask, chat, text, schema, seconds)
    except RedraftError as error:
        cycle.usage += error.usage or NOTHING_USED
        raise
    cycle.usage += answer.usage
    return answer.value


async def _ask(chat: ChatModel, text: str, schema: Mapping[str, Any] | None, seconds: float) -> ModelAnswer:
    metered = MeteredModel(chat)
    compiled = None if schema is None else compiled_schema(json.dumps(schema))

    def read(reply: ChatReply) -> tuple[Any, str]:
        if compiled is None:
            return reply.text, ""
        found = compiled.check(reply.text if reply.parsed is None else reply.parsed)
        # A small model that only hears what was expected says the same again.
        return found.value, " ".join(f"{problem.message}. {problem.suggestion}" for problem in found.errors)

    limit = timeout(seconds)
    try:
        async with limit:
            answer = await ask(metered, (Message("user", text),), _provider_schema(schema), read)
    except TimeoutError as error:
        if limit.expired():
            raise ModelError(f"The model did not answer within {seconds:g} s.", usage=metered.used) from error
        raise
    except RedraftError as error:
        error.usage = metered.used
        raise
    # Replies that were replayed cost nothing now, but they are what this step used.
    usage = answer.usage + metered.failed
    if answer.problem:
        raise OutputError(f"The model's reply can't be used: {answer.problem}", usage=usage)
    return ModelAnswer(answer.value, usage)


def _provider_schema(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a schema that providers accept: that of an object."""
    return schema if schema is not None and schema.get("type") == "object" else None


def _schema_instruction(schema: Mapping[str, Any] | None) -> str:
    if schema is None or _provider_schema(schema) is not None:
        return ""
    return f"Reply with nothing but JSON that follows this JSON Schema: {json.dumps(schema)}"


def prompt_scopes(cycle: Cycle, template: Template, *, reasoning: bool = False) -> tuple[dict[str, Any], str]:
    """Return the scopes of a prompt, and a note on the memory items left out (empty: none were).

    All memory keys that the template reads share `spec.memory.prompt_tokens`. The best item of each key
    (by confidence, then recency) is taken in turn, so that no key crowds out another. Items keep their stored
    order, oldest first.
    """
    memory = cycle.state.memory
    paths = [path for path in template.paths if path[0] == "memory"]
    keys = {str(path[1]) for path in paths if len(path) > 1}
    if any(len(path) == 1 for path in paths):  # the memory as a whole
        keys |= set(memory)
    available = {key: memory.get(key, ()) for key in sorted(keys)}
    shown = _select(available, cycle.spec.memory.prompt_tokens, cycle.runtime.clock())
    if reasoning:
        cycle.rendered |= {str(item["id"]) for items in shown.values() for item in items if "id" in item}
    left_out = [
        f"{len(items) - len(shown[key]):,} of {len(items):,} of memory.{key}"
        for key, items in available.items()
        if len(shown[key]) < len(items)
    ]
    note = f"(Left out of the memory above, to keep it short: {', '.join(left_out)}.)" if left_out else ""
    return {**cycle.scopes(), "memory": {**memory, **shown}}, note


def _select(available: Mapping[str, Sequence[Item]], budget: int, now: datetime) -> dict[str, list[Item]]:
    """Return the items of each key that fit into the tokens together; one too long does not block others."""
    may_all_fit = MIN_ITEM_TOKENS * sum(map(len, available.values())) <= budget
    if may_all_fit and estimate_tokens(_as_json(available)) <= budget:
        return {key: list(items) for key, items in available.items()}
    chosen: dict[str, set[int]] = {key: set() for key in available}
    left, misses = budget, 0
    for _, _, position, key in _best_first(available, now):
        if left < MIN_ITEM_TOKENS or misses == MAX_MISSES:
            break
        tokens = estimate_tokens(_as_json(available[key][position]))
        if tokens <= left:
            left -= tokens
            chosen[key].add(position)
        else:
            misses += 1
    return {key: [items[position] for position in sorted(chosen[key])] for key, items in available.items()}


def _best_first(available: Mapping[str, Sequence[Item]], now: datetime) -> Iterator[Ranked]:
    """Yield the best item of each key, then the second best of each, and so on."""
    ranked = [
        sorted(
            (
                (confidence_of(item), stamp, position, key)
                for position, (item, stamp) in enumerate(zip(items, past_stamps(items, now), strict=True))
            ),
            reverse=True,
        )
        for key, items in available.items()
    ]
    for turn in zip_longest(*ranked):
        yield from sorted((one for one in turn if one is not None), reverse=True)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


async def call_configured(cycle: Cycle, step: str, config: FunctionOption) -> Any:
    """Call the function that a substage names, as one step, and return its result; None if it names none."""
    if config.function is None:
        return None
    return await cycle.step(
        step, object, call_function, cycle, config.function, {}, timeout_ms=config.timeout_ms
    )


async def call_function(
    cycle: Cycle,
    name: str,
    arguments: Mapping[str, Any],
    action: Mapping[str, Any] | None = None,
    idempotency_key: str = "",
    *,
    timeout_ms: int | None = None,
) -> Any:
    """Call a function of the program and return its result as plain JSON data.

    It is called with the rendered `arguments` as keywords; a parameter `state` gets a copy of the cycle's
    state, `idempotency_key` that of the action. A function that is not async runs in a thread, where it
    continues after a timeout.

    Raises what the function raises, `OutputError` for a result that is not plain data, and `TimeoutError`
    after `timeout_ms`.
    """
    function = cycle.runtime.functions.get(name)
    if function is None:
        hint = nearest(name, list(cycle.runtime.functions))
        raise ConfigError(f"The program provides no function {name!r}; {hint}")
    keywords = render(arguments, cycle.outward_scopes(action))
    takes = parameters_by_name(function).keys() - keywords.keys()
    if "state" in takes:
        keywords["state"] = to_json(cycle.state.scopes())
    if "idempotency_key" in takes:
        keywords["idempotency_key"] = idempotency_key
    seconds = None if timeout_ms is None else timeout_ms / 1000
    limit = timeout(seconds)
    try:
        async with limit:
            value = await _call(function, keywords)
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"the function {name!r} did not answer within {seconds:g} s") from error
        raise
    except CancelledError as error:
        if (task := current_task()) is not None and task.cancelling():
            raise
        raise RuntimeError(f"the function {name!r} was cancelled, and the cycle was not") from error
    return bounded_json(value, f"What the function {name!r} returned")


async def _call(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    if awaited(function) is function:
        return await function(**keywords)
    value = await in_daemon_thread(function, **keywords)
    return await value if inspect.isawaitable(value) else value  # a lambda around an async function
