"""Asyncio tasks: cancel them, wait for them within bounds, and isolate those that may kill the process."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable

R = TypeVar("R")

logger = logging.getLogger("redraft")
"""The logger of `redact.log`, which the kernel does not import. Names of tasks contain no secrets."""
PATIENCE = 10.0
"""Seconds in which cancelled tasks can clean up."""
LAST_PATIENCE = 1.0
"""Seconds after the second cancellation."""


async def end_tasks(
    tasks: Iterable[asyncio.Future[Any] | None], within: float = PATIENCE
) -> set[asyncio.Future[Any]]:
    """Cancel tasks and wait until they have ended, for at most about `within` seconds.

    Tasks that have not ended by then are cancelled once more, because a library may have swallowed the first
    cancellation: before Python 3.12, `asyncio.wait_for` does so if its awaitable ends at that moment. Tasks
    that still run are logged and returned. The caller handles their results.
    """
    left = {task for task in tasks if task is not None and not task.done()}
    for patience in (within, LAST_PATIENCE):
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=patience)
    if left:
        names = sorted(task.get_name() if isinstance(task, asyncio.Task) else repr(task) for task in left)
        waited = within + LAST_PATIENCE
        logger.warning("These tasks were cancelled %g s ago and go on: %s", waited, ", ".join(names))
    return left


async def first_of(*waiting: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of some coroutines, and cancel the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(tasks)


async def unless(
    event: asyncio.Event, coroutine: Coroutine[Any, Any, R], within: float = PATIENCE
) -> R | None:
    """The result of a coroutine; None if it is cancelled because an event is set first.

    It can clean up for `within` seconds.
    """
    task = asyncio.ensure_future(coroutine)
    try:
        await first_of(asyncio.wait([task]), event.wait())
    finally:
        await end_tasks([task], within)
    return task.result() if task.done() and not task.cancelled() else None


class Isolation:
    """Lets jobs, or the steps of cycles, run together, and suspects of killing their process alone."""

    def __init__(self) -> None:
        self.suspects = 0
        """The number of suspects that run, or wait until nothing else runs."""
        self._together = 0
        self._is_alone = False
        self._changed = asyncio.Event()

    @contextmanager
    def _counted(self, *, alone: bool) -> Generator[None]:
        self._together += not alone
        self._is_alone = alone
        try:
            yield
        finally:
            self._together -= not alone
            self._is_alone = False
            self._changed.set()

    @asynccontextmanager
    async def together(self) -> AsyncGenerator[None]:
        """Run a job with others, once no suspect runs."""
        while self._is_alone:
            await self._change()
        with self._counted(alone=False):
            yield

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Run a suspect, once nothing else runs."""
        self.suspects += 1
        try:
            while self._is_alone or self._together:
                await self._change()
            with self._counted(alone=True):
                yield
        finally:
            self.suspects -= 1

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
