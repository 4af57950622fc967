"""Run a coroutine to its end from code that is not async, also inside a running event loop."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns; block until then.

    Where an event loop runs already (Jupyter), the coroutine gets a loop of its own in another thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="redraft-sync") as pool:
        return pool.submit(context.run, asyncio.run, coroutine).result()
