"""ActingGenerator and ActingReviser: draft and revise by having an agent act."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redraft.core.feedback import ASKED, render_feedback, render_retry
from redraft.core.task import prompt_of
from redraft.loop.acting.performer import Performer
from redraft.loop.live import LiveRun
from redraft.loop.parts import Judges, Parts
from redraft.loop.prompts import EXTEND, REWRITE, fresh_prompt
from redraft.loop.revise import choose_strategy

if TYPE_CHECKING:
    from redraft.core.context import RunContext
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.version import Draft, Output

MEND = "Change only what is named here, and keep everything else as it is."
AGAIN = (
    "Use your tools again where that helps; what you found out before still holds. Then answer anew, in full."
)
HOW = {"targeted_edit": MEND, "incremental": EXTEND, "full_rewrite": REWRITE}


@dataclass(frozen=True, slots=True)
class ActingGenerator:
    """Draft with an agent, in a new conversation: the first draft, and fresh ones."""

    performer: Performer
    live: LiveRun

    async def __call__(self, prompt: str, run: RunContext, /) -> Draft:
        """Return what the agent comes to."""
        evaluation = run.attempt.evaluation
        if run.attempt.mode != "fresh" or evaluation is None:
            return await self.performer.complete(prompt, None, run, self.live)
        draft = await self.performer.complete(fresh_prompt(prompt, evaluation), None, run, self.live)
        return replace(draft, strategy="fresh", improvements=_asked(evaluation))


@dataclass(frozen=True, slots=True)
class ActingReviser:
    """Revise with an agent, by going on in the conversation that led to the base version."""

    performer: Performer
    live: LiveRun

    async def __call__(self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        """Return what the agent comes to after the critique; all that it gathered before is there still."""
        strategy = run.attempt.strategy
        if strategy == "hybrid":
            strategy = choose_strategy(output, evaluation)
        if strategy not in HOW:  # a fresh start would lose what the agent gathered
            strategy = "full_rewrite"
        how = f"{HOW[strategy]} {AGAIN}"
        said = next((one.conversation for one in run.versions if one.iteration == run.attempt.base), None)
        if said is None or not said.messages:  # a draft that somebody else made
            prompt = f"{render_retry(prompt_of(run.task, run.advice), run.attempt)}\n\n{how}"
            draft = await self.performer.complete(prompt, None, run, self.live)
        else:
            prompt = f"{render_feedback(run.attempt)}\n\n{how}"
            draft = await self.performer.complete(prompt, said.messages, run, self.live)
        return replace(draft, strategy=strategy, improvements=_asked(evaluation))


def acting_parts(performer: Performer, judges: Judges, live: LiveRun) -> Parts:
    """Let an agent draft and revise."""
    generate, revise = ActingGenerator(performer, live), ActingReviser(performer, live)
    return Parts(generate, judges.evaluate, revise, judges.signals, live)


def _asked(evaluation: ReflectionEvaluation) -> tuple[str, ...]:
    return tuple(f"{ASKED}{issue}" for issue in evaluation.issues)
