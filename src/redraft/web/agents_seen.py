"""AgentsSeen: the agents in cycles as a dashboard sees them, looked at no more often than it can bear."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic

from redraft.cycles.agents import AgentHandle, Agents, AgentSummary

EACH = 0.5
"""Seconds for which a look at all agents is new enough."""
SHARE = 20
"""A look may take one in so many seconds: with very many agents it is taken more rarely."""
KEPT_OPEN = 100
"""Agents whose stores stay open between two looks: a store of a project has a thread and a file each."""


@dataclass(slots=True)
class AgentsSeen:
    """Remember the last look at all agents, for all pages that show them."""

    _seen: tuple[AgentSummary, ...] = ()
    _again_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def all(self) -> tuple[AgentSummary, ...]:
        """Return how the agents stand, by name; raises `StoreError` where one of them can't be read."""
        async with self._lock:
            if monotonic() >= self._again_at:
                began = monotonic()
                self._seen = await _look()
                now = monotonic()
                self._again_at = now + max(EACH, (now - began) * SHARE)
            return self._seen

    async def view(self, name: str) -> AgentHandle:
        """Return a handle on one agent; raises `ConfigError` where there is none of this name."""
        return await Agents().get(name)

    def changed(self) -> None:
        """Hear that somebody told an agent something: the next look is a new one."""
        self._again_at = float("-inf")


async def _look() -> tuple[AgentSummary, ...]:
    found: list[AgentSummary] = []
    for count, agent in enumerate(await Agents().handles()):
        found.append(await agent.summary())
        if count >= KEPT_OPEN:
            await agent.aclose()
    return tuple(found)
