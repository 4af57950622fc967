"""Egress: the side effects of an agent, under its lease and its limits."""

from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

from redraft._clock import SKEW, moment_after
from redraft._texts import counted
from redraft.cycles.memory import moment_of, stamp_of
from redraft.errors import RedraftError
from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from redraft.cycles.spec import ActionLimit

R = TypeVar("R")

EGRESS = "egress"
"""The kind and the key of the record of recent effects, for rate limiting."""
MAX_TIME = datetime.max.replace(tzinfo=UTC)


class LimitError(RedraftError):
    """A limit of the agent's file forbids an effect now."""


class PoisonError(RedraftError):
    """A step has killed process after process, so it is not run again."""


class Egress:
    """Runs effects under the lease and their limits: actions, sources with side effects, messages, notices.

    No effect happens before the steps of its cycle are written, once another process runs the agent (`ready`
    raises `LeaseError`), or over a limit. The counters are stored by `save` before an effect happens, so
    neither a restart nor a kill resets them. The caller records the outcome: an action is a step of the
    cycle's journal, and a delivered notice or message is removed from the outbox. If the process is killed
    before that is written, the effect happens again, under the same key.
    """

    def __init__(
        self,
        ready: Callable[[], Awaitable[None]],
        clock: Callable[[], datetime],
        save: Callable[[Sequence[Record]], Awaitable[None]],
    ) -> None:
        self.ready = ready
        self._clock = clock
        self._save = save
        self._runs: dict[str, dict[str, str]] = {}
        """By counter, the keys of the counted effects, each with the time until which it counts."""
        self._is_changed = self._is_loaded = False

    async def act(
        self,
        key: str,
        perform: Callable[[], Awaitable[R]],
        limits: Mapping[str, ActionLimit] = MappingProxyType({}),
    ) -> R:
        """Run an effect. Raises `LimitError`, `LeaseError`, and any error of `perform`.

        A receiver recognises a repetition by the `key`. `limits` are its limits, by the name of the counter,
        which several effects may share.
        """
        await self.ready()
        self._count(key, limits)
        if records := self.take_record():
            await self._save(records)
        return await perform()

    def _count(self, key: str, limits: Mapping[str, ActionLimit]) -> None:
        """Count an effect that is about to happen. Raises `LimitError` if a limit forbids it now."""
        now, ends = self._clock(), dict[str, str]()
        for name, limit in limits.items():
            end = moment_after(now, limit.per_ms / 1000) or MAX_TIME
            latest = stamp_of(moment_after(end, SKEW.total_seconds()) or MAX_TIME)
            ends[name], runs = stamp_of(end), self._runs.setdefault(name, {})
            for counted_key, until in runs.items():
                if until > latest:  # counted by a wrong clock: as if it happened now
                    runs[counted_key], self._is_changed = ends[name], True
            counting = {key: until for key, until in runs.items() if until > stamp_of(now)}
            if key in counting or len(counting) < limit.max_runs:
                continue
            hint = ""
            if limit.max_runs:
                frees = moment_of(sorted(counting.values())[len(counting) - limit.max_runs]) or MAX_TIME
                hint = f"; the next one is allowed in {max(1, round((frees - now).total_seconds())):,} s"
            raise LimitError(
                f"the limit of {name!r} is reached: {counted(limit.max_runs, 'run')} in "
                f"{limit.per_ms / 1000:,g} s{hint}"
            )
        for name, end in ends.items():
            if key not in self._runs[name]:
                self._runs[name][key], self._is_changed = end, True

    # Between processes

    def load(self, stored: Record | None) -> None:
        """Add the stored counters. Until then, `take_record` returns no record."""
        self._is_loaded = True
        stored_runs = cast("dict[str, dict[str, str]]", {} if stored is None else stored.data.get("runs", {}))
        for name, runs in stored_runs.items():
            self._runs[name] = {**runs, **self._runs.get(name, {})}

    def take_record(self) -> list[Record]:
        """The record to store, in a list that is empty if no counter has changed."""
        if not self._is_changed or not self._is_loaded:
            return []
        now, self._is_changed = stamp_of(self._clock()), False
        self._runs = {
            name: counting
            for name, runs in self._runs.items()
            if (counting := {key: until for key, until in runs.items() if until > now})
        }
        return [Record(EGRESS, EGRESS, {"runs": {name: dict(runs) for name, runs in self._runs.items()}})]
