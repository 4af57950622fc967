"""BenchTask: a prompt, the checks that the loop may see, and the hidden check that scores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft import QualityCriterion, ReflectionPattern

if TYPE_CHECKING:
    from collections.abc import Mapping


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
