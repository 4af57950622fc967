"""The run of a pattern that ended last, as far as whoever asks may see it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from threading import get_ident
from time import monotonic
from weakref import ref

from redraft.types import ReflectionResult

REMEMBERED = 64
"""How many patterns' last runs a context remembers."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """How a run ended: with a result, or with an error instead. Times are monotonic seconds."""

    result: ReflectionResult | None
    error: str
    began: float
    ended: float


class LastRun:
    """Remember the last run of one pattern, in the current context and for whoever made the pattern.

    A run in a task of its own (`asyncio.create_task`, `wait_for`) also has a context of its own. The task, or
    outside of any the thread, that made the pattern sees such runs all the same. Everybody else sees only the
    runs of their own context: what one user's request made is not shown to another's.
    """

    __slots__ = ("__weakref__", "_maker", "_seen_by_maker")

    def __init__(self) -> None:
        self._maker: object = _current_task()
        self._seen_by_maker: EndedRun | None = None

    def share(self) -> None:
        """Show everybody the runs of their own context only: nobody in particular made the pattern."""
        self._maker = None

    def set(self, began: float, result: ReflectionResult | None, error: str = "") -> None:
        """Record that a run ended just now."""
        run = EndedRun(result, error, began, monotonic())
        if self._maker is not None:
            self._seen_by_maker = run
        others = [(of, other) for of, other in _ended.get() if of() is not None and of() is not self]
        _ended.set((*others[1 - REMEMBERED :], (ref(self), run)))

    def get(self) -> EndedRun | None:
        """Return the run that ended last, or None if none has."""
        here = next((run for of, run in _ended.get() if of() is self), None)
        anywhere = self._seen_by_maker
        if anywhere is None or self._maker != _current_task():
            return here
        return here if here is not None and anywhere.began < here.ended else anywhere


_ended: ContextVar[tuple[tuple[ref[LastRun], EndedRun], ...]] = ContextVar("ended_runs", default=())


def _current_task() -> object:
    """Return a value that identifies the current thread and the task that runs in it, if any."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop is running
        task = None
    return get_ident(), None if task is None else ref(task)
