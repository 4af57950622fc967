"""Signals that stop a process: gracefully the first time, immediately the second time."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

STOPPING = (signal.SIGTERM, signal.SIGINT)
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
        """Escalate at SIGTERM and SIGINT, then restore their handlers; no effect outside the main thread."""
        if current_thread() is not main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        if not _requests:
            for number in STOPPING:
                _previous_handlers[number] = signal.getsignal(number)
                loop.add_signal_handler(number, _escalate_all)
        _requests.append(self)
        try:
            yield
        finally:
            _requests.remove(self)
            if not _requests:
                for number, handler in _previous_handlers.items():
                    loop.remove_signal_handler(number)
                    signal.signal(number, handler)


def _escalate_all() -> None:
    for request in _requests:
        request.escalate()
