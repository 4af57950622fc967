"""Write-behind: store an agent's records in order, and hold them while the store is away."""

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
"""Seconds after which a database that does not answer counts as away; far away, connecting takes 5 s."""
OPEN_TIMEOUT = 30.0
"""Seconds that the first cycle waits for its memory; a database that can't be reached fails after 10 s."""
CLOSE_TIMEOUT = 3.0
"""Seconds that closing waits for a database that is away."""
MIN_RETRY, MAX_RETRY = 0.05, 1.0
"""Seconds between two attempts, at first and at most."""

Batch: TypeAlias = "dict[tuple[str, str], Record]"
"""Records to be written, the latest of each kind and key."""
CatchUp: TypeAlias = "Callable[[], Awaitable[Sequence[Record]]]"
"""Reads what is stored, and returns the records that join it with what the agent did without knowing it."""


class WriteBehind:
    """Writes an agent's records in order, each `save` atomically, and waits for that while the store answers.

    Call `load` first. While the store is away, the latest record of each kind and key is held here; once it
    is back, the `lease` is renewed and they are written. What is held when the process ends is lost. An
    outage logs one warning when it begins and one line when it is over. A record that no store can hold is
    dropped with an error in the log.

    An agent may start while a `remote` store is away. A local store that can't be read at the start is an
    error.

    For one event loop.
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
        """Whether the store is known to be out of reach."""
        self.is_provisional = False
        """Whether the store has been away since the start, so that what it holds is unknown."""
        self.provisional_cycles = 0
        """How many cycles have ended meanwhile."""
        self._remote = remote
        self._store = store
        self._agent = agent
        self._catch_up: CatchUp | None = None
        self._held: Batch = {}
        self._refused: LeaseError | None = None
        self._writer: asyncio.Task[None] | None = None
        self._away = asyncio.Event()
        self._retry = asyncio.Event()

    async def load(self, catch_up: CatchUp | None = None) -> Memory | None:
        """Acquire the lease and return the stored memory, if any.

        While a remote store is away, returns None, and the agent `is_provisional`; once the store is back,
        `catch_up` is called before anything is written. Raises `LeaseError`,
        `ConfigError` for a database that does not exist or refuses the user, and `StoreError` for a local
        store that can't be read.
        """
        try:
            async with asyncio.timeout(OPEN_TIMEOUT if self._remote else None):
                if self.lease is not None:
                    await self.lease.acquire()
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
        """Write records atomically, after everything saved before; in an outage, hold them and return.

        Raises `LeaseError` once another process runs this agent.
        """
        self.raise_if_lost()
        self._held |= _batch(records)
        self._start_writer()
        await self.flush()
        self.raise_if_lost()

    async def write_now(self, records: Sequence[Record], store: Store | None = None) -> None:
        """Write records atomically, not after those saved; `store` is another store of the same records.

        Raises `LeaseError` if another process runs this agent, and `StoreError` in an outage.
        """
        with self._marking_away_on_timeout():
            if self.lease is not None:
                await self.lease.write(records, store)
            else:
                await (store or self._store).put_all(records)

    async def flush(self) -> None:
        """Wait until everything saved is written, or the store is away."""
        if (writer := self._writer) is not None and await self.written(writer) and not writer.cancelled():
            writer.result()  # raises what is no outage

    async def written(self, *writing: asyncio.Task[Any]) -> bool:
        """Wait until tasks that write are done; return False if the store is away first."""
        left: set[asyncio.Task[Any]] = {task for task in writing if not task.done()}
        if left and not self.is_away:
            away: asyncio.Task[Any] = asyncio.create_task(self._away.wait())
            try:
                while left and not away.done():
                    _, pending = await asyncio.wait({*left, away}, return_when=asyncio.FIRST_COMPLETED)
                    left &= pending
            finally:
                away.cancel()
        return not left

    async def check_lease(self) -> None:
        """Raise `LeaseError` before an effect if another process runs the agent now."""
        if self.lease is not None:
            await self.lease.check()

    def raise_if_lost(self) -> None:
        """Raise `LeaseError` if another process is known to have run the agent since."""
        if self._refused is not None:
            raise LeaseError(*self._refused.args) from self._refused
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
        if (self._held or (self.is_provisional and self.provisional_cycles)) and self._refused is None:
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
            self._writer = asyncio.create_task(self._write_held(), name=f"redraft-write-behind-{self._agent}")

    async def _write_held(self) -> None:
        """Write until nothing is held, however long that takes."""
        wait = MIN_RETRY
        while self._held or self.is_away:
            batch, self._held = self._held, {}
            try:
                if self.is_away:
                    batch |= await self._after_outage()
                if batch:
                    await self.write_now(list(batch.values()))
            except StoreError as error:
                self._held = batch | self._held
                if isinstance(error, LeaseError):
                    self._refused = error
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
                self._held = batch | self._held
                raise
            else:
                wait = MIN_RETRY
                if self.is_away:
                    self.is_away = False
                    self._away.clear()
                    back = "The store of the agent %r is reachable again; all records were written."
                    logger.info(back, self._agent)

    async def _after_outage(self) -> Batch:
        """Renew the lease, which fails while the store is away; return what catching up has to write."""
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
        """Mark the store as away if it does not answer meanwhile; the write goes on."""
        if self.answer_timeout is None:
            yield
            return
        loop, is_over = asyncio.get_running_loop(), False

        def check() -> None:
            if not is_over:
                self.mark_away(f"it has not answered for {self.answer_timeout:g} s")

        # Once more through the loop: after a pause of this process, an answer that has arrived comes first.
        timer = loop.call_later(self.answer_timeout, loop.call_soon, check)
        try:
            yield
        finally:
            is_over = True
            timer.cancel()

    def _drop_unstorable(self) -> bool:
        """Drop records that can't be stored and would block all others; return whether there were any."""
        before = len(self._held)
        for key, record in tuple(self._held.items()):
            try:
                NewRow.of(record)
            except StoreError as error:
                del self._held[key]
                logger.error("Dropped a record of the agent %r that can't be stored: %s", self._agent, error)  # noqa: TRY400 (the message says all)
        return len(self._held) < before


def _batch(records: Sequence[Record]) -> Batch:
    return {(record.kind, record.key): record for record in records}
