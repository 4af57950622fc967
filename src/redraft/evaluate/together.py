"""Several calls at once, and no usage lost when one of them fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redraft.core.errors import RedraftError
from redraft.core.usage import NOTHING_USED

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from redraft.core.usage import TokenUsage


class Spender(Protocol):
    """Anything that says what it used."""

    @property
    def usage(self) -> TokenUsage: ...  # noqa: D102 (what its class says)


S = TypeVar("S", bound=Spender)
E = TypeVar("E", bound=BaseException)


async def settle(calls: Sequence[Coroutine[Any, Any, S]]) -> tuple[list[S], list[Exception]]:
    """Carry out all calls at once; return the results of those that succeeded, and what the others raised."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    results: list[S] = []
    errors: list[Exception] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            errors.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            results.append(outcome)
    return results, errors


async def together(calls: Sequence[Coroutine[Any, Any, S]]) -> list[S]:
    """Carry out all calls at once and return their results in order.

    When one raises, the others are waited for, and the error carries what all of them used.
    """
    if len(calls) == 1:  # no task is worth starting for one
        return [await calls[0]]
    results, errors = await settle(calls)
    if errors:
        raise charged(errors[0], spent(results, errors[1:]))
    return results


def spent(results: Iterable[Spender], errors: Iterable[BaseException] = ()) -> TokenUsage:
    """Add up what was used, also by the calls that failed."""
    used = NOTHING_USED
    for result in results:
        used += result.usage
    for error in errors:
        if isinstance(error, RedraftError) and error.usage is not None:
            used += error.usage
    return used


def charged(error: E, usage: TokenUsage) -> E:
    """Add to an error of ours what was used before it, and return it."""
    if isinstance(error, RedraftError) and usage is not NOTHING_USED:
        error.usage = usage if error.usage is None else usage + error.usage
    return error
