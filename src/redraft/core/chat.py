"""ChatRequest and ChatReply: one call to a language model, without any provider in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from redraft.core.usage import NOTHING_USED, TokenUsage

ModelRole: TypeAlias = Literal["generation", "evaluation", "revision", "reflection"]


@dataclass(frozen=True, slots=True)
class Message:
    """Hold one turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Ask a model one thing.

    `schema` is a JSON Schema (an object at the top) that the reply has to follow; the reply's `parsed` is
    then the decoded value. `temperature` and `max_tokens` are sent only when they are not None: newer models
    refuse sampling parameters. `logprobs` (0 to 20) asks for that many alternatives of each token. `role`
    says what the call is for; `reflection` looks back on a run, or in the middle of one.
    """

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    logprobs: int = 0
    role: ModelRole = "generation"


@dataclass(frozen=True, slots=True)
class ChatReply:
    """Hold what a model answered.

    `parsed` is the decoded value when a schema was asked for and the text follows it as JSON; it stays None
    when the text could not be decoded, and the caller decides what that means. `logprobs` has one mapping of
    token to natural log probability for each generated token, where the provider tells. `finish_reason` is
    `length` when the reply was cut off.
    """

    text: str
    parsed: Any = None
    logprobs: tuple[Mapping[str, float], ...] = ()
    usage: TokenUsage = NOTHING_USED
    model: str = ""
    finish_reason: Literal["stop", "length", "other"] = "stop"
