"""Door: by which an agent is open in one event loop at a time, and closed with that loop at the latest."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from redraft.cycles.opening import Opened


class Door:
    """Open an agent when it is first needed, and close it by `close`, or before its event loop has ended.

    `now` is what it works with while it is open, and `latest` stays when it is closed. Connections and locks
    belong to one event loop. Where another one comes while the agent is open, that raises `ConfigError`: to
    wait would be to wait for ever, if the first one waits for the second.
    """

    def __init__(self, agent: str, opened: Callable[[], Awaitable[Opened]]) -> None:
        self.now: Opened | None = None
        self.latest: Opened | None = None
        self._agent = agent
        self._opened = opened
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = self._opening = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[Opened]:
        """Have the agent alone, as far as cycles go.

        Where another process has run it meanwhile, it is opened anew: what was known of it is old.
        """
        self._come_in()
        async with self._turn:
            at = await self.open()
            if await at.home.is_lost():
                async with self._opening:
                    self.now = None
                    await at.aclose()
                at = await self.open()
            yield at

    async def open(self) -> Opened:
        """Return what the agent works with; raises `LeaseError` where another process runs it."""
        self._come_in()
        async with self._opening:
            if self.now is None:
                self.now = self.latest = await self._opened()
                if self._closing is None or self._closing.done():
                    self._closing = asyncio.create_task(
                        self._closed_with_loop(), name=f"redraft-door-{self._agent}"
                    )
            return self.now

    async def close(self) -> None:
        """Close what is open, after the cycle under way; the next use opens anew."""
        if (at := self.now) is None:
            return
        self._come_in()
        async with self._turn:
            if self.now is at:
                self.now = None
                await at.aclose()
        if self._closing is not None and self._closing is not asyncio.current_task():
            self._closing.cancel()
            await asyncio.wait([self._closing])

    def _come_in(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self.now is not None or self._turn.locked() or self._opening.locked():
            raise ConfigError(
                f"The agent {self._agent!r} is open in another event loop: close it there first "
                "(`await agent.aclose()`), or go on there."
            )
        self._loop, self._turn, self._opening = loop, asyncio.Lock(), asyncio.Lock()

    async def _closed_with_loop(self) -> None:
        """Wait until the event loop ends, which cancels what is still under way in it."""
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        await self.close()
