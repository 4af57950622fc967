"""LocalModel: GGUF weights that answer in this process, without a network."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from redraft.core.chat import ChatReply
from redraft.core.check import check_count
from redraft.core.errors import ModelError
from redraft.core.usage import TokenUsage
from redraft.models.engine import EngineOptions, check_runtime, engine_of
from redraft.models.parse import alternatives_of, parsed_of
from redraft.models.weights import weights_of
from redraft.text.well_formed import well_formed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redraft.core.chat import ChatRequest


class LocalModel:
    """Answer with weights of this machine: a known name or the path of a GGUF file. Costs nothing.

    `threads` and `parallel` are counts (one of each is best on a shared machine), `context` is the room in
    tokens for the prompt and reply of one call. `max_tokens` bounds a reply where the request does not: a
    small model that repeats itself would go on until the context is full. The weights are loaded by the
    first call, once in a process for all models with the same options. Calls run in threads and never block
    the event loop; a cancelled one returns at once and stops generating at its next token.

    Without a temperature the most likely token is taken, so that the same request gets the same reply; with
    one, the n-th time that a request is asked its seed is `seed + n`, so that asking again gives another
    sample and running again gives the same ones. A schema is kept to by the grammar of what can be generated.

    Raises `ConfigError` for weights that are not there and options out of range, `MissingExtraError` where
    the runtime is not installed, and `ModelError` for a prompt that is too long.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        threads: int = 1,
        context: int = 4096,
        parallel: int = 1,
        max_tokens: int = 1024,
        seed: int = 0,
    ) -> None:
        counts = {"threads": threads, "context": context, "parallel": parallel, "max_tokens": max_tokens}
        for name, value in counts.items():
            check_count(f"LocalModel: {name}", value, 1)
        weights = weights_of(source)
        check_runtime()
        self._options = EngineOptions(weights, threads, context, parallel)
        self._max_tokens = max_tokens
        self._seed = seed
        self._sampled: Counter[int] = Counter()

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Answer one request."""
        engine = engine_of(self._options)
        stop = threading.Event()
        try:
            loop = asyncio.get_running_loop()
            completion = await loop.run_in_executor(engine.pool, engine.answer, self._body(request), stop)
        finally:
            stop.set()
        if "error" in completion:
            raise self._error(completion["error"])
        return self._reply(completion, request)

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": [
                {"role": message.role, "content": well_formed(message.content)}
                for message in request.messages
            ],
            "temperature": request.temperature or 0.0,
            "seed": self._seed,
            "max_tokens": request.max_tokens or self._max_tokens,
        }
        if request.temperature:
            asked = hash((request.messages, request.temperature))
            body["seed"] += self._sampled[asked]
            self._sampled[asked] += 1
        if request.schema is not None:
            schema = {"name": "reply", "schema": dict(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.logprobs:
            body |= {"logprobs": True, "top_logprobs": request.logprobs}
        return body

    def _error(self, error: Mapping[str, Any]) -> ModelError:
        if error.get("type") == "exceed_context_size_error":
            return ModelError(
                f"The prompt has {error['n_prompt_tokens']} tokens; {self._options.weights.name} was given "
                f"room for {error['n_ctx']}: shorten the prompt, or use LocalModel(..., context=...)."
            )
        return ModelError(f"{self._options.weights.name} failed: {error.get('message', error)}")

    def _reply(self, completion: Mapping[str, Any], request: ChatRequest) -> ChatReply:
        choice: dict[str, Any] = completion["choices"][0]
        used = completion["usage"]
        tokens = choice["logprobs"]["content"] if "logprobs" in choice else ()
        text = choice["message"]["content"] or ""
        finish_reason = choice["finish_reason"]
        return ChatReply(
            text,
            parsed_of(text, request),
            tuple(alternatives_of(token) for token in tokens),
            TokenUsage(
                input_tokens=used["prompt_tokens"],
                output_tokens=used["completion_tokens"],
                cached_tokens=used["prompt_tokens_details"]["cached_tokens"],
                requests=1,
                cost_usd=0.0,
            ),
            f"local:{self._options.weights.name}",
            finish_reason if finish_reason in ("stop", "length") else "other",
        )
