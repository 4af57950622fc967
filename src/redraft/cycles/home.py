"""AgentHome: what one agent keeps, from the time when its process begins to the time when it ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft.core.errors import LeaseError, StoreError
from redraft.core.steps import direct
from redraft.cycles.card import card_of
from redraft.cycles.journal import CycleJournal
from redraft.cycles.keeper import first_number, joined
from redraft.cycles.kept_cycle import cycle_of, fit_to_keep, stored_cycle
from redraft.cycles.kept_memory import EACH, make_whole, memory_record
from redraft.cycles.mail import FEEDBACK, MESSAGE, TAKEN, mail_record, thin_out
from redraft.cycles.memory import Memory
from redraft.cycles.places import held, hold, register
from redraft.cycles.record import CYCLE, UNFINISHED, cycle_key
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from redraft.core.protocols import Step
    from redraft.cycles.card import AgentCard
    from redraft.cycles.cycle import Cycle
    from redraft.cycles.keeping import Keeping
    from redraft.cycles.places import AgentPlace
    from redraft.cycles.record import CycleRecord
    from redraft.stores.base import Record

AT_ONCE = 100


class AgentHome:
    """Hold an agent's memory and keep it: `place` is where, and `keeping` how it is written there.

    `withheld` gives plain data without the secrets in it. `patience` is how many seconds the journal waits
    for a store that does not answer.
    """

    def __init__(
        self,
        place: AgentPlace,
        keeping: Keeping,
        card: AgentCard,
        *,
        cycles: int,
        withheld: Callable[[Any], Any],
        patience: float | None = None,
    ) -> None:
        self.place = place
        self.keeping = keeping
        self.memory = Memory()
        self.number = 0
        self.unfinished: CycleRecord | None = None
        self.card = card
        self._cycles = cycles
        self._withheld = withheld
        self._patience = patience
        self._journal: CycleJournal | None = None
        self._is_new = True
        self._whole_at: int | None = None
        self._to_delete: list[tuple[str, str]] = []
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self, now: datetime) -> None:
        """Take the lease, and read what there is: the memory, and the last cycle.

        Raises `LeaseError` where another process runs the agent, and `StoreError` where nothing can be read
        for another reason than an outage of the database.
        """
        store = self.place.store
        memory = await self.keeping.load()
        self.memory = held(store) if memory is None else memory
        if self.keeping.is_away:
            self.number = first_number(now) - 1
            await self.keeping.save([self.card.record])
            return
        newest = await store.find(CYCLE, newest_first=True, limit=1)
        if newest:
            last = cycle_of(newest[0])
            self.unfinished = last if self.place.lasts and last.status in UNFINISHED else None
            self.number = last.number - (self.unfinished is not None)
        before = await card_of(store)
        self.card = replace(self.card, id=before.id or self.card.id)
        await store.put(self.card.record)
        await register(self.place)
        if self.place.lasts:
            await prune(self.place, self._cycles)

    async def begin(self) -> None:
        """Get ready for a cycle; raises `LeaseError` where another process has come to run the agent."""
        lease = self.keeping.lease
        if lease is not None and lease.lost is not None:
            raise LeaseError(*lease.lost.args) from lease.lost
        if (earlier := self.keeping.earlier()) is not None:
            self.memory, self._whole_at = joined(earlier, self.memory), None

    def step(self, number: int) -> Step:
        """Return what carries out the effects of a cycle: a journal, where it would outlive the process."""
        if not self.place.lasts or self.keeping.is_away:
            self._journal = None
            return direct
        # Only what an earlier process left can be there already.
        self._journal = CycleJournal(
            self.place.store,
            number,
            resumes=self._is_new,
            is_away=lambda: self.keeping.is_away,
            patience=self._patience,
        )
        self._is_new = False
        return self._journal

    async def settled(self) -> None:
        """Wait until what a cycle has done and must not do again is written."""
        if self._journal is not None:
            await self._journal.settled()

    async def note(self, record: CycleRecord) -> None:
        """Write down how a cycle stands that has not ended: a person who decides wants to see on what."""
        if self.place.lasts or record.status == "waiting":
            kept = fit_to_keep(record, self._withheld) if self.place.lasts else record
            await self.keeping.save([stored_cycle(kept)])

    async def end(self, cycle: Cycle, record: CycleRecord) -> None:
        """Write down a cycle that has ended: its record, the memory, and what it took, as one."""
        kept = fit_to_keep(record, self._withheld) if self.place.lasts else record
        taken: list[Record] = [mail_record(one, TAKEN) for one in cycle.taken]
        if cycle.next_memory is not None:
            self.memory = cycle.next_memory
            taken += [mail_record(one, TAKEN) for one in cycle.pending]
        if not self.place.lasts:
            hold(self.place.store, self.memory)
        await self._ended(kept, taken)

    async def give_up(self, record: CycleRecord) -> None:
        """Write down a cycle that nobody will go on with."""
        await self._ended(record, [])

    async def abandon(self, record: CycleRecord) -> None:
        """Write down a cycle that is to go on as the next one, now or at the next start, with all its steps.

        In the process no step is kept, and the next cycle is another one.
        """
        if not self.place.lasts:
            await self.give_up(record)
            return
        if self._journal is not None:
            await self._journal.written()
        self.unfinished, self._is_new = record, True
        await self.note(record)

    async def aclose(self) -> None:
        """Write what is to be written, and let go of the store if it is the agent's own."""
        await self._sweep()
        await self.keeping.aclose()
        if self.place.kind == "project":
            await self.place.store.aclose()

    async def _ended(self, record: CycleRecord, taken: list[Record]) -> None:
        self.number, self.unfinished = record.number, None
        await self.keeping.save([*self._whole(), stored_cycle(record), *taken])
        self._gone(record.number, taken)

    def _whole(self) -> list[Record]:
        """Return the memory as a whole where that is to be written; else what each cycle changes is enough.

        It is at the first cycle of a process and after so many, before the oldest of their changes is gone;
        and while the store is away, so that the spool knows it without the store.
        """
        each = min(EACH, self._cycles)
        is_due = self._whole_at is None or self.number - self._whole_at >= each or self.keeping.is_away
        if not self.place.lasts or not is_due:
            return []
        self._whole_at = self.number
        return [memory_record(self.memory)]

    def _gone(self, number: int, taken: list[Record]) -> None:
        """Note what nobody needs any more of a cycle, and begin to delete it when it has become much."""
        journal, self._journal = self._journal, None
        self._to_delete += [(record.kind, record.key) for record in taken]
        if number > self._cycles:
            self._to_delete.append((CYCLE, cycle_key(number - self._cycles)))
        if journal is not None:
            journal.close()
        is_much = len(self._to_delete) >= (AT_ONCE if self.place.lasts else 1)
        is_time = number % AT_ONCE == 0
        if (is_much or is_time) and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.ensure_future(self._deleted(mail=is_time))

    async def _sweep(self) -> None:
        """Delete what is left to be deleted."""
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])
        await self._deleted()

    async def _deleted(self, *, mail: bool = False) -> None:
        await self.keeping.settled()  # what is taken must have been written as taken first
        if self.keeping.is_away:
            return
        gone, self._to_delete = self._to_delete, []
        try:
            await asyncio.gather(*(self.place.store.delete(kind, key) for kind, key in gone))
            if mail:
                await thin_out(self.place.store)
        except StoreError as error:  # the next start finds it, too
            logger.info("What %r has no more use for is not deleted yet: %s", self.place.agent, error)


async def prune(place: AgentPlace, cycles: int) -> dict[str, int]:
    """Delete what is beyond the bounds: of cycles, and mail that was taken or that too much waits before.

    Return how many records of each kind there were.
    """
    store, counts = place.store, {"cycles": 0, "mail": 0}
    newest = await store.find(CYCLE, newest_first=True, limit=1)
    last = cycle_of(newest[0]) if newest else None
    if last is not None:
        bound = cycle_key(max(0, last.number - cycles))
        await make_whole(store, last.number - cycles)
        while keys := [
            record.key for record in await store.find(CYCLE, limit=AT_ONCE) if record.key <= bound
        ]:
            counts["cycles"] += len(keys)
            await asyncio.gather(*(store.delete(CYCLE, key) for key in keys))
    for kind in (FEEDBACK, MESSAGE):
        while found := await store.find(kind, where={"status": TAKEN}, limit=AT_ONCE):
            counts["mail"] += len(found)
            await asyncio.gather(*(store.delete(kind, record.key) for record in found))
    counts["mail"] += await thin_out(store)
    return counts
