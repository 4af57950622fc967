"""AgentRead: what is read of one agent for its page, before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.cycles.agents import AgentSummary
from redraft.cycles.mail import Feedback
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.records import CycleRecord


@dataclass(frozen=True, slots=True)
class MemoryDiff:
    """Hold what became of a memory between the ends of two cycles.

    `retired` are the ids and descriptions by which a `learn` deprecated patterns meanwhile: what else is
    gone, retention dropped; None where that is not known for all the cycles in between. `more` changes are
    not shown. `unknown` says why there are none, where they can't be told.
    """

    older: int
    newer: int
    changes: tuple[MemoryChange, ...] = ()
    retired: tuple[str, ...] | None = ()
    more: int = 0
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class AgentRead:
    """Hold an agent's newest cycles, or those before one, without details; and one of them, `chosen`, whole.

    `older` is before which cycle there are further ones. `sizes` says how many items each key of the memory
    has, of which `memory` may hold the newest only.
    """

    agent: AgentSummary
    cycles: tuple[CycleRecord, ...]
    older: int | None
    chosen: CycleRecord | None
    pending: tuple[Feedback, ...]
    memory: Memory
    sizes: dict[str, int]
    diff: MemoryDiff | None
