"""Write-behind: write an agent's records in order, and hold them in memory while the store is away."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from redraft._tasks import end_tasks
from redraft.cycles.records import MEMORY, stored_memory
from redraft.errors import ConfigError, DamagedRecordError, LeaseError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import NewRow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from typing import Any

    from redraft.cycles.lease import Lease
    from redraft.cycles.memory import Memory
    from redraft.stores.base import Record, Store

ANSWER_TIMEOUT = 10.0
"""Seconds after which a database that does not answer is away. Connecting to a distant one takes 5 s."""
OPEN_TIMEOUT = 30.0
"""Seconds that the first cycle waits for its memory. Connecting to an unreachable database takes 10 s."""
CLOSE_TIMEOUT = 3.0
"""Seconds that closing waits for a database that is away."""
MIN_RETRY, MAX_RETRY = 0.05, 1.0
"""The shortest and the longest pause between attempts, in seconds."""

Batch: TypeAlias = "dict[tuple[str, str], Record]"
"""Records to write: the latest of each kind and key."""
CatchUp: TypeAlias = "Callable[[], Awaitable[Sequence[Record]]]"
"""Loads the stored state after an outage at the start, and returns the records that the agent adds to it."""


class WriteBehind:
    """Writes an agent's records in order, each `save` atomically, and waits for the store while it answers.

    Call `load` first. While the store is away, the latest record of each kind and key is held in memory; once
    it is back, the `lease` is renewed and the records are written. Records that are held when the process
    ends are lost. An outage logs a warning when it begins and a line when it is over. A record that no store
    can hold is dropped with an error in the log.

    An agent may start while a `remote` store is away. A local store that can't be read at the start is an
    error.

    Bound to one event loop.
    """

    def __init__(
        self,
        store: Store,
        agent: str,
        *,
        lease: Lease | None = None,
        remote: bool = True,
    ) -> None:
        self.lease = lease
        self.answer_timeout = ANSWER_TIMEOUT if remote else None
        self.is_away = False
        """Whether the store is out of reach."""
        self.is_provisional = False
        """Whether the store has been away since the start, so that the stored state is unknown."""
        self.provisional_cycles = 0
        """The number of cycles that have ended while `is_provisional`."""
        self.is_after_death = False
        """Whether no cycle has ended since a process of the agent died."""
        self._remote = remote
        self._store = store
        self._agent = agent
        self._catch_up: CatchUp | None = None
        self._unwritten: Batch = {}
        self._lease_error: LeaseError | None = None
        self._writer: asyncio.Task[None] | None = None
        self._away = asyncio.Event()
        self._retry = asyncio.Event()

    async def load(self, catch_up: CatchUp | None = None) -> Memory | None:
        """Acquire the lease and read the stored memory, if any.

        While a remote store is away, the result is None, and the agent `is_provisional`; once the store is
        back, `catch_up` is called before anything is written. Raises `LeaseError`, `ConfigError` for a
        database that does not exist or refuses the user, and `StoreError` for a local store that can't be
        read.
        """
        try:
            async with asyncio.timeout(OPEN_TIMEOUT if self._remote else None):
                if self.lease is not None:
                    await self.lease.acquire()
                    self.is_after_death = self.lease.follows_death
                return await stored_memory(self._store)
        except (LeaseError, ConfigError, DamagedRecordError):
            await self._release()
            raise
        except TimeoutError:
            reason = f"it has not answered for {OPEN_TIMEOUT:g} s"
        except StoreError as error:
            if not self._remote:
                await self._release()
                raise
            reason = str(error)
        self.is_provisional, self._catch_up = True, catch_up
        self.mark_away(reason)
        return None

    async def save(self, records: Sequence[Record], /) -> None:
        """Write records atomically, after all saved records; in an outage, hold them and return.

        Raises `LeaseError` once another process runs this agent.
        """
        self.raise_if_lost()
        self._unwritten |= _batch(records)
        self._start_writer()
        await self.flush()
        self.raise_if_lost()

    async def write_now(self, records: Sequence[Record], store: Store | None = None) -> None:
        """Write records atomically, without waiting for saved records.

        `store` is another store of the same records. Raises `LeaseError` if another process runs this agent,
        and `StoreError` in an outage.
        """
        with self._marking_away_on_timeout():
            if self.lease is not None:
                await self.lease.write(records, store)
            else:
                await (store or self._store).put_all(records)

    async def flush(self) -> None:
        """Wait until all saved records are written, or the store is away."""
        if (writer := self._writer) is not None and await self.written(writer) and not writer.cancelled():
            writer.result()  # raises errors other than an outage

    async def written(self, *writing: asyncio.Task[Any]) -> bool:
        """Wait until writing tasks are done; False if the store is away before that."""
        unfinished: set[asyncio.Task[Any]] = {task for task in writing if not task.done()}
        if unfinished and not self.is_away:
            away: asyncio.Task[Any] = asyncio.create_task(self._away.wait())
            try:
                while unfinished and not away.done():
                    _, pending = await asyncio.wait({*unfinished, away}, return_when=asyncio.FIRST_COMPLETED)
                    unfinished &= pending
            finally:
                away.cancel()
        return not unfinished

    async def check_lease(self) -> None:
        """Raise `LeaseError` before an effect if another process runs the agent now."""
        if self.lease is not None:
            await self.lease.check()

    def raise_if_lost(self) -> None:
        """Raise `LeaseError` if this process has detected that another one has run the agent since."""
        if self._lease_error is not None:
            raise LeaseError(*self._lease_error.args) from self._lease_error
        if self.lease is not None:
            self.lease.raise_if_lost()

    def mark_away(self, reason: str) -> None:
        """Treat the store as out of reach until it answers again, and log one warning."""
        if self.is_away:
            return
        self.is_away = True
        self._away.set()
        logger.warning(
            "The agent %r continues without its store; what it does meanwhile is lost if its process ends "
            "before the store is reachable again: %s",
            self._agent,
            reason,
        )
        self._start_writer()

    async def aclose(self) -> None:
        """Write everything, for at most three seconds if the store is away, and release the lease."""
        if self._writer is not None and self._writer.cancelling():  # its event loop ends
            await asyncio.wait([self._writer])
            self._start_writer()
        if (writer := self._writer) is not None:
            await self.written(writer)
            self._retry.set()
            await asyncio.wait([writer], timeout=CLOSE_TIMEOUT)
            await end_tasks([writer])
        if (
            self._unwritten or (self.is_provisional and self.provisional_cycles)
        ) and self._lease_error is None:
            logger.warning(
                "The agent %r is shutting down while its store is unreachable; its unsaved records are lost.",
                self._agent,
            )
        await self._release()

    async def _release(self) -> None:
        if self.lease is not None:
            await self.lease.release()

    # The writer: a background task while there is something to write, or the store is away

    def _start_writer(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all(), name=f"redraft-write-behind-{self._agent}")

    async def _write_all(self) -> None:
        """Write until no record is left, however long that takes."""
        wait = MIN_RETRY
        while self._unwritten or self.is_away:
            batch, self._unwritten = self._unwritten, {}
            try:
                if self.is_away:
                    batch |= await self._after_outage()
                if batch:
                    await self.write_now(list(batch.values()))
            except StoreError as error:
                self._unwritten = batch | self._unwritten
                if isinstance(error, LeaseError):
                    self._lease_error = error
                    return
                if self._drop_unstorable():
                    continue
                self.mark_away(str(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._retry.wait()
                self._retry.clear()
                wait = min(2 * wait, MAX_RETRY)
            except BaseException:
                self._unwritten = batch | self._unwritten
                raise
            else:
                wait = MIN_RETRY
                if self.is_away:
                    self.is_away = False
                    self._away.clear()
                    message = "The store of the agent %r is reachable again; all records were written."
                    logger.info(message, self._agent)

    async def _after_outage(self) -> Batch:
        """Renew the lease, which fails while the store is away; return the records of catching up."""
        if self.lease is not None:
            await self.lease.acquire()
        else:
            await self._store.get(*MEMORY)
        if not self.is_provisional:
            return {}
        records = () if self._catch_up is None else await self._catch_up()
        self.is_provisional, self._catch_up = False, None
        return _batch(records)

    @contextmanager
    def _marking_away_on_timeout(self) -> Generator[None]:
        """Mark the store as away if the block takes too long; the block continues."""
        if self.answer_timeout is None:
            yield
            return
        loop, is_over = asyncio.get_running_loop(), False

        def check() -> None:
            if not is_over:
                self.mark_away(f"it has not answered for {self.answer_timeout:g} s")

        # Twice through the loop: after a pause of this process, an answer that has arrived is handled first.
        timer = loop.call_later(self.answer_timeout, loop.call_soon, check)
        try:
            yield
        finally:
            is_over = True
            timer.cancel()

    def _drop_unstorable(self) -> bool:
        """Drop records that can't be stored, and would block all others; return whether there were any."""
        before = len(self._unwritten)
        for key, record in tuple(self._unwritten.items()):
            try:
                NewRow.of(record)
            except StoreError as error:
                del self._unwritten[key]
                logger.error("Dropped a record of the agent %r that can't be stored: %s", self._agent, error)  # noqa: TRY400 (the message says all)
        return len(self._unwritten) < before


def _batch(records: Sequence[Record]) -> Batch:
    return {(record.kind, record.key): record for record in records}
