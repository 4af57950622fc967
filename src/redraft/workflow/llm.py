"""llm.call: have a model answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.answer import answer
from redraft.core.chat import ChatReply, ChatRequest, Message
from redraft.core.errors import ConfigError, OutputError
from redraft.core.steps import Retry, direct, retried
from redraft.workflow.made import Made
from redraft.workflow.params import parsed
from redraft.workflow.spec import LlmParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.core.protocols import ChatModel
    from redraft.workflow.bench import Bench
    from redraft.workflow.scope import Scope


async def llm_action(params: Mapping[str, Any], scope: Scope, bench: Bench) -> Made:
    """Answer a prompt or messages; with a schema the value that the reply is.

    Raises `ModelError` when the provider failed for good, `OutputError` for an empty reply or one that does
    not follow the schema.
    """
    given = parsed(LlmParams, params, scope, "llm.call")
    request = ChatRequest(_messages(given), given.schema_, given.temperature, given.max_tokens)
    reply = await patiently(bench.model_for(given.model, scope), request)
    if not reply.text.strip():
        raise OutputError(f"The model {reply.model!r} returned an empty reply.", usage=reply.usage)
    if given.schema_ is None:
        return Made(reply.text, reply.usage, is_reply=True)
    found = bench.schema(given.schema_).check(reply.text if reply.parsed is None else reply.parsed)
    if not found.valid:
        wrong = "; ".join(problem.message for problem in found.errors)
        raise OutputError(f"The reply does not follow the schema: {wrong}", usage=reply.usage)
    return Made(found.value, reply.usage, is_reply=True)


async def patiently(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Answer a request, and try again what may pass: a failed call must not cost an attempt."""
    step = retried(direct, Retry(), lambda _name, _error, wait: wait)
    return await step("model", ChatReply, answer, model, request)


def _messages(given: LlmParams) -> tuple[Message, ...]:
    if (given.prompt is None) == (given.messages is None):
        raise ConfigError("llm.call: give either 'prompt' or 'messages'.")
    system = (Message("system", given.system),) if given.system else ()
    if given.messages is None:
        return (*system, Message("user", str(given.prompt)))
    if isinstance(given.messages, str):
        raise ConfigError(f"llm.call: messages must be a list of role and content, got {given.messages!r}.")
    return (*system, *(Message(turn.role, turn.content) for turn in given.messages))
