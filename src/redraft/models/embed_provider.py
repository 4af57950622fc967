"""ProviderEmbedder: the embedding models of providers, through Pydantic AI."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from redraft.core.errors import ConfigError
from redraft.models.embed_rows import unit_rows
from redraft.models.provider import closed_with_its_loop, model_error, named

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from pydantic_ai.embeddings import EmbeddingModel
    from pydantic_ai.providers import Provider

AT_ONCE = 64
"""Texts of a request: what all providers take, and in tokens too as long as a text is a page or two."""


class ProviderEmbedder:
    """Embed with a provider's model, named `provider:model`, or with an embedding model of Pydantic AI.

    Sends at most 64 texts a request, one request after another. What is asked for and what is searched are
    embedded alike, as documents: Redraft compares tasks with tasks. A text that is too long is cut where the
    provider can do that. Trying again is left to the provider's client.

    Raises `ConfigError` for an unknown provider, one without embeddings and a missing key,
    `MissingExtraError` where the provider's client is not installed, `ModelError` when a call failed, and
    `OutputError` for vectors that can't be used.
    """

    def __init__(self, model: str | EmbeddingModel) -> None:
        if isinstance(model, str):
            self.name, self._given = model, None
            self._fresh: _Embeddings | None = _embeddings_named(model)
        else:
            self.name, self._given, self._fresh = f"{model.system}:{model.model_name}", model, None

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return the unit vectors of `texts`."""
        rows: list[Any] = []
        for start in range(0, len(texts), AT_ONCE):
            rows += await self._asked(list(texts[start : start + AT_ONCE]))
        return unit_rows(self.name, rows, len(texts))

    async def _asked(self, texts: list[str]) -> Sequence[Any]:
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
        opened = _opened.setdefault(asyncio.get_running_loop(), {})
        if self.name not in opened:
            embeddings, self._fresh = self._fresh or _embeddings_named(self.name), None
            opened[self.name] = _Open(embeddings.model, closed_with_its_loop(embeddings.provider))
            await anext(opened[self.name].closing)
        return opened[self.name].model


class _Embeddings(NamedTuple):
    model: EmbeddingModel
    provider: Provider[Any]


class _Open(NamedTuple):
    model: EmbeddingModel
    closing: AsyncGenerator[None]


# The connections of a client belong to the event loop that opened them.
_opened: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Open]] = WeakKeyDictionary()


def _embeddings_named(name: str) -> _Embeddings:
    def infer() -> _Embeddings:
        from pydantic_ai.embeddings import infer_embedding_model  # noqa: PLC0415 (loaded by now)
        from pydantic_ai.providers import infer_provider  # noqa: PLC0415 (likewise)

        provider = infer_provider(name.partition(":")[0])
        return _Embeddings(infer_embedding_model(name, provider_factory=lambda _: provider), provider)

    return named(name, infer)
