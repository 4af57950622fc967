"""Agents in cycles as a project keeps them: their cards, cycles and memories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redraft.stores.base import Record

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
REMEMBERED = 200
"""Items under each key of a memory."""


async def write_agents(database: Path, names: list[str], cycles: int) -> None:
    """Keep agents that went round so many times each, the first one ten times as often."""
    from redraft.stores.base import Record
    from redraft.stores.sqlite import SqliteStore

    project = SqliteStore(database)
    for at, name in enumerate(names):
        await project.put(Record("agent", name, {}))
        store = SqliteStore(database, f"/agent:{name}")
        await store.put_all(list(made_agent(name, cycles if at else 10 * cycles)))
        await store.aclose()
    await project.aclose()


def made_agent(name: str, cycles: int) -> Iterator[Record]:
    """Return all that an agent keeps: its card, its cycles, its memory."""
    from redraft.cycles.mail import AgentCard
    from redraft.cycles.memory import Memory
    from redraft.cycles.records import stored_cycle
    from redraft.cycles.storage import memory_record

    yield AgentCard(name, name, "Watches a line.", "agent.yaml", ("every 60,000 ms",)).record
    for number in range(1, cycles + 1):
        yield stored_cycle(made_cycle(number))
    items = {
        key: [made_item(number, key) for number in range(REMEMBERED)] for key in ("patterns", "recentActions")
    }
    yield memory_record(Memory(items, cycles))


def made_cycle(number: int) -> Any:
    from redraft.cycles.memory import MemoryChange
    from redraft.cycles.records import CycleMetrics, CycleRecord

    plan = {"id": f"{number}-1", "action": "hold", "params": {"batch": number}, "reason": "it is high"}
    done = {"id": f"{number}-1", "status": "succeeded", "idempotencyKey": "0" * 32, "result": "held " * 100}
    began = BEGAN + timedelta(minutes=number)
    return CycleRecord(
        number,
        began,
        "interval",
        "finished",
        began + timedelta(seconds=2),
        {
            "analysis": {"anomalies": [{"message": "the rate is high"}]},
            "plan": {"actions": [plan]},
            "execution": {"actions": [done]},
            "learnings": {"newPatterns": [{"description": "seen before " * 10}]},
        },
        metrics=CycleMetrics(2_000.0 + number % 7, 900 + number % 90, 0.002, 1, number % 3),
        changes=(
            MemoryChange("recentActions", f"{number}-1", None, made_item(number, "recentActions")),
            MemoryChange("recentActions", "old", made_item(1, "recentActions"), None, 0),
        ),
    )


def made_item(number: int, key: str) -> dict[str, Any]:
    return {
        "id": f"{key}-{number}",
        "timestamp": f"2026-11-22T03:{number % 60:02}:00.000Z",
        "cycle": number,
        "description": f"What was seen on press {number} was seen before, and nobody minded.",
        "confidence": 0.5,
    }
