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
"""The kinds of the records, with their names in log lines."""
MAX_WAITING = 1_000
"""The limit of undelivered notices, and of undelivered messages; the oldest are dropped."""
MIN_RETRY, MAX_RETRY = 1.0, 30.0
"""The shortest and the longest pause between rounds of attempts, in seconds. A failed round doubles it."""
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
    """The agents that have received a message, while others have not."""
    is_over: bool = False
    """Whether it has been delivered, or is no longer needed."""

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
        with reading(record):  # the form of messages in earlier versions
            message = _message(agent, fields["topic"], fields["data"], fields["key"], record.created_at)
            return cls(record.key, message, attempts=1, error="it was queued")


def _message(agent: str, topic: str, data: Any, key: str, now: datetime | None) -> AgentMessage:
    message_id = sha256(f"{agent}/{key}".encode()).hexdigest()[:32]
    return AgentMessage(message_id, topic, data, stamp_of(now or datetime.now(UTC)), agent)


async def stored_outbox(store: Store, agent: str) -> list[Undelivered]:
    """The stored notices and messages of an agent, oldest first, including those that are over."""
    records = [record for kind in NAMES for record in await store.find(kind)]
    stored = restored(records, lambda record: Undelivered.of(record, agent)).values()
    return sorted(stored, key=lambda entry: entry.data.timestamp)


class Outbox:
    """Delivers notices to people, through the agent's `webhook`, and messages to other agents (`peers`).

    A notice or message that can't be delivered now is stored with the agent's records, and retried in rounds,
    by a later process if need be. Notices and messages have separate rounds, so neither waits for the other.
    Notices are sent during an outage of the store, too. Deliveries go through `egress`; `redact` removes
    secrets and personal data from notices. Delivery is at least once; receivers deduplicate by key.
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
        """Entries by key, of earlier processes too. The end of a cycle removes entries that are over."""
        self._news = asyncio.Event()
        self._deliveries: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False

    async def open(self) -> None:
        """Load the entries of an earlier process. Raises `StoreError` if they can't be read."""
        stored = await stored_outbox(self._location.store, self._location.agent)
        self._entries = {entry.key: entry for entry in stored} | self._entries
        if self._webhook is not None and (unset := self._webhook.unset):
            names = ", ".join(map(repr, unset))
            logger.warning(
                "The agent %r can't notify people: not set in the environment: %s.",
                self._location.agent,
                names,
            )
        if self._webhook is None and (undeliverable := self._waiting(NOTICE)):
            warning = (
                "The agent %r drops %s that an earlier process could not deliver, without a 'notify' now."
            )
            logger.warning(warning, self._location.agent, counted(len(undeliverable), "notice"))
            await self._end(undeliverable)
        self.wake()

    async def aclose(self) -> None:
        """Try to deliver each new entry, and stop."""
        self._is_closing = True
        self._news.set()
        tasks = self._deliveries.values()
        if tasks and not all(entry.attempts for entry in self._waiting()):
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT)
        await end_tasks(tasks)
        await self._peers.aclose()
        if not self._location.is_durable and (waiting := self._waiting()):
            lost = "; ".join(f"{entry.event}: {entry.title}" for entry in waiting)
            warning = "The agent %r is closing, and since it is not stored, it never delivers: %s"
            logger.warning(warning, self._location.agent, lost)

    def sends(self, *events: NoticeEvent) -> bool:
        """Whether people are notified of any of these events."""
        return self._webhook is not None and self._webhook.sends(*events)

    async def notify(self, notice: Notice, *records: Record) -> None:
        """Store a notice atomically with `records`, and deliver it.

        A notice that equals an earlier notice of the same cycle, except for its time, is not sent again.
        """
        await self._write_behind.save([*records, *self.enter(notice)])
        self.wake()

    def enter(self, notice: Notice) -> list[Record]:
        """Accept a notice if its event is sent; return the records that the caller must store."""
        if not self.sends(notice.event):
            return []
        title, text, details = self._redact([notice.title, notice.text, dict(notice.details)])
        notice = replace(notice, title=title, text=text, details=details)
        parts = (notice.agent, notice.cycle_id, notice.event, notice.title, notice.text)
        key = sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
        return [] if key in self._entries else self._add(Undelivered(key, notice))

    async def publish(self, topic: str, data: Any, key: str) -> bool:
        """Send data to all agents that listen to a topic, once per `key`; False if it is queued.

        It is queued after earlier messages, so that messages arrive in order.
        """
        message = _message(self._location.agent, topic, to_json(data), key, None)
        if (earlier := self._entries.get(message.id)) is not None:
            return earlier.is_over
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
        """Stop delivering the notice that a cycle waits, since a person has decided."""
        await self._end(
            [entry for entry in self._waiting(NOTICE) if (entry.event, entry.cycle_id) == ("waiting", cycle)]
        )

    def forget(self, unfinished: str | None = None) -> list[tuple[str, str]]:
        """Forget the entries that are over, except notices of the `unfinished` cycle.

        Returns the kinds and keys of their records.
        """
        over = [entry for entry in self._entries.values() if entry.is_over and entry.cycle_id != unfinished]
        for entry in over:
            del self._entries[entry.key]
        return [(entry.kind, entry.key) for entry in over]

    def wake(self) -> None:
        """Deliver the waiting entries in the background."""
        self._news.set()
        self._news = asyncio.Event()
        for kind in NAMES:
            task = self._deliveries.get(kind)
            if self._waiting(kind) and (task is None or task.done()):
                name = f"redraft-{kind}-{self._location.agent}"
                self._deliveries[kind] = asyncio.create_task(self._deliver_all(kind), name=name)

    def _waiting(self, *kinds: str) -> list[Undelivered]:
        return [
            entry for entry in self._entries.values() if not entry.is_over and entry.kind in (kinds or NAMES)
        ]

    def _add(self, entry: Undelivered) -> list[Record]:
        """Add an entry, and end the oldest ones in excess; return the records to store."""
        self._entries[entry.key] = entry
        excess = self._waiting(entry.kind)[:-MAX_WAITING]
        for dropped in excess:
            warning = "The agent %r drops its oldest undelivered %s, %r, since it keeps at most %d."
            logger.warning(warning, self._location.agent, NAMES[entry.kind], dropped.title, MAX_WAITING)
            dropped.is_over = True
        return [changed.record for changed in (*excess, entry)]

    async def _deliver_all(self, kind: str) -> None:
        """Deliver the waiting entries: new entries immediately, the others in rounds."""
        wait, next_round = MIN_RETRY, 0.0
        while waiting := self._waiting(kind):
            news, is_round = self._news, monotonic() >= next_round and not self._is_closing
            to_try = [entry for entry in waiting if is_round or not entry.attempts]
            if not to_try:
                if self._is_closing:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(next_round - monotonic()):
                        await news.wait()
                continue
            can_send = kind == NOTICE or not self._write_behind.is_away
            try:
                failed = [entry for entry in to_try if can_send and not await self._try(entry)]
                await self._write_behind.save([entry.record for entry in failed])
            except LeaseError:
                logger.info("Another process runs the agent %r now, and delivers.", self._location.agent)
                return
            if is_round:
                next_round = monotonic() + wait * uniform(0.75, 1.0)  # noqa: S311 (a jitter)
                wait = min(2 * wait, MAX_RETRY) if failed else MIN_RETRY

    async def _try(self, entry: Undelivered) -> bool:
        """Try to deliver an entry; True if it is over. Raises `LeaseError`."""
        if entry.is_over:
            return True
        name = NAMES[entry.kind]
        try:
            await self._egress.act(entry.key, lambda: self._deliver(entry))
        except LeaseError:
            raise
        except Exception as error:  # noqa: BLE001 (any error leads to a retry)
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
        """Store that entries are over.

        Their records stay until a cycle ends, so that a resumed cycle does not deliver them again.
        """
        for entry in entries:
            entry.is_over = True
        await self._write_behind.save([entry.record for entry in entries])
