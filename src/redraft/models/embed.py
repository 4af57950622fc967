"""Embedders by what was given for one: a name, a function, nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from redraft.core.errors import ConfigError
from redraft.core.protocols import Embedder
from redraft.models.names import resolved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redraft.core.settings import Settings

NO_EMBEDDER = "none"
"""The name that stands for no embedder: search by full text alone."""


@runtime_checkable
class NamedEmbedder(Embedder, Protocol):
    """An embedder that says who it is; vectors may be compared only if embedders of one name made them."""

    name: str


def embedder_of(
    given: str | Embedder | Callable[[list[str]], Any] | None, settings: Settings
) -> NamedEmbedder | None:
    """Return the embedder that was given, else that of the settings, else the offline one if it is installed.

    None means that there is none: so says the name `none`, or nothing does and `redraft[embed]` is not
    installed. What is not one of Redraft's embedders is taken for a function, and its vectors are checked.
    Raises `ConfigError` for what is no embedder, and what `embedder_named` raises.
    """
    if given is None and not settings.embedder:
        return _offline()
    if given is None or isinstance(given, str):
        name = resolved(given or settings.embedder or "", settings.models)
        return None if name == NO_EMBEDDER else embedder_named(name)
    if isinstance(given, _ours()):
        return given
    from redraft.models.embed_function import FunctionEmbedder  # noqa: PLC0415 (only a function needs it)

    return FunctionEmbedder(given, given.name if isinstance(given, NamedEmbedder) else None)


def embedder_named(name: str, aliases: Mapping[str, str] | None = None) -> NamedEmbedder:
    """Return the embedder with a name: `local:minilm`, or `provider:model`.

    `aliases` maps names of the user's own to these. Raises `ConfigError` for a name that is none, an unknown
    provider and a missing key; `MissingExtraError` for what is not installed.
    """
    full = resolved(name, aliases or {})
    provider, _, model = full.partition(":")
    if provider == "local" or not provider or not model.strip():
        from redraft.models.embed_minilm import NAME, MiniLMEmbedder  # noqa: PLC0415 (only this one needs it)

        if full == NAME:
            return MiniLMEmbedder()
        raise ConfigError(
            f"{full!r} is not the name of an embedder; expected {NAME!r}, 'provider:model' (such as "
            f"'openai:text-embedding-3-small') or {NO_EMBEDDER!r}."
        )
    from redraft.models.embed_provider import ProviderEmbedder  # noqa: PLC0415 (likewise)

    return ProviderEmbedder(full)


def _offline() -> NamedEmbedder | None:
    from redraft.models.embed_minilm import MiniLMEmbedder, is_installed  # noqa: PLC0415 (on first use)

    return MiniLMEmbedder() if is_installed() else None


def _ours() -> tuple[type[NamedEmbedder], ...]:
    from redraft.models.embed_function import FunctionEmbedder  # noqa: PLC0415 (on first use)
    from redraft.models.embed_minilm import MiniLMEmbedder  # noqa: PLC0415 (likewise)
    from redraft.models.embed_provider import ProviderEmbedder  # noqa: PLC0415 (likewise)
    from redraft.models.embed_scripted import ScriptedEmbedder  # noqa: PLC0415 (likewise)

    return FunctionEmbedder, MiniLMEmbedder, ProviderEmbedder, ScriptedEmbedder
