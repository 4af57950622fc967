"""Outbox: the notices and messages of an agent, stored until they are delivered."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft._codec import from_record, to_json, to_record
from redraft._tasks import end_tasks
from redraft._texts import counted
from redraft.cycles.cycle import error_line
from redraft.cycles.egress import AgentEffect
from redraft.cycles.mail import NOTICE, OUTBOX, AgentMessage
from redraft.cycles.memory import stamp_of
from redraft.cycles.notices import Notice
from redraft.errors import LeaseError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record, reading, restored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.cycles.bus import Peers
    from redraft.cycles.egress import Egress
    from redraft.cycles.notices import Webhook
    from redraft.cycles.spec import NoticeEvent
    from redraft.cycles.storage import AgentLocation
    from redraft.cycles.write_behind import WriteBehind
    from redraft.stores.base import Store

NAMES = {NOTICE: "notice", OUTBOX: "message"}
"""The kinds of the records, each with the name of its content."""
MAX_WAITING = 1_000
"""Undelivered notices, and undelivered messages, that an agent keeps: the newest."""
MIN_RETRY, MAX_RETRY = 1.0, 30.0
"""Seconds between two rounds of attempts, at first and at most; doubled after each round with a failure."""
CLOSE_TIMEOUT = 5.0
"""Seconds that closing waits for the first attempt at a delivery."""


@dataclass(slots=True)
class Undelivered:
    """A notice to people, or a message to other agents, that is not delivered yet."""

    key: str
    """The idempotency key, the same in each attempt."""
    data: Notice | AgentMessage
    attempts: int = 0
    error: str = ""
    """Why the last attempt failed."""
    reached: list[str] = field(default_factory=list[str])
    """The agents that have got a message, while others have not."""
    is_over: bool = False
    """Whether it was delivered, or is no longer needed."""

    @property
    def kind(self) -> str:
        """The kind of its record: `notice`, or `outbox` for a message."""
        return NOTICE if isinstance(self.data, Notice) else OUTBOX

    @property
    def record(self) -> Record:
        """The record in which it is stored."""
        return Record(self.kind, self.key, to_record(self))

    @property
    def event(self) -> str:
        """The event of a notice, or `message`."""
        return self.data.event if isinstance(self.data, Notice) else "message"

    @property
    def cycle_id(self) -> str:
        """The ULID of the cycle that a notice is about; empty for a message."""
        return self.data.cycle_id if isinstance(self.data, Notice) else ""

    @property
    def title(self) -> str:
        """The title of a notice, or the topic of a message."""
        return self.data.title if isinstance(self.data, Notice) else self.data.topic

    @classmethod
    def of(cls, record: Record, agent: str) -> Undelivered:
        """Read a record of an agent; raises `DamagedRecordError`."""
        fields = dict(record.data)
        if "topic" not in fields:
            return from_record(cls, fields)
        with reading(record):  # a message as it was stored before messages and notices had one form
            message = _message(agent, fields["topic"], fields["data"], fields["key"], record.created_at)
            return cls(record.key, message, attempts=1, error="it was queued")


def _message(agent: str, topic: str, data: Any, key: str, now: datetime | None) -> AgentMessage:
    message_id = sha256(f"{agent}/{key}".encode()).hexdigest()[:32]
    return AgentMessage(message_id, topic, data, stamp_of(now or datetime.now(UTC)), agent)


async def stored_outbox(store: Store, agent: str) -> list[Undelivered]:
    """Return the stored notices and messages of an agent, oldest first; those that are over included."""
    records = [record for kind in NAMES for record in await store.find(kind)]
    stored = restored(records, lambda record: Undelivered.of(record, agent)).values()
    return sorted(stored, key=lambda one: one.data.timestamp)


class Outbox:
    """Delivers notices to people, through the agent's `webhook`, and messages to other agents (`peers`).

    What can't be delivered now is stored with the agent's own records, and tried again in rounds, by a later
    process if need be. Notices and messages have rounds of their own, so neither waits for the other;
    notices go out during an outage of the store, too. Deliveries leave through `egress`; `redact` withholds
    secrets and personal data in notices. Delivery is at least once; receivers deduplicate by key.
    """

    def __init__(
        self,
        location: AgentLocation,
        write_behind: WriteBehind,
        egress: Egress,
        webhook: Webhook | None,
        peers: Peers,
        redact: Callable[[Any], Any],
    ) -> None:
        self._location = location
        self._write_behind = write_behind
        self._egress = egress
        self._webhook = webhook
        self._peers = peers
        self._redact = redact
        self._entries: dict[str, Undelivered] = {}
        """Those of this process and of earlier ones by key, until a cycle ends after they are over."""
        self._news = asyncio.Event()
        self._deliveries: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False

    async def open(self) -> None:
        """Continue with what an earlier process left; raises `StoreError` if that can't be read."""
        stored = await stored_outbox(self._location.store, self._location.agent)
        self._entries = {one.key: one for one in stored} | self._entries
        if self._webhook is None and (left := self._waiting(NOTICE)):
            warning = (
                "The agent %r drops %s that an earlier process could not deliver, without a 'notify' now."
            )
            logger.warning(warning, self._location.agent, counted(len(left), "notice"))
            await self._end(left)
        self.wake()

    async def aclose(self) -> None:
        """Try once what has not been tried, and stop."""
        self._is_closing = True
        self._news.set()
        tasks = self._deliveries.values()
        if tasks and not all(one.attempts for one in self._waiting()):
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT)
        await end_tasks(tasks)
        await self._peers.aclose()
        if not self._location.is_durable and (waiting := self._waiting()):
            lost = "; ".join(f"{one.event}: {one.title}" for one in waiting)
            warning = "The agent %r is closing, and since it is not stored, it never delivers: %s"
            logger.warning(warning, self._location.agent, lost)

    def sends(self, *events: NoticeEvent) -> bool:
        """Whether people are notified of any of these events."""
        return self._webhook is not None and self._webhook.sends(*events)

    async def notify(self, notice: Notice, *records: Record) -> None:
        """Store a notice atomically with `records`, and deliver it.

        A notice that equals another one of the same cycle, except for its time, is sent only once.
        """
        await self._write_behind.save([*records, *self.enter(notice)])
        self.wake()

    def enter(self, notice: Notice) -> list[Record]:
        """Accept a notice if its event is sent; return the records to store, which is up to the caller."""
        if not self.sends(notice.event):
            return []
        title, text, details = self._redact([notice.title, notice.text, dict(notice.details)])
        notice = replace(notice, title=title, text=text, details=details)
        parts = (notice.agent, notice.cycle_id, notice.event, notice.title, notice.text)
        key = sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
        return [] if key in self._entries else self._add(Undelivered(key, notice))

    async def publish(self, topic: str, data: Any, key: str) -> bool:
        """Send data to all agents that listen to a topic, once per `key`; return False if it is queued.

        It is queued after earlier messages, so that all of them arrive in their order.
        """
        message = _message(self._location.agent, topic, to_json(data), key, None)
        if (known := self._entries.get(message.id)) is not None:
            return known.is_over
        entry = Undelivered(message.id, message, attempts=1, error="it waits for earlier messages")
        if self._write_behind.is_away:
            entry.error = "the database is away"
        elif not self._waiting(OUTBOX):
            try:
                await self._deliver(entry)
            except (StoreError, TimeoutError) as error:
                entry.error = error_line(error)
            else:
                return True
        logger.info("The agent %r queued a message to send later: %s", self._location.agent, entry.error)
        await self._write_behind.save(self._add(entry))
        self.wake()
        return False

    async def withdraw(self, cycle: str) -> None:
        """Stop delivering that a cycle waits: a person has decided."""
        decided = [one for one in self._waiting(NOTICE) if (one.event, one.cycle_id) == ("waiting", cycle)]
        await self._end(decided)

    def forget(self, unfinished: str | None = None) -> list[tuple[str, str]]:
        """Forget what is over, except notices of an `unfinished` cycle; return its kinds and keys."""
        over = [one for one in self._entries.values() if one.is_over and one.cycle_id != unfinished]
        for one in over:
            del self._entries[one.key]
        return [(one.kind, one.key) for one in over]

    def wake(self) -> None:
        """Deliver in the background what waits."""
        self._news.set()
        self._news = asyncio.Event()
        for kind in NAMES:
            task = self._deliveries.get(kind)
            if self._waiting(kind) and (task is None or task.done()):
                name = f"redraft-{kind}-{self._location.agent}"
                self._deliveries[kind] = asyncio.create_task(self._deliver_all(kind), name=name)

    def _waiting(self, *kinds: str) -> list[Undelivered]:
        return [one for one in self._entries.values() if not one.is_over and one.kind in (kinds or NAMES)]

    def _add(self, entry: Undelivered) -> list[Record]:
        """Add an entry, and end the oldest ones in excess; return the records to store."""
        self._entries[entry.key] = entry
        excess = self._waiting(entry.kind)[:-MAX_WAITING]
        for one in excess:
            warning = "The agent %r drops its oldest undelivered %s, %r, since it keeps at most %d."
            logger.warning(warning, self._location.agent, NAMES[entry.kind], one.title, MAX_WAITING)
            one.is_over = True
        return [one.record for one in (*excess, entry)]

    async def _deliver_all(self, kind: str) -> None:
        """Deliver what waits, in rounds: new entries immediately, all others in each round."""
        wait, next_round = MIN_RETRY, 0.0
        while waiting := self._waiting(kind):
            news, is_round = self._news, monotonic() >= next_round and not self._is_closing
            due = [one for one in waiting if is_round or not one.attempts]
            if not due:
                if self._is_closing:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(next_round - monotonic()):
                        await news.wait()
                continue
            can_send = kind == NOTICE or not self._write_behind.is_away
            try:
                failed = [one for one in due if can_send and not await self._try(one)]
                await self._write_behind.save([one.record for one in failed])
            except LeaseError:
                logger.info("Another process runs the agent %r now, and delivers.", self._location.agent)
                return
            if is_round:
                next_round = monotonic() + wait * uniform(0.75, 1.0)  # noqa: S311 (a jitter)
                wait = min(2 * wait, MAX_RETRY) if failed else MIN_RETRY

    async def _try(self, entry: Undelivered) -> bool:
        """Try to deliver an entry; return whether it is over. Raises `LeaseError`."""
        if entry.is_over:
            return True
        name = NAMES[entry.kind]
        try:
            await self._egress.act(AgentEffect(entry.key), lambda: self._deliver(entry))
        except LeaseError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it is tried again)
            is_first, entry.error = not entry.error, self._redact(error_line(error))
            entry.attempts += 1
            if is_first:
                warning = "The agent %r could not deliver a %s, and will retry: %s"
                logger.warning(warning, self._location.agent, name, entry.error)
            return False
        if entry.attempts:
            logger.info("The agent %r delivered a %s after a retry.", self._location.agent, name)
        await self._end([entry])
        return True

    async def _deliver(self, entry: Undelivered) -> None:
        if isinstance(entry.data, AgentMessage):
            await self._peers.send(entry.data, entry.reached)
        elif self._webhook is not None:
            await self._webhook.send(entry.data, entry.key)

    async def _end(self, entries: Sequence[Undelivered]) -> None:
        """Store that entries need no delivery, until a cycle ends: a resumed cycle enters them again."""
        for one in entries:
            one.is_over = True
        await self._write_behind.save([one.record for one in entries])
