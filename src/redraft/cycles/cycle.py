"""One cycle from Sense to Reflect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeAlias

from redraft.cycles.actuate import evaluate, execute
from redraft.cycles.reason import analyze, authorize, govern, plan
from redraft.cycles.reflect import learn, update_state
from redraft.cycles.sense import sense
from redraft.cycles.state import Cycle, CycleEvent, SubstageFinished, said
from redraft.errors import ChangedRunError, RedraftError
from redraft.loop.events import nobody
from redraft.redact.log import logger
from redraft.types import maker

Substage: TypeAlias = Callable[[Any, Cycle], Awaitable[None]]

SUBSTAGES: dict[str, Substage] = {
    "analyze": analyze,
    "plan": plan,
    "govern": govern,
    "authorize": authorize,
    "execute": execute,
    "evaluate": evaluate,
    "learn": learn,
    "update-state": update_state,
}
"""What carries out a substage, by its type. `capture-metrics` is none: it counts when all else has ended."""


_finished = maker(SubstageFinished)


@dataclass(slots=True)
class Running:
    """Carry out the stages of one cycle once.

    A substage of Sense, Reason or Actuate that raises is noted, and what is left of these stages is skipped;
    Reflect runs always, for a failure is what there is to learn from. `before_reflect` brings in what people
    said meanwhile, `before_telling` has written what must not be done again once somebody hears of it, and
    `check_lease` raises where another process has come to run the agent: then nothing more is done here.
    """

    cycle: Cycle
    emit: Callable[[CycleEvent], None]
    before_reflect: Callable[[], Awaitable[None]]
    before_telling: Callable[[], Awaitable[None]]
    check_lease: Callable[[], None]
    stages: dict[str, float] = field(default_factory=dict[str, float])
    error: str = ""

    async def run(self) -> None:
        """Go through the stages; raises only what says that the cycle is not this process's to carry out."""
        stages = self.cycle.spec.stages
        if stages.sense is not None:
            await self._stage("sense", [("sense", sense, stages.sense)])
        if stages.reason is not None:
            await self._stage("reason", _named(stages.reason.substages))
        if stages.actuate is not None:
            await self._stage("actuate", _named(stages.actuate.substages))
        if stages.reflect is not None:
            await self.before_reflect()
            await self._stage("reflect", _named(stages.reflect.substages))

    async def _stage(self, stage: str, substages: Sequence[tuple[str, Substage, Any]]) -> None:
        began = perf_counter()
        for name, carry_out, substage in substages:
            if self.error and stage != "reflect":
                self.cycle.skipped.append(_place(stage, name))
                self._tell(stage, name, 0.0, skipped=True)
            else:
                await self._substage(stage, name, carry_out, substage)
        self.stages[stage] = _milliseconds(began)

    async def _substage(self, stage: str, name: str, carry_out: Substage, substage: Any) -> None:
        began, trouble = perf_counter(), ""
        try:
            await carry_out(substage, self.cycle)
        except ChangedRunError:
            raise
        except Exception as error:  # a cycle ends with Reflect, whatever a substage raised
            self.check_lease()
            trouble = said(error)
            failure = f"{_place(stage, name)}: {trouble}"
            self.cycle.failures.append(failure)
            self.error = self.error or failure
            ours = isinstance(error, RedraftError)  # says all there is; of another the place is wanted, too
            agent, number = self.cycle.spec.name, self.cycle.number
            logger.warning("The agent %r, cycle %d: %s", agent, number, failure, exc_info=not ours)
        if self.emit is not nobody:
            await self.before_telling()
        self._tell(stage, name, _milliseconds(began), trouble)

    def _tell(
        self, stage: str, name: str, milliseconds: float, error: str = "", *, skipped: bool = False
    ) -> None:
        agent, number = self.cycle.spec.name, self.cycle.number
        self.emit(_finished(agent, number, stage, name, milliseconds, error, skipped))


def _named(substages: Sequence[Any]) -> list[tuple[str, Substage, Any]]:
    """Return the substages with what carries them out."""
    return [(one.name, SUBSTAGES[one.type], one) for one in substages if one.type in SUBSTAGES]


def _place(stage: str, name: str) -> str:
    return stage if stage == name else f"{stage}/{name}"


def _milliseconds(began: float) -> float:
    return round((perf_counter() - began) * 1000, 3)
