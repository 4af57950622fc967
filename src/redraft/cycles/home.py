"""AgentHome: what one agent keeps, from the time when its process begins to the time when it ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft.core.errors import LeaseError, StoreError
from redraft.cycles.card import card_of
from redraft.cycles.journal import CycleJournal, check_lease, unjournalled
from redraft.cycles.kept_cycle import fit_to_keep, listed_cycle, stored_cycle
from redraft.cycles.kept_memory import EACH, make_whole, memory_record
from redraft.cycles.mail import FEEDBACK, MESSAGE, TAKEN, mail_record, thin_out
from redraft.cycles.memory import Memory
from redraft.cycles.places import held, hold, register
from redraft.cycles.record import CYCLE, UNFINISHED, cycle_key
from redraft.redact.log import logger
from redraft.stores.base import intact

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.core.protocols import Step
    from redraft.cycles.card import AgentCard
    from redraft.cycles.cycle import Cycle
    from redraft.cycles.keeping import Keeping
    from redraft.cycles.places import AgentPlace
    from redraft.cycles.record import CycleRecord
    from redraft.stores.base import Record, Store

AT_ONCE = 100


class AgentHome:
    """Hold an agent's memory and keep it: `place` is where, and `keeping` how it is written there.

    `withheld` gives plain data without the secrets in it.
    """

    def __init__(
        self,
        place: AgentPlace,
        keeping: Keeping,
        card: AgentCard,
        *,
        cycles: int,
        withheld: Callable[[Any], Any],
    ) -> None:
        self.place = place
        self.keeping = keeping
        self.memory = Memory()
        self.number = 0
        self.unfinished: CycleRecord | None = None
        self.card = card
        self._cycles = cycles
        self._withheld = withheld
        self._journal: CycleJournal | None = None
        self._is_new = True
        self._is_introduced = False
        self._whole_at: int | None = None
        self._to_delete: list[tuple[str, str]] = []
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take the lease, and read what there is: the memory, and the last cycle.

        Raises `LeaseError` where another process runs the agent, `ConfigError` for a database that can't be
        used as it is, and `StoreError` where nothing can be read for another reason than an outage.
        """
        store = self.place.store
        memory = await self.keeping.load()
        self.memory = held(store) if memory is None else memory
        if self.keeping.is_away:
            self.number = self.keeping.last_number
            return
        newest = await store.find(CYCLE, newest_first=True, limit=1)
        if newest:
            last = listed_cycle(newest[0])
            self.unfinished = last if self.place.lasts and last.status in UNFINISHED else None
            self.number = last.number - (self.unfinished is not None)
        await self._introduce()
        if self.place.lasts:
            await prune(self.place, self._cycles)

    async def begin(self) -> None:
        """Get ready for a cycle: go on from what an outage has hidden until now."""
        if (met := self.keeping.met()) is not None:
            self.memory, self._whole_at = met.goes_on(self.memory), None
            self.number = met.numbers.of(self.number)
            if self.unfinished is not None:
                self.unfinished = met.numbers.cycle(self.unfinished)
        if not self._is_introduced and not self.keeping.is_away:
            try:
                await self._introduce()
            except LeaseError:
                raise
            except StoreError as error:
                logger.info("What %r is can't be written down yet: %s", self.place.agent, error)

    async def _introduce(self) -> None:
        """Leave the card of the agent, and have it found by others."""
        before = await card_of(self.place.store)
        self.card = replace(self.card, id=before.id or self.card.id)
        if (lease := self.keeping.lease) is not None:
            await lease.write([self.card.record])
        else:
            await self.place.store.put(self.card.record)
        await register(self.place)
        self._is_introduced = True

    async def is_lost(self) -> bool:
        """Say whether another process has come to run the agent, so that what is known here is old."""
        try:
            await check_lease(self.keeping)
        except LeaseError:
            return True
        return False

    def raise_if_lost(self) -> None:
        """Raise `LeaseError` where it is known that another process has come to run the agent."""
        lease = self.keeping.lease
        if lease is not None and lease.lost is not None:
            raise LeaseError(*lease.lost.args) from lease.lost

    def step(self, number: int) -> Step:
        """Return what carries out the effects of a cycle: a journal, where it would outlive the process."""
        if not self.place.lasts or self.keeping.is_away:
            self._journal = None
            return unjournalled(self.keeping)
        # Only what an earlier process left can be there already.
        self._journal = CycleJournal(self.place.store, number, self.keeping, resumes=self._is_new)
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
        if self._journal is not None:
            self._journal.close()
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
        if self.keeping.is_away or await self.is_lost():
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
    last_kept = await _last_kept(store, cycles)
    if last_kept is not None:
        older = await store.find(CYCLE, newest_first=True, after=last_kept, limit=1)
        await make_whole(store, listed_cycle(older[0]).number if older else 0)
        while old := await store.find(CYCLE, newest_first=True, after=last_kept, limit=AT_ONCE):
            counts["cycles"] += len(old)
            await asyncio.gather(*(store.delete(CYCLE, record.key) for record in old))
    for kind in (FEEDBACK, MESSAGE):
        while found := intact(await store.find(kind, where={"status": TAKEN}, limit=AT_ONCE)):
            counts["mail"] += len(found)
            await asyncio.gather(*(store.delete(kind, record.key) for record in found))
    counts["mail"] += await thin_out(store)
    return counts


async def _last_kept(store: Store, cycles: int) -> Record | None:
    """Return the oldest record of the newest so many cycles; None if there are no more than these."""
    newest = await store.find(CYCLE, newest_first=True, limit=1)
    oldest = await store.find(CYCLE, limit=1)
    if not newest or listed_cycle(newest[0]).number - listed_cycle(oldest[0]).number < cycles:
        return None  # the numbers leave no room for more
    left, last = cycles, None
    while left:
        page = await store.find(CYCLE, newest_first=True, after=last, limit=min(left, AT_ONCE))
        if not page:
            return None
        left, last = left - len(page), page[-1]
    return last
