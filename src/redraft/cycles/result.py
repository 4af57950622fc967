"""CycleResult: what a cycle came to, for the program that ran it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.cycles.memory import MemoryChange
from redraft.cycles.record import CycleMetrics, CycleStatus


@dataclass(frozen=True, slots=True)
class CycleResult:
    """Hold how a cycle went.

    `status` is `finished`, or `failed` where a substage raised: `error` says the first that did, and Reflect
    ran all the same. `state` is plain JSON data, as templates see it: `environmentalData`, `derivedData`, and
    `memory` as it is after the cycle. `metrics` always name what failed and what was skipped. `changes` are
    what the cycle changed of the memory, and `usage` is what its model calls used.
    """

    number: int
    status: CycleStatus
    state: Mapping[str, Any]
    metrics: CycleMetrics = CycleMetrics()  # noqa: RUF009 (frozen, so sharing it is safe)
    changes: tuple[MemoryChange, ...] = ()
    usage: TokenUsage = NOTHING_USED
    stages: Mapping[str, float] | None = None
    trigger: str = "manual"
    error: str = ""

    @property
    def success(self) -> bool:
        """Whether no substage failed."""
        return self.status == "finished"
