"""Agents as `redraft cycle run` runs them: with the functions beside their file, and kept."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel

from redraft.cli.cycle_functions import functions_for
from redraft.core.settings import load_settings
from redraft.cycles.agent import CycleAgent
from redraft.cycles.long_term import storage_of
from redraft.cycles.parts import substages
from redraft.cycles.reading import agent_file, read
from redraft.cycles.spec import ManualTrigger
from redraft.models.names import resolved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from redraft.core.events import Listener
    from redraft.cycles.events import CycleEvent


def ready_agent(file: str, functions: Path | None, model: str | None, listener: Listener) -> CycleAgent:
    """Return the agent of a file, checked; `model` is that of its substages that name none of their own."""
    source = agent_file(file)
    document = source.document()
    if "nodes" in document and "stages" not in document:
        raise source.error(("nodes",), f"this is a workflow; redraft run {file} runs it")
    spec = read(source)
    if model is not None:
        spec = spec.model_copy(update={"model": model})
    storage: Literal["project"] | None = None if storage_of("default") is not None else "project"
    hears = cast("Callable[[CycleEvent], None]", listener)  # whatever dataclass an event is
    own = functions_for(file, functions)
    return CycleAgent(spec, functions=own, storage=storage, on_event=hears, source=source)


def used_by(agent: CycleAgent) -> dict[str, Any]:
    """Return what an agent would use, as plain data."""
    spec, settings = agent.spec, load_settings()
    parts = [part for _, part, _ in substages(spec)]
    aliases = {**settings.models, **spec.models}
    asked = [part.model for part in parts if getattr(part, "prompt", None) is not None]
    models = {resolved(str(name or spec.model or settings.model), aliases) for name in asked}
    return {
        "name": spec.name,
        "substages": len(parts),
        "triggers": [trigger.type for trigger in spec.triggers],
        "models": sorted(models),
        "functions": sorted(set(_functions_in(parts))),
        "env": {name: name in os.environ for name in spec.env},
    }


def _functions_in(part: object) -> Iterator[str]:
    """Yield the names of the program's functions in a part of the file."""
    if isinstance(part, list):
        for one in cast("list[object]", part):
            yield from _functions_in(one)
    elif isinstance(part, BaseModel):
        for name, value in part:
            if name == "function" and value is not None:
                yield value
            else:
                yield from _functions_in(value)


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
