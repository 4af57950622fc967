"""asked: a model's answer to a prompt of the agent file, as one step of the cycle."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redraft.core.chat import Message
from redraft.core.errors import OutputError, RedraftError
from redraft.core.texts import as_text
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.cycles.prompt_memory import prompt_scopes
from redraft.evaluate.ask import ask
from redraft.notes.metered import Metered
from redraft.text.condition import template
from redraft.text.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.core.chat import ChatReply
    from redraft.core.protocols import ChatModel
    from redraft.cycles.cycle import Cycle


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
