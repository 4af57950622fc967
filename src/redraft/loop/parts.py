"""Parts: the verbs of a run."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.core.protocols import Evaluator, Generator, Reviser
from redraft.loop.diagnose import NO_JUDGE, Signals
from redraft.loop.live import LiveRun


@dataclass(frozen=True, slots=True)
class Judges:
    """Hold what judges, and where its scores come from."""

    evaluate: Evaluator
    signals: Signals = NO_JUDGE


@dataclass(slots=True)
class Parts:
    """Hold the verbs of a run. Without `generate` a fresh start is the reviser's business, too.

    `live` is for verbs that must know how the run stands while they are at work.
    """

    generate: Generator | None
    evaluate: Evaluator
    revise: Reviser
    signals: Signals = NO_JUDGE
    live: LiveRun | None = None
