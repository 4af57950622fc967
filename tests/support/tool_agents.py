"""Scripted Pydantic AI models that call tools."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from redraft.models.provider import ProviderModel


def call(name, call_id=None, /, **args):
    """A tool call in a model's response."""
    return ToolCallPart(name, args) if call_id is None else ToolCallPart(name, args, call_id)


@dataclass
class Actor:
    """Answer each request with the next entry of a script: a text, a call, a list of calls, an exception.

    Every answer uses 10 tokens. `requests` are the messages of each request, `infos` the rest of it.
    """

    script: list[Any]
    requests: list[Any] = field(default_factory=list)
    infos: list[Any] = field(default_factory=list)

    def __call__(self, messages, info):
        self.requests.append(list(messages))
        self.infos.append(info)
        entry = self.script.pop(0) if self.script else "(the script is over)"
        if isinstance(entry, Exception):
            raise entry
        parts = entry if isinstance(entry, list) else [entry]
        made = [TextPart(part) if isinstance(part, str) else part for part in parts]
        return ModelResponse(made, usage=RequestUsage(input_tokens=7, output_tokens=3))

    @property
    def model(self):
        return FunctionModel(self)

    @property
    def provider(self):
        return ProviderModel(self.model)

    def asked(self, request=-1):
        """The texts that a request ends with, after the model's last response."""
        texts = []
        for message in reversed(self.requests[request]):
            if not isinstance(message, ModelRequest):
                break
            texts[:0] = [str(part.content) for part in message.parts]
        return texts
