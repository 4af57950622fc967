"""Agents as `redraft cycle run` runs them: with the functions beside their file, and kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, cast

from redraft.cli.cycle_functions import functions_for
from redraft.cycles.agent import CycleAgent
from redraft.cycles.long_term import storage_of
from redraft.cycles.reading import agent_file, read
from redraft.cycles.spec import ManualTrigger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redraft.core.events import Listener
    from redraft.cycles.events import CycleEvent


def ready_agent(file: str, functions: Path | None, model: str | None, listener: Listener) -> CycleAgent:
    """Return the agent of a file, checked; `model` is that of its substages that name none of their own."""
    source = agent_file(file)
    spec = read(source)
    if model is not None:
        spec = spec.model_copy(update={"model": model})
    storage: Literal["project"] | None = None if storage_of("default") is not None else "project"
    hears = cast("Callable[[CycleEvent], None]", listener)  # whatever dataclass an event is
    own = functions_for(file, functions)
    return CycleAgent(spec, functions=own, storage=storage, on_event=hears, source=source)


def run_agent(agent: CycleAgent, cycles: int | None) -> None:
    """Run so many cycles, one after the other; without a number as the agent's triggers say.

    Told to end, it finishes or abandons the cycle under way, and is closed in any case.
    """
    by_hand = all(isinstance(one, ManualTrigger) for one in agent.spec.triggers)

    async def running() -> None:
        try:
            async with agent:
                await agent.run_forever(cycles or (1 if by_hand else None), at_once=cycles is not None)
        finally:
            if (storage := storage_of("default")) is not None:
                await storage.aclose()

    asyncio.run(running())
