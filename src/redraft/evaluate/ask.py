"""Ask a model, retry an unusable reply, and run several calls at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from redraft._steps import answer
from redraft.errors import RedraftError, over_budget
from redraft.protocols import ChatRequest, Message
from redraft.types import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from redraft.protocols import ChatModel, ChatReply, ModelRole


class Spender(Protocol):
    """Anything that says what it used."""

    @property
    def usage(self) -> TokenUsage: ...  # noqa: D102 (what its class says)


S = TypeVar("S", bound=Spender)
E = TypeVar("E", bound=BaseException)


async def settle(calls: Sequence[Coroutine[Any, Any, S]]) -> tuple[list[S], list[Exception]]:
    """Carry out all calls at once; return the results of those that succeeded, and what the others raised."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    results: list[S] = []
    errors: list[Exception] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            errors.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            results.append(outcome)
    return results, errors


async def together(calls: Sequence[Coroutine[Any, Any, S]]) -> list[S]:
    """Carry out all calls at once and return their results in order.

    When one raises, the others are waited for, and the error carries what all of them used.
    """
    if len(calls) == 1:  # no task is worth starting for one
        return [await calls[0]]
    results, errors = await settle(calls)
    if errors:
        raise charged(errors[0], spent(results, errors[1:]))
    return results


def spent(results: Iterable[Spender], errors: Iterable[BaseException] = ()) -> TokenUsage:
    """Add up what was used, also by the calls that failed."""
    used = NOTHING_USED
    for result in results:
        used += result.usage
    for error in errors:
        if isinstance(error, RedraftError) and error.usage is not None:
            used += error.usage
    return used


def charged(error: E, usage: TokenUsage) -> E:
    """Add to an error of ours what was used before it, and return it."""
    if isinstance(error, RedraftError) and usage is not NOTHING_USED:
        error.usage = usage if error.usage is None else usage + error.usage
    return error


T = TypeVar("T")

SHOWN = 4_000
"""How many characters of a reply that can't be used are shown to the model again."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """Hold what was read out of the last reply, what was wrong with it, and what all replies used."""

    value: T
    problem: str
    usage: TokenUsage


async def ask(
    model: ChatModel,
    messages: tuple[Message, ...],
    schema: Mapping[str, Any] | None,
    read: Callable[[ChatReply], tuple[T, str]],
    role: ModelRole = "evaluation",
) -> Answer[T]:
    """Ask a model; when `read` finds a problem with the reply, say so and ask again, once.

    `read` returns what it could make of a reply and what is wrong with it (empty: nothing). Raises what the
    model raises, with all that was used until then; where the budget does not allow the second call, what the
    first one gave stands.
    """
    reply = await answer(model, ChatRequest(messages, schema, role=role))
    value, problem = _checked(reply, read)
    if not problem:
        return Answer(value, "", reply.usage)
    again = (
        Message("assistant", reply.text[:SHOWN] or "(an empty reply)"),
        Message("user", f"That reply can't be used: {problem} Reply again, in full, in the form asked for."),
    )
    try:
        second = await answer(model, ChatRequest((*messages, *again), schema, role=role))
    except RedraftError as error:
        if over_budget(error):  # what was paid for is read as far as it goes
            return Answer(value, problem, spent([reply], [error]))
        raise charged(error, reply.usage) from None
    value, problem = _checked(second, read)
    return Answer(value, problem, reply.usage + second.usage)


def _checked(reply: ChatReply, read: Callable[[ChatReply], tuple[T, str]]) -> tuple[T, str]:
    value, problem = read(reply)
    if reply.finish_reason == "length":
        return value, f"It was cut off; be briefer. {problem}".strip()
    return value, problem
