"""Steps: run an effect, observe it, retry it."""

from __future__ import annotations

import asyncio
import json
import random
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from hashlib import sha256
from inspect import isawaitable
from time import perf_counter
from types import NoneType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redraft._codec import to_json
from redraft._texts import estimate_tokens, short_repr
from redraft._validation import check_count, is_number
from redraft.errors import ConfigError, ModelError
from redraft.events import StepFailed, StepFinished, StepStarted
from redraft.protocols import ChatReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.events import Event
    from redraft.protocols import Allowance, ChatModel, ChatRequest, Step

P = ParamSpec("P")
R = TypeVar("R")


async def direct(
    _name: str, _returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Carry out an effect as it is."""
    return await fn(*args, **kwargs)


def offered(step: Step, protocol: type[R]) -> R | None:
    """Return what a step offers of a runtime-checkable protocol, or a step that it wraps; None for nothing.

    A step offers itself and what it names as its `journal`; what it wraps is its `__wrapped__`.
    """
    wrapping: object = step
    while wrapping is not None and wrapping is not direct:
        for offer in (wrapping, getattr(wrapping, "journal", None)):
            if isinstance(offer, protocol):
                return offer
        wrapping = getattr(wrapping, "__wrapped__", None)
    return None


inner_step: ContextVar[Step] = ContextVar("inner_step", default=direct)
"""The step for effects inside the effect under way: each model call and each tool call of a journalled step.

Several may be under way at once, so they go by their names: within one outer step, the same name must mean
the same effect. A step that records or replays sets this while it carries something out.
"""

allowance: ContextVar[Allowance | None] = ContextVar("allowance", default=None)
"""What the step under way may still use, where its run has a budget: asked before each model call."""


def observed(
    step: Step, emit: Callable[[Event], None], run_id: str, clock: Callable[[], float] = perf_counter
) -> Step:
    """Tell `emit` when each step starts, finishes or fails, and how many seconds of `clock` it took."""

    @wraps(step, (), ())
    async def observe(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        emit(StepStarted(run_id, name))
        started = clock()
        try:
            result = await step(name, returns, fn, *args, **kwargs)
        except BaseException as error:
            emit(StepFailed(run_id, name, error))
            raise
        emit(StepFinished(run_id, name, result, clock() - started))
        return result

    return observe


@dataclass(frozen=True, slots=True)
class Retry:
    """Say how often and how patiently a failed step is tried again.

    `attempts` counts all tries (1: never again). Waits are drawn evenly between half and all of
    `first_wait * 2**n` seconds, up to `longest_wait`, so that clients which failed together do not come back
    together. A provider's Retry-After is honoured; one beyond `longest_wait` ends the trying.

    Rate limits (status 429) pass when one waits: they are tried again for `patience` seconds of waiting in
    all, whatever `attempts` says, unless that is 1, and do not count as attempts. A `patience` of 0, or waits
    of 0, make them failures like the others.
    """

    attempts: int = 3
    first_wait: float = 0.5
    longest_wait: float = 60.0
    patience: float = 60.0

    def __post_init__(self) -> None:
        check_count("Retry: attempts", self.attempts, 1)
        for name in ("first_wait", "longest_wait", "patience"):
            wait: object = getattr(self, name)
            if not is_number(wait) or wait < 0:
                raise ConfigError(f"Retry: {name} must be at least 0 seconds, got {wait!r}.")

    def wait_before(self, attempt: int, error: BaseException, waited: float = 0.0) -> float | None:
        """Return the seconds to wait before the next try, or None to give up.

        `attempt` counts the tries that failed as this one did (1-based): with a rate limit, or otherwise.
        `waited` are the seconds that rate limits have taken already.
        """
        if self.attempts == 1 or not is_passing(error) or self.beyond_limit(error, waited):
            return None
        wait = min(self.first_wait * 2 ** (attempt - 1), self.longest_wait)
        wait = max(wait * random.uniform(0.5, 1.0), _asked(error))  # noqa: S311 (spreads load, guards no secret)
        if wait and self.waits_out(error):
            left = self.patience - waited
            return min(wait, left) if left > LEAST_WAIT and attempt < MOST_TRIES else None
        return wait if attempt < self.attempts else None

    def waits_out(self, error: BaseException) -> bool:
        """Say whether an error is a rate limit that is waited for, and no attempt."""
        return self.patience > 0 and isinstance(error, ModelError) and error.status == RATE_LIMIT

    def beyond_limit(self, error: BaseException, waited: float = 0.0) -> str:
        """Say what a provider asks for where its Retry-After is longer than may be waited; else nothing."""
        asked = _asked(error)
        if asked > self.longest_wait:
            limit = f"the {self.longest_wait:g} s of Retry(longest_wait={self.longest_wait:g})"
        elif self.waits_out(error) and asked > self.patience - waited:
            limit = f"the {self.patience - waited:.0f} s left of Retry(patience={self.patience:g})"
        else:
            return ""
        return f"It asks to wait {asked:g} s (Retry-After), more than {limit}."


RATE_LIMIT = 429
LEAST_WAIT = 0.001
"""Seconds of patience that are worth another try: less is what rounding left."""
MOST_TRIES = 20
"""Tries for one rate limit, however short the waits: by default, nine take a minute."""


def _asked(error: BaseException) -> float:
    return (error.retry_after or 0.0) if isinstance(error, ModelError) else 0.0


def is_passing(error: BaseException) -> bool:
    """Say whether the same step may succeed later."""
    return isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(error, ModelError) and error.retryable
    )


def retried(
    step: Step, retry: Retry, on_failure: Callable[[str, Exception, float | None], float | None]
) -> Step:
    """Try a step again when its failure is a passing one.

    `on_failure(name, error, wait)` hears of every failure, the last one (`wait` None) included, and returns
    the seconds to wait, or None to give up all the same. A `ModelError` whose Retry-After is beyond the limit
    says so in its message.
    """

    @wraps(step, (), ())
    async def try_again(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        attempts, limited, waited = 0, 0, 0.0
        while True:
            try:
                return await step(name, returns, fn, *args, **kwargs)
            except Exception as error:
                is_limit = retry.waits_out(error)
                attempts, limited = attempts + (not is_limit), limited + is_limit
                wait = retry.wait_before(limited if is_limit else attempts, error, waited)
                wait = on_failure(name, error, wait)
                if wait is None:
                    if is_passing(error) and isinstance(error, ModelError):
                        raise _explained(error, retry.beyond_limit(error, waited)) from error.__cause__
                    raise
                waited += wait if is_limit else 0.0
            # A step, so that a wait that is over is not waited for again when the run is resumed.
            await step("wait", NoneType, asyncio.sleep, wait)

    return try_again


def _explained(error: ModelError, why: str) -> ModelError:
    """Return an error with one more sentence, if there is one."""
    if not why:
        return error
    return ModelError(
        f"{str(error).rstrip('.')}. {why}",
        status=error.status,
        retryable=error.retryable,
        retry_after=error.retry_after,
        usage=error.usage,
    )


async def answer(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Answer a request, as a step within the step under way; raises what the model raises.

    Raises `ConfigError` for what is no model: it is not async, or returns something else than a `ChatReply`.
    The step goes by the content of the request, so that of many calls at once each finds its own reply again.
    """
    step, within = inner_step.get(), allowance.get()
    if step is direct:
        return await affordable(model, request)
    if within is None:
        return await step(_name_of(request), ChatReply, partial(_reply, model=model), request)
    with within.call(request.role, _input_tokens(request), request.max_tokens) as call:
        # The budget is asked inside the journal's step: a reply that is recorded was paid for already.
        async def carried_out(request: ChatRequest) -> ChatReply:
            return await call.carry_out(_reply, request, model)

        reply = await step(_name_of(request), ChatReply, carried_out, request)
        call.used(reply.usage)
    return reply


async def affordable(model: ChatModel, request: ChatRequest) -> ChatReply:
    """Answer a request within the budget of the step under way, if it has one; it is no step of its own."""
    within = allowance.get()
    if within is None:
        return await _reply(request, model)
    with within.call(request.role, _input_tokens(request), request.max_tokens) as call:
        reply = await call.carry_out(_reply, request, model)
        call.used(reply.usage)
    return reply


def _name_of(request: ChatRequest) -> str:
    asked = json.dumps(to_json(request), sort_keys=True)
    return f"model {sha256(asked.encode()).hexdigest()[:16]}"


def _input_tokens(request: ChatRequest) -> int:
    tokens = sum(estimate_tokens(message.content) for message in request.messages)
    return tokens + (estimate_tokens(json.dumps(request.schema)) if request.schema else 0)


async def _reply(request: ChatRequest, model: ChatModel) -> ChatReply:
    made: Any = model(request)
    reply = await made if isawaitable(made) else made
    if reply is made or not isinstance(reply, ChatReply):
        raise ConfigError(
            f"The model {model!r} returned {short_repr(reply)}; expected an async function of a ChatRequest "
            "that returns a ChatReply."
        )
    return reply
