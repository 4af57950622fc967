"""Have a model answer: the one place from which the loop's own model calls go out."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from redraft.core.chat import ChatReply
from redraft.core.codec import to_json
from redraft.core.steps import direct, inner_step

if TYPE_CHECKING:
    from redraft.core.chat import ChatRequest
    from redraft.core.protocols import ChatModel


async def answer(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Answer a request, as a step within the step under way; raises what the model raises.

    The step goes by the content of the request, so that of many calls at once each finds its own reply again.
    """
    step = inner_step.get()
    if step is direct:
        return await model(request)
    asked = json.dumps(to_json(request), sort_keys=True)
    return await step(f"model {sha256(asked.encode()).hexdigest()[:16]}", ChatReply, model, request)
