"""CycleRecord: one cycle as it is kept, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.cycles.memory import MemoryChange

CYCLE = "cycle"
"""The kind of the records of cycles; the key is the number, ten digits long."""

CycleStatus: TypeAlias = Literal["running", "waiting", "finished", "failed", "abandoned", "damaged"]


@dataclass(frozen=True, slots=True)
class CycleMetrics:
    """Count how a cycle went; what its file does not track is None. `duration_ms` is from Sense to Reflect.

    `failures` name the substages and actions that failed, with what they said; `skipped` the substages that
    did not run, because one before them failed, nothing was to be done, or a person said no.
    """

    duration_ms: float | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    anomalies: int | None = None
    alerts: int | None = None
    failures: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(slots=True)
class CycleRecord:
    """Hold one cycle: what it began for, what came out of it, what it changed of the memory.

    `waiting` is one that waits for a person, until `waits_until` at the latest (None: as long as it takes). A
    `running`, `waiting` or `abandoned` one whose process is gone is resumed under its number, and waits no
    longer than that. Of a `damaged` one no more than its number is known, and `error` says what to do.
    `derived_data` is redacted, and of a cycle under way what it has come to so far; `stages` says how long
    each took, in milliseconds.
    """

    number: int
    started_at: datetime
    trigger: str = "manual"
    status: CycleStatus = "running"
    finished_at: datetime | None = None
    derived_data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sense_errors: tuple[Mapping[str, Any], ...] = ()
    metrics: CycleMetrics = CycleMetrics()
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
    usage: TokenUsage = NOTHING_USED
    changes: tuple[MemoryChange, ...] = ()
    error: str = ""
    waits_until: datetime | None = None

    @property
    def is_undecided(self) -> bool:
        """Whether a person may still decide on its plan: it waits for that, or may do so when it goes on."""
        return self.status in ("waiting", "abandoned")

    @property
    def key(self) -> str:
        """The key of its record."""
        return cycle_key(self.number)


PROVISIONAL = 5_000_000_000
"""Cycles that begin while nobody can read the number of the last one are numbered from here, for the time
being; when it can be read, they get the numbers that follow it."""

UNFINISHED = ("running", "waiting", "abandoned")
"""The statuses of a cycle that goes on when the agent is started again."""


def cycle_key(number: int) -> str:
    """Return the key of a cycle's record."""
    return f"{number:010d}"
