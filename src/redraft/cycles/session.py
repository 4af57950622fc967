"""Session: what a running agent has open (its lease, memory, journal and mail), and for how long."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from redraft._codec import from_record
from redraft.cycles.cycle import data_redactor
from redraft.cycles.journal import CycleSteps, check_lease, unjournalled
from redraft.cycles.mail import (
    FEEDBACK,
    OUTBOX,
    PENDING,
    POLL_SECONDS,
    TAKEN,
    AgentMessage,
    Feedback,
    Mailbox,
    card_of,
    drop_excess_mail,
    mail_id,
    mail_record,
    pending_mail,
    ring,
    ring_count,
    wait_for_ring,
)
from redraft.cycles.memory import Memory
from redraft.cycles.records import (
    CYCLE,
    UNFINISHED,
    cycle_key,
    listed_cycle,
    memory_record,
    redacted_cycle,
    stored_cycle,
)
from redraft.cycles.storage import keeper_for, known_locations, prune, register
from redraft.cycles.write_behind import PATIENCE
from redraft.errors import ConfigError, LeaseError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record, intact

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
    from datetime import datetime

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.mail import AgentCard
    from redraft.cycles.records import CycleRecord
    from redraft.cycles.storage import AgentLocation
    from redraft.cycles.write_behind import WriteBehind
    from redraft.protocols import Step
    from redraft.stores.base import Where

DELETE_BATCH = 100
"""Records of no more use after which they are deleted, and cycles after which excess mail is."""
MAX_FEEDBACK = 1_000
"""How much feedback one cycle takes at most."""
MIN_RESEND, MAX_RESEND = 0.5, 30.0
"""Seconds between two attempts to send what could not be sent, at first and at most."""
REFRESH_SECONDS = 5.0
"""Seconds for which the other agents of the network are remembered."""


class WaitListener(Protocol):
    """Be told that a cycle starts or stops waiting for a person, within so many seconds."""

    async def __call__(self, cycle: int, within: float | None, /, *, is_waiting: bool) -> None:
        """Take note of it."""
        ...


class SessionManager:
    """Open the session of an agent on first use; close it on request, or before its event loop ends.

    `current` is the open session, `latest` also one that is closed. Connections and locks belong to one event
    loop. Using another one while the session is open raises `ConfigError`: waiting might never end, if the
    first loop waits for the second.
    """

    def __init__(self, agent: str, open_session: Callable[[], Awaitable[Session]]) -> None:
        self.current: Session | None = None
        self.latest: Session | None = None
        self._agent = agent
        self._open_session = open_session
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cycle_lock = self._open_lock = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def for_cycle(self) -> AsyncGenerator[Session]:
        """Return the session for one cycle at a time.

        It is reopened if another process has run the agent since: what was known of the agent is old.
        """
        self._enter_loop()
        async with self._cycle_lock:
            session = await self.open()
            if await session.is_lost():
                async with self._open_lock:
                    self.current = None
                    await session.aclose()
                session = await self.open()
            yield session

    async def open(self) -> Session:
        """Return the session, opened if need be; raises `LeaseError` if another process runs the agent."""
        self._enter_loop()
        async with self._open_lock:
            if self.current is None:
                self.current = self.latest = await self._open_session()
                if self._closing is None or self._closing.done():
                    self._closing = asyncio.create_task(
                        self._close_with_loop(), name=f"redraft-session-{self._agent}"
                    )
            return self.current

    async def close(self) -> None:
        """Close the session after the cycle under way; the next use opens another one."""
        if (session := self.current) is None:
            return
        self._enter_loop()
        async with self._cycle_lock:
            if self.current is session:
                self.current = None
                await session.aclose()
        if self._closing is not None and self._closing is not asyncio.current_task():
            self._closing.cancel()
            await asyncio.wait([self._closing])

    def _enter_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self.current is not None or self._cycle_lock.locked() or self._open_lock.locked():
            raise ConfigError(
                f"The agent {self._agent!r} is open in another event loop. Close it there first "
                "(`await agent.aclose()`), or continue there."
            )
        self._loop, self._cycle_lock, self._open_lock = loop, asyncio.Lock(), asyncio.Lock()

    async def _close_with_loop(self) -> None:
        """Wait until the event loop ends, which cancels its remaining tasks."""
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        await self.close()


class Session:
    """Hold a running agent's lease, memory, journal and mail, and write down its cycles.

    `number` is that of the last cycle that has ended, `unfinished` a cycle to be resumed. `redact` withholds
    the secrets in plain data.
    """

    def __init__(
        self,
        location: AgentLocation,
        card: AgentCard,
        *,
        network: str,
        cycles: int,
        redact: Callable[[Any], Any],
        clock: Callable[[], datetime],
        on_wait: WaitListener,
    ) -> None:
        self.location = location
        self.card = card
        self.keeper = keeper_for(location)
        self.mailbox = Mailbox(location.store, data_redactor(also=()), clock, self._save_mail)
        self.bus = AgentBus(location, network, self.mailbox, self.keeper, on_wait)
        self.memory = Memory()
        self.number = 0
        self.unfinished: CycleRecord | None = None
        self._cycles = cycles
        self._redact = redact
        self._steps: CycleSteps | None = None
        self._may_resume = True
        self._is_registered = False
        self._obsolete: list[tuple[str, str]] = []
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take the lease, and read the memory and the last cycle.

        Raises `LeaseError` if another process runs the agent, `ConfigError` for an unusable database, and
        `StoreError` if something can't be read for another reason than an outage.
        """
        try:
            await self._read()
        except BaseException:
            await self.keeper.aclose()  # else the lease would block the next attempt
            raise
        await self.bus.open()

    async def _read(self) -> None:
        memory = await self.keeper.load()
        self.memory = self.location.memory if memory is None else memory
        if self.keeper.is_away:
            self.number = self.keeper.last_provisional_number
            return
        newest = await self.location.store.find(CYCLE, newest_first=True, limit=1)
        if newest:
            last = listed_cycle(newest[0])
            is_unfinished = self.location.is_durable and last.status in UNFINISHED
            self.unfinished = last if is_unfinished else None
            self.number = last.number - is_unfinished
        await self._register()
        if self.location.is_durable:
            await prune(self.location, self._cycles)

    async def _register(self) -> None:
        """Store the agent's card, and let others find the agent."""
        stored = await card_of(self.location.store)
        self.card = replace(self.card, id=stored.id or self.card.id)
        if self.keeper.lease is not None:
            await self.keeper.lease.write([self.card.record])
        else:
            await self.location.store.put(self.card.record)
        await register(self.location)
        self._is_registered = True

    async def aclose(self) -> None:
        """Write what is to be written, give back the lease, and close the store if it is the agent's own."""
        await self.bus.aclose()
        if self._steps is not None:
            self._steps.close()
        await self._sweep()
        await self.keeper.aclose()
        if self.location.kind == "project":
            await self.location.store.aclose()

    async def is_lost(self) -> bool:
        """Return whether another process has run the agent since, so that what is known here is old."""
        try:
            await check_lease(self.keeper)
        except LeaseError:
            return True
        return False

    def raise_if_lost(self) -> None:
        """Raise `LeaseError` if another process is known to have run the agent since."""
        lease = self.keeper.lease
        if lease is not None and lease.lost is not None:
            raise LeaseError(*lease.lost.args) from lease.lost

    async def begin_cycle(self) -> None:
        """Get ready for a cycle: after an outage, continue from what is stored."""
        if (found := self.keeper.reconciliation()) is not None:
            self.memory = found.merge(self.memory)
            self.number = found.number(self.number)
            if self.unfinished is not None:
                self.unfinished = found.cycle(self.unfinished)
        if not self._is_registered and not self.keeper.is_away:
            try:
                await self._register()
            except LeaseError:
                raise
            except StoreError as error:
                logger.info("The card of the agent %r can't be stored yet: %s", self.location.agent, error)

    def step(self, number: int) -> Step:
        """Return the step for the effects of a cycle: a journal if that would outlive the process."""
        if not self.location.is_durable or self.keeper.is_away:
            self._steps = None
            return unjournalled(self.keeper)
        self._steps = CycleSteps(self.location.store, number, self.keeper)
        # Only an earlier process, or an abandoned cycle, can have left steps of this cycle.
        resumes, self._may_resume = self._may_resume, False
        return self._steps.journal(resumes=resumes)

    async def steps_written(self) -> None:
        """Wait until every step that must not be repeated is written."""
        if self._steps is not None:
            await self._steps.settled()

    async def note(self, record: CycleRecord) -> None:
        """Store a cycle under way: a person who decides wants to see on what."""
        if self.location.is_durable or record.status == "waiting":
            await self.keeper.save([self._stored(record)])

    async def end_cycle(self, cycle: Cycle, record: CycleRecord) -> None:
        """Store a cycle that has ended: its record, the memory, and what it took, atomically."""
        taken = [mail_record(one, TAKEN) for one in cycle.taken]
        if cycle.next_memory is not None:
            taken += [mail_record(one, TAKEN) for one in cycle.pending]
        self.memory = cycle.next_memory or replace(self.memory, cycle=record.number)
        if self.location.is_durable:
            await self._end(record, [memory_record(self.memory), self._stored(record), *taken], taken)
        else:
            self.location.memory = self.memory
            await self._end(record, [self._stored(record), *taken], taken)

    async def give_up(self, record: CycleRecord) -> None:
        """Store a cycle that will not be resumed."""
        await self._end(record, [self._stored(record)], [])

    async def abandon(self, record: CycleRecord) -> None:
        """Store a cycle that is to be resumed as the next one, with all its steps.

        An agent of the process keeps no steps, so its next cycle is another one.
        """
        if not self.location.is_durable:
            await self.give_up(record)
            return
        if self._steps is not None:
            await self._steps.written()
        self.unfinished, self._may_resume = record, True
        await self.note(record)

    def _stored(self, record: CycleRecord) -> Record:
        return stored_cycle(redacted_cycle(record, self._redact) if self.location.is_durable else record)

    async def _end(self, record: CycleRecord, records: list[Record], taken: list[Record]) -> None:
        self.number, self.unfinished = record.number, None
        await self.keeper.save(records)
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()
        self._obsolete += [(mail.kind, mail.key) for mail in taken]
        if record.number > self._cycles:
            self._obsolete.append((CYCLE, cycle_key(record.number - self._cycles)))
        is_time = record.number % DELETE_BATCH == 0
        is_much = len(self._obsolete) >= (DELETE_BATCH if self.location.is_durable else 1)
        if (is_much or is_time) and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.ensure_future(self._delete_obsolete(mail=is_time))

    async def _sweep(self) -> None:
        """Delete what is obsolete, after the deletion under way."""
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])
        await self._delete_obsolete()

    async def _delete_obsolete(self, *, mail: bool = False) -> None:
        await self.keeper.flush()  # mail must have been written as taken first
        if self.keeper.is_away or await self.is_lost():
            return
        obsolete, self._obsolete = self._obsolete, []
        try:
            await asyncio.gather(*(self.location.store.delete(kind, key) for kind, key in obsolete))
            if mail:
                await drop_excess_mail(self.location.store)
        except StoreError as error:  # the next start prunes it, too
            logger.info("Old records of %r are not deleted yet: %s", self.location.agent, error)

    async def _save_mail(self, record: Record) -> None:
        try:
            await self.keeper.save([record])
        except LeaseError:  # anybody may leave mail for an agent
            await self.location.store.put(record)


class AgentBus:
    """Carry mail to and from a running agent: a `Bus`.

    What this process sends is seen at once, what another one sends within 0.2 seconds. While the store is
    away nothing is asked of it; what is to be sent is saved with the agent's own records, and sent when the
    store is back, by a later process if need be. `on_wait` is told when a cycle waits for a person.
    """

    def __init__(
        self,
        location: AgentLocation,
        network: str,
        mailbox: Mailbox,
        keeper: WriteBehind,
        on_wait: WaitListener,
    ) -> None:
        self._location = location
        self._network = network
        self._mailbox = mailbox
        self._keeper = keeper
        self._on_wait = on_wait
        self._feedback: list[Feedback] = []
        self._own: list[Feedback] = []
        self._resending: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[list[Feedback]] | None = None
        self._rings = -1
        self._looked_at = 0.0
        self._others: list[tuple[AgentLocation, AgentCard]] = []
        self._refreshed_at = -REFRESH_SECONDS

    async def open(self) -> None:
        """Start sending what an earlier process could not."""
        if self._keeper.is_away:
            return
        try:
            waiting = await self._location.store.find(OUTBOX, limit=1)
        except StoreError as error:
            logger.info("The outbox of the agent %r can't be read now: %s", self._location.agent, error)
        else:
            if waiting:
                self._send_later()

    async def aclose(self) -> None:
        """Stop looking and sending, and close the stores of other agents."""
        for task in (self._resending, self._looking):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._looking = None
        for location, _ in self._others:
            if location.kind == "project":
                await location.store.aclose()
        self._others, self._refreshed_at = [], -REFRESH_SECONDS

    # Feedback

    def add_own(self, feedback: Feedback) -> None:
        """Add feedback given in this process: cycles see it before the store does."""
        self._own = [*self._own, feedback][-MAX_FEEDBACK:]

    async def feedback(self) -> tuple[Feedback, ...]:
        """Return all feedback that no cycle has taken yet, oldest first."""
        agent = self._location.agent
        is_due = ring_count(agent) != self._rings or monotonic() - self._looked_at >= POLL_SECONDS
        if is_due and not self._keeper.is_away:
            self._rings, self._looked_at = ring_count(agent), monotonic()
            found = await self._look()
            self._feedback = self._feedback if found is None else found
        known = {one.id for one in self._feedback}
        own = [one for one in self._own if one.id not in known]
        return tuple(sorted([*self._feedback, *own], key=attrgetter("id")))

    def remove(self, feedback: tuple[Feedback, ...]) -> None:
        """Forget feedback that a cycle has taken."""
        taken = {one.id for one in feedback}
        self._feedback = [one for one in self._feedback if one.id not in taken]
        self._own = [one for one in self._own if one.id not in taken]
        if self._looking is not None:  # what it finds may be older than this
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> list[Feedback] | None:
        """Return pending feedback; None if that can't be read, or takes too long, and then counts later."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(pending_mail(self._location.store, Feedback, MAX_FEEDBACK))
        is_remote = self._location.storage is not None
        done, _ = await asyncio.wait([self._looking], timeout=PATIENCE if is_remote else None)
        if not done:
            return None
        looked, self._looking = self._looking, None
        try:
            return looked.result()
        except StoreError as error:
            if not self._keeper.is_away:
                logger.info("Feedback for the agent %r can't be read now: %s", self._location.agent, error)
            return None

    async def verdict(
        self,
        cycle: int,
        within: float | None,
        known: Collection[str] = (),
        /,
    ) -> Feedback | None:
        """Wait for a person's verdict on the plan of a cycle; None after `within` seconds."""
        await self._on_wait(cycle, within, is_waiting=True)
        found = await self._next_verdict(cycle, within, known)
        # Not after a cancellation: the wait continues when the cycle is resumed.
        await self._on_wait(cycle, within, is_waiting=False)
        return found

    async def _next_verdict(
        self, cycle: int, seconds: float | None, known: Collection[str]
    ) -> Feedback | None:
        end = None if seconds is None else monotonic() + seconds
        while True:
            rings = ring_count(self._location.agent)
            if (found := await self._find_verdict(cycle, known)) is not None:
                return found
            left = POLL_SECONDS if end is None else min(POLL_SECONDS, end - monotonic())
            if left <= 0:
                return None
            await wait_for_ring(self._location.agent, rings, left)

    async def _find_verdict(self, cycle: int, known: Collection[str]) -> Feedback | None:
        for one in self._own:
            if one.cycle == cycle and one.id not in known:
                return one
        try:
            where: Where = {"status": PENDING, "cycle": (cycle, self._keeper.stored_number(cycle))}
            found = intact(await self._location.store.find(FEEDBACK, where=where))
        except StoreError:  # away; it may be back in time
            return None
        new = (record for record in found if record.key not in known)
        return next((from_record(Feedback, record.data) for record in new), None)

    # Messages

    async def messages(self, topic: str | None, limit: int, /) -> list[AgentMessage]:
        """Return the newest messages that no cycle has taken yet, oldest first; none if unreadable."""
        if self._keeper.is_away:
            return []
        try:
            async with asyncio.timeout(self._keeper.silence):
                return await pending_mail(self._location.store, AgentMessage, limit, topic=topic)
        except (StoreError, TimeoutError) as error:
            logger.info("Messages for the agent %r can't be read now: %s", self._location.agent, error)
            return []

    async def newest_message(self, topic: str | None) -> str | None:
        """Return the id of the newest message that no cycle has taken yet, if there is one."""
        return next((message.id for message in await self.messages(topic, 1)), None)

    async def publish(self, topic: str, data: Any, key: str, /) -> bool:
        """Send data to all agents that listen to a topic, once per `key`; return False if it is queued."""
        if not self._keeper.is_away:
            try:
                async with asyncio.timeout(self._keeper.silence):
                    await self._send(topic, data, key)
            except (StoreError, TimeoutError) as error:
                logger.info("The agent %r sends later what it can't now: %s", self._location.agent, error)
            else:
                return True
        queued = Record(OUTBOX, mail_id(self._mailbox.clock()), {"topic": topic, "data": data, "key": key})
        await self._keeper.save([queued])
        self._send_later()
        return False

    async def _send(self, topic: str, data: Any, key: str) -> None:
        sender = self._location.agent
        message_id = sha256(f"{sender}/{key}".encode()).hexdigest()[:32]
        for location, card in await self._other_agents():
            if card.listens_to(topic):
                mailbox = Mailbox(location.store, self._mailbox.redact, self._mailbox.clock)
                await mailbox.message(topic, data, sender=sender, key=message_id)
                ring(location.agent)

    def _send_later(self) -> None:
        if self._resending is None or self._resending.done():
            self._resending = asyncio.create_task(
                self._resend(), name=f"redraft-outbox-{self._location.agent}"
            )

    async def _resend(self) -> None:
        """Send what is in the outbox as soon as that is possible."""
        store, wait = self._location.store, MIN_RESEND
        while True:
            await self._keeper.flush()
            if not self._keeper.is_away:
                try:
                    if not (queued := intact(await store.find(OUTBOX, limit=DELETE_BATCH))):
                        return
                    for record in queued:
                        await check_lease(self._keeper)
                        await self._send(record.data["topic"], record.data["data"], record.data["key"])
                        await store.delete(OUTBOX, record.key)
                except LeaseError:  # the process that runs the agent now sends it
                    return
                except StoreError as error:
                    logger.info("The agent %r can't send its outbox yet: %s", self._location.agent, error)
                    wait = min(2 * wait, MAX_RESEND)
            await asyncio.sleep(wait)

    async def _other_agents(self) -> list[tuple[AgentLocation, AgentCard]]:
        """Return the other agents of the network with their cards."""
        if monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = monotonic()
            self._others = [
                (location, await card_of(location.store))
                for location in await known_locations(self._network)
                if location.agent != self._location.agent
            ]
        return self._others
