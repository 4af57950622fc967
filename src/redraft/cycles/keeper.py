"""Keeper: writes what an agent keeps, and lets it go on while the database is slow or away."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redraft.core.errors import LeaseError, StoreError
from redraft.cycles.kept_cycle import cycle_of
from redraft.cycles.kept_memory import MEMORY, memory_of, memory_record, stored_memory
from redraft.cycles.memory import Memory
from redraft.cycles.memory_history import memory_after
from redraft.cycles.record import CYCLE, cycle_key
from redraft.redact.log import logger
from redraft.stores.row import row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from datetime import datetime

    from redraft.cycles.lease import Lease
    from redraft.cycles.spool import Batch, Spool
    from redraft.stores.base import Record, Store

PATIENCE = 0.015
"""Seconds that a cycle waits for what it saves."""
SILENCE = 5.0
"""Seconds after which a database that does not answer is taken to be away; much may take its time."""
LAST_WAIT = 1.0
"""Seconds that the end waits for what is not written yet."""
FIRST_WAIT = 3.0
"""Seconds that the first cycle waits for its memory."""
SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two tries, at first and at most."""


def first_number(moment: datetime) -> int:
    """Return the number of the first cycle where nobody can say what the last one was: beyond all counted.

    It is the time in seconds, so that no earlier cycle is written over, and no key of an action comes twice.
    """
    return int(moment.timestamp())


def joined(earlier: Memory, later: Memory) -> Memory:
    """Return a memory that goes on from an earlier one: its items, then those that are new."""
    items = dict(earlier.items)
    for key, found in later.items.items():
        new = {item["id"] for item in found}
        items[key] = [*(item for item in items.get(key, ()) if item["id"] not in new), *found]
    return Memory(items, max(earlier.cycle, later.cycle))


class Keeper:
    """Write what an agent keeps, in order, each save as one; an outage of the database costs it nothing.

    `load` comes first. A `save` waits 15 ms at most, and goes on behind what it does not wait for. While the
    database is away all is held here, what a later save says again only once, and in the `spool` if there is
    one; when it is back the `lease` is renewed before anything is written. A memory that could not be read at
    the start is joined to the one that began without it: see `earlier`. The log has one warning for each
    outage, and one line when it is over. For one event loop.
    """

    def __init__(
        self, store: Store, agent: str, spool: Spool | None = None, *, lease: Lease | None = None
    ) -> None:
        self.lease = lease
        self._store = store
        self._agent = agent
        self._spool = spool
        self._pending: Batch = {}
        self._writing: Batch = {}
        self._saved = self._written = 0
        self._is_away = self._is_partial = False
        self._earlier: Memory | None = None
        self._spooled: Batch = {}
        self._refused: LeaseError | None = None
        self._writer: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._hurry = asyncio.Event()

    @property
    def is_away(self) -> bool:
        """Whether the database is known to be out of reach."""
        return self._is_away

    async def load(self) -> Memory | None:
        """Take the lease, write what an earlier process could not, and return the memory.

        Where the database is away, it is what the spool says of the memory, else None: then there may be one
        that nobody can read now, and cycles must be numbered from `first_number`. Raises `LeaseError`, and
        `StoreError` for a spool that can't be used.
        """
        if self._spool is not None:
            self._pending, self._is_partial = self._spool.read()
            self._spooled = dict(self._pending)
        try:
            return await asyncio.wait_for(self._read(), FIRST_WAIT)
        except LeaseError:
            raise
        except TimeoutError:
            self._goes_away(f"it has not answered for {FIRST_WAIT:g} s")
        except StoreError as error:
            self._goes_away(str(error))
        whole = self._pending.get(MEMORY)
        self._is_partial = self._is_partial or whole is None
        self._begin()
        return None if whole is None else _gone_on(memory_of(whole), self._pending)

    async def save(self, records: Sequence[Record], /) -> None:
        """Write records as one, after all that came before; those that can't be written now are later.

        A record that no database can hold is left out, and the log says so. Raises `LeaseError` when another
        process has become the one that runs this agent.
        """
        self._check_lease()
        is_behind = bool(self._pending) or self._written < self._saved or self._is_away
        self._pending |= {(record.kind, record.key): record for record in records}
        if is_behind:
            self._hold_back(records)
        self._saved += 1
        number = self._saved
        self._begin()
        if self._is_away:
            return
        await self._until(lambda: self._written >= number or self._is_away or self._is_over(), PATIENCE)
        if self._written < number and not is_behind:
            self._hold_back(records)
        self._check_lease()

    def earlier(self) -> Memory | None:
        """Return, once, the stored memory that could not be read at the start and is known now.

        The agent goes on with `joined(earlier, its own)`; what was saved until now is joined already.
        """
        found, self._earlier = self._earlier, None
        if found is not None:
            _join(found, self._pending)
        return found

    async def settled(self) -> None:
        """Wait until all that was saved is written, or can't be."""
        await self._until(lambda: self._written >= self._saved or self._is_away or self._is_over(), None)

    async def aclose(self) -> None:
        """Write what can be written within a second, give the lease back, and let go of the spool."""
        if self._writer is not None and self._writer.cancelling():  # its event loop ends
            await asyncio.wait([self._writer])
            self._begin()
        self._hurry.set()
        await self._until(lambda: self._written >= self._saved or self._is_over(), LAST_WAIT)
        if (writer := self._writer) is not None:
            writer.cancel()
            await asyncio.wait([writer])
        if self._pending:
            where = "is lost" if self._spool is None else f"is in {self._spool.path} for the next start"
            logger.warning(
                "The agent %r ends while its database is away: what is not written by now %s.",
                self._agent,
                where,
            )
        if self.lease is not None:
            await self.lease.give_back()
        if self._spool is not None:
            self._spool.close()

    async def _read(self) -> Memory | None:
        if self.lease is not None:
            await self.lease.take()
        if self._pending:
            await self._write(self._pending)
            self._pending, self._earlier = {}, None
            self._done(self._saved, wrote=True)
        return await stored_memory(self._store)

    def _begin(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_behind(), name=f"redraft-keeper-{self._agent}")

    async def _write_behind(self) -> None:
        """Write until nothing is left to be written, however long that takes."""
        wait = SHORTEST
        while self._pending or self._is_away:
            self._writing, self._pending, through = self._pending, {}, self._saved
            try:
                await self._watched(self._write(self._writing))
            except StoreError as error:
                self._take_back()
                if isinstance(error, LeaseError):
                    self._refused = error
                    break
                if self._left_out():
                    continue
                self._goes_away(str(error))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), wait)
                self._hurry.clear()
                wait = min(2 * wait, LONGEST)
            except BaseException:
                self._take_back()
                raise
            else:
                wait, wrote, self._writing = SHORTEST, bool(self._writing), {}
                self._done(through, wrote=wrote)
        self._tell()

    async def _write(self, batch: Batch) -> None:
        if self._is_away and self.lease is not None:
            await self.lease.take()
        if self._is_partial:
            stored = await stored_memory(self._store)
            self._earlier = None if stored is None else _gone_on(stored, self._spooled)
            self._is_partial = False
        if self._earlier is not None:
            _join(self._earlier, batch)
        if batch:
            await self._store.put_all(list(batch.values()))
        elif self._is_away:
            await self._store.get(*MEMORY)  # to see whether it answers

    async def _watched(self, writing: Coroutine[Any, Any, None]) -> None:
        """Wait for what is written, and notice when no answer comes; what was sent is not taken back."""
        loop, is_over = asyncio.get_running_loop(), False

        def look() -> None:
            if not is_over:
                self._goes_away(f"it has not answered for {SILENCE:g} s")

        # Where this process itself stood still, an answer that has come goes first.
        silence = loop.call_later(SILENCE, loop.call_soon, look)
        try:
            await writing
        finally:
            is_over = True
            silence.cancel()

    def _left_out(self) -> bool:
        """Leave out what can't be stored, since what comes after would wait for it; say if there was any."""
        before = len(self._pending)
        for place, record in tuple(self._pending.items()):
            try:
                row_of(record)
            except StoreError as error:
                del self._pending[place]
                logger.error("Something that the agent %r was to keep is left out: %s", self._agent, error)  # noqa: TRY400 (the message says all)
        return len(self._pending) < before

    def _take_back(self) -> None:
        self._writing, self._pending = {}, self._writing | self._pending

    def _done(self, through: int, *, wrote: bool) -> None:
        self._written = through
        if not self._pending and self._spool is not None:
            self._spool.clear()
        if self._is_away and (wrote or not self._pending):
            self._is_away = False
            logger.info("The database of the agent %r is back, and what was not written is.", self._agent)
        self._tell()

    def _goes_away(self, why: str) -> None:
        if not self._is_away:
            self._is_away = True
            logger.warning(
                "The agent %r goes on without its database, which gets all when it is back: %s",
                self._agent,
                why,
            )
            self._tell()

    def _hold_back(self, records: Iterable[Record]) -> None:
        if self._spool is not None:
            self._spool.add(records, is_partial=self._is_partial)
            if self._spool.is_large():
                held = self._writing | self._pending
                self._spool.replace(held.values(), is_partial=self._is_partial)

    def _check_lease(self) -> None:
        refused = self._refused or (self.lease.lost if self.lease is not None else None)
        if refused is not None:
            raise LeaseError(*refused.args) from refused

    def _is_over(self) -> bool:
        return self._writer is None or self._writer.done()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for news in waiting:
            _wake(news)

    async def _until(self, holds: Callable[[], bool], within: float | None) -> None:
        """Wait until something holds, or so many seconds."""
        loop = asyncio.get_running_loop()
        end = None if within is None else loop.time() + within
        while not holds():
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                return
            news = loop.create_future()
            self._waiting.append(news)
            late = None if left is None else loop.call_later(left, _wake, news)
            try:
                await news
            finally:
                if late is not None:
                    late.cancel()


def _wake(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)


def _gone_on(memory: Memory, batch: Batch) -> Memory:
    """Return a memory as it is after the later cycles of a batch."""
    last = CYCLE, cycle_key(memory.cycle)
    later = [place for place in sorted(batch) if place[0] == CYCLE and place > last]
    return memory_after(memory, [cycle_of(batch[place]) for place in later])


def _join(earlier: Memory, batch: Batch) -> None:
    """Let the memory in a batch go on from an earlier one; to do so again changes nothing."""
    if (memory := batch.get(MEMORY)) is not None:
        batch[MEMORY] = memory_record(joined(earlier, memory_of(memory)))
