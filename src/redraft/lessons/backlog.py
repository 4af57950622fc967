"""Backlog: the lessons that have no vector yet, embedded beside what an agent does."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING

from redraft.redact.log import logger

if TYPE_CHECKING:
    from redraft.lessons.index import LessonIndex

AT_ONCE = 32
"""Lessons that are embedded after something was learnt."""
AT_MOST_NOW = 8
"""Lessons that a question waits for, where an event loop ended before they were embedded."""


class Backlog:
    """Embed the newest lessons that have no vector, so that they are found by meaning.

    That goes on in the event loop that began it. Where this ends first, the next question makes up for it, in
    another process, too. A failure is logged, and costs nothing but that the full text alone finds a lesson,
    until something else is learnt.
    """

    def __init__(self, index: LessonIndex) -> None:
        self._index = index
        self._task: asyncio.Task[None] | None = None
        self._is_behind = True  # an earlier process may have ended too soon

    def begin(self) -> None:
        """Begin, or let what is under way look once more."""
        self._is_behind = True
        if not self._is_under_way():
            # Without the context of who begins it: this belongs to no run, and to no step of one.
            self._task = asyncio.create_task(self._work_off(AT_ONCE), context=Context())

    async def catch_up(self, agent: str | None) -> None:
        """Embed a few of an agent, or of all, where a loop ended too soon; what is under way goes on."""
        if not self._is_under_way():
            await self._work_off(AT_MOST_NOW, agent)

    async def wait(self) -> None:
        """Wait for what was begun in this event loop."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._task])

    def _is_under_way(self) -> bool:
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    async def _work_off(self, most: int, agent: str | None = None) -> None:
        while self._is_behind:
            self._is_behind = False
            try:
                await self._index.fill(most, agent)
            except asyncio.CancelledError:
                self._is_behind = True
                raise
            except Exception as error:  # noqa: BLE001 (it may be an embedder of anybody's, and nobody waits)
                logger.warning("New lessons are found by their words alone for now: %s", error)
