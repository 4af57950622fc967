"""FallbackModel: models that are tried in order when a model is down or over its limit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from redraft._hints import keyword_hints
from redraft._steps import BlockedError, call_model, is_passing, name_of_model
from redraft._validation import check_list, check_model
from redraft.errors import ConfigError, ModelError, RedraftError, is_unusable_reply
from redraft.models.provider import ProviderModel
from redraft.protocols import ChatModel, ChatReply
from redraft.redact.log import logger
from redraft.types import NOTHING_USED, TokenUsage, usage_before

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redraft.protocols import ChatRequest, TextListener

R = TypeVar("R")

REST = 10.0
"""Seconds for which to skip a model that failed, unless its provider said how long to wait."""
_OVER_LIMIT = frozenset({402, 429})
"""The statuses of an exhausted quota, where waiting does not help, and of a rate limit."""


@dataclass(slots=True)
class _Candidate:
    """A model and the time until which to skip it."""

    model: ChatModel
    skipped_until: float = 0.0
    has_retry_after: bool = False
    """Whether its provider set that time."""


@keyword_hints()
class FallbackModel:
    """Answers with the first of several models that is neither down nor over its limit.

    After a failed connection, a timeout, a status 5xx, a rate limit or an exhausted quota, the next model is
    called, and the failed model is skipped for the provider's Retry-After, or else for ten seconds. After an
    empty or unreadable reply the next model is called, and no model is skipped later. Any other failure is a
    mistake in the request or in the settings, which another model must not hide: it is raised. If all models
    fail, the call fails; its error is retryable if the error of any model is.

    A reply has the name of the model that gave it, and its usage counts the failed requests before it. Each
    model passes the limits of a fleet under its own name; during a provider's Retry-After, a call goes on to
    the next model instead of waiting.

    Raises `ConfigError` for fewer than two models, and for duplicates.
    """

    gates_calls = True

    def __init__(self, models: Sequence[ChatModel]) -> None:
        check_list("FallbackModel: models", models)
        for model in models:
            if isinstance(model, str):
                raise ConfigError(
                    f"FallbackModel takes models, got {model!r}; write ProviderModel({model!r})."
                )
            if model is None or isinstance(model, list | tuple):  # pyright: ignore[reportUnnecessaryComparison] (untyped callers)
                raise ConfigError(f"FallbackModel: each model must be a ChatModel; got {model!r}.")
            check_model("FallbackModel: each model", model)
        names = [name_of_model(model) for model in models]
        if len(models) < 2:  # noqa: PLR2004 (a single model has no fallback)
            raise ConfigError(f"A FallbackModel needs at least two models, got {names!r}.")
        for index, (model, name) in enumerate(zip(models, names, strict=True)):
            if any(model is earlier for earlier in models[:index]) or (":" in name and name in names[:index]):
                raise ConfigError(f"The model {name!r} is listed twice; list each model once.")
        self.models = tuple(models)
        self.name = ", ".join(names)
        self.takes_images: bool = all(getattr(model, "takes_images", True) for model in models)
        """Whether images may be sent: only if all models accept them."""
        self._candidates = [_Candidate(model) for model in models]

    @property
    def takes_temperature(self) -> bool:
        """Whether a temperature is sent: only if all models accept it."""
        return all(getattr(model, "takes_temperature", True) for model in self.models)

    @property
    def known_settings(self) -> frozenset[str] | None:
        """The names of the settings that all models accept; None if no model lists its settings."""
        names: frozenset[str] | None = None
        for model in self.models:
            taken: frozenset[str] | None = getattr(model, "known_settings", None)
            if taken is not None:
                names = taken if names is None else names & taken
        return names

    @property
    def reasons(self) -> bool:
        """Whether any of the models reasons before it answers, in output tokens."""
        return any(getattr(model, "reasons", False) for model in self.models)

    @property
    def has_logprobs(self) -> bool:
        """Whether the replies of all models can have log probabilities."""
        return all(getattr(model, "has_logprobs", True) for model in self.models)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """The reply of the first model that answers."""

        async def call(model: ChatModel, *, is_last: bool) -> ChatReply:
            return await call_model(model, request, waits_out=is_last)

        return _with_lost(*await self.first(call))

    async def stream(self, request: ChatRequest, on_text: TextListener, /) -> ChatReply:
        """The reply of the first model that answers, after passing on its text piece by piece.

        If a stream breaks off after its first piece, its error is raised: the text that was passed on can't
        be taken back. A retry begins anew with the next model.
        """
        pieces = 0

        def listen(text: str, usage: TokenUsage | None = None, /) -> None:
            nonlocal pieces
            pieces += bool(text)
            on_text(text, usage)

        async def call(model: ChatModel, *, is_last: bool) -> ChatReply:
            return await call_model(model, request, listen, waits_out=is_last)

        return _with_lost(*await self.first(call, lambda: pieces == 0))

    async def first(
        self, call: Callable[..., Awaitable[R]], may_go_on: Callable[[], bool] = lambda: True
    ) -> tuple[R, TokenUsage]:
        """The result of `call(model, is_last=...)` for the first model that answers, and the usage before it.

        `may_go_on` says whether another model may still be called.
        """
        lost, failures = NOTHING_USED, list[Exception]()
        candidates = self._ready()
        for number, candidate in enumerate(candidates, 1):
            try:
                result = await call(candidate.model, is_last=number == len(candidates))
            except Exception as error:
                is_over_limit = isinstance(error, ModelError) and (
                    error.status in _OVER_LIMIT or error.over_quota
                )
                if not (is_over_limit or is_passing(error)):
                    _add_usage(error, lost)
                    raise
                if not is_unusable_reply(error):  # the next request may get an answer
                    wait = error.retry_after if isinstance(error, ModelError) else None
                    candidate.skipped_until = monotonic() + (wait or REST)
                    candidate.has_retry_after = bool(wait)
                if not may_go_on():
                    _add_usage(error, lost)
                    raise
                failures.append(error)
                if number < len(candidates):
                    other = name_of_model(candidates[number].model)
                    logger.warning("%s Asking %s instead.", _sentence(error), other)
                    was_sent = not isinstance(error, BlockedError)
                    lost += TokenUsage(failed_requests=int(was_sent)) + usage_before(error)
            else:
                candidate.skipped_until = 0.0
                return result, lost
        raise self._all_failed(failures, lost)

    def _ready(self) -> list[_Candidate]:
        """The models to call, in order: if all are skipped, the models without a Retry-After."""
        now = monotonic()
        ready = [candidate for candidate in self._candidates if candidate.skipped_until <= now]
        return ready or [candidate for candidate in self._candidates if not candidate.has_retry_after]

    def _all_failed(self, failures: Sequence[Exception], lost: TokenUsage) -> ModelError:
        """The error of a call that no model answered; `lost` does not include the last failure."""
        now = monotonic()
        parts = [_sentence(error) for error in failures]
        waits = [candidate.skipped_until - now for candidate in self._candidates if candidate.has_retry_after]
        all_wait = len(waits) == len(self._candidates)
        if len(failures) < len(self._candidates):
            parts.append("The others had failed shortly before and are left out for now.")
        if not failures:
            parts = ["All providers asked to wait (Retry-After)."]
        statuses = {getattr(error, "status", None) for error in failures} or {429}
        return ModelError(
            f"No model answered ({self.name}). {' '.join(parts)}",
            status=429 if statuses == {429} else None,
            retryable=not failures or any(map(is_passing, failures)),
            unusable_reply=bool(failures) and all(map(is_unusable_reply, failures)),
            retry_after=max(0.0, min(waits)) if all_wait else None,
            usage=lost + (usage_before(failures[-1]) if failures else NOTHING_USED),
        )


def providers_of(model: object) -> tuple[ProviderModel, ...]:
    """The `ProviderModel`s of a model, in order; empty if it is, or falls back on, another kind of model."""
    models = model.models if isinstance(model, FallbackModel) else (model,)
    provider_models = tuple(inner for inner in models if isinstance(inner, ProviderModel))
    return provider_models if len(provider_models) == len(models) else ()


def _sentence(error: Exception) -> str:
    return f"{str(error) or type(error).__name__}".rstrip(".") + "."


def _add_usage(error: Exception, lost: TokenUsage) -> None:
    if isinstance(error, RedraftError) and lost is not NOTHING_USED:
        error.usage = lost + usage_before(error)


def _with_lost(reply: ChatReply, lost: TokenUsage) -> ChatReply:
    return reply if lost is NOTHING_USED else replace(reply, usage=lost + reply.usage)
