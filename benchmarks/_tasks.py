"""Tasks with the checks that the loop may see and the hidden check that scores, one by one or in families."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redraft import QualityCriterion, ReflectionPattern

Hidden = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class BenchTask:
    """One task. `criteria` judge inside the arms; `hidden` only scores them when they are done.

    If `hidden` is None, the criteria score as well.
    """

    name: str
    prompt: str
    criteria: tuple[QualityCriterion, ...]
    hidden: Hidden | None = None


@dataclass(frozen=True, slots=True)
class TaskFamily:
    """A task with `{placeholders}`, its criteria, and twenty inputs; `hidden` checks the content, if any."""

    name: str
    description: str
    expected_output: str
    criteria: tuple[QualityCriterion, ...]
    inputs: tuple[Mapping[str, str], ...]
    hidden: Callable[[Mapping[str, str]], Hidden] | None = None

    async def solves(self, inputs: Mapping[str, str], output: str, *, met: bool) -> bool:
        """Return whether an output is right, given whether it meets the criteria."""
        return met and (self.hidden is None or await self.hidden(inputs)(output))


def undescribed(name: str, evaluator: str, **config: Any) -> QualityCriterion:
    """Return a check without a description."""
    return QualityCriterion(name, threshold=1.0, evaluator=evaluator, evaluator_config=config)


def calls_criterion(calls: Mapping[str, Any]) -> QualityCriterion:
    """Ask that each call, as Python source, returns its value."""
    listed = [{"call": call, "expect": value} for call, value in calls.items()]
    return _command({"calls": listed})


def tests_criterion(tests: str, setup: str) -> QualityCriterion:
    """Ask that each of these Python statements goes through, after the draft and then `setup`."""
    return _command({"tests": tests, "setup": setup})


def _command(config: Mapping[str, Any]) -> QualityCriterion:
    return QualityCriterion("tests", threshold=1.0, evaluator="command", evaluator_config=config)


def passes(criterion: QualityCriterion) -> Hidden:
    """Make a hidden check of a criterion."""
    pattern = ReflectionPattern(quality_criteria=[criterion])

    async def hidden(output: str) -> bool:
        return (await pattern.reflect(output)).satisfactory

    return hidden
