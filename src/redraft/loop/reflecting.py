"""ReflectingGenerator and ReflectingReviser: look back before the next version, if a trigger asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redraft.core.conversation import Conversation
from redraft.core.protocols import Generator, Reviser
from redraft.loop.live import LiveRun
from redraft.loop.reflection_prompt import SHOWN_VERSIONS, versions_shown
from redraft.loop.select import highest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.context import RunContext
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.reflection import Reflection
    from redraft.core.version import Draft, Output, ReflectionVersion


@dataclass(frozen=True, slots=True)
class ReflectingGenerator:
    """Draft; a fresh start after a look back, where one is due, which joins the critique."""

    generate: Generator
    live: LiveRun

    async def __call__(self, prompt: str, run: RunContext, /) -> Draft:
        """Return what the generator makes of the prompt, and of the critique with the look back."""
        reflection = await _reflection(self.live, run)
        return _keeping(reflection, await self.generate(prompt, _told(run, reflection)))


@dataclass(frozen=True, slots=True)
class ReflectingReviser:
    """Revise, after a look back where one is due, which joins the critique."""

    revise: Reviser
    live: LiveRun

    async def __call__(self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        """Return what the reviser makes of the output and the critique with the look back."""
        reflection = await _reflection(self.live, run)
        run = _told(run, reflection)
        return _keeping(reflection, await self.revise(output, run.attempt.evaluation or evaluation, run))


async def _reflection(live: LiveRun, run: RunContext) -> Reflection | None:
    """Look back on the versions until now if someone asked for it, or the last one fell behind."""
    versions = run.versions
    if not versions:
        return None
    if made := live.before(run.iteration):
        return made
    trigger = "manual" if await live.asked(0) else "quality_drop" if _fell_behind(live, versions) else ""
    if not trigger:
        return None
    shown = {version.iteration: version for version in (highest(versions), *versions[-SHOWN_VERSIONS:])}
    return await live.reflect(trigger, 0, run, versions_shown(list(shown.values())))


def _fell_behind(live: LiveRun, versions: Sequence[ReflectionVersion]) -> bool:
    """Say whether the last version scored below the best before it by the threshold or more."""
    threshold, gain = live.triggers.quality_drop, versions[-1].gain
    # Scores are decimal fractions: 0.8 - 0.7 must not fall short of 0.1 by the last bit.
    return threshold is not None and gain is not None and -gain >= threshold - 1e-9


def _told(run: RunContext, reflection: Reflection | None) -> RunContext:
    """Put a look back among the suggestions, which every generator and reviser is told."""
    evaluation = run.attempt.evaluation
    if reflection is None or not reflection.text or evaluation is None:
        return run
    advised = replace(evaluation, suggestions=(*evaluation.suggestions, reflection.text))
    return replace(run, attempt=replace(run.attempt, evaluation=advised))


def _keeping(reflection: Reflection | None, draft: Draft) -> Draft:
    """Keep a look back with the draft that followed it: so it is there when the run is resumed."""
    if reflection is None:
        return draft
    made = draft.conversation or Conversation()
    return replace(draft, conversation=replace(made, reflections=(reflection, *made.reflections)))
