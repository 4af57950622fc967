"""EvaluationRun: a run of an agent that belongs to an evaluation, here or in a worker of a fleet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft._codec import from_record, to_record
from redraft.errors import ConfigError
from redraft.evaluate.criteria import recorded
from redraft.types import PlainTask, QualityCriterion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.loop.agent import Agent
    from redraft.loop.keeper import RunKey
    from redraft.loop.pattern import ReflectionPattern
    from redraft.types import ReflectionResult


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """What an agent is asked in the evaluation with an id, and how its run differs from an ordinary one.

    The agent learns nothing from it, and gets advice unless `is_advised` is False. An agent without criteria
    of its own reflects by `criteria` and `threshold`, if there are any. With `is_single`, it writes one draft
    and revises nothing; `temperature` is that of the first draft.
    """

    evaluation: str
    task: PlainTask
    criteria: tuple[QualityCriterion, ...] = ()
    threshold: float | None = None
    is_advised: bool = True
    is_single: bool = False
    temperature: float | None = None

    def pattern_of(self, agent: Agent[Any]) -> ReflectionPattern:
        """Return the pattern by which an agent carries it out."""
        pattern = agent.pattern
        if pattern.quality_criteria is None and self.criteria:
            threshold = pattern.quality_threshold if self.threshold is None else self.threshold
            pattern = replace(pattern, quality_criteria=self.criteria, quality_threshold=threshold)
        if self.is_single:
            pattern = replace(pattern, max_iterations=0, candidates=1, choose="checks", accept="score")
        return pattern

    async def carry_out(self, agent: Agent[Any], key: RunKey) -> ReflectionResult[Any]:
        """Have an agent that learns nothing (`Agent.for_evaluation`) carry it out, or resume it, under a key.

        Raises what `Agent.run` raises.
        """
        step = replace(key, parent=self.evaluation).step()
        pattern = self.pattern_of(agent)
        return await agent.run(self.task, pattern=pattern, step=step, temperature=self.temperature)

    def document(self) -> dict[str, Any]:
        """Return it as JSON data, with functions of criteria by the names under which they can be imported.

        Images are without their bytes. Raises `ConfigError` for a function that another process can't import.
        """
        criteria = recorded(self.criteria)
        for one in criteria:
            function = one["evaluator_config"].get("function", ":")
            if ":" not in function or "<" in function:
                raise ConfigError(
                    f"The criterion {one['name']!r} is a function that a worker can't import; define it at "
                    "the top of a module."
                )
        return to_record(self) | {"criteria": criteria}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> EvaluationRun:
        """Return what `document` describes."""
        return from_record(cls, document)
