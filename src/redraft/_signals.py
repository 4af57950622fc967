"""Signals that stop a process: gracefully the first time, immediately the second time."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_requests: list[StopRequest] = []
"""The requests of all agents and workers in the event loop; a signal reaches each of them."""
_previous_handlers: dict[signal.Signals, Any] = {}


class StopRequest:
    """A request to stop: `requested` after the first signal, `urgent` after the second."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.urgent = asyncio.Event()

    def escalate(self) -> None:
        """First call: stop gracefully. Second: stop immediately."""
        (self.urgent if self.requested.is_set() else self.requested).set()

    @contextmanager
    def on_signals(self) -> Generator[None]:
        """Stop at SIGTERM, SIGINT and SIGHUP, then restore their handlers; no effect outside the main thread.

        A SIGHUP that is ignored, as under nohup, or that the program handles itself, is left alone.
        """
        if current_thread() is not main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        if not _requests:
            for number in STOPPING:
                handler = signal.getsignal(number)
                if number is signal.SIGHUP and handler is not signal.SIG_DFL:
                    continue
                _previous_handlers[number] = handler
                loop.add_signal_handler(number, _stop_all, number)
        _requests.append(self)
        try:
            yield
        finally:
            _requests.remove(self)
            if not _requests:
                for number, handler in _previous_handlers.items():
                    loop.remove_signal_handler(number)
                    signal.signal(number, handler)
                _previous_handlers.clear()


def _stop_all(number: signal.Signals) -> None:
    for request in _requests:
        if number is signal.SIGHUP:  # when a terminal closes, the kernel and the shell both send it
            request.requested.set()
        else:
            request.escalate()
