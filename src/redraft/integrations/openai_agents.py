"""Agents of the OpenAI Agents SDK whose answers are judged and revised."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

from redraft._hints import keyword_hints
from redraft._steps import OutgoingCall, call_gate, gated, in_time, step_context, user_call
from redraft._texts import as_text, estimate_tokens
from redraft._validation import named_error
from redraft.errors import ConfigError, MissingExtraError, ModelError, RedraftError, UnfinishedError
from redraft.loop.agent import UNCHANGED, AdaptedAgent
from redraft.loop.conversation import AgentAdapter
from redraft.loop.pattern import pattern_with
from redraft.models.provider import ListedModel
from redraft.types import NOTHING_USED, Conversation, Draft, TokenUsage

try:
    from agents import Agent, ModelSettings, MultiProvider, RunConfig, RunContextWrapper, RunHooks, Runner
    from agents.exceptions import UserError
    from agents.models import get_default_model
    from openai import APIError
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise MissingExtraError("An agent of the OpenAI Agents SDK", "openai-agents") from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agents import (
        Model,
        ModelResponse,
        RunResult,
        RunResultStreaming,
        StreamEvent,
        TResponseInputItem,
    )

    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.triggers import RunState
    from redraft.protocols import Advisor, ModelCall, ModelChoice, ModelRole, RunContext
    from redraft.stores.base import Store
    from redraft.types import Criterion

__all__ = ["OpenAIAgent", "reflecting"]


@keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
def reflecting(
    agent: Agent[Any],
    *,
    criteria: Sequence[Criterion] | None = None,
    max_iterations: int | None = None,
    quality_threshold: float | None = None,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_seconds: float | None = None,
    judge: ModelChoice | None = None,
    pattern: ReflectionPattern | None = None,
    lessons: Advisor | None = None,
    keep: bool | Store = True,
    name: str = "",
) -> OpenAIAgent:
    """Wrap an agent of the OpenAI Agents SDK: its final output, of whatever type, is judged and revised.

    The agent keeps its instructions, tools, handoffs, guardrails and settings. A revision continues the
    conversation of the version that it starts from, with the agent that answered there, so that earlier tool
    calls are not repeated. The SDK's models can't judge: `judge` is the model for criteria that need one, by
    default the model of the settings. Arguments override the pattern. Runs are stored under `name`, by
    default the agent's own name.

    Raises `ConfigError` for anything but an agent of the SDK, and for a pattern that can't work.
    """
    if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        raise ConfigError(f"reflecting takes an agent of the OpenAI Agents SDK, got {agent!r}.")
    return OpenAIAgent(
        OpenAIAdapter(agent),
        model_name(agent),
        pattern=pattern_with(
            pattern,
            criteria=criteria,
            max_iterations=max_iterations,
            quality_threshold=quality_threshold,
            budget_usd=budget_usd,
            budget_tokens=budget_tokens,
            budget_seconds=budget_seconds,
            judge=judge,
        ),
        lessons=lessons,
        keep=keep,
        name=name or agent.name,
    )


class OpenAIAgent(AdaptedAgent[Any]):
    """An agent of the OpenAI Agents SDK whose answers are judged and revised; made by `reflecting`."""

    @keyword_hints()
    def with_options(
        self,
        *,
        context: Any = UNCHANGED,
        history: Sequence[TResponseInputItem] | None = UNCHANGED,
        max_turns: int | None = UNCHANGED,
        run_config: RunConfig | None = UNCHANGED,
        on_event: Callable[[StreamEvent], None] | None = UNCHANGED,
    ) -> Self:
        """Copy this agent with options of the SDK; options of earlier calls stay unless they are replaced.

        `context`, `max_turns` (by default the SDK's own) and `run_config` are passed to each run of the
        wrapped agent, one for each version. `history` holds the input items of an earlier conversation, such
        as the result of `to_input_list()`. `on_event` is called with each stream event of the SDK. None
        removes an option.
        """
        return self._with_adapter(
            context=context, history=history, max_turns=max_turns, run_config=run_config, on_event=on_event
        )


@dataclass(frozen=True, slots=True)
class OpenAIAdapter(AgentAdapter):
    """Runs an agent of the SDK from a prompt to its final output, which becomes a draft."""

    agent: Agent[Any]
    context: Any = None
    history: tuple[Any, ...] = ()
    """Input items before the prompt."""
    max_turns: int | None = None  # by default the SDK's own
    run_config: RunConfig | None = None
    on_event: Any = None  # called with each StreamEvent of the SDK

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The agent's own tools; the tools of MCP servers and handoffs are unknown before a run."""
        return tuple(tool.name for tool in self.agent.tools)

    async def complete(self, prompt: str, messages: list[Any] | None, run: RunContext) -> Draft:
        """Run the agent once; returns its final output with usage and conversation.

        `messages` holds the input items of the conversation to continue; None starts a new conversation.
        Raises `ModelError` if the provider failed permanently, else `UnfinishedError`, each with the usage.
        Don't retry the run after either.
        """
        if run.task.all_images:
            raise ConfigError(
                "An agent of the OpenAI Agents SDK takes text as its query; pass images in `history`."
            )
        agent, items = self.agent, [*self.history] if messages is None else [*messages]
        if messages is not None:
            agent = self._answering(run)
        items.append({"role": "user", "content": prompt})
        role = "generation" if run.attempt.number == 1 else "revision"
        run_state: RunState = run.state
        calls = ModelCalls(run_state, role, self.context, items, self.run_config)
        calls.limit_reply(agent, agent.instructions)
        try:
            result = await in_time(
                user_call(self._run(agent, items, calls), "the agent"), "the agent was at work"
            )
        except asyncio.CancelledError:
            run_state.count_cancelled(calls.role, calls.used)
            raise
        except Exception as error:
            raise calls.failure(error) from error
        finally:
            calls.end()
        if result.interruptions or result.final_output is None:
            raise UnfinishedError(
                "The agent came to no answer: runs with tool calls that wait for approval can't be "
                "redrafted.",
                conversation=calls.conversation(result.to_input_list()),
                usage=calls.used,
            )
        return Draft(
            result.final_output,
            calls.used,
            conversation=calls.conversation(result.to_input_list()),
            memo={"agent": result.last_agent.name},
            model=model_name(result.last_agent),
        )

    async def _run(
        self, agent: Agent[Any], items: list[Any], calls: ModelCalls
    ) -> RunResult | RunResultStreaming:
        version = step_context.get().text
        options: Any = {"context": calls.context, "hooks": calls, "run_config": calls.config}
        if self.max_turns is not None:
            options["max_turns"] = self.max_turns
        if version is None and self.on_event is None:
            return await Runner.run(agent, items, **options)
        result = Runner.run_streamed(agent, items, **options)
        text = None
        try:
            async for event in result.stream_events():
                if self.on_event is not None:
                    self.on_event(event)
                if version is None or event.type != "raw_response_event":
                    continue
                if event.data.type == "response.output_text.delta":
                    text = text or version.begin()
                    text.send(event.data.delta)
                elif event.data.type == "response.completed":
                    text = None
        finally:
            result.cancel()
        return result

    def _answering(self, run: RunContext) -> Agent[Any]:
        """The agent that answered in the version to revise: the wrapped agent, or an agent it handed off to.

        It is looked up by name among the agents that can be reached by handoffs.
        """
        memo = None if run.base is None else run.base.memo
        name = cast("dict[str, Any]", memo).get("agent") if isinstance(memo, dict) else None
        return next((agent for agent in reachable(self.agent) if agent.name == name), self.agent)


class ModelCalls(RunHooks[Any]):
    """The model calls of one run of an agent: counts their usage and enforces the budget."""

    def __init__(
        self,
        run_state: RunState,
        role: ModelRole,
        context: Any,
        items: Sequence[Any],
        config: RunConfig | None,
    ) -> None:
        self.context = RunContextWrapper(context)
        self.role: ModelRole = role
        self._run_state = run_state
        config = config or RunConfig()
        self._own = config.model_settings or ModelSettings()
        # The SDK reads the settings anew before each call.
        self.config = replace(config, model_settings=replace(self._own))
        self._items = [*items]
        self._requests = 0
        self._cost: float | None = 0.0
        self._call: ModelCall | None = None
        self._limit: int | None = None
        self._pass = GatePass()

    @property
    def used(self) -> TokenUsage:
        """Usage so far, including agents that are tools of this agent, whose cost is unknown."""
        usage = self.context.usage
        requests = max(usage.requests, self._requests)
        return TokenUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.input_tokens_details.cached_tokens,
            requests=requests,
            cost_usd=self._cost if requests == self._requests else None,
        )

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],  # noqa: ARG002 (the signature is the SDK's)
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """Stop before a call that would exceed the budget."""
        self._items = [*input_items]
        if reason := self._run_state.spent(self.role, self.used):
            made = f"{self._requests} step{'' if self._requests == 1 else 's'}"
            raise UnfinishedError(
                f"The {reason.value.replace('_', ' ')} was spent after {made} of the agent, before "
                "it came to its answer.",
                reason=reason,
            )
        tokens, limit = self._input_tokens(system_prompt), self._limit
        if (within := step_context.get().budget) is not None:
            # `end` releases the reservation, also if an outer budget refuses the call.
            self._call = within.call(
                self.role, tokens, limit, self._priced(agent), is_limit_fixed=limit is not None
            )
            await self._call.carry_out(asyncio.sleep, 0)  # waits until the call fits
        model = self._priced(agent) or self._model(agent)
        limit = limit or self._own.max_tokens or agent.model_settings.max_tokens
        await self._pass.enter(OutgoingCall(model, tokens, limit, self.role, is_limit_fixed=True))

    def limit_reply(self, agent: Agent[Any], instructions: object = None) -> None:
        """Limit the reply of the next call to the remaining budget, by the input so far."""
        if (within := step_context.get().budget) is None:
            return
        text = instructions if isinstance(instructions, str) else ""
        room = within.call(self.role, self._input_tokens(text), None, self._priced(agent)).room
        if room is not None and self._requests:
            room //= 2  # leaves as much for the results of tools
        own = self._own.max_tokens or agent.model_settings.max_tokens
        limits = [limit for limit in (own, None if room is None else max(1, room)) if limit is not None]
        self._limit = None if room is None else min(limits)
        if (settings := self.config.model_settings) is not None:
            settings.max_tokens = self._own.max_tokens if self._limit is None else self._limit

    def _input_tokens(self, instructions: str | None) -> int:
        return estimate_tokens((instructions or "") + as_text(jsonable(self._items)))

    def _model(self, agent: Agent[Any]) -> Model | str:
        return self.config.model or agent.model or get_default_model()

    def _priced(self, agent: Agent[Any]) -> ListedModel | None:
        """The model of an agent, to price its calls; None if only the SDK knows the model."""
        model = self._model(agent)
        # The SDK takes a name to be one of OpenAI's, unless another provider gives it a meaning.
        if isinstance(model, str) and isinstance(self.config.model_provider, MultiProvider):
            return ListedModel("openai", model)
        return None

    async def on_handoff(
        self,
        context: RunContextWrapper[Any],  # noqa: ARG002 (the signature is the SDK's)
        from_agent: Agent[Any],  # noqa: ARG002 (the signature is the SDK's)
        to_agent: Agent[Any],
    ) -> None:
        """Limit the reply of the agent that takes over."""
        self.limit_reply(to_agent)

    async def on_llm_end(
        self,
        context: RunContextWrapper[Any],  # noqa: ARG002 (the signature is the SDK's)
        agent: Agent[Any],
        response: ModelResponse,
    ) -> None:
        """Add the usage of the call."""
        usage = response.usage
        cached = usage.input_tokens_details.cached_tokens
        used = TokenUsage(usage.input_tokens, usage.output_tokens, cached, requests=1)
        if (priced := self._priced(agent)) is not None:
            used = priced.priced(used)
        self._cost = None if self._cost is None or used.cost_usd is None else self._cost + used.cost_usd
        self._requests += 1
        self._items += response.to_input_items()
        if self._call is not None:
            self._call.used(used)
        self._pass.leave(used)
        self.end()
        self.limit_reply(agent)

    def end(self) -> None:
        """Release the budget that the call under way has reserved."""
        call, self._call = self._call, None
        if call is not None:
            call.__exit__(None, None, None)
        self._pass.cancel()

    def conversation(self, items: Sequence[Any] | None = None) -> Conversation:
        """The input items so far, as JSON."""
        return Conversation(jsonable(self._items if items is None else items))

    def failure(self, error: Exception) -> RedraftError:
        """The error that ends the agent's run, with its usage and conversation."""
        if isinstance(error, UnfinishedError):
            error.usage, error.conversation = self.used, self.conversation()
            return error
        if isinstance(error, RedraftError):
            return error
        if isinstance(error, APIError):
            status = getattr(error, "status_code", None)
            self._pass.leave(ModelError(str(error), status=status))
            return ModelError(f"The agent's model failed: {error}", status=status, usage=self.used)
        if isinstance(error, UserError) and self.used == NOTHING_USED:
            return ConfigError(f"The agent can't run: {error}")
        return UnfinishedError(
            f"The agent came to no answer: {named_error(error)}",
            conversation=self.conversation(),
            usage=self.used,
        )


class GatePass:
    """Takes the calls that the SDK sends by itself through the gate: each call enters and leaves it."""

    def __init__(self) -> None:
        self._ended: asyncio.Future[TokenUsage] | None = None
        self._task: asyncio.Task[TokenUsage] | None = None

    async def enter(self, call: OutgoingCall) -> None:
        """Wait until a call may be sent."""
        if call_gate.get() is None:
            return
        loop = asyncio.get_running_loop()
        admitted: asyncio.Future[None] = loop.create_future()
        ended: asyncio.Future[TokenUsage] = loop.create_future()

        async def send(_limit: int | None) -> TokenUsage:
            admitted.set_result(None)
            return await ended

        self._ended, self._task = ended, asyncio.create_task(gated(call, send, lambda used: used))
        await asyncio.wait((self._task, admitted), return_when=asyncio.FIRST_COMPLETED)
        if not admitted.done():
            self._task.result()

    def leave(self, outcome: TokenUsage | ModelError) -> None:
        """End the call under way, if there is one, with its usage or its error."""
        if self._task is not None and self._ended is not None and not self._ended.done():
            if isinstance(outcome, ModelError):
                self._task.add_done_callback(lambda task: task.exception())
                self._ended.set_exception(outcome)
            else:
                self._ended.set_result(outcome)
        self._task = None

    def cancel(self) -> None:
        """Cancel the call under way, if there is one: its usage is unknown."""
        if self._task is not None:
            self._task.cancel()
        self._task = None


def reachable(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """An agent and all agents that it may hand off to, without duplicates."""
    agents = [agent]
    for reached in agents:
        yield reached
        for handoff in reached.handoffs:
            reference = getattr(handoff, "_agent_ref", None)  # of the result of `handoff(agent)`
            to_agent: Any = handoff if reference is None else reference()
            if isinstance(to_agent, Agent) and all(to_agent is not other for other in agents):
                agents.append(cast("Agent[Any]", to_agent))


def jsonable(items: Sequence[Any]) -> list[Any]:
    """Convert input items to JSON data."""
    return to_jsonable_python(list(items), fallback=repr)


def model_name(agent: Agent[Any]) -> str:
    """Name of an agent's model, else the name of the model's class."""
    model = agent.model
    return model if isinstance(model, str) else str(getattr(model, "model", None) or type(model).__name__)
