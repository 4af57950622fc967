"""go_round: cycle after cycle, until there were enough or the process is told to end."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError
from redraft.cycles.spec import ManualTrigger
from redraft.cycles.triggers import Triggers
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from redraft.cycles.agent import CycleAgent

MANUAL = "manual"
ENDING = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """Hear how urgently the process is told to end: not at all, soon, or at once."""

    def __init__(self) -> None:
        self.soon = asyncio.Event()
        self.at_once = asyncio.Event()

    def told(self) -> None:
        """Be told to end, more urgently each time."""
        (self.at_once if self.soon.is_set() else self.soon).set()


async def go_round(agent: CycleAgent, cycles: int | None, grace: float, *, at_once: bool) -> int:
    """Run cycles as their triggers come; return how many. What `CycleAgent.run_forever` does."""
    if cycles is None and not at_once and all(isinstance(one, ManualTrigger) for one in agent.spec.triggers):
        raise ConfigError(
            f"The agent {agent.name!r} has only manual triggers: say how many `cycles` to run, or give "
            "its file an `interval` or `message` trigger."
        )
    count = 0
    await agent.opened()

    async def newest_message(topic: str | None) -> str | None:
        return await (await agent.opened()).bus.newest_message(topic)

    triggers = Triggers(agent.name, agent.spec.triggers, newest_message)
    with _told_to_end() as ending:
        while (cycles is None or count < cycles) and not ending.soon.is_set():
            trigger = MANUAL if at_once else await _unless(ending.soon, triggers.next())
            if trigger is None:
                break
            if not await _carried_out(agent, trigger, ending, grace):
                break
            count += 1
    return count


async def _carried_out(agent: CycleAgent, trigger: str, ending: Ending, grace: float) -> bool:
    """Carry out a cycle; say whether it came to its end, and was not abandoned."""
    cycle = asyncio.ensure_future(agent.run_cycle(trigger))
    try:
        soon = asyncio.ensure_future(ending.soon.wait())
        await asyncio.wait([cycle, soon], return_when=asyncio.FIRST_COMPLETED)
        soon.cancel()
        if not cycle.done():
            logger.info("The agent %r is told to end, and finishes its cycle first.", agent.name)
            at_once = asyncio.ensure_future(ending.at_once.wait())
            await asyncio.wait([cycle, at_once], timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            at_once.cancel()
        if cycle.done():
            cycle.result()
            return True
    finally:
        if not cycle.done():
            cycle.cancel()
            await asyncio.wait([cycle])
    logger.warning("The agent %r is told to end; its cycle goes on at the next start.", agent.name)
    return False


async def _unless(event: asyncio.Event, waiting: Coroutine[Any, Any, str]) -> str | None:
    """Return what comes of waiting, or None if the event comes first."""
    waited, happened = asyncio.ensure_future(waiting), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waited, happened], return_when=asyncio.FIRST_COMPLETED)
        return waited.result() if waited.done() else None
    finally:
        for task in (waited, happened):
            if not task.done():
                task.cancel()
                await asyncio.wait([task])


_endings: list[Ending] = []
"""Those who hear the signals now: several agents may go round in one event loop."""
_handlers: dict[signal.Signals, Any] = {}
"""What heard the signals before the first of them."""


@contextmanager
def _told_to_end() -> Generator[Ending]:
    """Hear the signals that end a process; as it was afterwards. In another thread nothing is heard."""
    ending = Ending()
    if current_thread() is not main_thread():
        yield ending
        return
    loop = asyncio.get_running_loop()
    if not _endings:
        for one in ENDING:
            _handlers[one] = signal.getsignal(one)
            loop.add_signal_handler(one, _tell_all)
    _endings.append(ending)
    try:
        yield ending
    finally:
        _endings.remove(ending)
        if not _endings:
            for one, handler in _handlers.items():
                loop.remove_signal_handler(one)
                signal.signal(one, handler)


def _tell_all() -> None:
    for ending in _endings:
        ending.told()
