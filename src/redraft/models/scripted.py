"""ScriptedModel: the fake that is shipped, for tests of agents and of Redraft itself."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from redraft.core.chat import ChatReply, ChatRequest
from redraft.core.errors import ConfigError, ModelError
from redraft.core.tokens import estimate_tokens
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.models.parse import parsed_of

ScriptedReply: TypeAlias = str | Mapping[str, Any] | list[Any] | ChatReply | Exception
Script: TypeAlias = (
    Iterable[ScriptedReply] | Callable[[ChatRequest], ScriptedReply | Awaitable[ScriptedReply]]
)


class ScriptedModel:
    """Answer from a script: replies in their order, or a function of the request, sync or async.

    A reply is a text, a dict or list (answered as JSON), a `ChatReply`, or an exception, which is raised.
    `requests` holds what was asked, in order. What a reply used is estimated unless a `ChatReply` says it;
    it costs nothing. A script that is at its end raises `ModelError`.
    """

    def __init__(self, replies: Script) -> None:
        if isinstance(replies, str | Mapping):
            raise ConfigError(f"ScriptedModel takes a list of replies or a function, got {replies!r}.")
        self.requests: list[ChatRequest] = []
        self._answer = cast("Callable[..., Any]", replies) if callable(replies) else _in_order(replies)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Give the next reply; raises what the script says should be raised."""
        self.requests.append(request)
        reply = self._answer(request)
        return _reply_of(await reply if inspect.isawaitable(reply) else reply, request)


def _in_order(replies: Iterable[ScriptedReply]) -> Callable[[ChatRequest], ScriptedReply]:
    script = list(replies)
    calls = 0

    def answer(request: ChatRequest) -> ScriptedReply:
        nonlocal calls
        calls += 1
        if calls > len(script):
            asked = request.messages[-1].content if request.messages else ""
            raise ModelError(
                f"The script has {len(script)} replies, and this is call {calls} ({request.role}), "
                f"which asks {asked[:80]!r}."
            )
        return script[calls - 1]

    return answer


def _reply_of(reply: Any, request: ChatRequest) -> ChatReply:
    if isinstance(reply, Exception):
        raise reply
    if isinstance(reply, ChatReply):
        usage = _estimated(reply.text, request) if reply.usage is NOTHING_USED else reply.usage
        parsed = parsed_of(reply.text, request) if reply.parsed is None else reply.parsed
        return ChatReply(
            reply.text, parsed, reply.logprobs, usage, reply.model or "scripted", reply.finish_reason
        )
    if isinstance(reply, str):
        return ChatReply(reply, parsed_of(reply, request), usage=_estimated(reply, request), model="scripted")
    if isinstance(reply, Mapping | list):
        text = json.dumps(reply, ensure_ascii=False)
        return ChatReply(text, json.loads(text), usage=_estimated(text, request), model="scripted")
    raise ConfigError(
        f"A scripted reply must be a text, a dict, a list, a ChatReply or an exception, got {reply!r}."
    )


def _estimated(text: str, request: ChatRequest) -> TokenUsage:
    asked = sum(estimate_tokens(message.content) for message in request.messages)
    return TokenUsage(input_tokens=asked, output_tokens=estimate_tokens(text), requests=1, cost_usd=0.0)
