"""Session: the lease, memory, journal and mail of a running agent, from its first use to its close."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from redraft._tasks import end_tasks
from redraft.cycles.bus import AgentBus, Peers
from redraft.cycles.egress import EGRESS, Egress
from redraft.cycles.journal import (
    CycleSteps,
    IsolatedStep,
    check_step,
    journalled_cycle,
    trace_record,
)
from redraft.cycles.mail import DELIVERY, TAKEN, Mailbox, mail_record
from redraft.cycles.memory import Memory, differences
from redraft.cycles.notices import FAILURES, Failures
from redraft.cycles.outbox import Outbox
from redraft.cycles.records import (
    UNFINISHED,
    CycleRecord,
    card_of,
    data_redactor,
    listed_cycle,
    memory_record,
    new_id,
    redacted_cycle,
    stored_cycle,
    stored_memory,
)
from redraft.cycles.reflect import apply_changes
from redraft.cycles.storage import prune, register
from redraft.cycles.write_behind import CLOSE_TIMEOUT
from redraft.errors import ConfigError, LeaseError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record
from redraft.stores.run_index import CYCLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.memory import MemoryChange
    from redraft.cycles.notices import Notice, Webhook
    from redraft.cycles.records import AgentCard, CycleStatus
    from redraft.cycles.spec import Retention
    from redraft.cycles.storage import AgentLocation
    from redraft.protocols import Step

DELETE_BATCH = 100
"""The number of cycles, or of obsolete records, after which old records are deleted."""
OUTAGE = "outage"
"""The trigger in the record of the cycles that an agent ran before it could read its stored memory."""
NOT_RESUMED = "it was not resumed, since an earlier version of Redraft began it, which gave cycles no id"
ORPHANED = "its process ended, and the agent was restarted while its database was unreachable"


class SessionManager:
    """Opens an agent's session on first use, and closes it on request or when its event loop ends.

    A cycle holds the session, so that cycles run one after another, and the session closes only between
    cycles. Anything else, such as feedback, may use it during a cycle.

    Connections and locks belong to one event loop. Using another loop while the session is open raises
    `ConfigError`: if the first loop waited for the second, both would wait endlessly.
    """

    def __init__(self, agent: str, new_session: Callable[[], Session]) -> None:
        self.current: Session | None = None
        """The open session."""
        self.latest: Session | None = None
        """The last session, open or closed."""
        self._agent = agent
        self._new_session = new_session
        self._loop: asyncio.AbstractEventLoop | None = None
        # A cycle holds the cycle lock from its start to its end, and so does closing. Opening and closing,
        # also within a cycle, hold the lifetime lock.
        self._cycle_lock = self._lifetime_lock = asyncio.Lock()
        self._life: AsyncGenerator[Session] | None = None

    def forget_cycle(self) -> None:
        """Close without waiting for the current cycle, which ignores its cancellation."""
        self._cycle_lock = asyncio.Lock()

    @asynccontextmanager
    async def for_cycle(self) -> AsyncGenerator[Session]:
        """Yield the session to one cycle at a time.

        It is reopened if another process has run the agent since, which makes its data stale.
        """
        self._enter_loop()
        async with self._cycle_lock:
            session = await self.open()
            if await session.is_lost():
                await self._end_life()
                session = await self.open()
            yield session

    async def open(self) -> Session:
        """The session, opened if necessary. Raises `LeaseError` if another process runs the agent."""
        self._enter_loop()
        async with self._lifetime_lock:
            if self.current is not None:
                return self.current
            self._life = self._live()
            return await anext(self._life)

    async def close(self) -> None:
        """Close the session after the current cycle; the next use opens a new one."""
        if self.current is not None:
            self._enter_loop()
            async with self._cycle_lock:
                await self._end_life()

    async def _live(self) -> AsyncGenerator[Session]:
        """Open a session, yield it, and close it.

        As a generator, it is also closed with its event loop, which closes open generators after its last
        task, and with an agent that is garbage collected.
        """
        session = self._new_session()
        try:
            await session.open()
            self.current = self.latest = session
            yield session
        finally:
            self.current = None
            await session.aclose()

    async def _end_life(self) -> None:
        async with self._lifetime_lock:
            if self._life is not None:
                await self._life.aclose()

    def _enter_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self.current is not None or self._cycle_lock.locked() or self._lifetime_lock.locked():
            raise ConfigError(
                f"The agent {self._agent!r} is open in another event loop. Close it there first "
                "(`await agent.aclose()`), or continue there."
            )
        self._loop, self._cycle_lock, self._lifetime_lock = loop, asyncio.Lock(), asyncio.Lock()


class Session:
    """A running agent's lease, memory, journal and mail; it stores the agent's cycles.

    `open` comes first and `aclose` last. Each cycle in between calls `begin_cycle`, `step`, and one of
    `end_cycle`, `give_up` and `abandon`.

    `redact` removes secrets and personal data from plain data; `retention` bounds the keys of the memory.

    A session that opens while the store is away begins with an empty memory, and counts its cycles from 1.
    Once the store is back, the stored memory is loaded, the learnings of this session are added to it, and a
    single record is stored for all cycles that have ended meanwhile.
    """

    def __init__(
        self,
        location: AgentLocation,
        card: AgentCard,
        *,
        network: str,
        cycles: int,
        webhook: Webhook | None,
        redact: Callable[[Any], Any],
        retention: Mapping[str, Retention],
        clock: Callable[[], datetime],
        on_wait: Callable[[CycleStatus, float | None], Awaitable[None]],
    ) -> None:
        self.location = location
        self.card = card
        self.write_behind = location.write_behind()
        self.egress = Egress(self._ready_for_effect, clock, self.write_behind.save)
        self.mailbox = Mailbox(location.store, data_redactor(also=()), clock, self._save_mail)
        peers = Peers(location.agent, network, self.mailbox, self.write_behind.answer_timeout)
        self.outbox = Outbox(location, self.write_behind, self.egress, webhook, peers, redact)
        self.failures = Failures(location.agent)
        self.bus = AgentBus(location, self.write_behind, on_wait)
        self.memory = Memory()
        self.number = 0
        """The number of the last cycle that has ended."""
        self.last_started: datetime | None = None
        """When the last cycle before this session began, if that is stored."""
        self.unfinished: CycleRecord | None = None
        """The cycle to resume."""
        no_cycle = CycleRecord(0, datetime.now(UTC))
        self.steps = CycleSteps(location.store, no_cycle, self.write_behind, is_stored=False)
        """The steps of the current or the last cycle."""
        self._cycles = cycles
        self._redact = redact
        self._retention = retention
        self._clock = clock
        self._current: CycleRecord | None = None
        self._provisional: CycleRecord | None = None
        """The sum of the cycles that have ended before the stored memory could be read."""
        self._is_registered = False
        """Whether the agent's card is stored, and the state of an earlier process is loaded."""
        self._obsolete: list[tuple[str, str]] = []
        self._deleting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Acquire the lease, read the memory and the last cycle, and start to exchange mail.

        Raises `LeaseError` if another process runs the agent, `ConfigError` for an unusable database, and
        `StoreError` if a record can't be read for another reason than an outage. Call `aclose` after an
        error, too; otherwise the lease blocks the next attempt.
        """
        self.memory = await self.write_behind.load(self._catch_up) or self.location.memory
        if self.write_behind.is_provisional:
            return
        if ended := self._continue_after(await self._last_cycle()):
            await self.write_behind.write_now(ended)
        await self._register()

    async def begin_cycle(self) -> None:
        """Prepare for a cycle: register the agent if an outage has prevented that."""
        if not self._is_registered and not self.write_behind.is_away:
            try:
                await self._register()
            except LeaseError:
                raise
            except StoreError as error:
                logger.info("The card of the agent %r can't be stored yet: %s", self.location.agent, error)

    def step(self, record: CycleRecord, callers: Mapping[str, bool]) -> Step:
        """The step for the effects of a cycle; it is stored if the store outlives the process.

        `callers` are the steps that call functions of the program; true for actions.
        """
        self._current = record
        is_stored = self.location.is_durable and not self.write_behind.is_away
        self.steps = CycleSteps(self.location.store, record, self.write_behind, is_stored=is_stored)
        step = self.steps.journal(resumes=is_stored and self.unfinished is not None)
        return IsolatedStep(step, self.steps, self.location.agent, callers)

    async def _ready_for_effect(self) -> None:
        """Write all finished steps, from which the effect follows. Raises `LeaseError`, `PoisonError`."""
        check_step()
        await self.steps.written()
        await self.write_behind.check_lease()

    async def note(self, record: CycleRecord, notice: Notice | None = None) -> None:
        """Store a cycle under way, with a notice if its approvers must see the plan."""
        stored = [] if self.write_behind.is_provisional else [self._stored(record)]
        if notice is not None:
            await self.outbox.notify(notice, *stored)
        elif stored and (self.location.is_durable or record.status == "waiting"):
            await self.write_behind.save(stored)

    async def end_cycle(self, cycle: Cycle, record: CycleRecord) -> None:
        """Store a cycle that has ended, atomically: its record and trace, the memory, and the taken mail."""
        taken = [mail_record(message, TAKEN) for message in cycle.taken]
        if cycle.next_memory is not None:
            taken += [mail_record(feedback, TAKEN) for feedback in cycle.pending]
            self.bus.remove(cycle.pending)
        records: list[Record] = []
        if calls := self.steps.calls:
            trace = trace_record(record.number, calls)
            if self.location.is_durable:  # in a thread, since redacting a long prompt takes a while
                trace = replace(trace, data=await asyncio.to_thread(self._redact, dict(trace.data)))
            records.append(trace)
        memory = cycle.next_memory or replace(cycle.memory, cycle=record.number)
        if cycle.memory is not self.memory:  # the stored memory was loaded during the cycle
            record.changes, memory = self._apply_changes(cycle.changes, record.number)
        self.memory = memory
        if self.location.is_durable:
            records.append(memory_record(self.memory))
        else:
            self.location.memory = self.memory
        await self._end(record, taken, *records)

    async def give_up(self, record: CycleRecord) -> None:
        """Store a cycle that will not be resumed."""
        await self._end(record, [])

    async def abandon(self, record: CycleRecord) -> None:
        """Store a cycle that the next cycle resumes, with all its steps.

        Without a durable store, there are no steps, so the next cycle is a new one.
        """
        if not self.location.is_durable:
            await self.give_up(record)
            return
        self.steps.end()
        await self.steps.written()
        self.unfinished, self._current = record, None
        await self.note(record)

    async def deliver(self, topic: str, data: Any, delivery: str, sender: str) -> bool:
        """Store a message for the agent, once per delivery; return whether it is new."""
        key = sha256(f"{topic}\n{delivery}".encode()).hexdigest()[:32]
        store = self.location.store
        async with asyncio.timeout(self.write_behind.answer_timeout):
            if await store.get(DELIVERY, key) is not None:
                return False
            await self.mailbox.message(topic, data, sender=sender, key=key)
            # The message itself may be taken and deleted before the delivery is repeated.
            await store.put(Record(DELIVERY, key, {}))
        return True

    async def is_lost(self) -> bool:
        """Whether another process has run the agent since, which makes the data of this session stale."""
        try:
            await self.write_behind.check_lease()
        except LeaseError:
            return True
        return False

    async def aclose(self) -> None:
        """Write everything, release the lease, and close the store if it is the agent's own."""
        await self.outbox.aclose()
        self._obsolete += self.outbox.forget(None if self.unfinished is None else self.unfinished.id)
        self.steps.close()
        with suppress(TimeoutError):  # a later process deletes the rest
            async with asyncio.timeout(None if self.write_behind.answer_timeout is None else CLOSE_TIMEOUT):
                if self._deleting is not None:
                    await asyncio.wait([self._deleting])
                await self._clean_up()
        await end_tasks([self._deleting])
        await self.write_behind.aclose()
        if self.location.kind == "project":
            await self.location.store.aclose()

    async def _last_cycle(self) -> CycleRecord | None:
        """Read the last cycle; if its process was killed early, only the journal has it."""
        newest = await self.location.store.find(CYCLE, newest_first=True, limit=1)
        last = listed_cycle(newest[0]) if newest else None
        journalled = await journalled_cycle(self.location.store) if self.location.is_durable else None
        is_newer = journalled is not None and journalled.number > (0 if last is None else last.number)
        return journalled if is_newer else last

    def _continue_after(self, last: CycleRecord | None) -> list[Record]:
        """Continue after the last cycle, or resume it; return its record if it can't be resumed."""
        if last is None:
            return []
        self.number, self.last_started = last.number, last.started_at
        if not self.location.is_durable or last.status not in UNFINISHED:
            return []
        if not last.id:
            return [stored_cycle(replace(last, status="failed", error=NOT_RESUMED))]
        self.number, self.unfinished = last.number - 1, last
        return []

    async def _catch_up(self) -> list[Record]:
        """Load the stored memory after an outage at the start; return the records that this session adds."""
        stored = await stored_memory(self.location.store) or Memory()
        last = await self._last_cycle()
        # No await from here on, since a cycle may end meanwhile.
        learned, self.memory = self.memory, stored
        own, self.unfinished = self._current or self.unfinished, None
        records = self._continue_after(last)
        if own is None and self._provisional is None:
            return records
        if (orphan := self.unfinished) is not None:  # this session has run newer cycles
            self.unfinished, self.number = None, orphan.number
            records.append(stored_cycle(replace(orphan, status="failed", error=ORPHANED)))
        if self._provisional is not None:
            self.number += 1
            changes, self.memory = self._apply_changes(differences(Memory(), learned), self.number)
            ended = replace(self._provisional, id=new_id(), number=self.number, changes=changes)
            records += [memory_record(self.memory), stored_cycle(ended)]
        if own is not None:
            own.number = self.number + 1
            records.append(self._stored(own))
            self.unfinished = own if self._current is None else None
        return records

    def _apply_changes(
        self, changes: Sequence[MemoryChange], number: int
    ) -> tuple[tuple[MemoryChange, ...], Memory]:
        """Apply the changes of a cycle to the memory; return the actual changes, and the memory."""
        memory = apply_changes(self.memory, changes, number, self._retention, self._clock())
        return differences(self.memory, memory), memory

    async def _register(self) -> None:
        """Store the card, register the agent, and load the state of an earlier process."""
        self.egress.load(await self.location.store.get(EGRESS, EGRESS))
        self.failures.load(await self.location.store.get(FAILURES, FAILURES))
        stored = await card_of(self.location.store)
        self.card = replace(self.card, id=stored.id or self.card.id)
        await self.write_behind.write_now([self.card.record])
        await register(self.location)
        await self.bus.open()
        await self.outbox.open()
        self._is_registered = True

    def _stored(self, record: CycleRecord) -> Record:
        return stored_cycle(redacted_cycle(record, self._redact) if self.location.is_durable else record)

    async def _end(self, record: CycleRecord, taken: Sequence[Record], *memory: Record) -> None:
        self.number, self.unfinished, self._current = record.number, None, None
        self.write_behind.is_after_death = False
        notices: list[Notice] = []
        state = self.egress.take_record()
        if self.outbox.sends("failure", "recovery"):
            notices, failures = self.failures.report(record, self._clock())
            state += failures
        undelivered = [stored for notice in notices for stored in self.outbox.enter(notice)]
        self.steps.close()
        if self.write_behind.is_provisional:
            self.write_behind.provisional_cycles += 1
            if self._provisional is None:
                self._provisional = CycleRecord(0, record.started_at, OUTAGE, "finished")
            self._provisional.finished_at = record.finished_at
            self._provisional.usage += record.usage
            ended: list[Record] = []
        else:
            ended = [*memory, self._stored(record)]
        await self.write_behind.save([*ended, *taken, *state, *undelivered])
        self.outbox.wake()
        await self.steps.aclose()
        self._obsolete += [(mail.kind, mail.key) for mail in taken]
        self._obsolete += [*self.outbox.forget(), *self.bus.drop_questions()]
        is_due = record.number % DELETE_BATCH == 0 or len(self._obsolete) >= DELETE_BATCH
        if is_due and (self._deleting is None or self._deleting.done()):
            self._deleting = asyncio.ensure_future(self._clean_up())

    async def _clean_up(self) -> None:
        """Delete obsolete records and old cycles."""
        await self.write_behind.flush()  # mail must be stored as taken before it is deleted
        if self.write_behind.is_away or await self.is_lost():
            return
        obsolete, self._obsolete = self._obsolete, []
        try:
            await asyncio.gather(*(self.location.store.delete(kind, key) for kind, key in obsolete))
            await prune(self.location, self._cycles)
        except StoreError as error:  # a later process deletes them
            logger.info(
                "Old records of the agent %r could not be deleted yet: %s", self.location.agent, error
            )

    async def _save_mail(self, record: Record) -> None:
        try:
            await self.write_behind.save([record])
        except LeaseError:  # mail for an agent needs no lease
            await self.location.store.put(record)
