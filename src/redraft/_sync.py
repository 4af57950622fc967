"""Run a coroutine from synchronous code."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

blocked_loops: ContextVar[tuple[asyncio.AbstractEventLoop, ...]] = ContextVar("blocked_loops", default=())
"""The event loops that do nothing until the current code has ended, since they wait in `run_sync`."""
POLL_SECONDS = 0.2
"""How often a waiting thread checks whether its own task was cancelled."""


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result.

    If an event loop is already running, as in Jupyter, the coroutine runs in its own loop in another thread.
    Changes to context variables remain in effect, as if it had been awaited.
    """
    context = copy_context()
    try:
        if not _in_event_loop():
            return _run(coroutine, context)
        return _run_in_thread(coroutine, context)
    finally:
        for variable, value in context.items():
            if variable.get(None) is not value:
                variable.set(value)


def _run(coroutine: Coroutine[Any, Any, T], context: Context) -> T:
    with asyncio.Runner() as runner:
        return runner.run(coroutine, context=context)


def _run_in_thread(coroutine: Coroutine[Any, Any, T], context: Context) -> T:
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()
    outer = asyncio.get_running_loop()

    async def main() -> T:
        task = cast("asyncio.Task[T]", asyncio.current_task())
        started.set_result((asyncio.get_running_loop(), task))
        outside = blocked_loops.set((*blocked_loops.get(), outer))
        try:
            return await coroutine
        finally:
            blocked_loops.reset(outside)

    with ThreadPoolExecutor(1, thread_name_prefix="redraft-sync") as pool:
        running = pool.submit(_run, main(), context)
        try:
            _wait_for(running)
            return running.result()
        except (KeyboardInterrupt, asyncio.CancelledError):
            # Only this thread was interrupted: cancel the coroutine in the other thread.
            loop, task = started.result()
            if not running.done():
                loop.call_soon_threadsafe(task.cancel)
            raise


def _wait_for(running: Future[Any]) -> None:
    """Block until `running` is done; raises `CancelledError` if the current task is cancelled meanwhile.

    On Ctrl-C, `asyncio.run` cancels its task, which cannot notice while it blocks.
    """
    waiting = asyncio.current_task()  # None in a callback, which cannot be cancelled
    before = waiting.cancelling() if waiting else 0  # above 0 in the cleanup of a cancelled task
    while not wait((running,), POLL_SECONDS).done:
        if waiting and waiting.cancelling() > before:
            raise asyncio.CancelledError


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
