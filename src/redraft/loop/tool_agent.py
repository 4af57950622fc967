"""Agents that call tools while they draft, on top of Pydantic AI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic_ai import UsageLimits
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    ModelAPIError,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import CompletedStreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import WrapperToolset
from pydantic_core import PydanticSerializationError, ValidationError, to_jsonable_python

from redraft._steps import allowance
from redraft._texts import as_text, estimate_tokens
from redraft._validation import nearest
from redraft.errors import ConfigError, ModelError, RedraftError, UnfinishedError, over_budget
from redraft.loop.live import note
from redraft.models.provider import ProviderModel, model_error, usage_of
from redraft.protocols import ChatRequest
from redraft.redact.log import logger
from redraft.types import NOTHING_USED, Conversation, Draft, TokenUsage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from pydantic_ai import RunContext as AgentContext
    from pydantic_ai.agent import AgentRunResult
    from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

    from redraft.loop.live import LiveRun, Triggers
    from redraft.protocols import ModelRole, RunContext
    from redraft.types import ConvergenceReason, Reflection


@dataclass(frozen=True, slots=True)
class Performer:
    """Run an agent from a prompt to its final output, which is a draft.

    `provider` is the model of an agent of ours; one that was made elsewhere brings its own, with its settings
    and the way it treats tools that raise. `tool_names` are those that are known before it runs. `deps`,
    `history` (what was said before the run) and `limits` are a run's.
    """

    agent: AbstractAgent[Any, Any]
    provider: ProviderModel | None = None
    tool_names: tuple[str, ...] = ()
    deps: Any = None
    history: Sequence[ModelMessage] = ()
    limits: UsageLimits | None = None

    def check(self, triggers: Triggers) -> None:
        """Refuse a trigger on a tool that an agent of ours does not have."""
        for name in sorted(triggers.tool_result or ()):
            if self.tool_names and name not in self.tool_names:
                raise ConfigError(
                    f"reflect_on_tools: there is no tool {name!r}; {nearest(name, self.tool_names)}"
                )

    async def complete(self, prompt: str, said: list[Any] | None, run: RunContext, live: LiveRun) -> Draft:
        """Run the agent once and return its final output, with what it used and the conversation.

        `said` are the messages, as JSON, of the conversation that goes on; without them a new one begins.
        Raises `ModelError` where the provider failed for good, else `UnfinishedError`, each with what was
        used; neither is worth another try of the whole.
        """
        history = list(self.history) if said is None else ModelMessagesTypeAdapter.validate_python(said)
        trail = Trail(live, run, history, forgiving=self.provider is not None or live.triggers.error)
        try:
            result = await self._result(prompt, history, trail)
        except asyncio.CancelledError:
            if allowance.get() is None:  # a step with a budget has counted it itself
                live.pay(trail.role, trail.used)
            raise
        except RedraftError as error:
            raise _charged(error, trail) from error.__cause__
        except ModelAPIError as error:
            known = trail.failure  # says more: which model, and why it was not tried again
            told = known if known and known.__cause__ is error else model_error("The agent's model", error)
            raise _charged(told, trail) from error
        except Exception as error:
            if isinstance(error, UserError) and not trail.used.requests:
                raise ConfigError(f"The agent can't run: {error}") from error
            raise _unfinished(error, trail) from error
        output = result.output
        if output is None or isinstance(output, DeferredToolRequests):
            raise UnfinishedError(
                f"The agent ended with {output!r}, which is no answer; calls that wait for an approval, or "
                "for someone else to carry them out, can't be redrafted.",
                conversation=trail.conversation(result.all_messages()),
                usage=trail.used,
            )
        return Draft(output, trail.used, conversation=trail.conversation(result.all_messages()))

    async def _result(self, prompt: str, history: list[ModelMessage], trail: Trail) -> AgentRunResult[Any]:
        model: Model | None = None
        settings: ModelSettings | None = None
        if self.provider is not None:
            model = await self.provider.model()
            wish = ChatRequest((), temperature=trail.run.attempt.temperature)
            settings = self.provider.settings(model, wish)
        return await self.agent.run(
            prompt,
            message_history=history or None,
            model=model,
            model_settings=settings,
            deps=self.deps,
            usage_limits=self.limits,
            infer_name=False,  # the agent belongs to the caller
            capabilities=[Watched(trail)],
        )


def _charged(error: RedraftError, trail: Trail) -> RedraftError:
    if isinstance(error, ModelError):
        error.usage = trail.paid_before(error)
        error.retryable = False  # it was tried again within the run, which must not begin anew for it
    return error


def _unfinished(error: Exception, trail: Trail) -> UnfinishedError:
    said = str(error) if isinstance(error, AgentRunError | UserError) else f"{type(error).__name__}: {error}"
    limit = " (a limit of its own)" if isinstance(error, UsageLimitExceeded) else ""
    return UnfinishedError(
        f"The agent came to no answer{limit}: {said}", conversation=trail.conversation(), usage=trail.used
    )


# What a tool raises to steer the agent, and what is wrong with the call rather than with the tool.
STEERING = (
    ApprovalRequired,
    CallDeferred,
    SkipToolExecution,
    ToolFailedError,
    ToolRetryError,
    ValidationError,
    AgentRunError,
    UserError,
    RedraftError,
)


class Trail:
    """Carry out the model requests and tool calls of one agent's run, each as a step of its own.

    Knows what was used, stops before a request that the run's budget does not allow any more, and looks back
    where a trigger asks for it. With `forgiving`, a tool that raises is told to the model as failed.
    """

    def __init__(
        self, live: LiveRun, run: RunContext, history: Sequence[ModelMessage], *, forgiving: bool
    ) -> None:
        self.live = live
        self.run = run
        self.role: ModelRole = "generation" if run.attempt.number == 1 else "revision"
        self.forgiving = forgiving
        self.messages: Sequence[ModelMessage] = history
        self.used = NOTHING_USED
        self.failure: ModelError | None = None
        self.reflections: list[Reflection] = []
        self._before = steps_in(history)
        self._requests = 0

    def conversation(self, messages: Sequence[ModelMessage] | None = None) -> Conversation:
        """Return what was said until now, as JSON."""
        said = list(self.messages if messages is None else messages)
        # What a tool hands to the application beside its result may be anything.
        data = ModelMessagesTypeAdapter.dump_python(said, mode="json", fallback=repr)
        return Conversation(data, tuple(self.reflections))

    async def before_request(self, agent: AgentContext[Any]) -> None:
        """Check the budget, and look back first where a trigger asks for it."""
        self.messages = agent.messages
        self._check_budget()
        step = steps_in(agent.messages) - self._before
        trigger = await self._trigger(step, news(agent.messages))
        if trigger is None:
            return
        reflection = await self.live.reflect(trigger, step, self.run, transcript(agent.messages))
        if reflection is None:
            return
        self.reflections.append(reflection)
        if reflection.text:
            agent.enqueue(note(reflection.text))
        self._check_budget()

    async def _trigger(self, step: int, told: Sequence[ModelRequest]) -> str | None:
        if step > 0 and await self.live.asked(step):
            return "manual"
        if self._requests == 0:  # what came before was looked at when the last version was judged
            return None
        parts = [part for request in told for part in request.parts]
        answers = [part for part in parts if isinstance(part, ToolReturnPart)]
        refused = any(isinstance(part, RetryFeedbackPart) for part in parts)
        failed = refused or any(part.outcome in ("failed", "retried") for part in answers)
        return self.live.triggers.fired(
            step, failed=failed, tools=frozenset(part.tool_name for part in answers)
        )

    def _check_budget(self) -> None:
        if reason := self.live.spent(self.role, self.used):
            raise self._over(reason)

    def _over(self, reason: ConvergenceReason) -> UnfinishedError:
        steps = "step" if self._requests == 1 else "steps"
        return UnfinishedError(
            f"The {reason.value.replace('_', ' ')} was spent after {self._requests} {steps} of the agent, "
            "before it came to its answer.",
            conversation=self.conversation(),
            reason=reason,
            usage=self.used,
        )

    async def request(
        self, model: str, messages: Sequence[ModelMessage], call: Callable[[], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """Carry out a request to the model; a failure that may pass is tried again, here and nowhere else."""
        self._requests += 1

        async def once(_told: list[ModelRequest]) -> ModelResponse:
            try:
                return await (call() if paid is None else paid.carry_out(call))
            except AgentRunError as error:
                raise model_error(model, error) from error

        within = allowance.get()
        paid = None if within is None else within.call(self.role, input_tokens(messages))
        try:
            with paid or nullcontext():
                response = await self.live.step(self._failed)(
                    f"model {self._requests}", ModelResponse, once, news(messages)
                )
                used = usage_of(response)
                if paid is not None:
                    paid.used(used)
        except ModelError as error:
            self.failure = error
            if isinstance(error.__cause__, AgentRunError):  # what the agent's own hooks know, a fallback say
                raise error.__cause__ from None
            raise
        except UnfinishedError as error:
            if error.reason is None:
                raise
            self.used += error.usage or NOTHING_USED
            self._requests -= 1  # it came to nothing
            raise self._over(error.reason) from error
        self.used += used
        return response

    def _failed(self, name: str, error: Exception, wait: float | None) -> float | None:
        if over_budget(error):
            return None
        self.used += TokenUsage(failed_requests=1)
        return self.live.wait_before(name, error, wait, self.used)

    async def call_tool(
        self, name: str, call_id: str, args: dict[str, Any], call: Callable[[dict[str, Any]], Awaitable[Any]]
    ) -> Any:
        """Carry out a tool call, and return what the tool returned."""

        async def once(args: dict[str, Any]) -> ToolOutcome:
            outcome, within = outcome_of(name, call(args)), allowance.get()
            try:
                return await (outcome if within is None else within.in_time(outcome))
            except STEERING:
                raise
            except Exception as error:
                if not self.forgiving:
                    raise
                logger.warning("The tool %s failed, and the model was told.", name, exc_info=True)
                return ToolOutcome(kind="failed", message=f"{type(error).__name__}: {error}")

        try:
            outcome = await self.live.step()(f"tool {name} {call_id}", ToolOutcome, once, args)
        except UnfinishedError as error:
            if error.reason is None:
                raise
            raise self._over(error.reason) from error
        return outcome.get()

    def paid_before(self, failure: ModelError) -> TokenUsage:
        """Return what was used beside the failure itself, which the run counts."""
        used = replace(self.used, failed_requests=max(0, self.used.failed_requests - 1))
        return used + (failure.usage or NOTHING_USED)


@dataclass(eq=False)
class Watched(AbstractCapability[Any]):
    """Let a trail carry out the model requests and tool calls, inside of whatever else wraps them."""

    trail: Trail

    def get_ordering(self) -> CapabilityOrdering:
        """Stand nearest to the effects, so that each record holds an effect and nothing around it."""
        return CapabilityOrdering(position="innermost")

    def get_wrapper_model(self, model: Model) -> Model:
        """Let each request go through the trail."""
        return WatchedModel(model, self.trail)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Let each tool call go through the trail."""
        return WatchedToolset(toolset, self.trail)

    async def before_model_request(
        self, ctx: AgentContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Let the trail stop or look back before a request."""
        await self.trail.before_request(ctx)
        return request_context


class WatchedModel(WrapperModel):
    """Make each request to a model a step of the trail; what is streamed arrives as a whole."""

    def __init__(self, wrapped: Model, trail: Trail) -> None:
        super().__init__(wrapped)
        self._trail = trail

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the response, or the recorded one."""

        async def call() -> ModelResponse:
            return await self.wrapped.request(messages, model_settings, model_request_parameters)

        return await self._trail.request(self.model_id, messages, call)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: AgentContext[Any] | None = None,  # noqa: ARG002 (the signature is Pydantic AI's)
    ) -> AsyncGenerator[StreamedResponse]:
        """Yield the whole response as a stream: a step is recorded when it is finished."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(
            response, model_request_parameters=model_request_parameters, replay_events=True
        )


@dataclass
class WatchedToolset(WrapperToolset[Any]):
    """Make each call of a tool a step of the trail."""

    trail: Trail

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: AgentContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return what the tool returned, or what is recorded of it."""

        async def call(args: dict[str, Any]) -> Any:
            return await self.wrapped.call_tool(name, args, ctx, tool)

        return await self.trail.call_tool(name, ctx.tool_call_id or "", tool_args, call)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """Hold what a tool returned, or what it told the model instead: to try again, or that it failed."""

    value: Any = None
    kind: Literal["returned", "retry", "failed"] = "returned"
    message: str = ""

    def get(self) -> Any:
        """Return the value, or raise what tells the model."""
        if self.kind == "retry":
            raise ModelRetry(self.message)
        if self.kind == "failed":
            raise ToolFailed(self.message)
        return self.value


async def outcome_of(name: str, call: Awaitable[Any]) -> ToolOutcome:
    """Return what a tool call comes to; raises what the tool raises, unless it is meant for the model.

    A tool returns what has a JSON form: texts, JSON values, models and dataclasses, files and links of
    Pydantic AI. Anything else raises `TypeError`: the model could not be told, and no record could hold it.
    """
    try:
        value = await call
    except ModelRetry as error:
        return ToolOutcome(kind="retry", message=error.message)
    except ToolFailed as error:
        return ToolOutcome(kind="failed", message=error.message)
    if isinstance(value, ToolReturn):
        _check(name, value.return_value)  # pyright: ignore[reportUnknownMemberType] (a tool returns anything)
        return ToolOutcome(_for_the_record(value))  # pyright: ignore[reportUnknownArgumentType] (likewise)
    _check(name, value)
    return ToolOutcome(value)


def _check(name: str, value: Any) -> None:
    try:
        to_jsonable_python(value, bytes_mode="base64")
    except PydanticSerializationError as error:
        raise TypeError(
            f"The tool {name!r} returned {value!r}, which has no JSON form; expected a text, a JSON value, a "
            f"pydantic model or a dataclass. ({error})"
        ) from error


def _for_the_record(value: ToolReturn[Any]) -> ToolReturn[Any]:
    """Make JSON of what a tool hands to the application beside its result, by `repr` if need be."""
    return replace(value, metadata=to_jsonable_python(value.metadata, bytes_mode="base64", fallback=repr))


LONGEST = 1_500
"""Characters that one entry is shown with."""


def transcript(messages: Sequence[ModelMessage]) -> str:
    """Render what was said, called and answered, an entry a line or more, in its order."""
    entries = [entry for message in messages for part in message.parts if (entry := _entry(part))]
    return "\n".join(entries)


def _entry(part: Any) -> str:
    match part:
        case UserPromptPart(content=content):
            return f"asked: {_cut(content)}"
        case TextPart(content=content):
            return f"said: {_cut(content)}" if content.strip() else ""
        case ToolCallPart(tool_name=name):
            return f"called {name} with {_cut(json.dumps(part.args_as_dict(), ensure_ascii=False))}"
        case ToolReturnPart(tool_name=name, outcome=outcome):
            how = "answered" if outcome == "success" else outcome
            return f"{name} {how}: {_cut(part.model_response_str())}"
        case RetryFeedbackPart(content=content):
            return f"the answer was refused: {_cut(content)}"
        case _:
            return ""


def _cut(content: Any) -> str:
    text = as_text(content)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text) - LONGEST} characters more)"


def news(messages: Sequence[ModelMessage]) -> list[ModelRequest]:
    """Return the requests since the model's last response: what it is told next."""
    latest: list[ModelRequest] = []
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            break
        latest.insert(0, message)
    return latest


def steps_in(messages: Sequence[ModelMessage]) -> int:
    """Count the steps that the model took in a conversation."""
    return sum(isinstance(message, ModelResponse) for message in messages)


def input_tokens(messages: Sequence[ModelMessage]) -> int:
    """Estimate the input of the next request: all that was said until the last response, and the news."""
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    said = [as_text(getattr(part, "content", "")) for message in news(messages) for part in message.parts]
    before = 0 if last is None else last.usage.input_tokens + last.usage.output_tokens
    return before + sum(map(estimate_tokens, said))
