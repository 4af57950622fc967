"""Keeping: writing down what a cycle came to, all of it or nothing, in the order of the cycles."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from redraft.core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.stores.base import Record, Store

logger = logging.getLogger("redraft")


class Keeping(Protocol):
    """Write the records of an agent; a store that can't be reached costs no cycle."""

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

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._agent = agent
        self._waiting: list[Sequence[Record]] = []
        self._turn = asyncio.Lock()

    @property
    def is_away(self) -> bool:
        """Whether the last write failed."""
        return bool(self._waiting)

    async def save(self, records: Sequence[Record], /) -> None:
        """Write records as one, after all that came before; logs a warning where that can't be."""
        async with self._turn:
            was_away = self.is_away
            self._waiting.append(records)
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
        """Try once more what could not be written."""
        await self.settled()

    async def _write(self) -> None:
        while self._waiting:
            await self._store.put_all(self._waiting[0])
            self._waiting.pop(0)
