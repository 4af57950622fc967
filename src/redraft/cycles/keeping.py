"""Keeping: writing down what a cycle came to, all of it or nothing, in the order of the cycles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from redraft.core.errors import StoreError
from redraft.cycles.kept_memory import stored_memory
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.cycles.lease import Lease
    from redraft.cycles.memory import Memory
    from redraft.stores.base import Record, Store


class Keeping(Protocol):
    """Write the records of an agent that has the `lease`; a store out of reach costs no cycle."""

    lease: Lease | None

    async def load(self) -> Memory | None:
        """Take the lease, and return the memory, if there is one; raises `LeaseError`."""
        ...

    def earlier(self) -> Memory | None:
        """Return, once, a memory that could not be read at the start and is known now."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether the store is known to be out of reach."""
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

    def earlier(self) -> Memory | None:
        """Return None: what can't be read at the start raises."""
        return None

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
            except StoreError as error:
                if not was_away:
                    logger.warning("The agent %r goes on, but nothing of it is kept: %s", self._agent, error)
            else:
                if was_away:
                    logger.info("What the agent %r did meanwhile is kept now.", self._agent)

    async def settled(self) -> None:
        """Try once more what could not be written."""
        async with self._turn:
            try:
                await self._write()
            except StoreError:  # it was said when it began
                return

    async def aclose(self) -> None:
        """Try once more what could not be written, and give the lease back."""
        await self.settled()
        if self.lease is not None:
            await self.lease.give_back()

    async def _write(self) -> None:
        while self._waiting:
            try:
                await self._store.put_all(self._waiting[0])
            except StoreError:
                self._is_away = True
                raise
            self._waiting.pop(0)
        self._is_away = False
