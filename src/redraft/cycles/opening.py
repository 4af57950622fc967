"""Opened: what an agent works with from its first cycle in a process until it is closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft.cycles.bus import AgentBus
from redraft.cycles.card import AgentCard
from redraft.cycles.home import AgentHome
from redraft.cycles.keeping import DirectKeeping, Keeping
from redraft.cycles.lease import Lease
from redraft.cycles.mail import Post

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from redraft.cycles.agent import CycleAgent
    from redraft.cycles.bus import Waiting
    from redraft.cycles.places import AgentPlace

PATIENCE = 0.015
"""Seconds that a cycle waits for a database that does not answer."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Hold the home of an agent, what is sent to it and from it, and the right to run it."""

    home: AgentHome
    bus: AgentBus
    post: Post
    lease: Lease | None

    def check(self) -> None:
        """Raise `LeaseError` where another process has come to run the agent meanwhile."""
        if self.lease is not None and self.lease.lost is not None:
            raise self.lease.lost

    async def aclose(self) -> None:
        """Write what is still to be written, and give the agent to the next process."""
        await self.bus.aclose()
        await self.home.settled()
        if self.lease is not None:
            await self.lease.give_back()
        await self.home.aclose()


async def opened(
    agent: CycleAgent,
    place: AgentPlace,
    withheld: Callable[[Any], Any],
    clock: Callable[[], datetime],
    waiting: Waiting,
) -> Opened:
    """Return an agent's home, opened; raises `LeaseError` where another process runs it."""
    patience = PATIENCE if place.kind == "network" else None
    keeping: Keeping = DirectKeeping(place.store, place.agent)
    if place.storage is not None:
        keeping = place.storage.keeper_for(place.agent)
    lease = Lease(place.store, place.agent) if place.lasts else None
    home = AgentHome(
        place,
        keeping,
        AgentCard.of(agent.spec, agent.file),
        cycles=agent.spec.memory.cycles,
        withheld=withheld,
        patience=patience,
    )
    if lease is not None:
        await lease.take()
    await home.open()
    post = Post(place.store, withheld, clock)
    bus = AgentBus(
        place,
        agent.network,
        post,
        is_away=lambda: keeping.is_away,
        waiting=waiting,
        patience=patience,
    )
    return Opened(home, bus, post, lease)
