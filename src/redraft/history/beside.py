"""Beside: what was spent beside the runs, by agents in their cycles and by notes on tasks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Self

from redraft._codec import from_record
from redraft.cycles.agents import PAGE, Agents
from redraft.cycles.records import UNFINISHED
from redraft.cycles.web import KEPT_OPEN, AgentList
from redraft.errors import ConfigError
from redraft.loop.keeper import NOTED
from redraft.notes.learning import Learned
from redraft.stores.run_index import Totals, run_index
from redraft.web.feed import Feed

if TYPE_CHECKING:
    from redraft.cycles.agents import AgentHandle
    from redraft.cycles.records import CycleRecord
    from redraft.stores.base import Record, Store
    from redraft.types import TokenUsage
    from redraft.web.project import Project

PATIENCE = 0.1
"""Seconds that one question waits for what was not read yet."""
OF_A_NOTE = "/reflection"
"""How the key of what a note came to ends, behind the id of its run."""
AT_ONCE = 500
"""Runs of notes that are looked up at once."""
CYCLE, NOTE = "cycle", "note"
"""What is spent on, where runs have the role of a request."""


@dataclass(slots=True)
class Tally(Totals):
    """Sums over runs, and over what is no run: `beside` counts cycles of agents and notes after runs."""

    beside: int = 0

    @classmethod
    def of_runs(cls, totals: Totals) -> Self:
        """Return the sums of runs."""
        tally = cls()
        Totals.add(tally, totals)
        return tally

    @classmethod
    def of_one(cls, used: TokenUsage) -> Self:
        """Return what one cycle or note used."""
        return cls(
            requests=used.requests,
            failed_requests=used.failed_requests,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost_usd=used.cost_usd or 0.0,
            unknown=int(used.cost_usd is None),
            beside=1,
        )

    def add(self, other: Totals) -> None:
        """Add the sums of others."""
        Totals.add(self, other)
        self.beside += other.beside if isinstance(other, Tally) else 0


class Spent(NamedTuple):
    """Say what something was spent on: by cycles there is no `task`."""

    day: date
    role: str
    agent: str = ""
    model: str = ""
    task: str = ""


@dataclass(slots=True)
class _Read:
    """Remember how far the cycles of an agent were read: those back to `oldest`, or all of them."""

    oldest: int | None = None
    is_whole: bool = False
    latest: tuple[int, str] | None = None
    counted: set[tuple[int, datetime]] = field(default_factory=set[tuple[int, datetime]])


class Beside:
    """Add up what cycles and notes spent, and read only what is new; `spent` has the sums."""

    def __init__(self, store: Store, agents: AgentList) -> None:
        self.spent: dict[Spent, Tally] = {}
        self._index = run_index(store)
        self._agents = agents
        self._notes = Feed(store, NOTED, self._note)
        self._unsorted: list[tuple[str, date, TokenUsage]] = []
        self._cycles: dict[str, _Read] = {}
        self._lock = asyncio.Lock()

    @classmethod
    def of(cls, project: Project) -> Beside:
        """Return one for a project."""
        return cls(project.store, project.shared(AgentList.of))

    @property
    def is_whole(self) -> bool:
        """Whether all that is kept was counted."""
        return self._notes.is_complete and all(read.is_whole for read in self._cycles.values())

    async def read(self, patience: float = PATIENCE) -> None:
        """Count what is new, and what was there before for no more than `patience` seconds.

        Raises `StoreError` where it can't be read.
        """
        await self._notes.read(patience / 2)
        await self._sort_notes()
        async with self._lock:
            agents = await self._agents.all()
            until = monotonic() + patience
            for at, agent in enumerate(agents):
                read = self._cycles.setdefault(agent.name, _Read())
                latest = None if agent.last is None else (agent.last.number, agent.last.status)
                if latest is None:
                    read.is_whole = True
                elif latest != read.latest or not read.is_whole:
                    view = await Agents().get(agent.name)
                    await self._read_cycles(agent.name, view, read, until)
                    read.latest = latest
                    if at >= KEPT_OPEN:
                        await view.aclose()

    async def _read_cycles(self, name: str, view: AgentHandle, read: _Read, until: float) -> None:
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
                self._count_one(Spent(one.started_at.astimezone(UTC).date(), CYCLE, name), one.usage)
        return bool(cycles) and len(new) == len(cycles)

    def _note(self, record: Record) -> None:
        if not record.key.endswith(OF_A_NOTE):
            return
        used = from_record(Learned, record.data["value"]).usage
        if used.total_tokens or used.requests or used.failed_requests or used.cost_usd is None:
            day = (record.created_at or datetime.now(UTC)).date()
            self._unsorted.append((record.key.removesuffix(OF_A_NOTE), day, used))

    async def _sort_notes(self) -> None:
        """Count notes for the agent, model and task of the run that each came from."""
        while self._unsorted:
            notes, self._unsorted = self._unsorted[:AT_ONCE], self._unsorted[AT_ONCE:]
            rows = await self._index.find({"run_id": tuple(run_id for run_id, _, _ in notes)})
            known = {row.run_id: (row.agent, row.model, row.task) for row in rows}
            for run_id, day, used in notes:
                self._count_one(Spent(day, NOTE, *known.get(run_id, ())), used)

    def _count_one(self, on: Spent, used: TokenUsage) -> None:
        self.spent.setdefault(on, Tally()).add(Tally.of_one(used))


async def _before(view: AgentHandle, number: int | None) -> list[CycleRecord]:
    """Return the cycles before one; none where that is gone, for then all before it are, too."""
    try:
        return await view.cycles(before=number) if number is not None else []
    except ConfigError:
        return []
