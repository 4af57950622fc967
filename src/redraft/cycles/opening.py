"""Opened: what an agent works with from its first cycle in a process until it is closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft.core.errors import LeaseError
from redraft.cycles.bus import AgentBus
from redraft.cycles.card import AgentCard
from redraft.cycles.home import AgentHome
from redraft.cycles.keeper import PATIENCE
from redraft.cycles.keeping import DirectKeeping, Keeping
from redraft.cycles.lease import Lease
from redraft.cycles.mail import Post
from redraft.cycles.withheld import withholding

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from redraft.cycles.agent import CycleAgent
    from redraft.cycles.bus import Waiting
    from redraft.cycles.places import AgentPlace
    from redraft.stores.base import Record


@dataclass(frozen=True, slots=True)
class Opened:
    """Hold the home of an agent, and what is sent to it and from it."""

    home: AgentHome
    bus: AgentBus
    post: Post

    async def aclose(self) -> None:
        """Write what is still to be written, and give the agent to the next process."""
        await self.bus.aclose()
        await self.home.aclose()


async def opened(
    agent: CycleAgent,
    place: AgentPlace,
    withheld: Callable[[Any], Any],
    clock: Callable[[], datetime],
    waiting: Waiting,
) -> Opened:
    """Return an agent's home, opened; raises `LeaseError` where another process runs it."""
    keeping: Keeping
    if place.storage is not None:
        keeping, patience = place.storage.keeper_for(place.agent), PATIENCE
    else:
        lease = Lease(place.store, place.agent) if place.lasts else None
        keeping, patience = DirectKeeping(place.store, place.agent, lease), None
    home = AgentHome(
        place,
        keeping,
        AgentCard.of(agent.spec, agent.file),
        cycles=agent.spec.memory.cycles,
        withheld=withheld,
    )
    try:
        await home.open()
    except BaseException:
        await keeping.aclose()  # else the lease would keep the next try out
        raise

    async def keep(record: Record) -> None:
        try:
            await keeping.save([record])
        except LeaseError:  # anybody may leave mail for an agent
            await place.store.put(record)

    post = Post(place.store, withholding(also=()), clock, keep)
    bus = AgentBus(place, agent.network, post, keeping, waiting=waiting, patience=patience)
    await bus.open()
    return Opened(home, bus, post)
