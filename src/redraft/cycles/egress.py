"""Egress: the one way by which an agent acts on the world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar, cast

from redraft._clock import SKEW
from redraft._texts import counted
from redraft.cycles.memory import moment_after, moment_of, stamp_of
from redraft.cycles.spec import ActionLimit
from redraft.errors import RedraftError
from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

R = TypeVar("R")

EGRESS = "egress"
"""The kind and the key of the record of recent effects, for their limits."""
FOR_EVER = datetime.max.replace(tzinfo=UTC)


class LimitError(RedraftError):
    """A limit of the agent's file forbids an effect now."""


@dataclass(frozen=True, slots=True)
class AgentEffect:
    """Something that an agent does to the world."""

    key: str
    """The idempotency key, by which a receiver recognises a repetition."""
    limits: Mapping[str, ActionLimit] = field(default_factory=dict[str, ActionLimit])
    """How often it may happen, by the name of the counter, which several effects may share."""


class Egress:
    """Runs effects under the lease and their limits: actions, sources that act, messages and notices.

    Nothing happens once another process runs the agent (`check_lease` raises `LeaseError`), or beyond a
    limit. What limits count is stored with the agent before it happens, by `save`, so neither a restart nor a
    kill starts them anew. Recording the outcome is up to the caller: an action is a step of the cycle's
    journal, a delivery ends with the removal of what was sent from the outbox. Until that is written, a
    process that is killed does it again, under the same key.
    """

    def __init__(
        self,
        check_lease: Callable[[], Awaitable[None]],
        clock: Callable[[], datetime],
        save: Callable[[Sequence[Record]], Awaitable[None]],
    ) -> None:
        self._check_lease = check_lease
        self._clock = clock
        self._save = save
        self._runs: dict[str, dict[str, str]] = {}
        """By the name of a limit, the keys of the effects that it counts, each with the end of that."""
        self._is_changed = self._is_loaded = False

    async def act(self, effect: AgentEffect, perform: Callable[[], Awaitable[R]]) -> R:
        """Carry out an effect; raises `LimitError`, `LeaseError`, and what `perform` raises."""
        await self._check_lease()
        self.claim(effect)
        if counts := self.take_record():
            await self._save(counts)
        return await perform()

    def claim(self, effect: AgentEffect) -> None:
        """Count what is about to be done; raises `LimitError` if a limit forbids it now."""
        self._check_limits(effect)
        for name, limit in effect.limits.items():
            runs = self._runs.setdefault(name, {})
            if effect.key not in runs:
                runs[effect.key] = stamp_of(moment_after(self._clock(), limit.per_ms / 1000) or FOR_EVER)
                self._is_changed = True

    def _check_limits(self, effect: AgentEffect) -> None:
        now = stamp_of(self._clock())
        for name, limit in effect.limits.items():
            self._clamp(name, limit)
            counting = {key: until for key, until in self._runs.get(name, {}).items() if until > now}
            if effect.key in counting or len(counting) < limit.max_runs:
                continue
            then = ""
            if limit.max_runs:
                frees = moment_of(sorted(counting.values())[len(counting) - limit.max_runs]) or FOR_EVER
                seconds = (frees - self._clock()).total_seconds()
                then = f"; the next one is allowed in {max(1, round(seconds)):,} s"
            raise LimitError(
                f"the limit of {name!r} is reached: {counted(limit.max_runs, 'run')} in "
                f"{limit.per_ms / 1000:,g} s{then}"
            )

    def _clamp(self, name: str, limit: ActionLimit) -> None:
        """Let what a clock from the future counted end as if it happened now."""
        end = moment_after(self._clock(), limit.per_ms / 1000)
        latest = FOR_EVER if end is None else moment_after(end, SKEW.total_seconds()) or FOR_EVER
        for key, until in self._runs.get(name, {}).items():
            if end is not None and until > stamp_of(latest):
                self._runs[name][key] = stamp_of(end)
                self._is_changed = True

    # Between processes

    def load(self, stored: Record | None) -> None:
        """Count what was stored earlier, too; before that, nothing is stored, so that it is not replaced."""
        self._is_loaded = True
        found = cast("dict[str, dict[str, str]]", {} if stored is None else stored.data.get("runs", {}))
        for name, runs in found.items():
            self._runs[name] = {**runs, **self._runs.get(name, {})}

    def take_record(self) -> list[Record]:
        """Return the record to be stored, in a list that is empty if there is nothing to store now."""
        if not self._is_changed or not self._is_loaded:
            return []
        now, self._is_changed = stamp_of(self._clock()), False
        self._runs = {
            name: counting
            for name, runs in self._runs.items()
            if (counting := {key: until for key, until in runs.items() if until > now})
        }
        return [Record(EGRESS, EGRESS, {"runs": {name: dict(runs) for name, runs in self._runs.items()}})]
