"""Have a model answer: the one place from which the loop's own model calls go out."""

from __future__ import annotations

import json
from functools import partial
from hashlib import sha256
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from redraft.core.chat import ChatReply
from redraft.core.codec import to_json
from redraft.core.errors import ConfigError
from redraft.core.steps import allowance, direct, inner_step
from redraft.core.texts import short_repr
from redraft.core.tokens import estimate_tokens

if TYPE_CHECKING:
    from redraft.core.chat import ChatRequest
    from redraft.core.protocols import ChatModel


async def answer(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Answer a request, as a step within the step under way; raises what the model raises.

    Raises `ConfigError` for what is no model: it is not async, or returns something else than a `ChatReply`.
    The step goes by the content of the request, so that of many calls at once each finds its own reply again.
    """
    step, within = inner_step.get(), allowance.get()
    if step is direct:
        return await affordable(model, request)
    if within is None:
        return await step(_name_of(request), ChatReply, partial(_reply, model=model), request)
    with within.call(request.role, _input_tokens(request), request.max_tokens) as call:
        # The budget is asked inside the journal's step: a reply that is recorded was paid for already.
        async def carried_out(request: ChatRequest) -> ChatReply:
            return await call.carry_out(_reply, request, model)

        reply = await step(_name_of(request), ChatReply, carried_out, request)
        call.used(reply.usage)
    return reply


async def affordable(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Answer a request within the budget of the step under way, if it has one; it is no step of its own."""
    within = allowance.get()
    if within is None:
        return await _reply(request, model)
    with within.call(request.role, _input_tokens(request), request.max_tokens) as call:
        reply = await call.carry_out(_reply, request, model)
        call.used(reply.usage)
    return reply


def _name_of(request: ChatRequest) -> str:
    asked = json.dumps(to_json(request), sort_keys=True)
    return f"model {sha256(asked.encode()).hexdigest()[:16]}"


def _input_tokens(request: ChatRequest) -> int:
    tokens = sum(estimate_tokens(message.content) for message in request.messages)
    return tokens + (estimate_tokens(json.dumps(request.schema)) if request.schema else 0)


async def _reply(request: ChatRequest, model: ChatModel) -> ChatReply:
    made: Any = model(request)
    reply = await made if isawaitable(made) else made
    if reply is made or not isinstance(reply, ChatReply):
        raise ConfigError(
            f"The model {model!r} returned {short_repr(reply)}; expected an async function of a ChatRequest "
            "that returns a ChatReply."
        )
    return reply
