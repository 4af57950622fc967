"""Settings of a model: checked before the first call, and put into the requests of an agent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from redraft._codec import plain_data
from redraft._hints import meant
from redraft._steps import name_of_model
from redraft._validation import check_count, is_number, repr_of
from redraft.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from redraft.protocols import ChatModel, ChatRequest

_OF_THE_CONNECTION = frozenset({"timeout", "request_timeout", "first_event_timeout", "extra_headers"})
"""The settings that change how a request is sent, but not the answer; headers may hold secrets."""


COMMON = (
    *("temperature", "max_tokens", "top_p", "top_k", "seed", "timeout", "stop_sequences", "logit_bias"),
    *("presence_penalty", "frequency_penalty", "parallel_tool_calls", "tool_choice"),
    *("extra_headers", "extra_body"),
)
"""Settings that most models accept, by their names in Pydantic AI."""
MISSPELLING = 0.85
"""How similar (0..1) a name must be to a common setting to count as a misspelling of it."""


def checked_settings(settings: Any, model: ChatModel) -> dict[str, Any]:
    """The settings that are not None; raises `ConfigError` for settings that the model does not accept.

    A `ChatModel` without `known_settings` accepts any setting but a misspelling of a common setting.
    """
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"model_settings must be a mapping, such as {{'temperature': 0.2}}, got {repr_of(settings)}."
        )
    chosen = {name: value for name, value in cast("Mapping[str, Any]", settings).items() if value is not None}
    accepted: frozenset[str] | None = getattr(model, "known_settings", None)
    for name in chosen:
        if name == "max_retries":
            raise ConfigError(
                "model_settings: 'max_retries' is not sent, since Redraft retries failed calls by itself: "
                "ReflectionPattern(retry=Retry(attempts=...))."
            )
        if accepted is not None and name not in accepted:
            hint = meant(str(name), sorted(accepted))
            raise ConfigError(f"model_settings: {name_of_model(model)!r} does not take {name!r}. {hint}")
        if accepted is None and name not in COMMON:
            from difflib import get_close_matches  # noqa: PLC0415 (few models don't say what they accept)

            if close := get_close_matches(str(name), COMMON, 1, MISSPELLING):
                raise ConfigError(f"model_settings: {name!r} is no setting. Did you mean {close[0]!r}?")
    temperature = chosen.get("temperature")
    if temperature is not None and not (is_number(temperature) and temperature >= 0):
        raise ConfigError(
            f"model_settings: temperature must be a number of at least 0, got {repr_of(temperature)}."
        )
    if temperature is not None and not getattr(model, "takes_temperature", True):
        raise ConfigError(f"model_settings: {name_of_model(model)!r} does not take a temperature.")
    if "max_tokens" in chosen:
        check_count("model_settings: max_tokens", chosen["max_tokens"], 1)
    return chosen


def innermost(model: Model) -> Model:
    """The model inside the wrappers of Pydantic AI."""
    while (inner := getattr(model, "wrapped", None)) is not None:
        model = inner
    return model


def settings_taken_by(model: Model) -> frozenset[str]:
    """The names of the settings that a model of Pydantic AI accepts, common and provider-specific."""
    from pydantic_ai.settings import ModelSettings  # noqa: PLC0415 (loaded by now)

    model = innermost(model)
    names = frozenset(ModelSettings.__annotations__)
    for module in {kind.__module__ for kind in type(model).__mro__}:
        for thing in vars(sys.modules[module]).values():
            keys: frozenset[str] = getattr(thing, "__optional_keys__", frozenset())
            if keys >= ModelSettings.__optional_keys__:  # a provider's settings extend the common ones
                names |= keys
    return names


def recorded_settings(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings that shape the answers, for a run's record; None if there are none."""
    shaping = {name: value for name, value in settings.items() if name not in _OF_THE_CONNECTION}
    return plain_data(shaping, "model_settings") if shaping else None


def with_settings(request: ChatRequest, settings: Mapping[str, Any]) -> ChatRequest:
    """Add settings to a request, which take second place; the smaller limit on the reply wins."""
    if not settings:
        return request
    others = {name: value for name, value in settings.items() if name not in ("temperature", "max_tokens")}
    limits = [limit for limit in (request.max_tokens, settings.get("max_tokens")) if limit is not None]
    return replace(
        request,
        temperature=settings.get("temperature") if request.temperature is None else request.temperature,
        max_tokens=min(limits, default=None),
        settings=others,
    )
