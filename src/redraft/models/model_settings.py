"""Settings of a model: checked before the first call, and put into the requests of an agent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from redraft._codec import plain_data
from redraft._hints import meant
from redraft._steps import name_of_model
from redraft._validation import check_count, is_number
from redraft.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from redraft.protocols import ChatModel, ChatRequest

_OF_THE_CONNECTION = frozenset({"timeout", "request_timeout", "first_event_timeout", "extra_headers"})
"""The settings that say how a request is sent, not what is answered; headers may hold secrets."""


COMMON = (
    *("temperature", "max_tokens", "top_p", "top_k", "seed", "timeout", "stop_sequences", "logit_bias"),
    *("presence_penalty", "frequency_penalty", "parallel_tool_calls", "tool_choice"),
    *("extra_headers", "extra_body"),
)
"""Settings that most models take, by their names in Pydantic AI."""
ALIKE = 0.85
"""From this similarity on, a name is a misspelling of a common one."""


def checked_settings(settings: Any, model: ChatModel) -> dict[str, Any]:
    """The settings that are not None; raises `ConfigError` for those that a model can't take.

    A `ChatModel` of the user's own gets any setting, in `ChatRequest`, except for a misspelled common one.
    """
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"model_settings must be a mapping, such as {{'temperature': 0.2}}, got {settings!r}."
        )
    given = {name: value for name, value in cast("Mapping[str, Any]", settings).items() if value is not None}
    known: frozenset[str] | None = getattr(model, "known_settings", None)
    for name in given:
        if name == "max_retries":
            raise ConfigError(
                "model_settings: 'max_retries' is not sent, since Redraft retries failed calls by itself: "
                "ReflectionPattern(retry=Retry(attempts=...))."
            )
        if known is not None and name not in known:
            hint = meant(str(name), sorted(known))
            raise ConfigError(f"model_settings: {name_of_model(model)!r} does not take {name!r}. {hint}")
        if known is None and name not in COMMON:
            from difflib import get_close_matches  # noqa: PLC0415 (few models don't say what they take)

            if close := get_close_matches(str(name), COMMON, 1, ALIKE):
                raise ConfigError(f"model_settings: {name!r} is no setting. Did you mean {close[0]!r}?")
    temperature = given.get("temperature")
    if temperature is not None and not (is_number(temperature) and temperature >= 0):
        raise ConfigError(f"model_settings: temperature must be a number of at least 0, got {temperature!r}.")
    if temperature is not None and not getattr(model, "takes_temperature", True):
        raise ConfigError(f"model_settings: {name_of_model(model)!r} does not take a temperature.")
    if "max_tokens" in given:
        check_count("model_settings: max_tokens", given["max_tokens"], 1)
    return given


def settings_taken_by(model: Model) -> frozenset[str]:
    """The names of the settings that a model of Pydantic AI takes: common ones and those of its provider."""
    from pydantic_ai.settings import ModelSettings  # noqa: PLC0415 (loaded by now)

    while (inner := getattr(model, "wrapped", None)) is not None:
        model = inner
    names = frozenset(ModelSettings.__annotations__)
    for module in {kind.__module__ for kind in type(model).__mro__}:
        for thing in vars(sys.modules[module]).values():
            keys: frozenset[str] = getattr(thing, "__optional_keys__", frozenset())
            if keys >= ModelSettings.__optional_keys__:  # the settings of a provider extend the common ones
                names |= keys
    return names


def recorded_settings(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings that shape the answers, as a run's record has them; None without any."""
    shaping = {name: value for name, value in settings.items() if name not in _OF_THE_CONNECTION}
    return plain_data(shaping, "model_settings") if shaping else None


def with_settings(request: ChatRequest, settings: Mapping[str, Any]) -> ChatRequest:
    """A request with the settings that it does not have itself; of two limits on the reply, the smaller."""
    if not settings:
        return request
    others = {name: value for name, value in settings.items() if name not in ("temperature", "max_tokens")}
    limits = [one for one in (request.max_tokens, settings.get("max_tokens")) if one is not None]
    return replace(
        request,
        temperature=settings.get("temperature") if request.temperature is None else request.temperature,
        max_tokens=min(limits, default=None),
        settings=others,
    )
