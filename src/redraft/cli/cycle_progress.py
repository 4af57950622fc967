"""CycleProgress: how an agent is going, cycle by cycle, told on stderr."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

from rich.text import Text

from redraft.cli.cycle_rows import STATES, actions_said, time_said
from redraft.cli.show import BAD, QUIET
from redraft.cli.warned import Warnings
from redraft.cycles.events import CycleFinished, CycleStarted, CycleWaiting, SubstageFinished
from redraft.text.visible import visible

if TYPE_CHECKING:
    from types import TracebackType

    from redraft.cli.console import CalmConsole
    from redraft.cycles.result import CycleResult

REMEMBERED = 100
"""So many cycles, the latest, are in the document of --json: an agent may run for months."""


class CycleProgress:
    """Tell how an agent is going: a line for each cycle, and what it waits for.

    A context manager around it, which shows the warnings that are logged meanwhile. `results` are the latest
    cycles, `count` is how many there were.
    """

    def __init__(self, console: CalmConsole) -> None:
        self.results: deque[CycleResult] = deque(maxlen=REMEMBERED)
        self.count = 0
        self._console = console
        self._warnings = Warnings(console)

    def __enter__(self) -> Self:
        self._warnings.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._warnings.__exit__(kind, error, trace)

    @property
    def went_well(self) -> bool:
        """Whether no substage of the last cycle failed; so it is where there was none."""
        return not self.results or self.results[-1].success

    def hear(self, event: object) -> None:
        """Hear of an event of the agent."""
        match event:
            case CycleStarted(resumed=True):
                self._console.show(Text(f"cycle {event.number} goes on where it stopped", QUIET))
            case CycleWaiting():
                self._waits(event)
            case SubstageFinished(skipped=True):
                self._console.show(Text(f"  {event.stage}/{visible(event.substage)} skipped", QUIET))
            case CycleFinished():
                self.count += 1
                self.results.append(event.result)
                self._ended(event.result)
            case _:
                pass

    def ending(self, agent: str) -> str:
        """Say in a line how it went, and where to look."""
        cycles = "1 cycle" if self.count == 1 else f"{self.count:,} cycles"
        return f"{cycles} of {visible(agent)}; redraft cycle memory {visible(agent)}"

    def _waits(self, event: CycleWaiting) -> None:
        within = "" if event.within is None else f" within {event.within:g} s"
        said = f"cycle {event.number} waits for a decision{within}: redraft cycle feedback {event.agent}"
        self._console.show(Text(f"{visible(said)} --approve, --reject or --modify", "yellow"), soft_wrap=True)

    def _ended(self, result: CycleResult) -> None:
        derived, stages = result.state["derivedData"], result.stages or {}
        parts = [f"{stage} {time_said(spent)}" for stage, spent in stages.items()]
        line = Text.assemble(f"cycle {result.number:<4} ", (f"{result.status:<9}", STATES[result.status]))
        changes = len(result.changes)
        line.append(f" actions: {actions_said(derived)}, memory: {changes} change{'s'[: changes != 1]}")
        line.append(f"  {', '.join(parts)}", QUIET)
        self._console.show(line, soft_wrap=True)
        for error in result.state["environmentalData"]["errors"]:
            if error["error"] not in result.error:  # of a source that is required, that is logged
                failed = f"  sense/{error['source']}: {error['error']}"
                self._console.show(Text(visible(failed), BAD), soft_wrap=True)
        for failure in result.metrics.failures:
            if not failure.startswith(result.error or "\0"):  # that one is logged, and so shown already
                self._console.show(Text(f"  {visible(failure)}", BAD), soft_wrap=True)
