"""Beside: what was spent beside the runs, by agents in their cycles and by notes on tasks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

from redraft._codec import from_record
from redraft.cycles.agents import PAGE
from redraft.cycles.records import UNFINISHED
from redraft.cycles.web import KEPT_OPEN, AgentsSeen
from redraft.errors import ConfigError
from redraft.history.ledger import Ledger
from redraft.loop.keeper import NOTED
from redraft.notes.learning import Learned
from redraft.web.feed import Feed

if TYPE_CHECKING:
    from redraft.cycles.agents import AgentHandle
    from redraft.cycles.records import CycleRecord
    from redraft.stores.base import Record
    from redraft.web.project import Project

PATIENCE = 0.1
"""Seconds that one question waits for what was not read yet."""
OF_A_NOTE = "/reflection"
"""How the key of what a note came to ends, behind the id of its run."""
CYCLE, NOTE = "cycle", "note"
"""What is spent on, where runs have the role of a request."""


@dataclass(slots=True)
class _Read:
    """Remember how far the cycles of an agent were read: those back to `oldest`, or all of them."""

    oldest: int | None = None
    is_whole: bool = False
    latest: tuple[int, str] | None = None
    counted: set[tuple[int, datetime]] = field(default_factory=set[tuple[int, datetime]])


class Beside:
    """Add to what the runs of a ledger spent what cycles and notes did, and read only what is new."""

    def __init__(self, ledger: Ledger, agents: AgentsSeen) -> None:
        self._ledger = ledger
        self._agents = agents
        self._notes = Feed(ledger.store, NOTED, self._note)
        self._cycles: dict[str, _Read] = {}
        self._lock = asyncio.Lock()

    @classmethod
    def of(cls, project: Project) -> Beside:
        """Return one for a project."""
        return cls(project.shared(Ledger.of), project.shared(AgentsSeen.of))

    @property
    def is_whole(self) -> bool:
        """Whether all that is kept was counted."""
        return self._notes.is_complete and all(read.is_whole for read in self._cycles.values())

    async def read(self, patience: float = PATIENCE) -> None:
        """Count what is new, and what was there before for no more than `patience` seconds.

        Raises `StoreError` where it can't be read.
        """
        await self._notes.read(patience / 2)
        async with self._lock:
            agents = await self._agents.all()
            until = monotonic() + patience
            for at, agent in enumerate(agents):
                read = self._cycles.setdefault(agent.name, _Read())
                latest = None if agent.last is None else (agent.last.number, agent.last.status)
                if latest is None:
                    read.is_whole = True
                elif latest != read.latest or not read.is_whole:
                    view = await self._agents.view(agent.name)
                    await self._count(agent.name, view, read, until)
                    read.latest = latest
                    if at >= KEPT_OPEN:
                        await view.aclose()

    async def _count(self, name: str, view: AgentHandle, read: _Read, until: float) -> None:
        """Count the cycles that are new, then older ones while there is time."""
        page = await view.cycles()
        while self._add(name, page, read) and read.oldest is not None:
            page = await view.cycles(before=page[-1].number)
        if read.oldest is None and page:
            read.oldest = page[-1].number
            read.is_whole = len(page) < PAGE
        while not read.is_whole and monotonic() < until:
            page = await _before(view, read.oldest)
            self._add(name, page, read)
            read.oldest = page[-1].number if page else read.oldest
            read.is_whole = len(page) < PAGE

    def _add(self, name: str, cycles: list[CycleRecord], read: _Read) -> bool:
        """Count those that are new and have ended; say if none was known, so that more may be new."""
        new = [one for one in cycles if (one.number, one.started_at) not in read.counted]
        for one in new:
            if one.status not in UNFINISHED:  # its usage is not written down before it ends
                read.counted.add((one.number, one.started_at))
                self._ledger.spending.add_beside(one.started_at, one.usage, role=CYCLE, name=name)
        return bool(cycles) and len(new) == len(cycles)

    def _note(self, record: Record) -> None:
        if not record.key.endswith(OF_A_NOTE):
            return
        entry = self._ledger.entry(record.key.removesuffix(OF_A_NOTE))
        known = {} if entry is None else {"model": entry.model, "name": entry.name, "task": entry.task}
        used = from_record(Learned, record.data["value"]).usage
        if used.total_tokens or used.requests or used.failed_requests or used.cost_usd is None:
            self._ledger.spending.add_beside(record.created_at or datetime.now(UTC), used, role=NOTE, **known)


async def _before(view: AgentHandle, number: int | None) -> list[CycleRecord]:
    """Return the cycles before one; none where that is gone, for then all before it are, too."""
    try:
        return await view.cycles(before=number) if number is not None else []
    except ConfigError:
        return []
