"""Embedders by name: the local embedder, providers' models, any function, and an embedder for tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from math import hypot, isfinite
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from redraft._calls import awaited
from redraft._hints import keyword_hints
from redraft._texts import short_repr
from redraft._validation import check_count
from redraft.errors import ConfigError, OutputError
from redraft.models.minilm import NAME, MiniLMEmbedder, minilm_is_installed
from redraft.models.names import resolve_name
from redraft.models.provider import LoopClients, model_error, named
from redraft.protocols import Embedder
from redraft.settings import NO_EMBEDDER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydantic_ai.embeddings import EmbeddingModel
    from pydantic_ai.providers import Provider

    from redraft.settings import Settings


@runtime_checkable
class NamedEmbedder(Embedder, Protocol):
    """An embedder with a name; only vectors from embedders of the same name can be compared."""

    name: str


def embedder_of(
    embedder: str | Embedder | Callable[[list[str]], Any] | None, settings: Settings
) -> NamedEmbedder | None:
    """The `embedder` argument, else the embedder of the settings, else the local embedder if installed.

    None means no embedder: its name is `none`, or none is configured and `redraft[embed]` is not installed.
    Any embedder but Redraft's own is wrapped as a function whose vectors are checked. Raises `ConfigError`
    for an object that can't be called, and the errors of `embedder_named`.
    """
    if embedder is None and not settings.embedder:
        return MiniLMEmbedder() if minilm_is_installed() else None
    if embedder is None or isinstance(embedder, str):
        name = resolve_name(embedder or settings.embedder or "", settings.models)
        return None if name == NO_EMBEDDER else embedder_named(name)
    if isinstance(embedder, FunctionEmbedder | MiniLMEmbedder | ProviderEmbedder | ScriptedEmbedder):
        return embedder
    return FunctionEmbedder(embedder, embedder.name if isinstance(embedder, NamedEmbedder) else None)


def embedder_named(name: str) -> NamedEmbedder:
    """The embedder with a name: `local:minilm`, or `provider:model`.

    Raises `ConfigError` for an invalid name, an unknown provider and a missing key; `MissingExtraError` if
    the embedder is not installed.
    """
    provider, _, model = name.partition(":")
    if provider == "local" or not provider or not model.strip():
        if name == NAME:
            return MiniLMEmbedder()
        raise ConfigError(
            f"{name!r} is not the name of an embedder; expected {NAME!r}, 'provider:model' (such as "
            f"'openai:text-embedding-3-small') or {NO_EMBEDDER!r}."
        )
    return ProviderEmbedder(name)


def unit_rows(source: str, vectors: Any, count: int) -> list[list[float] | None]:
    """Normalize vectors, given as lists or arrays, to lists of floats of unit length; None stays None.

    Raises `OutputError`, naming the `source`, unless there are `count` rows. Rows that are not None must
    have the same length (at least 1) and finite numbers, not all zeros.
    """
    rows = [None if row is None else _row(source, row) for row in _items(source, vectors)]
    if len(rows) != count:
        raise OutputError(f"{source} returned {len(rows)} vectors for {count} texts; expected one per text.")
    lengths = list(dict.fromkeys(len(row) for row in rows if row is not None))
    if len(lengths) > 1:
        raise OutputError(
            f"{source} returned vectors of {lengths[0]} and {lengths[1]} numbers; expected equal lengths."
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
    an index: change it if the function starts to return different vectors. By default, it is the function's
    module and name, which are the same for two lambdas of a module.

    Raises `ConfigError` for an object that can't be called. A call raises `OutputError` unless it gets a
    vector for each text, of finite numbers, not all zeros, and of the same dimension as in earlier calls; or
    None for a text in a language that the function does not support.
    """

    def __init__(self, function: Callable[[list[str]], Any], name: str | None = None) -> None:
        if not callable(function) or isinstance(function, type):
            raise ConfigError(
                f"embedder must be a name, an Embedder or a function from texts to vectors, got {function!r}."
            )
        self.name = name or place_of(function)
        self._function = awaited(function)
        self._dimension: int | None = None

    async def __call__(self, texts: Sequence[str], /) -> list[list[float] | None]:
        """The unit vectors of `texts`; None where the function returns None."""
        if not texts:
            return []
        source = f"The embedder {self.name!r}"
        rows = unit_rows(source, await self._function(list(texts)), len(texts))
        dimension = next((len(row) for row in rows if row is not None), self._dimension)
        if dimension != (self._dimension or dimension):
            raise OutputError(
                f"{source} returned vectors of {dimension} numbers, but of {self._dimension} before."
            )
        self._dimension = dimension
        return rows


def place_of(function: object) -> str:
    """The module and name of a function, of the function of a partial, or of an object's class."""
    target: Any = function
    while isinstance(target, partial):
        target = cast("Any", target.func)
    named: Any = target if hasattr(target, "__qualname__") else cast("Any", type(target))
    return f"{named.__module__}.{named.__qualname__}"


BATCH = 64
"""Texts per request: within the limits of all providers, in tokens, too, for texts of a page or two."""


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
            self.name, self._instance = model, None
            self._fresh: tuple[EmbeddingModel, Provider[Any]] | None = _embedding_model_named(model)
        else:
            self.name, self._instance, self._fresh = f"{model.system}:{model.model_name}", model, None

    async def __call__(self, texts: Sequence[str], /) -> list[list[float] | None]:
        """The unit vectors of `texts`."""
        rows: list[Any] = []
        for start in range(0, len(texts), BATCH):
            rows += await self._embed(list(texts[start : start + BATCH]))
        return unit_rows(self.name, rows, len(texts))

    async def _embed(self, texts: list[str]) -> Sequence[Any]:
        from pydantic_ai import exceptions  # noqa: PLC0415 (0.3 s, on first use)

        model = self._instance
        if model is None:
            model = await _embedding_models.get(self.name, self._connect)
        try:
            result = await model.embed(texts, input_type="document", settings={"truncate": True})
        except exceptions.AgentRunError as error:
            raise model_error(self.name, error) from error
        except exceptions.UserError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        return result.embeddings

    def _connect(self) -> tuple[EmbeddingModel, Provider[Any]]:
        connected, self._fresh = self._fresh or _embedding_model_named(self.name), None
        return connected


_embedding_models: LoopClients[EmbeddingModel] = LoopClients()


def _embedding_model_named(name: str) -> tuple[EmbeddingModel, Provider[Any]]:
    def infer() -> tuple[EmbeddingModel, Provider[Any]]:
        from pydantic_ai.embeddings import infer_embedding_model  # noqa: PLC0415 (loaded by now)
        from pydantic_ai.providers import infer_provider  # noqa: PLC0415 (loaded by now)

        provider = infer_provider(name.partition(":")[0])
        return infer_embedding_model(name, provider_factory=lambda _: provider), provider

    return named(name, infer)


_SCRIPTED_WORD = re.compile(r"\w+")


@keyword_hints()
class ScriptedEmbedder:
    """Embeds by words, for tests: the more words texts share, the closer they are; same on every machine.

    Each word, in lower case, adds 1 to a dimension chosen by a hash of the word; the first of the
    `dimensions` (at least 2) is for texts without words. `texts` has the embedded texts in order. Synonyms
    have nothing in common. Raises `ConfigError` for too few dimensions.
    """

    def __init__(self, dimensions: int = 256) -> None:
        check_count("ScriptedEmbedder: dimensions", dimensions, 2)  # for texts without words, and with words
        self.name = f"scripted:{dimensions}"
        self.texts: list[str] = []
        self._dimensions = dimensions

    async def __call__(self, texts: Sequence[str], /) -> list[list[float] | None]:
        """The unit vectors of `texts`."""
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
