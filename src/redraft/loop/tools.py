"""Draft and revise with an agent that calls tools."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai import Agent as ActingAgent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from redraft._calls import render_feedback, render_retry
from redraft.errors import ConfigError
from redraft.loop.live import LiveRun
from redraft.loop.revise import EXTEND, REWRITE, answering, choose_strategy, fresh_prompt, improvements_asked
from redraft.loop.run import Judges, Verbs
from redraft.loop.tool_agent import Performer
from redraft.models.provider import ProviderModel
from redraft.types import prompt_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.protocols import ChatModel, RunContext
    from redraft.types import Draft, Output, ReflectionEvaluation


def performer_of(
    model: ChatModel, system_prompt: str, tools: Sequence[Callable[..., Any] | Tool[Any]]
) -> Performer:
    """Make an agent of a model and tools; raises `ConfigError` for what can't be one."""
    if not isinstance(model, ProviderModel):
        raise ConfigError(
            f"tools: {model!r} can't call tools; name a provider's model ('provider:model'), or give a "
            "ProviderModel around a model of Pydantic AI."
        )
    for tool in tools:
        if not isinstance(tool, Tool) and not callable(tool):
            raise ConfigError(f"tools must be functions or Tools of Pydantic AI, got {tool!r}.")
    try:
        toolset = FunctionToolset[Any](list(tools))
        agent = ActingAgent[Any, str](toolsets=[toolset], instructions=answering(system_prompt))
    except (
        UserError,
        TypeError,
        ValueError,
        NameError,
    ) as error:  # names that clash, parameters without a schema
        raise ConfigError(f"tools: {error}") from error
    return Performer(agent, model, tuple(toolset.tools))


def performer_around(agent: object) -> Performer:
    """Take an agent of Pydantic AI as it is; raises `ConfigError` for anything else."""
    if not isinstance(agent, AbstractAgent):
        raise ConfigError(f"from_pydantic_ai takes an agent of Pydantic AI, got {agent!r}.")
    return Performer(cast("AbstractAgent[Any, Any]", agent))


def model_of_agent(performer: Performer) -> ChatModel | None:
    """Return the model of an agent as one that judges and reflects; None where each run names its own."""
    model: Any = performer.agent.model
    if model is None or callable(model):
        return None
    return ProviderModel(model)


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
        return replace(draft, strategy="fresh", improvements=improvements_asked(evaluation))


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
        return replace(draft, strategy=strategy, improvements=improvements_asked(evaluation))


def acting_verbs(performer: Performer, judges: Judges, live: LiveRun) -> Verbs:
    """Return the verbs of a run whose drafts and revisions are an agent's."""
    return Verbs(ActingGenerator(performer, live), judges, ActingReviser(performer, live), live)
