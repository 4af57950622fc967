"""Egress: the side effects of an agent, under its lease and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar, cast

from redraft._clock import SKEW, moment_after
from redraft._texts import counted
from redraft.cycles.memory import moment_of, stamp_of
from redraft.cycles.spec import ActionLimit
from redraft.errors import RedraftError
from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

R = TypeVar("R")

EGRESS = "egress"
"""The kind and the key of the record of recent effects, for rate limiting."""
MAX_TIME = datetime.max.replace(tzinfo=UTC)


class LimitError(RedraftError):
    """A limit of the agent's file forbids an effect now."""


class PoisonError(RedraftError):
    """A step has killed process after process, so it is not run again."""


@dataclass(frozen=True, slots=True)
class AgentEffect:
    """A side effect of an agent."""

    key: str
    """The idempotency key, by which a receiver recognises a repetition."""
    limits: Mapping[str, ActionLimit] = field(default_factory=dict[str, ActionLimit])
    """Its limits, by the name of the counter. Several effects may share a counter."""


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

    async def act(self, effect: AgentEffect, perform: Callable[[], Awaitable[R]]) -> R:
        """Run an effect. Raises `LimitError`, `LeaseError`, and any error of `perform`."""
        await self.ready()
        self.claim(effect)
        if records := self.take_record():
            await self._save(records)
        return await perform()

    def claim(self, effect: AgentEffect) -> None:
        """Count an effect that is about to happen. Raises `LimitError` if a limit forbids it now."""
        self._check_limits(effect)
        for name, limit in effect.limits.items():
            runs = self._runs.setdefault(name, {})
            if effect.key not in runs:
                runs[effect.key] = stamp_of(moment_after(self._clock(), limit.per_ms / 1000) or MAX_TIME)
                self._is_changed = True

    def _check_limits(self, effect: AgentEffect) -> None:
        now = stamp_of(self._clock())
        for name, limit in effect.limits.items():
            self._clamp(name, limit)
            counting = {key: until for key, until in self._runs.get(name, {}).items() if until > now}
            if effect.key in counting or len(counting) < limit.max_runs:
                continue
            hint = ""
            if limit.max_runs:
                frees = moment_of(sorted(counting.values())[len(counting) - limit.max_runs]) or MAX_TIME
                seconds = (frees - self._clock()).total_seconds()
                hint = f"; the next one is allowed in {max(1, round(seconds)):,} s"
            raise LimitError(
                f"the limit of {name!r} is reached: {counted(limit.max_runs, 'run')} in "
                f"{limit.per_ms / 1000:,g} s{hint}"
            )

    def _clamp(self, name: str, limit: ActionLimit) -> None:
        """Treat effects that a wrong clock counted in the future as if they happened now."""
        end = moment_after(self._clock(), limit.per_ms / 1000)
        latest = MAX_TIME if end is None else moment_after(end, SKEW.total_seconds()) or MAX_TIME
        for key, until in self._runs.get(name, {}).items():
            if end is not None and until > stamp_of(latest):
                self._runs[name][key] = stamp_of(end)
                self._is_changed = True

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
