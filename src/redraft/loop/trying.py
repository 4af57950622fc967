"""Trying: the steps of a run, counted where they fail, and tried again where that may help."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

from redraft.core.steps import direct, retried
from redraft.loop.tell import failure_handler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.core.events import Listener
    from redraft.core.protocols import Step
    from redraft.core.steps import Retry
    from redraft.loop.budget import Tally

P = ParamSpec("P")
R = TypeVar("R")


def trying(step: Step, retry: Retry, run_id: str, tally: Tally, emit: Listener) -> Step:
    """Try a step again when its failure is a passing one and the budget allows; every failure is counted."""
    return retried(step, retry, failure_handler(run_id, tally, emit))


def failed_once(error: Exception) -> Step:
    """Return `direct` as it is after a first try that failed with `error`."""
    failures = [error]

    async def next_try(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        if failures:
            raise failures.pop()
        return await direct(name, returns, fn, *args, **kwargs)

    return next_try
