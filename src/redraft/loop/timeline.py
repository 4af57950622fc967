"""Timeline: what a run did when, step by step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.loop.runs import KeptStep

if TYPE_CHECKING:
    from redraft.loop.kept_run import KeptRun

MAKING = ("generate", "revise", "evaluate", "wait", "on_generation", "on_revision")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Hold one step of the loop with the version that it worked on, where it did on one.

    `inner` are the steps within it. `began` and `seconds` are of the run's own clock.
    """

    step: KeptStep
    version: int | None
    inner: tuple[KeptStep, ...] = ()

    @property
    def began(self) -> float:
        """When it began, in seconds of the run."""
        return self.step.began

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.step.seconds


def timeline(run: KeptRun) -> list[Stretch]:
    """Return the steps of the loop in the order in which they ended."""
    within: defaultdict[str, list[KeptStep]] = defaultdict(list)
    for step in run.steps:
        if step.is_inner:
            within[step.place.partition("/")[0]].append(step)
    return [Stretch(step, _version_of(step, run), tuple(within[step.place])) for step in run.outer_steps]


def _version_of(step: KeptStep, run: KeptRun) -> int | None:
    versions = run.record.versions
    if step.name == "on_reflection":
        return max((one.iteration for one in versions if one.timestamp <= step.at), default=None)
    if step.name not in MAKING:
        return None
    # A version's time is that of the last step that went into it.
    waiting = [one.iteration for one in versions if one.timestamp >= step.at]
    return min(waiting) if waiting else run.record.revisions + 2 if versions else 1
