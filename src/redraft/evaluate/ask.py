"""Ask a model, and once more when its reply can't be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redraft.core.answer import answer
from redraft.core.chat import ChatRequest, Message
from redraft.core.errors import RedraftError, over_budget
from redraft.core.usage import TokenUsage
from redraft.evaluate.together import charged, spent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redraft.core.chat import ChatReply, ModelRole
    from redraft.core.protocols import ChatModel

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
