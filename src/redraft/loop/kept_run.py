"""KeptRun: a kept run with all its steps, as those who explain and show it need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.core.criterion import QualityCriterion
from redraft.core.errors import ConfigError
from redraft.loop.record import RunRecord
from redraft.loop.runs import KeptStep

if TYPE_CHECKING:
    from redraft.core.version import ReflectionVersion

NAMES = "a number such as 2 or v2, 'first', 'best' or 'last'"


@dataclass(frozen=True, slots=True)
class KeptRun:
    """Hold a run's record and its steps, in the order in which they ended."""

    record: RunRecord
    steps: tuple[KeptStep, ...] = ()

    @property
    def outer_steps(self) -> tuple[KeptStep, ...]:
        """The steps of the loop itself, in their order."""
        return tuple(step for step in self.steps if not step.is_inner)

    @property
    def thresholds(self) -> dict[str, float]:
        """The least score that each criterion must reach, in the order of the criteria."""
        criteria = self.record.options.get("criteria", ())
        return {one["name"]: one.get("threshold", QualityCriterion.threshold) for one in criteria}

    @property
    def criteria(self) -> tuple[str, ...]:
        """The names of all criteria that judged a version: those of the pattern first."""
        judged = (name for version in self.record.versions for name in version.evaluation.criteria_scores)
        names = dict.fromkeys((*self.thresholds, *judged))
        return tuple(names)

    def version(self, name: str) -> ReflectionVersion:
        """Return a version by its name: `2` or `v2`, `first`, `best`, `last` (also `final`).

        Raises `ConfigError` for one that is not there, which says which ones are.
        """
        versions = self.record.versions
        if not versions:
            raise ConfigError(
                f"The run {self.record.run_id!r} has no version yet: it is {self.record.state}."
            )
        numbers = {
            "first": versions[0].iteration,
            "best": self.record.best,
            "last": versions[-1].iteration,
            "final": versions[-1].iteration,
        }
        digits = name.removeprefix("v")
        number = int(digits) if digits.isascii() and digits.isdigit() else numbers.get(name)
        if number is None:
            raise ConfigError(f"A version is {NAMES}; got {name!r}.")
        if (found := self.record.version(number)) is None:
            kept = ", ".join(str(version.iteration) for version in versions)
            raise ConfigError(f"The run {self.record.run_id!r} has no version {name!r}; kept are {kept}.")
        return found
