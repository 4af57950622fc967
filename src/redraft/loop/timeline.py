"""Timeline: what a run did when, step by step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
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
    ends = sorted((one.timestamp, one.iteration) for one in run.record.versions)
    times = [at for at, _ in ends]
    first_from = list(accumulate((number for _, number in reversed(ends)), min))[::-1]

    def version_of(step: KeptStep) -> int | None:
        if step.name == "on_reflection":
            return max((number for _, number in ends[: bisect_right(times, step.at)]), default=None)
        if step.name not in MAKING:
            return None
        # A version's time is that of the last step that went into it.
        at = bisect_left(times, step.at)
        if at < len(first_from):
            return first_from[at]
        return run.record.revisions + 2 if ends else 1

    return [Stretch(step, version_of(step), tuple(within[step.place])) for step in run.outer_steps]
