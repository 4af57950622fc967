"""Draft and revise with an agent that keeps its conversation, and so the results of its tools."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from redraft._critique import render_feedback, render_retry
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.evaluate.evidence import check_tools
from redraft.loop.revise import EXTEND, advised, fresh_prompt, improvements_asked, rewriting
from redraft.loop.run import Verbs
from redraft.loop.strategy import choose_strategy
from redraft.loop.verbs import reflector_of

if TYPE_CHECKING:
    from redraft.loop.output_type import OutputType
    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.run import Judges
    from redraft.loop.triggers import ReflectionTriggers
    from redraft.protocols import ChatModel, RunContext
    from redraft.types import Draft, Output, ReflectionEvaluation


class AgentAdapter(Protocol):
    """An agent of a framework, such as Pydantic AI, as a loop needs it.

    Adapters of frameworks whose models and steps Redraft can't call inherit the defaults.
    """

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The tools that are known before a run."""
        return ()

    @property
    def has_steps(self) -> bool:
        """Whether its model requests and tool calls are steps of the run, which some triggers need."""
        return False

    @property
    def model(self) -> ChatModel | None:
        """The agent's model, which judges and reflects unless the pattern or the settings name another.

        None if Redraft can't call the framework's models.
        """
        return None

    async def complete(self, prompt: str, messages: list[Any] | None, run: RunContext) -> Draft:
        """Run the agent once, for its final output with its usage and conversation.

        `messages` continue a conversation; None starts a new one. Raises `ModelError` if a model failed for
        good, and `UnfinishedError` otherwise, each with the usage; neither is retried.
        """
        ...


def check_triggers(agent: AgentAdapter, triggers: ReflectionTriggers) -> None:
    """Raise `ConfigError` for a trigger that can't fire: it needs steps, or a tool that the agent lacks."""
    if not agent.has_steps:
        triggers.check_runner("an agent of another framework")
    for name in sorted(triggers.tool_result or ()):
        if agent.tool_names and name not in agent.tool_names:
            raise ConfigError(
                f"reflect_on_tools: there is no tool {name!r}; {nearest(name, agent.tool_names)}"
            )


def conversation_verbs(
    pattern: ReflectionPattern,
    agent: AgentAdapter,
    model: ChatModel | None,
    judges: Judges,
    output_type: OutputType[Any] | None = None,
    system_prompt: str = "",
) -> Verbs:
    """The verbs of a run that an agent drafts and revises; `model` reflects in between.

    `system_prompt` is the agent's, as far as it is known.
    """
    check_triggers(agent, pattern.triggers)
    if agent.tool_names:
        check_tools(judges.criteria, agent.tool_names)
    reflector = reflector_of(pattern, model)
    generate, revise = ConversationGenerator(agent), ConversationReviser(agent)
    return Verbs(generate, judges, revise, output_type, reflector, system_prompt)


KEEP_THE_REST = "Change only what is named here, and keep everything else as it is."
USE_TOOLS = (
    "Use your tools again where that helps; what you found out before still holds. Then answer anew, in full."
)
INSTRUCTIONS = {"targeted_edit": KEEP_THE_REST, "incremental": EXTEND}


@dataclass(frozen=True, slots=True)
class ConversationGenerator:
    """Draft with an agent in a new conversation: the first draft, and fresh starts."""

    agent: AgentAdapter

    async def __call__(self, prompt: str, run: RunContext, /) -> Draft:
        """The agent's answer."""
        evaluation = run.attempt.evaluation
        if run.attempt.mode != "fresh" or evaluation is None:
            return await self.agent.complete(prompt, None, run)
        draft = await self.agent.complete(advised(fresh_prompt(prompt, evaluation), run), None, run)
        return replace(draft, strategy="fresh", improvements=improvements_asked(evaluation))


@dataclass(frozen=True, slots=True)
class ConversationReviser:
    """Revise with an agent by continuing the conversation that led to the base version."""

    agent: AgentAdapter

    async def __call__(self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        """The agent's answer to the critique; the agent still sees all its earlier tool results."""
        strategy = run.attempt.strategy
        if strategy == "hybrid":
            strategy = choose_strategy(output, evaluation)
        if strategy not in INSTRUCTIONS:  # a fresh start would lose what the agent has gathered
            strategy = "full_rewrite"
        instruction = f"{INSTRUCTIONS.get(strategy) or rewriting(output)} {USE_TOOLS}"
        conversation = None if run.base is None else run.base.conversation
        if conversation is None or not conversation.messages:  # the agent did not write this draft
            prompt = f"{render_retry(run.prompt, run.attempt)}\n\n{instruction}"
            draft = await self.agent.complete(prompt, None, run)
        else:
            prompt = f"{render_feedback(run.attempt)}\n\n{instruction}"
            draft = await self.agent.complete(prompt, conversation.messages, run)
        return replace(draft, strategy=strategy, improvements=improvements_asked(evaluation))
