"""Parts: the verbs of a run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.protocols import Evaluator, Generator, Reviser
from redraft.core.task import Advice
from redraft.core.version import Draft
from redraft.loop.diagnose import NO_JUDGE, Signals
from redraft.loop.live import LiveRun

if TYPE_CHECKING:
    from redraft.core.protocols import Step


@dataclass(frozen=True, slots=True)
class Judges:
    """Hold what judges, and where its scores come from."""

    evaluate: Evaluator
    signals: Signals = NO_JUDGE


@dataclass(slots=True)
class Parts:
    """Hold the verbs of a run. Without `generate` a fresh start is the reviser's business, too.

    `live` is for verbs that must know how the run stands while they are at work. `output_alone` says that
    judging looks at nothing but the output: then the same output is not judged again. `advice` is what the
    run is told from its beginning, before any advisor is asked.
    """

    generate: Generator | None
    evaluate: Evaluator
    revise: Reviser
    signals: Signals = NO_JUDGE
    live: LiveRun | None = None
    output_alone: bool = True
    advice: tuple[Advice, ...] = ()

    def through(self, step: Step) -> Parts:
        """Return the same verbs, each of which is a step now."""
        return Parts(
            None if self.generate is None else partial(step, "generate", Draft, self.generate),
            partial(step, "evaluate", ReflectionEvaluation, self.evaluate),
            partial(step, "revise", Draft, self.revise),
            self.signals,
            self.live,
            self.output_alone,
            self.advice,
        )
