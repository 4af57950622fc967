"""Contrast: by how much runs differ from those of a baseline in one measure, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from redraft.stats import FEWEST, Effect, effect_of

if TYPE_CHECKING:
    from collections.abc import Iterable

REMEMBERED = 4_000
"""Effects that are remembered: they take milliseconds each, and the same scores always have the same."""
NOISE = 1e-9
"""What differs by less differs only in how floating point adds up."""

Unit = Literal["score", "share", "versions", "usd", "seconds"]
Verdict = Literal["higher", "lower", "none", "few", "unknown"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Hold what is known of a measure in a group of runs: its values, the newest run's first."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Sample:
        """Return a sample of the values that are known."""
        return cls(tuple(float(value) for value in values if value is not None))

    @property
    def count(self) -> int:
        """How many runs it is known of."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        """The mean, where there is any."""
        return fmean(self.values) if self.values else None


@dataclass(frozen=True, slots=True)
class Contrast:
    """Compare one measure of a group with that of the baseline; `effect` is None with too few runs for it."""

    name: str
    unit: Unit
    baseline: Sample
    group: Sample
    effect: Effect | None

    @classmethod
    def of(cls, name: str, unit: Unit, baseline: Sample, group: Sample) -> Contrast:
        """Compare two samples; with fewer than ten values on a side nothing can be said of chance."""
        enough = min(baseline.count, group.count) >= FEWEST
        effect = _effect(group.values, baseline.values) if enough else None
        if effect is not None:
            effect = Effect(_snapped(effect.mean), _snapped(effect.low), _snapped(effect.high))
        return cls(name, unit, baseline, group, effect)

    @property
    def difference(self) -> float | None:
        """By how much the group's mean is above the baseline's."""
        ours, theirs = self.group.mean, self.baseline.mean
        return None if ours is None or theirs is None else _snapped(ours - theirs)

    @property
    def verdict(self) -> Verdict:
        """What can be said: `none` if the interval holds zero, `few` with too few runs on a side."""
        if self.difference is None:
            return "unknown"
        if self.effect is None:
            return "few"
        if self.effect.low > 0:
            return "higher"
        return "lower" if self.effect.high < 0 else "none"


def _snapped(value: float) -> float:
    return 0.0 if abs(value) < NOISE else value


_effect = lru_cache(REMEMBERED)(effect_of)
