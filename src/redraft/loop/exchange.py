"""Exchange: what was said in one call inside a step, to a model or a tool, verbatim."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from redraft.core.chat import ChatReply
from redraft.core.codec import from_json
from redraft.core.usage import TokenUsage

if TYPE_CHECKING:
    from redraft.loop.runs import KeptStep


@dataclass(frozen=True, slots=True)
class Turn:
    """Hold who said something (`system`, `user`, `assistant`, `error`, a tool's name), and what."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """Hold what was asked and answered in one call; `usage` where the reply tells."""

    name: str
    seconds: float
    asked: tuple[Turn, ...]
    answered: tuple[Turn, ...]
    usage: TokenUsage | None = None


def exchange(step: KeptStep) -> Exchange:
    """Return what was said in a step within a step, in whatever form it was recorded."""
    name = step.name.partition(" ")[0] if _is_model(step) else step.name
    if step.error is not None:
        answered = (Turn("error", f"{step.error.get('type')}: {step.error.get('message')}"),)
        return Exchange(name, step.seconds, tuple(_turns(step.given, "user")), answered)
    return Exchange(
        name,
        step.seconds,
        tuple(_turns(step.given, "user")),
        tuple(_turns(step.result, "assistant")),
        _usage(step.result),
    )


def _is_model(step: KeptStep) -> bool:
    return step.name.startswith("model ")


def _usage(result: Any) -> TokenUsage | None:
    """Return what a reply used; those of agents of another make tell it in their own way."""
    if not isinstance(result, dict) or "text" not in result:
        return None
    return from_json(ChatReply, cast("dict[str, Any]", result)).usage


def _turns(value: Any, role: str) -> list[Turn]:
    """Find the turns in a request or reply: Redraft's own, Pydantic AI's messages, or any JSON."""
    if isinstance(value, list):
        return [turn for item in cast("list[Any]", value) for turn in _turns(item, role)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if "messages" in fields:
            return [Turn(message["role"], message["content"]) for message in fields["messages"]]
        if "parts" in fields:
            return [_part(part, role) for part in fields["parts"]]
        if isinstance(fields.get("text"), str):
            return [Turn(role, fields["text"])]
    return [Turn(role, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))]


def _part(part: dict[str, Any], role: str) -> Turn:
    kind = str(part.get("part_kind", role)).removesuffix("-prompt")
    who = f"{kind} {part['tool_name']}" if part.get("tool_name") else {"text": role}.get(kind, kind)
    content = part.get("content", part.get("args"))
    return Turn(who, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
