"""Ask a model for a reply of a certain form; run calls in parallel and add up their usage."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from redraft._steps import answer
from redraft.errors import ModelError, RedraftError, is_unusable_reply, over_budget
from redraft.protocols import ChatReply, ChatRequest, Message
from redraft.text.replies import copy_test, verdict_json_of
from redraft.types import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from redraft.protocols import ChatModel, ModelRole

T = TypeVar("T")

MAX_ECHO = 4_000
"""Characters of an unusable reply that the model gets back with the second request."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The outcome of `ask`."""

    value: T
    """The value of the last reply."""
    problem: str
    """What is wrong with the last reply; "" if nothing is."""
    usage: TokenUsage
    """The usage of all replies."""


async def ask(
    model: ChatModel,
    messages: tuple[Message, ...],
    schema: Mapping[str, Any] | None,
    read: Callable[[ChatReply], tuple[T, str]],
    role: ModelRole = "evaluation",
    temperature: float | None = None,
) -> Answer[T]:
    """Ask a model; if `read` finds a problem with the reply, say so and ask again, once.

    `read` returns the value of a reply and what is wrong with it ("" if nothing is). The problem of an empty
    or unreadable reply is the provider's reason. Other errors of the model are raised, with all usage so far.
    If the budget does not allow the second call, the first reply counts.
    """
    reply, reason = await answer_or_reason(model, ChatRequest(messages, schema, temperature, role=role))
    value, problem = _read(reply, reason, read)
    if not problem:
        return Answer(value, "", reply.usage)
    again = (
        Message("assistant", reply.text[:MAX_ECHO] or "(an empty reply)"),
        Message("user", f"That reply can't be used: {problem} Reply again, in full, in the form asked for."),
    )
    try:
        second, reason = await answer_or_reason(
            model, ChatRequest((*messages, *again), schema, temperature, role=role)
        )
    except RedraftError as error:
        if over_budget(error):  # the first reply is paid for: use what it says
            return Answer(value, problem, total_usage([reply], [error]))
        raise add_usage(error, reply.usage) from None
    value, problem = _read(second, reason, read)
    return Answer(value, problem, reply.usage + second.usage)


async def answer_or_reason(model: ChatModel, request: ChatRequest) -> tuple[ChatReply, str]:
    """Call a model; return its reply, or an empty one and the reason if the reply can't be used."""
    try:
        return await answer(model, request), ""
    except ModelError as error:
        if not is_unusable_reply(error):
            raise
        used = (
            NOTHING_USED if error.usage is None else replace(error.usage, requests=error.usage.requests + 1)
        )
        return ChatReply("", usage=used, finish_reason="other"), str(error)


def _read(reply: ChatReply, reason: str, read: Callable[[ChatReply], tuple[T, str]]) -> tuple[T, str]:
    value, problem = read(reply)
    if reason:
        return value, reason
    if reply.finish_reason == "length":
        return value, f"It was cut off; be briefer. {problem}".strip()
    return value, problem


def verdict_of(reply: ChatReply, *judged: str) -> Any:
    """The judge's own verdict, as JSON, from its reply about the `judged` texts.

    Raises `OutputError` without one, as `verdict_json_of` does.
    """
    parsed = reply.parsed
    if parsed is None or copy_test(judged)(parsed, json.dumps(parsed, ensure_ascii=False)):
        return verdict_json_of(reply.text, *judged)
    return parsed


# Parallel calls.


class HasUsage(Protocol):
    """Anything with token usage."""

    @property
    def usage(self) -> TokenUsage: ...  # noqa: D102 (the class says it)


S = TypeVar("S", bound=HasUsage)
E = TypeVar("E", bound=BaseException)


async def settle(calls: Sequence[Coroutine[Any, Any, T]]) -> tuple[list[T], list[Exception]]:
    """Run all calls in parallel; return the results of the successful calls and the errors of the others."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    results: list[T] = []
    errors: list[Exception] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            errors.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            results.append(outcome)
    return results, errors


async def samples(
    calls: Sequence[Coroutine[Any, Any, S]], before: Sequence[S] = ()
) -> tuple[list[S], TokenUsage]:
    """Run all calls for one judgement in parallel; return `before` with their results, and all usage.

    A call that fails because of the provider or the budget is left out, unless there is no result at all.
    """
    succeeded, errors = await settle(calls)
    results = [*before, *succeeded]
    for error in errors:
        is_dispensable = isinstance(error, ModelError) or over_budget(error)
        if not results or not is_dispensable:
            others = [other for other in errors if other is not error]
            raise add_usage(error, total_usage(results, others))
    return results, total_usage(results, errors)


async def together(calls: Sequence[Coroutine[Any, Any, S]]) -> list[S]:
    """Run all calls in parallel and return their results in order.

    If one raises, the others are awaited first, and the error carries the usage of all.
    """
    if len(calls) == 1:
        return [await calls[0]]
    results, errors = await settle(calls)
    if errors:
        raise add_usage(errors[0], total_usage(results, errors[1:]))
    return results


def total_usage(results: Iterable[HasUsage], errors: Iterable[BaseException] = ()) -> TokenUsage:
    """Total usage, including failed calls."""
    usage = NOTHING_USED
    for result in results:
        usage += result.usage
    for error in errors:
        if isinstance(error, RedraftError) and error.usage is not None:
            usage += error.usage
    return usage


def add_usage(error: E, usage: TokenUsage) -> E:
    """Add earlier `usage` to an error of Redraft, and return the error."""
    if isinstance(error, RedraftError) and usage is not NOTHING_USED:
        error.usage = usage if error.usage is None else usage + error.usage
    return error
