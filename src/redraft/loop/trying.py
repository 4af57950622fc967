"""Trying: the steps of a run, counted where they fail, and tried again where that may help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from redraft.core.events import Listener
from redraft.core.steps import Retry, direct, retried
from redraft.loop.budget import Tally
from redraft.loop.tell import failure_handler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.core.protocols import Step

P = ParamSpec("P")
R = TypeVar("R")


def trying(step: Step, retry: Retry, run_id: str, tally: Tally, emit: Listener) -> Step:
    """Try a step again when its failure is a passing one and the budget allows; every failure is counted."""
    if step is direct:
        return _Directly(retry, run_id, tally, emit)
    return retried(step, retry, failure_handler(run_id, tally, emit))


# What `retried` returns holds ten objects, which the garbage collector would look at in each of ten thousand
# runs alive at once; and nearly all of them fail in nothing.
@dataclass(slots=True)
class _Directly:
    """Carry out effects as they are, and go on by `retried` once one has failed; a `Step`."""

    retry: Retry
    run_id: str
    tally: Tally
    emit: Listener

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        try:
            return await fn(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 (what passes and what does not is for `retried` to say)
            step = _failed_once(error)
        again = retried(step, self.retry, failure_handler(self.run_id, self.tally, self.emit))
        return await again(name, returns, fn, *args, **kwargs)


def _failed_once(error: Exception) -> Step:
    """Return `direct` as it is after its first try, which failed with `error`."""
    failures = [error]

    async def next_try(
        name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        if failures:
            raise failures.pop()
        return await direct(name, returns, fn, *args, **kwargs)

    return next_try
