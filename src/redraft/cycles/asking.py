"""Ask a model or a function on behalf of a cycle."""

from __future__ import annotations

import asyncio
import inspect
import json
from asyncio import CancelledError, current_task, timeout
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import zip_longest
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from redraft._calls import awaited
from redraft._codec import to_json
from redraft._texts import as_text, estimate_tokens
from redraft._validation import nearest
from redraft.cycles.memory import confidence_of
from redraft.cycles.state import outward_scopes, plain_data, render
from redraft.errors import ConfigError, OutputError, RedraftError
from redraft.evaluate.ask import ask
from redraft.notes.learning import Metered
from redraft.protocols import Message
from redraft.text.schema import Schema
from redraft.text.templates import template
from redraft.types import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from redraft.cycles.memory import Item
    from redraft.cycles.spec import MayCall
    from redraft.cycles.state import Cycle
    from redraft.protocols import ChatModel, ChatReply
    from redraft.text.templates import Template


def prompt_scopes(cycle: Cycle, template: Template, *, reasoning: bool = False) -> tuple[dict[str, Any], str]:
    """Return the scopes of a prompt, and a note on what of the memory was left out of it (empty: nothing).

    All keys that the template reads share `spec.memory.prompt_tokens`: of each in turn its best item is
    taken (confidence, then recency), so that no key crowds out another. What is shown stands as it is
    stored, oldest first. In a prompt of Reason (`reasoning`) the ids shown go to `cycle.rendered`.
    """
    memory = cycle.state.memory
    read = {key: memory.get(key, ()) for key in _keys_read(template, memory)}
    shown = _within(read, cycle.spec.memory.prompt_tokens)
    if reasoning:
        cycle.rendered |= {str(item["id"]) for items in shown.values() for item in items if "id" in item}
    agent = {"name": cycle.spec.name, "description": cycle.spec.description}
    scopes = cycle.state.scopes(agent=agent, cycle=cycle.number)
    return {**scopes, "memory": {**memory, **shown}}, _note(read, shown)


def _keys_read(template: Template, memory: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the keys that a template reads, by name; all of them where it reads the memory as a whole."""
    paths = [path for path in template.paths if path[0] == "memory"]
    named = {str(path[1]) for path in paths if len(path) > 1}
    whole = set(memory) if any(len(path) == 1 for path in paths) else set[str]()
    return sorted(named | whole)


SHORTEST = 12
"""Tokens that even an item without content takes, for its id and timestamp."""
MISSES = 10
"""After so many items that don't fit any more no further one is tried."""

Candidate: TypeAlias = tuple[float, str, int, str]
"""An item by what makes it worth showing: confidence, timestamp, position; and its key."""


def _within(read: Mapping[str, Sequence[Item]], most: int) -> dict[str, list[Item]]:
    """Return of each key what fits into the tokens together; an item that is too long makes no other wait."""
    may_all_fit = SHORTEST * sum(map(len, read.values())) <= most
    if may_all_fit and estimate_tokens(_written(read)) <= most:
        return {key: list(items) for key, items in read.items()}
    chosen: dict[str, set[int]] = {key: set() for key in read}
    left, misses = most, 0
    for _, _, position, key in _in_turn(read):
        if left < SHORTEST or misses == MISSES:
            break
        tokens = estimate_tokens(_written(read[key][position]))
        if tokens <= left:
            left -= tokens
            chosen[key].add(position)
        else:
            misses += 1
    return {key: [items[position] for position in sorted(chosen[key])] for key, items in read.items()}


def _in_turn(read: Mapping[str, Sequence[Item]]) -> Iterator[Candidate]:
    """Yield the best of each key, then the second best of each..."""
    ranked = [sorted(_candidates(key, items), reverse=True) for key, items in read.items()]
    for turn in zip_longest(*ranked):
        yield from sorted((one for one in turn if one is not None), reverse=True)


def _candidates(key: str, items: Sequence[Item]) -> list[Candidate]:
    return [
        (confidence_of(item), str(item.get("timestamp", "")), position, key)
        for position, item in enumerate(items)
    ]


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _note(read: Mapping[str, Sequence[Item]], shown: Mapping[str, Sequence[Item]]) -> str:
    left_out = [
        f"{len(items) - len(shown[key]):,} of {len(items):,} of memory.{key}"
        for key, items in read.items()
        if len(shown[key]) < len(items)
    ]
    return f"(Left out of the memory above, to keep it short: {', '.join(left_out)}.)" if left_out else ""


@dataclass(frozen=True, slots=True)
class Replied:
    """Hold what a model answered in the end, and what all its replies used."""

    value: Any
    usage: TokenUsage


async def asked(
    cycle: Cycle,
    name: str,
    prompt: str,
    schema: Mapping[str, Any] | None,
    model: str | None,
    *,
    reasoning: bool = False,
) -> Any:
    """Return what a model answers: the JSON value that follows `schema`, without one the text.

    `name` is that of the step. A reply that does not follow the schema is asked for once more, with what is
    wrong with it. The values in the prompt come from outside and stay data: no template in them is rendered.
    What the replies used is added to the cycle, those that could not be used and calls that failed included.
    Raises `TemplateError` for a prompt that can't be rendered, `ModelError` when the provider failed for
    good, `OutputError` for a second reply that can't be used. `reasoning` says that the prompt is Reason's.
    """
    compiled = template(prompt)
    scopes, note = prompt_scopes(cycle, compiled, reasoning=reasoning)
    parts = (as_text(compiled.render(scopes)), note, _form(schema))
    text = "\n\n".join(part for part in parts if part)
    chat = cycle.means.model_for(model or cycle.spec.model)
    try:
        replied = await cycle.step(name, Replied, _answered, chat, text, schema)
    except RedraftError as error:
        cycle.usage += error.usage or NOTHING_USED
        raise
    cycle.usage += replied.usage
    return replied.value


async def _answered(chat: ChatModel, text: str, schema: Mapping[str, Any] | None) -> Replied:
    metered = Metered(chat)
    checked = None if schema is None else compiled_schema(schema)

    def read(reply: ChatReply) -> tuple[Any, str]:
        if checked is None:
            return reply.text, "" if reply.text.strip() else "It is empty."
        found = checked.check(reply.text if reply.parsed is None else reply.parsed)
        # A small model that only hears what was expected says the same again.
        return found.value, " ".join(f"{problem.message}. {problem.suggestion}" for problem in found.errors)

    try:
        given = await ask(metered, (Message("user", text),), _at_the_top(schema), read)
    except RedraftError as error:
        error.usage = metered.used
        raise
    # Replies that were replayed cost nothing now, but they are what this step used.
    usage = given.usage + metered.failed
    if given.problem:
        raise OutputError(f"The model's reply can't be used: {given.problem}", usage=usage)
    return Replied(given.value, usage)


def compiled_schema(schema: Mapping[str, Any]) -> Schema:
    """Return a schema of the agent file, compiled once; raises `ConfigError` for one that is not valid."""
    return _compiled(json.dumps(schema))


@lru_cache(maxsize=256)
def _compiled(schema: str) -> Schema:
    return Schema(json.loads(schema))


def _at_the_top(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a schema that providers take: one of an object."""
    return schema if schema is not None and schema.get("type") == "object" else None


def _form(schema: Mapping[str, Any] | None) -> str:
    """Say in words what no provider can be told otherwise."""
    if schema is None or _at_the_top(schema) is not None:
        return ""
    return f"Reply with nothing but JSON that follows this JSON Schema: {json.dumps(schema)}"


T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Return what a function returns, or raise what it raises.

    The threads of `asyncio.to_thread` are waited for when the process is to end: there a function that hangs
    could be ended by nothing but SIGKILL. Who is cancelled here leaves the function to itself.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    ended: asyncio.Future[T] = loop.create_future()

    def tell(how: Callable[[Any], None], what: object) -> None:
        if not ended.done():
            how(what)

    def work() -> None:
        outcome: tuple[Callable[[Any], None], object]
        try:
            outcome = ended.set_result, context.run(function)
        except StopIteration as error:  # no future can hold one
            outcome = ended.set_exception, RuntimeError(f"{function!r} raised {error!r}")
        except BaseException as error:  # noqa: BLE001 (whoever waits for it is told)
            outcome = ended.set_exception, error
        with suppress(RuntimeError):  # the event loop has ended: nobody waits there any more
            loop.call_soon_threadsafe(tell, *outcome)

    Thread(target=work, name="redraft-function", daemon=True).start()
    return await ended


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
