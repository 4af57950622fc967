"""in_thread: call what blocks, in a thread that not even the end of the process waits for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Return what a function returns, or raise what it raises.

    The threads of `asyncio.to_thread` are waited for when the process is to end: there a function that hangs
    could be ended by nothing but SIGKILL. Who is cancelled here leaves the function to itself.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    ended: asyncio.Future[T] = loop.create_future()

    def tell(how: Callable[[Any], None], what: object) -> None:
        if not ended.done():
            how(what)

    def work() -> None:
        outcome: tuple[Callable[[Any], None], object]
        try:
            outcome = ended.set_result, context.run(function)
        except StopIteration as error:  # no future can hold one
            outcome = ended.set_exception, RuntimeError(f"{function!r} raised {error!r}")
        except BaseException as error:  # noqa: BLE001 (whoever waits for it is told)
            outcome = ended.set_exception, error
        with suppress(RuntimeError):  # the event loop has ended: nobody waits there any more
            loop.call_soon_threadsafe(tell, *outcome)

    Thread(target=work, name="redraft-function", daemon=True).start()
    return await ended
