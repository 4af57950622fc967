"""Keeping: writing down what a cycle came to, all of it or nothing, in the order of the cycles."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from redraft.core.errors import LeaseError, StoreError
from redraft.cycles.kept_memory import stored_memory
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.cycles.keeper import Met
    from redraft.cycles.lease import Lease
    from redraft.cycles.memory import Memory
    from redraft.stores.base import Record, Store


class Keeping(Protocol):
    """Write the records of an agent that has the `lease`; a store out of reach costs no cycle."""

    lease: Lease | None
    silence: float | None
    """Seconds after which a store that does not answer is taken to be away; None: as long as it takes."""

    async def load(self) -> Memory | None:
        """Take the lease, and return the memory, if there is one; raises `LeaseError`."""
        ...

    @property
    def last_number(self) -> int:
        """The number after which the cycles of this process come while nobody can read the last one."""
        ...

    def met(self) -> Met | None:
        """Return, once, what could not be read at the start and is known now."""
        ...

    def number_of(self, cycle: int, /) -> int:
        """Return the number under which a cycle is kept."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether the store is known to be out of reach."""
        ...

    def goes_away(self, why: str, /) -> None:
        """Take the store to be out of reach until it answers again, and warn."""
        ...

    async def save(self, records: Sequence[Record], /) -> None:
        """Write records as one, after all that came before; those that can't be written now are later."""
        ...

    async def settled(self) -> None:
        """Wait until all that was saved is written, or can't be."""
        ...

    async def aclose(self) -> None:
        """Write what can be written, and let go of what it holds."""
        ...


class DirectKeeping:
    """Write at once, in the process or a file: a `Keeping`. What could not be written is with the next."""

    def __init__(self, store: Store, agent: str, lease: Lease | None = None) -> None:
        self.lease = lease
        self.silence: float | None = None
        self._store = store
        self._agent = agent
        self._waiting: list[Sequence[Record]] = []
        self._turn = asyncio.Lock()
        self._is_away = False

    async def load(self) -> Memory | None:
        """Take the lease, and return the memory; raises `StoreError` where it can't be read."""
        if self.lease is not None:
            await self.lease.take()
        return await stored_memory(self._store)

    @property
    def last_number(self) -> int:
        """The number before the first one: what can't be read at the start raises."""
        return 0

    def met(self) -> Met | None:
        """Return None: what can't be read at the start raises."""
        return None

    def number_of(self, cycle: int, /) -> int:
        """Return the number of a cycle as it is."""
        return cycle

    def goes_away(self, why: str, /) -> None:
        """Warn that nothing is kept; what comes next tries again."""
        if not self._is_away:
            self._is_away = True
            logger.warning("The agent %r goes on, but nothing of it is kept: %s", self._agent, why)

    @property
    def is_away(self) -> bool:
        """Whether the last write failed; one that is under way says nothing yet."""
        return self._is_away

    async def save(self, records: Sequence[Record], /) -> None:
        """Write records as one, after all that came before; logs a warning where that can't be."""
        async with self._turn:
            self._waiting.append(records)
            was_away = self._is_away
            try:
                await self._write()
            except LeaseError:
                self._waiting.clear()
                raise
            except StoreError as error:
                self.goes_away(str(error))
            else:
                if was_away:
                    logger.info("What the agent %r did meanwhile is kept now.", self._agent)

    async def settled(self) -> None:
        """Try once more what could not be written."""
        async with self._turn:
            with suppress(StoreError):  # it was said when it began
                await self._write()

    async def aclose(self) -> None:
        """Try once more what could not be written, and give the lease back."""
        await self.settled()
        if self.lease is not None:
            await self.lease.give_back()

    async def _write(self) -> None:
        while self._waiting:
            if self.lease is not None:
                await self.lease.write(self._waiting[0])
            else:
                await self._store.put_all(self._waiting[0])
            self._waiting.pop(0)
        self._is_away = False
