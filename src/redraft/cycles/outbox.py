"""Outbox: the notices of an agent, stored until they are delivered."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft._clock import is_future
from redraft._codec import from_record, to_record
from redraft._tasks import end_tasks
from redraft._texts import counted
from redraft.cycles.cycle import error_line
from redraft.cycles.egress import AgentEffect
from redraft.cycles.mail import NOTICE
from redraft.cycles.memory import moment_of, stamp_of
from redraft.cycles.notices import Notice
from redraft.errors import DamagedRecordError, LeaseError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record, intact

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.cycles.egress import Egress
    from redraft.cycles.notices import Webhook
    from redraft.cycles.spec import NoticeEvent
    from redraft.cycles.storage import AgentLocation
    from redraft.cycles.write_behind import WriteBehind
    from redraft.stores.base import Store

MAX_NOTICES = 1_000
"""Undelivered notices that are kept: the newest."""
MIN_RETRY, MAX_RETRY = 1.0, 3600.0
"""Seconds between two attempts to deliver a notice, at first and at most; doubled each time."""
CLOSE_TIMEOUT = 5.0
"""Seconds that closing waits for the first attempt to deliver a notice."""


@dataclass(slots=True)
class Undelivered:
    """A notice that is not delivered yet."""

    key: str
    """The idempotency key, the same in each attempt."""
    notice: Notice
    attempts: int = 0
    error: str = ""
    """Why the last attempt failed."""
    due: str = ""
    """When it is tried next; empty: now."""
    is_over: bool = False
    """Whether it was delivered, or is no longer needed."""

    @property
    def record(self) -> Record:
        """The record in which it is stored."""
        fields = to_record(self)
        data = {**fields, "data": fields.pop("notice"), "cycle": self.notice.cycle}
        return Record(NOTICE, self.key, data)

    @classmethod
    def of(cls, record: Record) -> Undelivered:
        """Read a record; raises `DamagedRecordError`."""
        fields = dict(record.data)
        fields["notice"] = fields.pop("data", None)
        fields.pop("cycle", None)
        return from_record(cls, fields)

    def seconds(self) -> float:
        """Return in how many seconds it is due."""
        due, now = moment_of(self.due), datetime.now(UTC)
        if due is None or is_future(due, now + timedelta(seconds=MAX_RETRY)):
            return 0.0
        return max(0.0, (due - now).total_seconds())


async def stored_notices(store: Store) -> list[Undelivered]:
    """Return the stored notices of an agent, oldest first; delivered ones are deleted after their cycle."""
    kept: list[Undelivered] = []
    for record in intact(await store.find(NOTICE)):
        try:
            kept.append(Undelivered.of(record))
        except DamagedRecordError as error:
            logger.warning("A notice can't be read, so it is not delivered: %s", error)
    return sorted(kept, key=lambda one: one.notice.timestamp)


class Outbox:
    """Delivers notices to people through the `webhook` of the agent's file.

    They are stored with the agent's own records, and leave through `egress`; `redact` withholds secrets and
    personal data in them. A delivery that fails is repeated, later each time, by a later process if need be;
    an outage of the store does not stop that. Delivery is at least once; receivers deduplicate by key.
    """

    def __init__(
        self,
        location: AgentLocation,
        write_behind: WriteBehind,
        egress: Egress,
        webhook: Webhook | None,
        redact: Callable[[Any], Any],
    ) -> None:
        self._location = location
        self._write_behind = write_behind
        self._egress = egress
        self._webhook = webhook
        self._redact = redact
        self._notices: dict[str, Undelivered] = {}
        """Those of this process and of earlier ones by key, until the cycle that they are about is over."""
        self._news = asyncio.Event()
        self._delivering: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Continue with the notices that an earlier process left."""
        if self._write_behind.is_away:
            return
        try:
            notices = await stored_notices(self._location.store)
        except StoreError as error:
            logger.info("The outbox of the agent %r can't be read now: %s", self._location.agent, error)
            return
        self._notices = {one.key: one for one in notices} | self._notices
        if self._webhook is None and (left := self._waiting()):
            logger.warning(
                "The agent %r drops %s that an earlier process could not deliver: its file no longer has "
                "'notify'.",
                self._location.agent,
                counted(len(left), "notice"),
            )
            for one in left:
                await self._end(one)
        self.wake()

    async def aclose(self) -> None:
        """Try once what has not been tried, and stop."""
        ends = monotonic() + CLOSE_TIMEOUT
        while (left := ends - monotonic()) > 0 and self._is_trying():
            await self._news_within(left)
        await end_tasks([self._delivering])
        self._delivering = None
        if not self._location.is_durable and (waiting := self._waiting()):
            logger.warning(
                "The agent %r is closing with undelivered notices, which are lost because it is not stored: "
                "%s",
                self._location.agent,
                "; ".join(one.notice.title for one in waiting),
            )

    def _is_trying(self) -> bool:
        """Whether there is a notice without an attempt, and a task that will make one."""
        is_delivering = self._delivering is not None and not self._delivering.done()
        return is_delivering and any(not one.error for one in self._waiting())

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
        if key in self._notices:
            return []
        self._notices[key] = entered = Undelivered(key, notice)
        if excess := self._waiting()[:-MAX_NOTICES]:
            logger.warning(
                "The agent %r dropped its %d oldest undelivered notices; it keeps at most %d.",
                self._location.agent,
                len(excess),
                MAX_NOTICES,
            )
            for one in excess:
                one.is_over = True
        return [one.record for one in (*excess, entered)]

    async def withdraw(self, cycle: str) -> None:
        """Stop delivering that a cycle waits: a person has decided."""
        for one in self._waiting():
            if one.notice.cycle_id == cycle and one.notice.event == "waiting":
                await self._end(one)

    def forget(self, unfinished: str = "") -> list[Record]:
        """Forget the notices that are over, except those of an unfinished cycle; return their records."""
        over = [one for one in self._notices.values() if one.is_over and one.notice.cycle_id != unfinished]
        for one in over:
            del self._notices[one.key]
        return [one.record for one in over]

    def _waiting(self) -> list[Undelivered]:
        return [one for one in self._notices.values() if not one.is_over]

    def wake(self) -> None:
        """Deliver the waiting notices, in the background."""
        self._tell_news()
        is_idle = self._delivering is None or self._delivering.done()
        if is_idle and self._webhook is not None and self._waiting():
            title = f"redraft-outbox-{self._location.agent}"
            self._delivering = asyncio.create_task(self._deliver(self._webhook), name=title)

    async def _deliver(self, webhook: Webhook) -> None:
        """Deliver the waiting notices one after the other."""
        while waiting := self._waiting():
            one = min(waiting, key=lambda one: (one.seconds(), one.notice.timestamp))
            if (seconds := one.seconds()) > 0:
                await self._news_within(seconds)
                continue
            try:
                await self._egress.act(
                    AgentEffect(one.key), lambda one=one: webhook.send(one.notice, one.key)
                )
            except LeaseError:  # the process that runs the agent now delivers it
                self._tell_news()
                return
            except Exception as error:  # noqa: BLE001 (whatever it is, it is tried again)
                wait = min(MAX_RETRY, MIN_RETRY * 2.0 ** min(one.attempts, 20))
                one.attempts += 1
                await self._postpone(one, wait * uniform(0.75, 1.0), error_line(error))  # noqa: S311 (a jitter)
            else:
                if one.attempts:
                    logger.info("The agent %r delivered a notice after a retry.", self._location.agent)
                await self._end(one)

    async def _postpone(self, one: Undelivered, seconds: float, error: str) -> None:
        """Store a notice for a later attempt; the first failure is a warning."""
        is_first = not one.error
        one.error = self._redact(error)
        one.due = stamp_of(datetime.now(UTC) + timedelta(seconds=seconds))
        if is_first:
            logger.warning(
                "The agent %r could not deliver a notice, and will retry: %s",
                self._location.agent,
                one.error,
            )
        await self._note(one)

    async def _end(self, one: Undelivered) -> None:
        """Store that a notice needs no delivery, until its cycle ends: a resumed cycle enters it again."""
        one.is_over = True
        await self._note(one)

    async def _note(self, one: Undelivered) -> None:
        try:
            await self._write_behind.save([one.record])
        except LeaseError:
            logger.info(
                "Another process runs the agent %r now, and delivers its notices.", self._location.agent
            )
        self._tell_news()

    def _tell_news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _news_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
