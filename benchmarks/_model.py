"""The model of a benchmark: by name or from a cassette, with bounded replies and a memory of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from redraft import ConfigError
from redraft.models.local import LocalModel
from redraft.models.names import model_named
from redraft.protocols import ChatModel, ChatReply, ChatRequest
from redraft.testing import Cassette

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

MAX_TOKENS = 400


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """Bound the length of replies, and answer repeated deterministic requests from memory.

    Without a temperature, a local model always gives the same reply, so arms with the same beginning share
    it; its usage counts for each arm.
    """

    model: ChatModel
    max_tokens: int = MAX_TOKENS
    known: dict[object, ChatReply] = field(default_factory=dict[object, ChatReply])

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Give the reply to a request."""
        request = replace(request, max_tokens=request.max_tokens or self.max_tokens, role="generation")
        if request.temperature:
            return await self.model(request)
        if request.messages not in self.known:
            self.known[request.messages] = await self.model(request)
        return self.known[request.messages]


def benchmark_model(name: str | None, threads: int, cassette: str | None, record: str | None) -> Bounded:
    """Return the model with a name, its calls recorded to a file where asked, or the one on a cassette."""
    if cassette:
        return Bounded(Cassette(cassette))
    if not name:
        raise ConfigError("Name a model with --model, or replay one with --cassette.")
    kind, _, place = name.partition(":")
    model = LocalModel(place, threads=threads) if kind == "local" else model_named(name)
    return Bounded(Cassette(record, record=model) if record else model)


def model_options(parser: ArgumentParser) -> None:
    """Let the command line say which model answers."""
    parser.add_argument("--model", help="such as local:qwen2.5-coder-1.5b")
    parser.add_argument("--threads", type=int, default=2, help="of a local model")
    parser.add_argument("--cassette", help="answer from this recording instead of a model")
    parser.add_argument("--record", help="record the model's calls to this file")


def model_given(given: Namespace) -> Bounded:
    """Return the model that the command line says; ends the program, and says why, where there is none."""
    try:
        return benchmark_model(given.model, given.threads, given.cassette, given.record)
    except ConfigError as error:
        sys.exit(str(error))
