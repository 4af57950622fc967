"""Agents and their cycles as JSON documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.codec import to_json

if TYPE_CHECKING:
    from redraft.cycles.agents import AgentSummary
    from redraft.cycles.memory import Memory, MemoryChange
    from redraft.cycles.record import CycleRecord
    from redraft.cycles.result import CycleResult


def summary_document(agent: AgentSummary) -> dict[str, Any]:
    """Return an agent as a list shows it."""
    return {
        "name": agent.name,
        "description": agent.card.description,
        "file": agent.card.file,
        "triggers": list(agent.card.triggers),
        "kept": agent.place,
        "status": agent.status,
        "pending_feedback": agent.pending,
        "last": None if agent.last is None else metrics_document(agent.last),
    }


def metrics_document(cycle: CycleRecord) -> dict[str, Any]:
    """Return how a cycle went, without what it was about."""
    return {
        "number": cycle.number,
        "status": cycle.status,
        "trigger": cycle.trigger,
        "started_at": cycle.started_at.isoformat(),
        "finished_at": None if cycle.finished_at is None else cycle.finished_at.isoformat(),
        "waits_until": None if cycle.waits_until is None else cycle.waits_until.isoformat(),
        "metrics": to_json(cycle.metrics),
        "stages": dict(cycle.stages),
        "usage": to_json(cycle.usage),
        "changes": len(cycle.changes),
        "error": cycle.error,
    }


def cycle_document(cycle: CycleRecord) -> dict[str, Any]:
    """Return a cycle with all that is kept of it."""
    return {
        **metrics_document(cycle),
        "sense_errors": list(cycle.sense_errors),
        "derived_data": dict(cycle.derived_data),
        "changes": [change_document(one) for one in cycle.changes],
    }


def result_document(result: CycleResult) -> dict[str, Any]:
    """Return a cycle that has just ended, with what was sensed, and without the memory as a whole."""
    return {
        "number": result.number,
        "status": result.status,
        "trigger": result.trigger,
        "metrics": to_json(result.metrics),
        "stages": dict(result.stages or {}),
        "usage": to_json(result.usage),
        "environmental_data": result.state["environmentalData"],
        "derived_data": result.state["derivedData"],
        "changes": [change_document(one) for one in result.changes],
        "error": result.error,
    }


def memory_document(memory: Memory) -> dict[str, Any]:
    """Return a memory, each key with its items, the oldest first."""
    return {"cycle": memory.cycle, "memory": {key: list(items) for key, items in memory.items.items()}}


def change_document(change: MemoryChange) -> dict[str, Any]:
    """Return what became of one item."""
    return {"key": change.key, "id": change.id, "before": change.before, "after": change.after}
