"""The last run of a pattern, as visible from the current context."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

if TYPE_CHECKING:
    from redraft.types import ReflectionResult

REMEMBERED = 64
"""The patterns of which a context remembers the last run."""


class EndedRun(NamedTuple):
    """A run that ended with a result or with an error. Times are monotonic seconds."""

    result: ReflectionResult | None
    error: str
    began: float
    ended: float


class LastRun:
    """The last run of a pattern, per context and for the task that made the pattern.

    Each context sees its own runs, so a user's request never sees the run of another user. The task that made
    the pattern (or the thread, outside of tasks) also sees the runs of other tasks (`asyncio.create_task`,
    `wait_for`), which have contexts of their own.
    """

    __slots__ = ("__weakref__", "_maker", "_seen_by_maker")

    def __init__(self) -> None:
        self._maker: object = _current_task()
        self._seen_by_maker: EndedRun | None = None

    def forget_maker(self) -> None:
        """Let every context see only its own runs."""
        self._maker = None

    def set(self, began: float, result: ReflectionResult | None, error: str = "") -> None:
        """Record a run that has just ended."""
        run = EndedRun(result, error, began, monotonic())
        if self._maker is not None:
            self._seen_by_maker = run
        others = [
            (owner, other) for owner, other in _ended.get() if owner() is not None and owner() is not self
        ]
        _ended.set((*others[1 - REMEMBERED :], (ref(self), run)))

    def get(self) -> EndedRun | None:
        """The last run, or None."""
        own = next((run for owner, run in _ended.get() if owner() is self), None)
        latest = self._seen_by_maker
        if latest is None or self._maker != _current_task():
            return own
        return own if own is not None and latest.began < own.ended else latest


_ended: ContextVar[tuple[tuple[ref[LastRun], EndedRun], ...]] = ContextVar("ended_runs", default=())


def _current_task() -> object:
    """Identify the current thread and the task running in it, if any."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop is running
        task = None
    return get_ident(), None if task is None else ref(task)
