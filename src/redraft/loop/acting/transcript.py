"""A conversation as text, for a look back; what is long is cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from redraft.core.texts import as_text
from redraft.core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai.messages import ModelMessage

LONGEST = 1_500
"""Characters that one entry is shown with."""


def transcript(messages: Sequence[ModelMessage]) -> str:
    """Render what was said, called and answered, an entry a line or more, in its order."""
    entries = [entry for message in messages for part in message.parts if (entry := _entry(part))]
    return "\n".join(entries)


def _entry(part: Any) -> str:
    match part:
        case UserPromptPart(content=content):
            return f"asked: {_cut(content)}"
        case TextPart(content=content):
            return f"said: {_cut(content)}" if content.strip() else ""
        case ToolCallPart(tool_name=name):
            return f"called {name} with {_cut(json.dumps(part.args_as_dict(), ensure_ascii=False))}"
        case ToolReturnPart(tool_name=name, outcome=outcome):
            how = "answered" if outcome == "success" else outcome
            return f"{name} {how}: {_cut(part.model_response_str())}"
        case RetryFeedbackPart(content=content):
            return f"the answer was refused: {_cut(content)}"
        case _:
            return ""


def news(messages: Sequence[ModelMessage]) -> list[ModelRequest]:
    """Return the requests since the model's last response: what it is told next."""
    latest: list[ModelRequest] = []
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            break
        latest.insert(0, message)
    return latest


def steps_in(messages: Sequence[ModelMessage]) -> int:
    """Count the steps that the model took in a conversation."""
    return sum(isinstance(message, ModelResponse) for message in messages)


def input_tokens(messages: Sequence[ModelMessage]) -> int:
    """Estimate the input of the next request: all that was said until the last response, and the news."""
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    said = [as_text(getattr(part, "content", "")) for message in news(messages) for part in message.parts]
    before = 0 if last is None else last.usage.input_tokens + last.usage.output_tokens
    return before + sum(map(estimate_tokens, said))


def _cut(content: Any) -> str:
    text = as_text(content)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text) - LONGEST} characters more)"
