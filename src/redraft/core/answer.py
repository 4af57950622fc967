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
from redraft.core.steps import direct, inner_step
from redraft.core.texts import short_repr

if TYPE_CHECKING:
    from redraft.core.chat import ChatRequest
    from redraft.core.protocols import ChatModel


async def answer(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Answer a request, as a step within the step under way; raises what the model raises.

    Raises `ConfigError` for what is no model: it is not async, or returns something else than a `ChatReply`.
    The step goes by the content of the request, so that of many calls at once each finds its own reply again.
    """
    step = inner_step.get()
    if step is direct:
        return await _reply(request, model)
    asked = json.dumps(to_json(request), sort_keys=True)
    name = f"model {sha256(asked.encode()).hexdigest()[:16]}"
    return await step(name, ChatReply, partial(_reply, model=model), request)


async def _reply(request: ChatRequest, model: ChatModel) -> ChatReply:
    made: Any = model(request)
    reply = await made if isawaitable(made) else made
    if reply is made or not isinstance(reply, ChatReply):
        raise ConfigError(
            f"The model {model!r} returned {short_repr(reply)}; expected an async function of a ChatRequest "
            "that returns a ChatReply."
        )
    return reply
