"""Steps around steps: carry out an effect, watch it, try it again."""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from time import perf_counter
from types import NoneType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from redraft.core.check import check_count, is_number
from redraft.core.errors import ConfigError, ModelError
from redraft.core.events import StepFailed, StepFinished, StepStarted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.core.events import Event
    from redraft.core.protocols import Allowance, Step

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
    while wrapping is not None:
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

    @wraps(step)
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
    """

    attempts: int = 3
    first_wait: float = 0.5
    longest_wait: float = 30.0

    def __post_init__(self) -> None:
        check_count("Retry: attempts", self.attempts, 1)
        for name, wait in (("first_wait", self.first_wait), ("longest_wait", self.longest_wait)):
            if not is_number(wait) or wait < 0:
                raise ConfigError(f"Retry: {name} must be at least 0 seconds, got {wait!r}.")

    def wait_before(self, attempt: int, error: BaseException) -> float | None:
        """Return the seconds to wait before the try after `attempt` (1-based), or None to give up."""
        if attempt >= self.attempts or not is_passing(error):
            return None
        wait = min(self.first_wait * 2 ** (attempt - 1), self.longest_wait)
        wait *= random.uniform(0.5, 1.0)  # noqa: S311 (spreads load, guards no secret)
        if isinstance(error, ModelError) and error.retry_after is not None:
            return None if error.retry_after > self.longest_wait else max(wait, error.retry_after)
        return wait


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
    the seconds to wait, or None to give up all the same.
    """

    @wraps(step)
    async def try_again(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        attempt = 0
        while True:
            attempt += 1
            try:
                if step is direct:  # nothing stands in between, so nothing has to be passed through
                    return await fn(*args, **kwargs)
                return await step(name, returns, fn, *args, **kwargs)
            except Exception as error:
                wait = on_failure(name, error, retry.wait_before(attempt, error))
                if wait is None:
                    raise
            if step is direct:
                await asyncio.sleep(wait)
            else:  # a wait that is over is not waited for again when the run is resumed
                await step("wait", NoneType, asyncio.sleep, wait)

    return try_again
