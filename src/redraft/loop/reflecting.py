"""ReflectingReviser: a reviser that looks back before it revises, where a trigger asks for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redraft.core.conversation import Conversation
from redraft.core.protocols import Reviser
from redraft.loop.live import LiveRun
from redraft.loop.reflection_prompt import SHOWN_VERSIONS, versions_shown
from redraft.loop.select import highest

if TYPE_CHECKING:
    from redraft.core.context import RunContext
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.reflection import Reflection
    from redraft.core.version import Draft, Output, ReflectionVersion


@dataclass(frozen=True, slots=True)
class ReflectingReviser:
    """Revise, after a look back on a drop in quality or on someone's request; it joins the critique."""

    revise: Reviser
    live: LiveRun

    async def __call__(self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        """Return what the reviser makes of the output and the critique with the look back."""
        reflection = await self._reflection(run)
        if reflection is None:
            return await self.revise(output, evaluation, run)
        if reflection.text:
            evaluation = replace(evaluation, suggestions=(*evaluation.suggestions, reflection.text))
            run = replace(run, attempt=replace(run.attempt, evaluation=evaluation))
        draft = await self.revise(output, evaluation, run)
        made = draft.conversation or Conversation()
        return replace(draft, conversation=replace(made, reflections=(reflection, *made.reflections)))

    async def _reflection(self, run: RunContext) -> Reflection | None:
        versions = run.versions
        trigger = "manual" if await self.live.asked(0) else "quality_drop" if self._dropped(versions) else ""
        if not trigger:
            return None
        shown = {version.iteration: version for version in (highest(versions), *versions[-SHOWN_VERSIONS:])}
        return await self.live.reflect(trigger, 0, run, versions_shown(list(shown.values())))

    def _dropped(self, versions: tuple[ReflectionVersion, ...]) -> bool:
        """Say whether the last version scored below the best before it by the threshold or more."""
        threshold, last = self.live.triggers.quality_drop, versions[-1]
        before = [version.evaluation.overall_score for version in versions[:-1]]
        judged = [score for score in before if score is not None]
        if (
            threshold is None
            or last.evaluation.overall_score is None
            or last.repeats is not None
            or not judged
        ):
            return False
        # Scores are decimal fractions: 0.8 - 0.7 must not fall short of 0.1 by the last bit.
        return max(judged) - last.evaluation.overall_score >= threshold - 1e-9
