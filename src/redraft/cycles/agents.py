"""The agents of a project, seen from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft.cycles.lease import LEASE, live_holder
from redraft.cycles.mail import AgentCard, Feedback, Post, card_of, check_about, pending, ring
from redraft.cycles.records import (
    CYCLE,
    CycleRecord,
    cycle_key,
    cycle_of,
    differences,
    fit_to_keep,
    listed_cycle,
    memory_at,
    stored_memory,
)
from redraft.cycles.state import withholding
from redraft.cycles.storage import AgentPlace, all_places, held, place_named, prune
from redraft.errors import ConfigError, DamagedRecordError
from redraft.stores.base import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.cycles.mail import AgentMessage, Verdict
    from redraft.cycles.memory import Memory, MemoryChange
    from redraft.cycles.state import CycleResult

UNDER_WAY = ("running", "waiting")
PAGE = 50
MOST_PENDING = 1_000
LOOKED_BACK = 10_000
"""So many cycles a memory is followed back at most."""


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """Hold what a list of agents shows: what the agent is, its last cycle, and how much feedback waits.

    `status` is `running` or `waiting` (for a person) while a process runs a cycle, `killed` where that
    process is gone, else how the last cycle ended; `new` before the first.
    """

    name: str
    card: AgentCard
    place: str
    status: str
    last: CycleRecord | None
    pending: int


class AgentView:
    """Look at one agent, and tell it something; from any process that reaches the place where it is kept.

    Raises `StoreError` where that can't be read.
    """

    def __init__(self, place: AgentPlace) -> None:
        self.name = place.agent
        self.place = place
        self._store = place.store
        self._withheld = withholding()

    async def card(self) -> AgentCard:
        """Return what the agent says of itself."""
        return await card_of(self._store)

    async def cycles(self, *, before: int | None = None, limit: int = PAGE) -> list[CycleRecord]:
        """Return the newest cycles first; `before` is the number of the last one of the page before.

        One whose record is damaged is among them, with the status `damaged`.
        """
        after = None
        if before is not None and (after := await listed(self._store, CYCLE, cycle_key(before))) is None:
            raise ConfigError(f"The agent {self.name!r} has no cycle {before} here, so none before it.")
        found = await self._store.find(CYCLE, newest_first=True, after=after, limit=limit)
        cycles = [listed_cycle(record) for record in found]
        if self.place.lasts:
            return cycles
        return [fit_to_keep(cycle, self._withheld) for cycle in cycles]

    async def cycle(self, number: int) -> CycleRecord:
        """Return a cycle by its number; raises `ConfigError` where it is not kept."""
        record = await self._store.get(CYCLE, cycle_key(number))
        if record is None:
            raise ConfigError(f"The agent {self.name!r} has no cycle {number} here, or not any more.")
        cycle = cycle_of(record)
        return cycle if self.place.lasts else fit_to_keep(cycle, self._withheld)

    async def memory(self) -> Memory:
        """Return what the agent remembers now."""
        memory = await stored_memory(self._store)
        return held(self._store) if memory is None else memory

    async def memory_at(self, cycle: int) -> Memory:
        """Return the memory as it was after a cycle; raises `ConfigError` for one that is too long ago."""
        return memory_at(await self.memory(), await self._back_to(cycle), cycle)

    async def diff(self, older: int, newer: int) -> tuple[MemoryChange, ...]:
        """Return what changed of the memory between the ends of two cycles."""
        memory, since = await self.memory(), await self._back_to(min(older, newer))
        return differences(memory_at(memory, since, older), memory_at(memory, since, newer))

    async def pending(self) -> list[Feedback]:
        """Return the feedback that no cycle has taken yet, oldest first."""
        return await pending(self._store, Feedback, MOST_PENDING)

    async def summary(self) -> AgentSummary:
        """Return what a list of agents shows of it."""
        cycles = await self.cycles(limit=1)
        last = cycles[0] if cycles else None
        status = "new" if last is None else last.status
        if status in UNDER_WAY and self.place.lasts and not await self._is_run():
            status = "killed"
        waiting = await self.pending()
        try:
            card = await self.card()
        except DamagedRecordError as error:  # the other agents of the list are not affected
            card = AgentCard(self.name, description=str(error))
        return AgentSummary(self.name, card, self.place.kind, status, last, len(waiting))

    async def send_feedback(
        self,
        verdict: Verdict,
        message: str = "",
        *,
        cycle: int | None = None,
        action: str | None = None,
        changes: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> Feedback:
        """Say what a person thinks, as `CycleAgent.send_feedback` does."""
        if cycle is None:
            newest = await self.cycles(limit=1)
            cycle = newest[0].number if newest and newest[0].is_undecided else None
        kept = None if cycle is None else await self._store.get(CYCLE, cycle_key(cycle))
        check_about(verdict, action, changes, await self.card(), None if kept is None else cycle_of(kept))
        post = Post(self._store, withholding(also=()))
        feedback = await post.feedback(verdict, message, cycle=cycle, action=action, changes=changes, by=by)
        ring(self.name)
        return feedback

    async def send_message(self, topic: str, data: Any = None, *, sender: str = "") -> AgentMessage:
        """Send the agent plain JSON data; an `agent-messages` source takes it, a trigger may wait for it."""
        message = await Post(self._store, withholding(also=())).message(topic, data, sender=sender)
        ring(self.name)
        return message

    async def prune(self, cycles: int) -> dict[str, int]:
        """Delete what is beyond the bounds, keeping so many cycles; return how much of what."""
        if cycles < 1:
            raise ConfigError(f"At least 1 cycle is kept, got {cycles}.")
        return await prune(self.place, cycles)

    async def aclose(self) -> None:
        """Let go of connections, if they serve nobody else; the next use opens anew."""
        if self.place.kind == "project":
            await self._store.aclose()

    async def _is_run(self) -> bool:
        """Say whether a live process runs the agent."""
        lease = await self._store.get(LEASE, LEASE)
        return lease is not None and live_holder(lease.data) != ""

    async def _back_to(self, cycle: int) -> list[CycleRecord]:
        """Return the cycles after one, the newest first."""
        found: list[CycleRecord] = []
        before: int | None = None
        while len(found) < LOOKED_BACK:
            page = await self.cycles(before=before)
            for one in page:
                if one.status == "damaged" and one.number > cycle:  # what it changed is not known
                    raise DamagedRecordError(one.error)
            found += [one for one in page if one.number > cycle]
            if len(page) < PAGE or page[-1].number <= cycle:
                break
            before = page[-1].number
        return found


async def agent_view(name: str, network: str = "default") -> AgentView:
    """Return a view of an agent by its name; raises `ConfigError` where none is found."""
    return AgentView(await place_named(name, network))


async def known_agents(network: str = "default") -> list[AgentSummary]:
    """Return the agents of this process, of the network's long-term storage and of the project, by name."""
    summaries: list[AgentSummary] = []
    for place in await all_places(network):
        view = AgentView(place)
        summaries.append(await view.summary())
        await view.aclose()
    return summaries


async def send_feedback(
    agent: str,
    verdict: Verdict,
    message: str = "",
    *,
    cycle: int | None = None,
    action: str | None = None,
    changes: Mapping[str, Any] | None = None,
    by: str = "",
) -> Feedback:
    """Say what a person thinks of what an agent did or is about to do, from outside of it."""
    view = await agent_view(agent)
    try:
        return await view.send_feedback(verdict, message, cycle=cycle, action=action, changes=changes, by=by)
    finally:
        await view.aclose()


async def send_message(agent: str, topic: str, data: Any = None, *, sender: str = "") -> AgentMessage:
    """Send an agent plain JSON data, from outside of it."""
    view = await agent_view(agent)
    try:
        return await view.send_message(topic, data, sender=sender)
    finally:
        await view.aclose()


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
