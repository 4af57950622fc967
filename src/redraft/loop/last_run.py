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
"""For how many patterns a context remembers the last run."""


class EndedRun(NamedTuple):
    """How a run ended: with a result or with an error. Times are monotonic seconds."""

    result: ReflectionResult | None
    error: str
    began: float
    ended: float


class LastRun:
    """The last run of a pattern, per context and for the task that made the pattern.

    Everyone sees the runs of their own context, so one user's request never sees the run of another's. The
    task that made the pattern (or the thread, outside of tasks) also sees the runs of other
    tasks (`asyncio.create_task`, `wait_for`), which have contexts of their own.
    """

    __slots__ = ("__weakref__", "_maker", "_seen_by_maker")

    def __init__(self) -> None:
        self._maker: object = _current_task()
        self._seen_by_maker: EndedRun | None = None

    def forget_maker(self) -> None:
        """Show everyone the runs of their own context alone."""
        self._maker = None

    def set(self, began: float, result: ReflectionResult | None, error: str = "") -> None:
        """Record a run that has just ended."""
        run = EndedRun(result, error, began, monotonic())
        if self._maker is not None:
            self._seen_by_maker = run
        others = [(of, other) for of, other in _ended.get() if of() is not None and of() is not self]
        _ended.set((*others[1 - REMEMBERED :], (ref(self), run)))

    def get(self) -> EndedRun | None:
        """Return the last run, or None if there was none."""
        here = next((run for of, run in _ended.get() if of() is self), None)
        anywhere = self._seen_by_maker
        if anywhere is None or self._maker != _current_task():
            return here
        return here if here is not None and anywhere.began < here.ended else anywhere


_ended: ContextVar[tuple[tuple[ref[LastRun], EndedRun], ...]] = ContextVar("ended_runs", default=())


def _current_task() -> object:
    """Identify the current thread and the task running in it, if any."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop is running
        task = None
    return get_ident(), None if task is None else ref(task)
