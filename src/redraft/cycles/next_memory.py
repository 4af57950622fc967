"""next_memory: the memory after a cycle, out of the one before and of what happened."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from redraft.cycles.drafted import DraftedItems
from redraft.cycles.memory import CONSTRAINTS, FEEDBACK, RECENT_ACTIONS, STANDARD_KEYS, Memory, MemoryChange
from redraft.cycles.patterns import Patterns
from redraft.cycles.remembered import action_items, feedback_item, violation_items
from redraft.cycles.stamp import stamp_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec_reflect import Retention

INSIGHTS = "insights"
"""The key that takes the insights of `learn`, if the agent's file names it; else only the cycle has them."""


@dataclass(frozen=True, slots=True)
class NextMemory:
    """Hold the memory after a cycle, what differs from the one before, and what was not taken, and why."""

    memory: Memory
    changes: tuple[MemoryChange, ...]
    refusals: tuple[str, ...] = ()


def next_memory(cycle: Cycle, retention: Mapping[str, Retention], now: datetime) -> NextMemory:
    """Return the memory after a cycle; changes nothing, and what the model made up does not make it raise.

    Appends what became of actions, violations of constraints and what people said, takes in what was learnt,
    and keeps each key within its retention. A key that the agent's file names is there from now on.
    """
    named = {*STANDARD_KEYS, *cycle.memory.items, *cycle.state.memory, *retention}
    keys = dict.fromkeys([*cycle.memory.items, *sorted(named | {key for key, _ in cycle.learnt})])
    drafted = {key: DraftedItems(key, cycle.memory.of(key)) for key in keys}
    redacted, derived = cycle.means.redacted, cycle.state.derived_data
    for item in action_items(cycle.number, derived, redacted, now):
        drafted[RECENT_ACTIONS].append(item)
    for item in violation_items(cycle.number, derived, redacted, now):
        drafted[CONSTRAINTS].append(item)
    for feedback in cycle.pending:
        drafted[FEEDBACK].append(feedback_item(feedback, redacted, now))
    refusals = _learnt(cycle, drafted, now)
    items: dict[str, Any] = {}
    changes: list[MemoryChange] = []
    for key, draft in drafted.items():
        items[key], changed = draft.finished(retention.get(key), now)
        changes += changed
    return NextMemory(Memory(items, cycle.number), tuple(changes), tuple(refusals))


def _learnt(cycle: Cycle, drafted: Mapping[str, DraftedItems], now: datetime) -> list[str]:
    """Take in what was learnt; returns what was not taken, and why."""
    ids = count(1)
    refusals: list[str] = []
    for key, learnt in cycle.learnt:
        stamp, redacted = stamp_of(now), cycle.means.redacted
        Patterns(drafted[key], cycle.number, stamp, ids, redacted, refusals).take(learnt, cycle.rendered)
        if INSIGHTS in cycle.state.memory:
            insights = Patterns(drafted[INSIGHTS], cycle.number, stamp, ids, redacted, refusals)
            insights.add(learnt.get(INSIGHTS))
    return refusals
