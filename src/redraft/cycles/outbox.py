"""Outbox: what an agent tells people, kept until it is delivered."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft._codec import from_record, to_record
from redraft.cycles.cycle import error_line
from redraft.cycles.egress import Dispatch, LimitError
from redraft.cycles.mail import NOTICE
from redraft.cycles.memory import moment_of, stamp_of
from redraft.cycles.notices import Notice
from redraft.errors import DamagedRecordError, LeaseError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record, intact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.cycles.egress import Egress
    from redraft.cycles.notices import Channel
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
    """A notice that a channel has not taken yet: how often that was tried, why it failed, and when it is due.

    `key` is the same in each attempt; `is_over` once the notice was delivered, or nobody needs it any more.
    """

    key: str
    channel: str
    notice: Notice
    attempts: int = 0
    error: str = ""
    due: str = ""
    is_over: bool = False

    @property
    def record(self) -> Record:
        """The record in which it is kept."""
        # Those that renumber the cycles of an outage look for `cycle` here, and in `data`.
        fields = to_record(self)
        data = {**fields, "data": fields.pop("notice"), "cycle": self.notice.cycle}
        return Record(NOTICE, self.key, data)

    @classmethod
    def of(cls, record: Record) -> Undelivered:
        """Return what a record keeps; raises `DamagedRecordError`."""
        fields = dict(record.data)
        fields["notice"] = fields.pop("data", None)
        fields.pop("cycle", None)
        return from_record(cls, fields)

    def seconds(self) -> float:
        """Return in how many seconds it is due."""
        due = moment_of(self.due)
        return 0.0 if due is None else max(0.0, (due - datetime.now(UTC)).total_seconds())


async def kept_notices(store: Store) -> list[Undelivered]:
    """Return the notices that an agent keeps, oldest first; those that are over go with their cycle."""
    kept: list[Undelivered] = []
    for record in intact(await store.find(NOTICE)):
        try:
            kept.append(Undelivered.of(record))
        except DamagedRecordError as error:
            logger.warning("A notice can't be read, so it is not delivered: %s", error)
    return sorted(kept, key=lambda one: one.notice.timestamp)


class Outbox:
    """Delivers notices to people through `channels`.

    They are stored with the agent's own records, and leave through `egress`; `redact` withholds secrets and
    personal data in them. What can't be delivered is tried again, later each time, by a later process if need
    be; an outage of the store does not stop that. Whoever gets a notice a second time, because a process was
    killed before it had noted the delivery, can tell by the key.
    """

    def __init__(
        self,
        location: AgentLocation,
        write_behind: WriteBehind,
        egress: Egress,
        channels: Sequence[Channel],
        redact: Callable[[Any], Any],
    ) -> None:
        self._location = location
        self._write_behind = write_behind
        self._egress = egress
        self._redact = redact
        self._channels = {channel.name: channel for channel in channels}
        self._notices: dict[str, Undelivered] = {}
        """Those of this process and of earlier ones by key, until the cycle that they are about is over."""
        self._news = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Go on with what an earlier process left."""
        if self._write_behind.is_away:
            return
        try:
            notices = await kept_notices(self._location.store)
        except StoreError as error:
            logger.info("The outbox of the agent %r can't be read now: %s", self._location.agent, error)
            return
        for one in notices:
            self._notices[one.key] = one
            if not one.is_over and one.channel not in self._channels:
                logger.warning(
                    "A notice of the agent %r to %r is not delivered: its file no longer has that channel.",
                    self._location.agent,
                    one.channel,
                )
                await self._end(one)
        self.wake()

    async def aclose(self) -> None:
        """Try once what has not been tried, and stop."""
        ends = monotonic() + CLOSE_TIMEOUT
        while (left := ends - monotonic()) > 0 and self._is_trying():
            await self._news_within(left)
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        self._tasks = {}
        if not self._location.is_durable and (waiting := self._waiting()):
            logger.warning(
                "The agent %r is closing with undelivered notices, which are lost because it is not stored: "
                "%s",
                self._location.agent,
                "; ".join(one.notice.title for one in waiting),
            )

    def _is_trying(self) -> bool:
        """Return whether there is a notice that has not been tried, and something that will try it."""
        new = {one.channel for one in self._waiting() if not one.error}
        return any(name in new and not task.done() for name, task in self._tasks.items())

    def _start(self, name: str, work: Callable[[], Any]) -> None:
        if (task := self._tasks.get(name)) is None or task.done():
            title = f"redraft-outbox-{self._location.agent} {name}"
            self._tasks[name] = asyncio.create_task(work(), name=title)

    async def tell(self, notice: Notice, *records: Record) -> None:
        """Keep a notice for each channel that tells such events, atomically with `records`, and deliver it.

        A notice that is equal but for its time to one of the same cycle is told only once.
        """
        await self._write_behind.save([*records, *self.enter(notice)])
        self.wake()

    def enter(self, notice: Notice) -> list[Record]:
        """Take a notice for delivery; return the records that keep it until then, which the caller saves."""
        title, text, details = self._redact([notice.title, notice.text, dict(notice.details)])
        notice = replace(notice, title=title, text=text, details=details)
        entered: list[Undelivered] = []
        for channel in self._channels.values():
            parts = (channel.name, notice.agent, notice.cycle, notice.event, notice.title, notice.text)
            key = sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
            if notice.event in channel.events and key not in self._notices:
                entered.append(Undelivered(key, channel.name, notice))
        self._notices |= {one.key: one for one in entered}
        if excess := self._waiting()[:-MAX_NOTICES]:
            logger.warning(
                "The agent %r dropped its %d oldest undelivered notices; it keeps at most %d.",
                self._location.agent,
                len(excess),
                MAX_NOTICES,
            )
            for one in excess:
                one.is_over = True
        return [one.record for one in (*excess, *entered)]

    async def withdraw(self, cycle: int) -> None:
        """Stop telling that a cycle waits: it was decided on."""
        for one in self._waiting():
            if one.notice.cycle == cycle and one.notice.event == "waiting":
                await self._end(one)

    def forget(self, cycle: int) -> list[Record]:
        """Forget the notices that are over, up to a cycle that is over, too; return their records."""
        over = [one for one in self._notices.values() if one.is_over and one.notice.cycle <= cycle]
        for one in over:
            del self._notices[one.key]
        return [one.record for one in over]

    def _waiting(self, channel: str | None = None) -> list[Undelivered]:
        return [one for one in self._notices.values() if not one.is_over and channel in (None, one.channel)]

    def wake(self) -> None:
        """Deliver what is waiting, in the background."""
        self._tell_news()
        for name in {one.channel for one in self._waiting()}:
            self._start(name, lambda name=name: self._deliver(self._channels[name]))

    async def _deliver(self, channel: Channel) -> None:
        """Deliver what waits for a channel, one after the other."""
        while waiting := self._waiting(channel.name):
            one = min(waiting, key=lambda one: (one.seconds(), one.notice.timestamp))
            if (seconds := one.seconds()) > 0:
                await self._news_within(seconds)
                continue
            dispatch = Dispatch(one.key, {channel.name: channel.limit})
            try:
                await self._egress.act(dispatch, lambda one=one: channel.send(one.notice, one.key))
            except LeaseError:  # the process that runs the agent now goes on with it
                self._tell_news()
                return
            except LimitError as error:
                await self._postpone(one, MAX_RETRY if error.seconds is None else error.seconds, str(error))
            except Exception as error:  # noqa: BLE001 (whatever it is, it is tried again)
                wait = min(MAX_RETRY, MIN_RETRY * 2.0 ** min(one.attempts, 20))
                one.attempts += 1
                await self._postpone(one, wait * uniform(0.75, 1.0), error_line(error))  # noqa: S311 (a jitter)
            else:
                if one.attempts:
                    logger.info("The agent %r delivered a notice after a retry.", self._location.agent)
                await self._end(one)

    async def _postpone(self, one: Undelivered, seconds: float, error: str) -> None:
        """Keep a notice for a later attempt; the first failure is a warning."""
        is_first = not one.error
        one.error = self._redact(error)
        one.due = stamp_of(datetime.now(UTC) + timedelta(seconds=seconds))
        if is_first:
            logger.warning(
                "The agent %r could not deliver a notice to %r, and will retry: %s",
                self._location.agent,
                one.channel,
                one.error,
            )
        await self._note(one)

    async def _end(self, one: Undelivered) -> None:
        """Keep, until its cycle is over, that a notice needs no delivery: a resumed cycle enters it again."""
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
