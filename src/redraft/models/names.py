"""Models by name, such as `openai:gpt-5` and `local:qwen2.5-coder-0.5b`."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from redraft._validation import check_model
from redraft.errors import ConfigError
from redraft.settings import load_settings, names_in

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from redraft.protocols import ChatModel, ModelChoice
    from redraft.settings import Settings

KEYS: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
}
"""The environment variables for a provider's key; any of them is enough."""


@contextmanager
def placeholder_keys() -> Generator[None]:
    """Set placeholders for missing keys within the block, so that models can be named, but not asked."""
    missing = [keys[0] for keys in KEYS.values() if not any(map(os.environ.get, keys))]
    os.environ.update(dict.fromkeys(missing, "placeholder"))
    try:
        yield
    finally:
        for key in missing:
            os.environ.pop(key, None)


_CLIENTS = {"openai": "openai", "anthropic": "anthropic", "google": "google.genai"}


def model_named(name: str, aliases: Mapping[str, str] | None = None) -> ChatModel:
    """The model with a name, after all checks that are possible before a call.

    `aliases` maps the user's own names (`fast`, or the `gpt-4` of someone else's file) to model names or
    other aliases. Any model of a known provider is accepted, since lists of models go out of date. Several
    names, separated by commas, make a `FallbackModel`.

    Raises `ConfigError` for an invalid name, an unknown provider (with the nearest known name), missing
    weights, a missing key (with its variable) and circular aliases; `MissingExtraError` if the provider's
    client is not installed.
    """
    names = names_in(resolve_name(name, aliases or {}))
    return model_with_fallbacks([_model_with_name(full_name) for full_name in names])


def _model_with_name(full: str) -> ChatModel:
    from redraft.models.local import LocalModel  # noqa: PLC0415 (slow to load; models may be objects)
    from redraft.models.provider import ProviderModel, similar_names  # noqa: PLC0415 (as above)

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


def model_with_fallbacks(models: Sequence[ChatModel]) -> ChatModel:
    """The first model, with the other models as fallbacks if there are any."""
    if len(models) == 1:
        return models[0]
    from redraft.models.fallback import FallbackModel  # noqa: PLC0415 (slow to load)

    return FallbackModel(models)


def model_of(
    model: ModelChoice | None,
    settings: Settings | None = None,
    *,
    missing: str = "No model was given: pass model=..., on the command line use --model NAME",
) -> ChatModel:
    """The `model` argument, else the model of the settings; raises `ConfigError` if there is neither.

    Settings are loaded only if they are needed and not passed. `missing` is the beginning of the error
    message, with the arguments that the caller accepts.
    """
    check_model("model", model)
    if isinstance(model, list | tuple):
        settings = settings or load_settings()
        return model_with_fallbacks([model_of(choice, settings) for choice in model])
    if model is not None and not isinstance(model, str):
        return cast("ChatModel", model)
    settings = settings or load_settings()
    name = model or settings.model
    if not name:
        raise ConfigError(
            f"{missing}, or set REDRAFT_MODEL (or `model` in redraft.toml), for example to "
            "'openai:gpt-5-mini' or 'local:qwen2.5-coder-0.5b'."
        )
    return model_named(name, settings.models)


def resolve_model(name: ModelChoice | None, models: Mapping[str, ModelChoice]) -> ModelChoice | None:
    """Look up a model in the `models` of a file, by its name or alias; None stays None.

    Several models keep their order: a text with commas if all of them are names, else a list.
    """
    if name is None:
        return None
    choices = _looked_up(name, models, ())
    names = [choice for choice in choices if isinstance(choice, str)]
    return ", ".join(names) if len(names) == len(choices) else choices[0] if len(choices) == 1 else choices


def _looked_up(
    name: ModelChoice, models: Mapping[str, ModelChoice], seen: tuple[str, ...]
) -> list[str | ChatModel]:
    if isinstance(name, list | tuple):
        return [choice for inner in name for choice in _looked_up(inner, models, seen)]
    if not isinstance(name, str):
        return [cast("ChatModel", name)]
    choices: list[str | ChatModel] = []
    for alias in names_in(name):
        is_alias = alias in models and alias not in seen
        choices += _looked_up(models[alias], models, (*seen, alias)) if is_alias else [alias]
    return choices


def label_of_model(model: ModelChoice | None) -> str:
    """The name of a model for a record: the class of a model without a name, and "" for None."""
    if isinstance(model, list | tuple):
        return ", ".join(map(label_of_model, model))
    if model is None or isinstance(model, str):
        return model or ""
    from redraft.models.fallback import FallbackModel  # noqa: PLC0415 (slow to load)

    return model.name if isinstance(model, FallbackModel) else type(model).__name__


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A provider or packaged weights: whether it can be used on this machine, and why or why not."""

    name: str
    answers: bool
    why: str


def known_models() -> list[KnownModel]:
    """The packaged weights, then the providers, and whether they can be used. Makes no calls."""
    from redraft.models.local import PACKAGED  # noqa: PLC0415 (slow to load)
    from redraft.models.provider import EXTRAS  # noqa: PLC0415 (slow to load)

    weights = [_weights(name, packaged.missing()) for name, packaged in PACKAGED.items()]
    return [*weights, *map(_provider, EXTRAS)]


def _weights(name: str, problem: str | None) -> KnownModel:
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


def resolve_name(name: str, aliases: Mapping[str, str], path: tuple[str, ...] = ()) -> str:
    """Follow aliases to a name that is not an alias; raises `ConfigError` if they are circular.

    Several names, separated by commas, are all resolved.
    """
    return ", ".join(_resolved(part, aliases, path) for part in names_in(name))


def _resolved(name: str, aliases: Mapping[str, str], path: tuple[str, ...]) -> str:
    path = (*path, name)
    if name in path[:-1]:
        raise ConfigError(f"The model aliases form a cycle: {' -> '.join(path)}.")
    target = aliases.get(name)
    return name if target is None else resolve_name(target, aliases, path)
