"""Events of an agent that goes round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from redraft.cycles.result import CycleResult


@dataclass(frozen=True, slots=True)
class CycleStarted:
    """A cycle begins, or goes on where another process left it."""

    agent: str
    number: int
    trigger: str = "manual"
    resumed: bool = False
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class CycleWaiting:
    """A cycle waits for a person to decide on its plan, `within` so many seconds; None: until one does."""

    agent: str
    number: int
    within: float | None = None
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class SubstageFinished:
    """A substage came to its end, failed with `error`, or was skipped; Sense is one with all its sources."""

    agent: str
    number: int
    stage: str
    substage: str
    milliseconds: float = 0.0
    error: str = ""
    skipped: bool = False
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class CycleFinished:
    """A cycle came to its end, and what it changed of the memory is written or on its way."""

    agent: str
    number: int
    result: CycleResult
    schema_version: int = 1


CycleEvent: TypeAlias = CycleStarted | CycleWaiting | SubstageFinished | CycleFinished
