"""What a cycle of all four stages costs, with functions that take no time, for each kind of storage."""

from __future__ import annotations

import asyncio
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from _measure import options, publish, server, table, verdict

from redraft.cycles.agent import CycleAgent
from redraft.cycles.spec import AgentSpec
from redraft.cycles.storage import LongTermStorage
from redraft.stores.sqlite import SqliteStore

CYCLES = 600
WARM = 100
"""Cycles before those that are counted: the memory is full then."""
TURN = 100
TARGETS = {"in memory": 2.0, "SQLite": None, "PostgreSQL, this machine": 8.0}
"""Milliseconds that the median cycle may take."""
HIGH = {"name": "high", "when": "environmentalData.payload.rate > 5", "message": "too high"}
STAGES: dict[str, list[dict[str, Any]]] = {
    "sense": [{"type": "function", "name": "look", "config": {"function": "look"}}],
    "reason": [
        {"type": "analyze", "name": "rules", "config": {"rules": [HIGH]}},
        {"type": "plan", "name": "plan", "config": {"function": "plan"}},
        {"type": "authorize", "name": "authorize"},
    ],
    "actuate": [
        {
            "type": "execute",
            "name": "act",
            "config": {"actions": [{"name": "adjust", "type": "function", "function": "adjust"}]},
        },
        {
            "type": "evaluate",
            "name": "look-again",
            "config": {"checks": [{"name": "done", "require": "derivedData.execution.actions"}]},
        },
    ],
    "reflect": [
        {
            "type": "update-state",
            "name": "keep",
            "config": {"retention": {"memory.recentActions": {"policy": "max_items", "maxItems": 100}}},
        },
        {
            "type": "capture-metrics",
            "name": "count",
            "config": {"trackCycleDuration": True, "trackAnomalyCount": True},
        },
    ],
}


async def look() -> dict[str, Any]:
    return {"rate": 6.5}


async def plan() -> list[str]:
    return ["adjust"]


async def adjust() -> dict[str, Any]:
    return {"adjusted": True}


def spec_named(name: str) -> AgentSpec:
    stages = {stage: {"substages": substages} for stage, substages in STAGES.items()}
    return AgentSpec.model_validate({"name": name, "stages": stages})


async def waits(agents: dict[str, CycleAgent]) -> dict[str, list[float]]:
    """Return how many milliseconds each cycle takes; the agents by turns, so that a slow spell hits all.

    A turn has many cycles, and ends when all is written and deleted: what one does behind its cycles is
    counted with its own.
    """
    found: dict[str, list[float]] = {name: [] for name in agents}
    for turn in range((WARM + CYCLES) // TURN):
        for name in agents if turn % 2 else reversed(agents):
            for _ in range(TURN):
                started = perf_counter()
                result = await agents[name].run_cycle()
                if turn >= WARM // TURN:
                    found[name].append((perf_counter() - started) * 1e3)
                assert result.success, result.error
            await agents[name].aclose()
            await agents[name].open()
    for agent in agents.values():
        await agent.aclose()
    return found


async def measured(folder: str, url: str | None) -> dict[str, list[float]]:
    functions = {"look": look, "plan": plan, "adjust": adjust}
    agents = {
        "in memory": CycleAgent(spec_named("here"), functions=functions),
        "SQLite": CycleAgent(
            spec_named("file"), functions=functions, storage=SqliteStore(f"{folder}/redraft.db")
        ),
    }
    if url is None:
        return await waits(agents)
    storage = LongTermStorage(url, network="measured")
    agents["PostgreSQL, this machine"] = CycleAgent(spec_named("there"), functions=functions, storage=storage)
    try:
        return await waits(agents)
    finally:
        await storage.aclose()


def row(name: str, found: list[float]) -> tuple[object, ...]:
    target = TARGETS[name]
    said = "" if target is None else f"{target:g} {verdict(median(found), target)}"
    return name, f"{min(found):.2f}", f"{median(found):.2f}", f"{quantiles(found, n=20)[-1]:.2f}", said


def main() -> None:
    given = options(__doc__).parse_args()
    with TemporaryDirectory() as folder, server(durable=True) as url:
        found = asyncio.run(measured(folder, url))
    rows = [row(name, times) for name, times in found.items()]
    head = ("milliseconds a cycle", "least", "median", "95 of 100 within", "target")
    publish("cycle_overhead", table(head, rows), write=given.write)


if __name__ == "__main__":
    main()
