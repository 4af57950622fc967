"""Calls: ask a model and call a function of the program, on behalf of a cycle."""

from __future__ import annotations

import inspect
import json
from asyncio import timeout
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft._calls import in_daemon_thread, is_async, parameters_by_name
from redraft._codec import to_json
from redraft._steps import uncancelled
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
    from redraft.cycles.spec import FunctionOption, Prompted
    from redraft.protocols import ChatModel, ChatReply
    from redraft.text.templates import Template

MODEL_TIMEOUT_MS = 600_000
"""The default time limit of a model call."""
MIN_ITEM_TOKENS = 12
"""The tokens of an empty memory item, for its id and timestamp."""
MAX_MISSES = 10
"""The number of items that don't fit into the prompt after which the selection stops."""

Ranked: TypeAlias = tuple[float, str, int, str]
"""The rank of a memory item (confidence, timestamp, position), and its key."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer of a model."""

    value: Any
    usage: TokenUsage
    """The usage of all its replies."""


async def ask_model(cycle: Cycle, step: str, substage: Prompted) -> Any:
    """Ask a model: the answer is a JSON value that follows the schema, or text without a schema.

    If the reply does not follow the schema, the model is asked again, with the mistakes. Values in the prompt
    are untrusted data: templates in them are not rendered. The usage of all replies, failed calls included,
    is added to the cycle, and so are the ids of the memory items that a prompt of Reason shows.

    Raises `TemplateError` for a prompt that can't be rendered; `ModelError` if the provider fails
    permanently, or if both attempts together take too long; `OutputError` if the second reply is unusable,
    too.
    """
    compiled, schema = template(substage.prompt or ""), substage.output_schema
    scopes, note = prompt_scopes(cycle, compiled, reasoning=step.startswith("reason/"))
    parts = (as_text(compiled.render(scopes)), note, _schema_instruction(schema))
    text = "\n\n".join(part for part in parts if part)
    chat = cycle.runtime.model_for(substage.model or cycle.spec.model)
    try:
        seconds = (substage.timeout_ms or MODEL_TIMEOUT_MS) / 1000
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
        checked = compiled.check(reply.text if reply.parsed is None else reply.parsed)
        # Without a suggestion, a small model repeats its mistake.
        return checked.value, " ".join(f"{error.message}. {error.suggestion}" for error in checked.errors)

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
    # Replayed replies cost nothing now, but they belong to the usage of this step.
    usage = answer.usage + metered.failed
    if answer.problem:
        raise OutputError(f"The model's reply can't be used: {answer.problem}", usage=usage)
    return ModelAnswer(answer.value, usage)


def _provider_schema(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The schema if it describes an object, which is what providers accept; else None."""
    return schema if schema is not None and schema.get("type") == "object" else None


def _schema_instruction(schema: Mapping[str, Any] | None) -> str:
    if schema is None or _provider_schema(schema) is not None:
        return ""
    return f"Reply with nothing but JSON that follows this JSON Schema: {json.dumps(schema)}"


def prompt_scopes(cycle: Cycle, template: Template, *, reasoning: bool = False) -> tuple[dict[str, Any], str]:
    """The scopes of a prompt, and a note on the memory items left out (empty if all fit).

    All memory keys that the template reads share `spec.memory.prompt_tokens`. The best item of each key
    (by confidence, then recency) is chosen in turn, so that no key crowds out another. The items are in their
    stored order, oldest first.
    """
    memory = cycle.state.memory
    paths = [path for path in template.paths if path[0] == "memory"]
    keys = {str(path[1]) for path in paths if len(path) > 1}
    if any(len(path) == 1 for path in paths):  # the memory as a whole
        keys |= set(memory)
    available = {key: memory.get(key, ()) for key in sorted(keys)}
    selected = _select(available, cycle.spec.memory.prompt_tokens, cycle.runtime.clock())
    if reasoning:
        cycle.rendered |= {str(item["id"]) for items in selected.values() for item in items if "id" in item}
    left_out = [
        f"{len(items) - len(selected[key]):,} of {len(items):,} of memory.{key}"
        for key, items in available.items()
        if len(selected[key]) < len(items)
    ]
    note = f"(Left out of the memory above, to keep it short: {', '.join(left_out)}.)" if left_out else ""
    return {**cycle.scopes(), "memory": {**memory, **selected}}, note


def _select(available: Mapping[str, Sequence[Item]], budget: int, now: datetime) -> dict[str, list[Item]]:
    """The items that fit into the token budget, by key; an item that is too long does not block others."""
    may_all_fit = MIN_ITEM_TOKENS * sum(map(len, available.values())) <= budget
    if may_all_fit and estimate_tokens(_as_json(available)) <= budget:
        return {key: list(items) for key, items in available.items()}
    positions: dict[str, set[int]] = {key: set() for key in available}
    left, misses = budget, 0
    for _, _, position, key in _best_first(available, now):
        if left < MIN_ITEM_TOKENS or misses == MAX_MISSES:
            break
        tokens = estimate_tokens(_as_json(available[key][position]))
        if tokens <= left:
            left -= tokens
            positions[key].add(position)
        else:
            misses += 1
    return {key: [items[position] for position in sorted(positions[key])] for key, items in available.items()}


def _best_first(available: Mapping[str, Sequence[Item]], now: datetime) -> Iterator[Ranked]:
    """The best item of each key, then the second best of each, and so on."""
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
    for rank in zip_longest(*ranked):
        yield from sorted((item for item in rank if item is not None), reverse=True)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


async def call_configured(cycle: Cycle, step: str, config: FunctionOption) -> Any:
    """Call the function of a substage as a step; None if the substage has no function."""
    if config.function is None:
        return None
    key = cycle.idempotency_key(step)
    return await cycle.step(
        step, object, call_function, cycle, config.function, {}, None, key, timeout_ms=config.timeout_ms
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
    """Call a function of the program; its result must be plain JSON data.

    The rendered `arguments` are keyword arguments. A parameter `state` receives a copy of the cycle's state,
    a parameter `idempotency_key` the key of the call. A sync function runs in a thread, where it continues
    after a timeout.

    Raises any error of the function, `OutputError` for a result that is not plain data, and `TimeoutError`
    after `timeout_ms`.
    """
    function = cycle.runtime.functions.get(name)
    if function is None:
        hint = nearest(name, list(cycle.runtime.functions))
        raise ConfigError(f"The program provides no function {name!r}; {hint}")
    keywords = render(arguments, cycle.outward_scopes(action))
    parameters = parameters_by_name(function).keys() - keywords.keys()
    if "state" in parameters:
        keywords["state"] = to_json(cycle.state.scopes())
    if "idempotency_key" in parameters:
        await cycle.runtime.egress.ready()  # the id of the cycle, from which the key derives, must be written
        keywords["idempotency_key"] = idempotency_key
    seconds = None if timeout_ms is None else timeout_ms / 1000
    limit = timeout(seconds)
    try:
        async with limit:
            value = await uncancelled(_call(function, keywords), f"the function {name!r}", "the cycle")
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"the function {name!r} did not answer within {seconds:g} s") from error
        raise
    return bounded_json(value, f"What the function {name!r} returned")


async def _call(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    if is_async(function):
        return await function(**keywords)
    value = await in_daemon_thread(function, **keywords)
    return await value if inspect.isawaitable(value) else value  # a lambda around an async function
