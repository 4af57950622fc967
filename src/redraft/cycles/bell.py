"""Bell: wake who waits for something sent to an agent, at once within a process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from threading import Lock

EVERY = 0.2
"""Seconds between two looks at what another process may have sent."""

_lock = Lock()
_rung: defaultdict[str, int] = defaultdict(int)
_waiting: defaultdict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)


def rung(agent: str) -> int:
    """Return how often something was sent to an agent in this process."""
    return _rung[agent]


def ring(agent: str) -> None:
    """Wake all in this process that wait for something sent to an agent; from any thread."""
    with _lock:
        _rung[agent] += 1
        waiting = tuple(_waiting[agent])
    for loop, event in waiting:
        with suppress(RuntimeError):  # its loop has just ended: nobody waits there any more
            loop.call_soon_threadsafe(event.set)


async def heard(agent: str, seen: int, seconds: float | None = EVERY) -> bool:
    """Wait until the bell of an agent has rung more often than `seen`, or the seconds are over; say which."""
    if rung(agent) != seen:
        return True
    place = asyncio.get_running_loop(), asyncio.Event()
    with _lock:
        if _rung[agent] != seen:
            return True
        _waiting[agent].add(place)
    try:
        async with asyncio.timeout(seconds):
            await place[1].wait()
    except TimeoutError:
        return False
    finally:
        with _lock:
            _waiting[agent].discard(place)
    return True
