"""Engine: weights that were loaded, and the threads that work with them."""

from __future__ import annotations

import os
import platform
import secrets
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from redraft.core.errors import ConfigError, MissingExtraError, ModelError
from redraft.models.weights import PackagedWeights, WeightsFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROMPT_CACHE_MIB = 256
RUNTIME = "xllamacpp"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Say what makes two uses of the same weights two engines."""

    weights: PackagedWeights | WeightsFile
    threads: int = 1
    context: int = 4096
    parallel: int = 1


class _Server(Protocol):
    """Name what is used of the runtime, which comes without types."""

    def handle_chat_completions(
        self, body: dict[str, Any], take: Callable[[dict[str, Any]], bool] | None = None, /
    ) -> dict[str, Any]: ...


def check_runtime() -> None:
    """Raise `MissingExtraError` where the runtime is not installed; does not load it."""
    if sys.modules.get(RUNTIME) is None and (RUNTIME in sys.modules or find_spec(RUNTIME) is None):
        raise MissingExtraError("A local model", "local")


class Engine:
    """Run one set of weights in this process, for as many `LocalModel` as use it.

    The weights are loaded by the first call. `pool` has one thread a parallel call: what is submitted beyond
    that waits. The runtime opens a loopback port, whatever one asks for; a key of this process guards it.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.pool = ThreadPoolExecutor(options.parallel, thread_name_prefix="redraft-local")
        self._loading = threading.Lock()

    def answer(self, body: Mapping[str, Any], stop: threading.Event) -> dict[str, Any]:
        """Return the chat completion for a request body, or `{"error": ...}`; blocks.

        `stop` ends the generation at the next token; what comes back then is of no use. Raises `ModelError`.
        """
        with self._loading:
            server = self._server
        if stop.is_set():
            return {"choices": []}
        try:
            # A stream drops the log probabilities of tokens that add no text yet, so these calls (short ones:
            # verdicts) come whole, and can't be stopped.
            if body.get("logprobs"):
                return server.handle_chat_completions(dict(body))
            chunks = _Chunks(stop)
            server.handle_chat_completions({**body, "stream": True, **_WITH_USAGE}, chunks.take)
        except ValueError as error:  # so says the runtime of a request that it can't make sense of
            raise ModelError(f"{self.options.weights.name} refused the request: {error}") from error
        return chunks.whole()

    @cached_property
    def _server(self) -> _Server:
        try:
            xllamacpp: Any = import_module(RUNTIME)  # 100 MB: on first use
        except ImportError as error:
            raise MissingExtraError("A local model", "local") from error
        _check_processor()
        options = self.options
        params = xllamacpp.CommonParams()
        params.model.path = str(options.weights.file())
        params.n_parallel = options.parallel
        params.n_ctx = options.context * options.parallel  # the runtime divides it among the calls
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
        params.n_threads_http = 1
        params.api_keys = [secrets.token_urlsafe(32)]
        params.model_alias = {options.weights.name}
        params.ui = params.endpoint_slots = False
        params.verbosity = -1  # no line on stdout or stderr
        params.warmup = params.fit_params = False
        params.cache_ram_mib = PROMPT_CACHE_MIB
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise ModelError(
                f"The weights of {options.weights.name} could not be loaded: is the file whole, of a known "
                f"architecture, and is there memory for it and a context of {params.n_ctx} tokens? ({error})"
            ) from error


_WITH_USAGE = {"stream_options": {"include_usage": True}}


class _Chunks:
    """Put a streamed chat completion together, until someone says stop."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._texts: list[str] = []
        self._finish_reason: str | None = None
        self._last: dict[str, Any] = {}

    def take(self, chunk: dict[str, Any]) -> bool:
        """Keep a chunk; return True to end the stream."""
        for choice in chunk.get("choices", ()):
            self._texts.append(choice["delta"].get("content") or "")
            self._finish_reason = choice["finish_reason"] or self._finish_reason
        self._last = chunk
        return self._stop.is_set()

    def whole(self) -> dict[str, Any]:
        """Return what a call without streaming would have returned."""
        message = {"role": "assistant", "content": "".join(self._texts)}
        return {**self._last, "choices": [{"message": message, "finish_reason": self._finish_reason}]}


_engines: dict[tuple[int, EngineOptions], Engine] = {}
_engines_lock = threading.Lock()


def engine_of(options: EngineOptions) -> Engine:
    """Return the engine with these options that all of this process share."""
    # A forked child has the parent's memory, but not its threads: it needs an engine of its own.
    key = (os.getpid(), options)
    with _engines_lock:
        if key not in _engines:
            _engines[key] = Engine(options)
        return _engines[key]


def _check_processor() -> None:
    processor = Path("/proc/cpuinfo")
    if platform.machine() == "x86_64" and processor.is_file() and "avx2" not in processor.read_text():
        raise ConfigError(
            "Local models need a processor with AVX2; this one has none. Use a provider's model."
        )
