"""Agents that call tools: drafting and revising with Pydantic AI."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import StructuredDict, UsageLimits
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
    UnexpectedModelBehavior,
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
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, Tool
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset
from pydantic_core import to_jsonable_python

from redraft._codec import json_form, to_json
from redraft._prompts import mistake_text
from redraft._steps import (
    IMAGE_TOKENS,
    OutgoingCall,
    estimated_usage,
    gated,
    in_time,
    name_of_model,
    step_context,
    user_call,
)
from redraft._texts import as_text, copy_of, estimate_tokens, short_repr
from redraft._tokens import ReplyText
from redraft._validation import named_error
from redraft.errors import ConfigError, ModelError, RedraftError, UnfinishedError, over_budget
from redraft.loop.output_type import OutputType
from redraft.loop.revise import answering
from redraft.loop.triggers import RunState, note
from redraft.models.content import image_content
from redraft.models.fallback import FallbackModel, providers_of
from redraft.models.model_settings import with_settings
from redraft.models.provider import (
    ANSWERED_BY,
    LOST,
    USD,
    ProviderModel,
    can_stream,
    model_error,
    provider_errors,
    streamed_response,
    text_of,
    usage_of,
)
from redraft.models.response import answered, readable
from redraft.protocols import ChatRequest
from redraft.redact.log import logger
from redraft.text.characters import is_well_formed, well_formed
from redraft.types import NOTHING_USED, Conversation, Draft, TokenUsage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import Self

    from pydantic_ai import RunContext as AgentContext
    from pydantic_ai.agent import AgentRunResult
    from pydantic_ai.models import ModelRequestContext, StreamedResponse
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

    from redraft.protocols import ChatModel, ModelCall, ModelRole, RunContext, TextListener
    from redraft.types import Advice, ConvergenceReason, Reflection


@dataclass(frozen=True, slots=True)
class ToolAgent:
    """A Pydantic AI agent, run from a prompt to its final output, which becomes a draft."""

    agent: AbstractAgent[Any, Any]
    provider: ProviderModel | FallbackModel | None = None
    """The model of an agent built by `with_tools`. An agent passed to `around` brings its own model,
    settings, instructions and handling of tools that raise."""
    tool_names: tuple[str, ...] = ()
    """The tools that are known before a run."""
    system_prompt: str = ""
    output_type: OutputType[Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    deps: Any = None
    history: Sequence[ModelMessage] = ()
    """The messages before the run."""
    limits: UsageLimits | None = None
    """The usage limits of each run of the agent."""

    @classmethod
    def with_tools(
        cls,
        model: ChatModel,
        system_prompt: str,
        tools: Sequence[Callable[..., Any] | Tool[Any]],
        output_type: OutputType[Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Build an agent from a model and tools; raises `ConfigError` if they don't fit."""
        if not isinstance(model, ProviderModel | FallbackModel) or not providers_of(model):
            raise ConfigError(
                f"tools: {name_of_model(model)!r} can't call tools; name a provider's model "
                "('provider:model'), or pass a ProviderModel around a model of Pydantic AI."
            )
        for tool in tools:
            if not isinstance(tool, Tool) and not callable(tool):
                raise ConfigError(f"tools must be functions or Tools of Pydantic AI, got {tool!r}.")
        try:
            toolset = FunctionToolset[Any](list(tools))
            kind = str if output_type is None else _agent_output(output_type)
            agent = PydanticAgent[Any, Any](output_type=kind, toolsets=[toolset])
        except (UserError, TypeError, ValueError, NameError) as error:
            # Duplicate names, or parameters without a schema.
            raise ConfigError(f"tools: {error}") from error
        return cls(agent, model, tuple(toolset.tools), system_prompt, output_type, settings or {})

    @classmethod
    def around(cls, agent: object) -> Self:
        """Take a Pydantic AI agent as it is; raises `ConfigError` for any other object."""
        if not isinstance(agent, AbstractAgent):
            raise ConfigError(f"from_pydantic_ai takes an agent of Pydantic AI, got {agent!r}.")
        return cls(cast("AbstractAgent[Any, Any]", agent))

    @property
    def has_steps(self) -> bool:
        """True: each request and tool call of the agent is a step."""
        return True

    @property
    def model(self) -> ChatModel | None:
        """The agent's model, to judge and reflect with; None if each run chooses one."""
        model: Any = self.provider or self.agent.model
        if model is None or isinstance(model, ProviderModel | FallbackModel):
            return model
        return None if callable(model) else ProviderModel(model)

    async def complete(self, prompt: str, messages: list[Any] | None, run: RunContext) -> Draft:
        """Run the agent once, for its final output with its usage and conversation.

        `messages` are the messages, as JSON, of a conversation to continue; None starts a new one. Raises
        `ModelError` if the provider failed for good, and `UnfinishedError` otherwise, each with the usage;
        neither should be retried as a whole.
        """
        history = (
            list(self.history) if messages is None else ModelMessagesTypeAdapter.validate_python(messages)
        )
        state: RunState = run.state
        tolerant = self.provider is not None or state.triggers.error
        steps = AgentSteps(state, run, history, tolerant=tolerant, prompt_at=len(self.history))
        try:
            result = await self._run(prompt, history, steps)
        except asyncio.CancelledError:
            state.count_cancelled(steps.role, steps.used)
            raise
        except RedraftError as error:
            raise _with_usage(error, steps) from error.__cause__
        except ModelAPIError as error:
            failure = steps.failure  # says which model, and why it was not retried
            if failure is None or failure.__cause__ is not error:
                failure = model_error("The agent's model", error)
            raise _with_usage(failure, steps) from error
        except Exception as error:
            if isinstance(error, UserError) and not steps.used.requests:
                raise ConfigError(f"The agent can't run: {error}") from error
            if self.output_type is not None and isinstance(error, UnexpectedModelBehavior) and steps.answer:
                # Two answers were refused: they are paid for, and can be revised.
                note = f"The reply is not a valid {self.output_type.name}: {error}"
                conversation = steps.conversation()
                return Draft(
                    steps.answer,
                    steps.used,
                    conversation=conversation,
                    notes=(note,),
                    model=steps.model,
                    advice=tuple(steps.advice),
                )
            raise _unfinished(error, steps) from error
        output = result.output
        if output is None or isinstance(output, DeferredToolRequests):
            raise UnfinishedError(
                f"The agent ended with {output!r}, which is not an answer; calls that wait for an approval, "
                "or for someone else to carry them out, can't be redrafted.",
                conversation=steps.conversation(result.all_messages()),
                usage=steps.used,
            )
        if self.output_type is not None:
            self.output_type.remember_reply(output, steps.answer)
        conversation = steps.conversation(result.all_messages())
        advice = tuple(steps.advice)
        return Draft(output, steps.used, conversation=conversation, model=steps.model, advice=advice)

    async def _run(self, prompt: str, history: list[ModelMessage], steps: AgentSteps) -> AgentRunResult[Any]:
        model: Model | None = None
        settings: ModelSettings | None = None
        instructions: str | None = None
        if self.provider is not None:
            instructions = well_formed(answering(self.system_prompt))
            steps.settings = self.settings
            model, settings = await steps.connected(providers_of(self.provider)[0])
            steps.model = providers_of(self.provider)[0].name
            steps.provider = self.provider
        return await self.agent.run(
            prompt,
            message_history=history or None,
            model=model,
            model_settings=settings,
            instructions=instructions,
            deps=self.deps,
            usage_limits=self.limits,
            infer_name=False,  # the agent belongs to the caller
            capabilities=[StepCapability(steps)],
        )


def _agent_output(output_type: OutputType[Any]) -> Any:
    """An output type in the form of Pydantic AI; raises `ConfigError` for a schema of a list."""
    if output_type.adapter is not None:
        return output_type.kind
    if output_type.is_list:
        raise ConfigError("output_type: with tools, a JSON Schema must have an object at the top.")
    return StructuredDict(dict(output_type.schema), name="answer")


def _answer_in(response: ModelResponse, parameters: ModelRequestParameters) -> str:
    """The answer in a response, as text; empty if it calls tools instead."""
    tools = {tool.name for tool in parameters.function_tools}
    if any(isinstance(part, ToolCallPart) and part.tool_name in tools for part in response.parts):
        return ""
    return text_of(response, parameters)


def _with_usage(error: RedraftError, steps: AgentSteps) -> RedraftError:
    if isinstance(error, ModelError):
        error.usage = steps.used_before(error)
        error.retryable = False  # it was retried within the agent's run, which must not start over
    return error


def _unfinished(error: Exception, steps: AgentSteps) -> UnfinishedError:
    is_own = isinstance(error, AgentRunError | UserError)
    what = str(error) if is_own else named_error(error)
    limit = " (a limit of its own)" if isinstance(error, UsageLimitExceeded) else ""
    return UnfinishedError(
        f"The agent came to no answer{limit}: {what}", conversation=steps.conversation(), usage=steps.used
    )


# Exceptions with which a tool steers the agent, errors in the call itself, and spent budgets.
STEERING = (
    ApprovalRequired,
    CallDeferred,
    SkipToolExecution,
    ToolFailedError,
    ToolRetryError,
    UsageLimitExceeded,
    UserError,
    RedraftError,
)


class AgentSteps:
    """The model requests and tool calls of a run of an agent, each carried out as a step.

    Counts their usage, stops before a request that would exceed the run's budget, and reflects when a trigger
    fires. With `tolerant`, an exception in a tool is reported to the model instead of ending the agent's run.
    The task is in the first message from `prompt_at` on.
    """

    def __init__(
        self,
        state: RunState,
        run: RunContext,
        history: Sequence[ModelMessage],
        *,
        tolerant: bool,
        prompt_at: int = 0,
    ) -> None:
        self.state = state
        self.run = run
        self.role: ModelRole = "generation" if run.attempt.number == 1 else "revision"
        self.tolerant = tolerant
        self.messages: Sequence[ModelMessage] = history
        self.used = NOTHING_USED
        self.answer = ""
        self.failure: ModelError | None = None
        self.provider: ProviderModel | FallbackModel | None = None
        self.settings: Mapping[str, Any] = {}
        self.model = ""
        self.reflections: list[Reflection] = []
        self.advice: list[Advice] = []
        self._prompt_at = prompt_at
        self._images = [image_content(image) for image in run.task.images]
        self._responses_before = count_responses(history)
        self._requests = 0
        self._sendable: dict[int, tuple[ModelMessage, ModelMessage]] = {}
        """Messages, which keep their ids, and the form in which each is sent."""

    def conversation(self, messages: Sequence[ModelMessage] | None = None) -> Conversation:
        """The messages so far, as JSON."""
        conversation = list(self.messages if messages is None else messages)
        # The metadata of a `ToolReturn` may be anything.
        data = ModelMessagesTypeAdapter.dump_python(conversation, mode="json", fallback=repr)
        return Conversation(data, tuple(self.reflections))

    def sendable(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages without lone surrogates; each is looked at once, since dumping it takes time."""
        for message in messages:
            if id(message) not in self._sendable:
                data = ModelMessagesTypeAdapter.dump_python([message], mode="json", fallback=repr)
                sendable = _sendable(data)
                [own] = [message] if sendable is data else ModelMessagesTypeAdapter.validate_python(sendable)
                self._sendable[id(message)] = message, own
        return [self._sendable[id(message)][1] for message in messages]

    def with_images(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Add the images of the task to the messages, after its text."""
        if not self._images:
            return messages
        for at, message in enumerate(messages[self._prompt_at :], self._prompt_at):
            for number, part in enumerate(message.parts):
                if isinstance(part, UserPromptPart) and isinstance(part.content, str):
                    extended = replace(part, content=[part.content, *self._images])
                    parts = [*message.parts[:number], extended, *message.parts[number + 1 :]]
                    changed = replace(message, parts=parts)
                    return [*messages[:at], changed, *messages[at + 1 :]]
        return messages

    async def before_request(self, agent: AgentContext[Any]) -> None:
        """Check the budget, and reflect first if a trigger fires."""
        self.messages = agent.messages
        self._check_budget()
        await self._advise(agent)
        step = count_responses(agent.messages) - self._responses_before
        trigger = await self._trigger(step, unanswered(agent.messages))
        if trigger is None:
            return
        reflection = await self.state.reflect(trigger, step, self.run, transcript(agent.messages))
        if reflection is None:
            return
        self.reflections.append(reflection)
        if reflection.text:
            agent.enqueue(note(reflection.text))
        self._check_budget()

    async def _advise(self, agent: AgentContext[Any]) -> None:
        """Add advice on tools that have just failed to the conversation, after their answers."""
        mistakes = self.state.mistakes
        if mistakes is None or self._requests == 0:
            return
        parts = [part for request in unanswered(agent.messages) for part in request.parts]
        answers = [part for part in parts if isinstance(part, ToolReturnPart)]
        failed = [(part.tool_name, error) for part in answers if (error := error_in(part))]
        if not failed:
            return
        prompts = [
            as_text(part.content)
            for message in agent.messages
            for part in message.parts
            if isinstance(part, UserPromptPart)
        ]
        for tool, error in dict.fromkeys(failed):
            if advice := await mistakes.on_tool(self.run, tool, error, prompts):
                self.advice += advice
                prompts.append(text := mistake_text(advice))
                agent.enqueue(text)

    async def _trigger(self, step: int, requests: Sequence[ModelRequest]) -> str | None:
        if step > 0 and await self.state.is_requested(step):
            return "manual"
        if self._requests == 0:  # the judge of the last version has seen everything so far
            return None
        parts = [part for request in requests for part in request.parts]
        answers = [part for part in parts if isinstance(part, ToolReturnPart)]
        refused = any(isinstance(part, RetryFeedbackPart) for part in parts)
        failed = refused or any(part.outcome in ("failed", "retried") for part in answers)
        return self.state.triggers.fired(
            step, failed=failed, tools=frozenset(part.tool_name for part in answers)
        )

    def _check_budget(self) -> None:
        if reason := self.state.spent(self.role, self.used):
            raise self._over(reason)

    def _over(self, reason: ConvergenceReason, detail: str = "") -> UnfinishedError:
        steps = "step" if self._requests == 1 else "steps"
        return UnfinishedError(
            f"The {reason.value.replace('_', ' ')} was spent after {self._requests} {steps} of the agent, "
            f"before it came to its answer.{detail and f' {detail}'}",
            conversation=self.conversation(),
            reason=reason,
            usage=self.used,
        )

    async def connected(self, provider: ProviderModel) -> tuple[Model, ModelSettings]:
        """A provider's model, and the settings of its requests."""
        model = await provider.model()
        request = ChatRequest((), temperature=self.run.attempt.temperature)
        return model, provider.settings(model, with_settings(request, self.settings))

    async def request(self, request: AgentRequest) -> ModelResponse:
        """Send a request to the model, and retry temporary failures; no other code retries them."""
        self._requests += 1
        context, texts = step_context.get(), list[ReplyText]()
        version, within = context.text, context.budget
        tokens = input_tokens(request.messages, request.parameters)
        if self._images and not count_responses(request.messages):
            tokens += IMAGE_TOKENS * len(self._images)
        own = (request.settings or {}).get("max_tokens")
        provider = self.provider or ProviderModel(request.model)
        budgeted = None if within is None else within.call(self.role, tokens, own, provider)

        async def call(limit: int | None = None) -> ModelResponse:
            if isinstance(provider, ProviderModel):
                return await ask(request, provider, limit)
            response, lost = await provider.first(partial(ask_model, limit=limit))
            response.metadata = {**(response.metadata or {}), LOST: to_json(lost)}
            return response

        async def call_within(budgeted: ModelCall) -> ModelResponse:
            response = await budgeted.limited(call)
            used, text = response.usage, text_of(response, request.parameters)
            cut_off = response.finish_reason == "length"
            counted = budgeted.counted(usage_of(response), text, cut_off=cut_off)
            if not used.total_tokens:  # the provider did not say
                used.input_tokens, used.output_tokens = counted.input_tokens, counted.output_tokens
                response.metadata = {**(response.metadata or {}), USD: counted.cost_usd}
            return response

        async def ask_model(model: ChatModel, *, limit: int | None, is_last: bool) -> ModelResponse:
            connected, settings = await self.connected(cast("ProviderModel", model))
            sent = replace(request, model=connected, settings=settings)
            response = await ask(sent, cast("ProviderModel", model), limit, waits_out=is_last)
            response.metadata = {**(response.metadata or {}), ANSWERED_BY: name_of_model(model)}
            return response

        async def ask(
            request: AgentRequest, provider: ProviderModel, limit: int | None, *, waits_out: bool = True
        ) -> ModelResponse:
            if limit is None:
                limit = (request.settings or {}).get("max_tokens")
            outgoing = OutgoingCall(provider, tokens, limit, self.role, waits_out=waits_out)

            def usage(response: ModelResponse) -> TokenUsage:
                text = text_of(response, request.parameters)
                return estimated_usage(usage_of(response), tokens, text)

            return await gated(outgoing, partial(send_or_stream, request, provider), usage)

        async def send_or_stream(
            request: AgentRequest, provider: ProviderModel, limit: int | None
        ) -> ModelResponse:
            if limit is not None:
                limited: ModelSettings = {"max_tokens": limit}
                request = replace(request, settings={**(request.settings or {}), **limited})
            if version is None:
                return await request.send(provider)
            texts.append(text := version.begin())
            if not text.streams or not can_stream(request.model):
                return await request.send(provider)
            if budgeted is not None:
                text.pay = budgeted.used
            return await text.follow(partial(request.stream, provider), self.role, tokens)

        async def send(_requests: list[ModelRequest]) -> ModelResponse:
            return await (call() if budgeted is None else budgeted.carry_out(call_within, budgeted))

        try:
            with budgeted or nullcontext():
                response = await self.state.steps.inside(
                    f"model {self._requests}",
                    ModelResponse,
                    send,
                    unanswered(request.messages),
                    on_failure=self._failed,
                )
                used = usage_of(response)
                if budgeted is not None:
                    budgeted.used(used)
        except ModelError as error:
            self.failure = error
            # The agent's own hooks may handle it, such as a fallback to another model.
            if isinstance(error.__cause__, AgentRunError):
                raise error.__cause__ from None
            raise
        except UnfinishedError as error:
            if error.reason is None:
                raise
            self.used += error.usage or NOTHING_USED
            self._requests -= 1  # the request was not answered
            raise self._over(error.reason, str(error)) from error
        self.used += used
        self.model = (response.metadata or {}).get(ANSWERED_BY, self.model)
        self.answer = _answer_in(response, request.parameters)
        if version is not None:
            text = texts[-1] if texts else version.begin()
            text.finish(text_of(response, request.parameters))
        return response

    def _failed(self, name: str, error: Exception, wait: float | None) -> float | None:
        if over_budget(error):
            return None
        self.used += TokenUsage(failed_requests=1)
        if isinstance(error, ModelError) and error.usage is not None:  # of a stream that broke off
            self.used, error.usage = self.used + error.usage, None
        return self.state.steps.wait_before(name, error, wait, self.used)

    async def call_tool(
        self, name: str, call_id: str, args: dict[str, Any], call: Callable[[dict[str, Any]], Awaitable[Any]]
    ) -> Any:
        """Call a tool and return its result."""

        async def carry_out(args: dict[str, Any]) -> ToolOutcome:
            what = f"the tool {name!r}"
            outcome = outcome_of(name, user_call(call(args), what))
            try:
                return await in_time(outcome, what)
            except STEERING:
                raise
            except Exception as error:
                if not self.tolerant:
                    raise
                logger.warning("The tool %r failed; the model gets its error.", name, exc_info=True)
                return ToolOutcome(kind="failed", message=named_error(error))

        try:
            outcome = await self.state.steps.inside(f"tool {name} {call_id}", ToolOutcome, carry_out, args)
        except UnfinishedError as error:
            if error.reason is None:
                raise
            raise self._over(error.reason, str(error)) from error
        return outcome.get()

    def used_before(self, failure: ModelError) -> TokenUsage:
        """The usage without the failed request itself, which the run counts."""
        used = replace(self.used, failed_requests=max(0, self.used.failed_requests - 1))
        return used + (failure.usage or NOTHING_USED)


@dataclass(eq=False)
class StepCapability(AbstractCapability[Any]):
    """Makes model requests and tool calls steps, inside of all other wrappers."""

    steps: AgentSteps

    def get_ordering(self) -> CapabilityOrdering:
        """Wrap the effects first, so that a record holds only an effect."""
        return CapabilityOrdering(position="innermost")

    def get_wrapper_model(self, model: Model) -> Model:
        """Make each request a step."""
        return StepModel(model, self.steps)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Make each tool call a step."""
        return StepToolset(toolset, self.steps)

    async def before_model_request(
        self, ctx: AgentContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Check the budget and the triggers."""
        await self.steps.before_request(ctx)
        return request_context


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A request of an agent to its model; raises `ModelError` if it fails."""

    model: Model
    messages: list[ModelMessage]
    sent: list[ModelMessage]
    """The messages with the task's images, which are not in the conversation: they are stored once."""
    settings: ModelSettings | None
    parameters: ModelRequestParameters

    async def send(self, provider: ProviderModel) -> ModelResponse:
        """The response; `provider` gives its price."""
        with provider_errors(self.model.model_id, self.model):
            return self._answered(
                provider, await self.model.request(self.sent, self.settings, self.parameters)
            )

    async def stream(self, provider: ProviderModel, on_text: TextListener, /) -> ModelResponse:
        """The response, after its text was passed on piece by piece."""
        stream = self.model.request_stream(self.sent, self.settings, self.parameters)
        with provider_errors(self.model.model_id, self.model):
            response = await streamed_response(self.model, stream, on_text, provider.priced)
        return await self.send(provider) if response is None else self._answered(provider, response)

    def _answered(self, provider: ProviderModel, response: ModelResponse) -> ModelResponse:
        used = provider.priced(usage_of(response))
        response.metadata = {**(response.metadata or {}), USD: used.cost_usd}
        return _with_unique_ids(answered(self.model.model_id, response, used, self.messages))


def _with_unique_ids(response: ModelResponse) -> ModelResponse:
    """The response with an own id for each tool call; some servers send the same id with several."""
    parts, ids = list(response.parts), set[str]()
    for at, part in enumerate(parts):
        if isinstance(part, ToolCallPart):
            if part.tool_call_id in ids:
                parts[at] = replace(part, tool_call_id=f"{part.tool_call_id}-{at}")
            ids.add(part.tool_call_id)
    return response if parts == response.parts else replace(response, parts=parts)


class StepModel(WrapperModel):
    """A model whose requests are steps; a streamed response arrives in one piece."""

    def __init__(self, wrapped: Model, steps: AgentSteps) -> None:
        super().__init__(wrapped)
        self._steps = steps

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The response, new or recorded."""
        sent = self._steps.with_images(self._steps.sendable(messages))
        model = readable(self.wrapped)
        request = AgentRequest(model, messages, sent, model_settings, model_request_parameters)
        return await self._steps.request(request)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: AgentContext[Any] | None = None,  # noqa: ARG002 (the signature is Pydantic AI's)
    ) -> AsyncGenerator[StreamedResponse]:
        """Yield the whole response as a stream, since a step is recorded when it has finished."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(
            response, model_request_parameters=model_request_parameters, replay_events=True
        )


def _sendable(data: Any) -> Any:
    """JSON data without lone surrogates, since what is sent is UTF-8; the same object if it has none."""
    text = json.dumps(data, ensure_ascii=False)
    return data if is_well_formed(text) else json.loads(well_formed(text))


@dataclass
class StepToolset(WrapperToolset[Any]):
    """A toolset whose calls are steps."""

    steps: AgentSteps

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: AgentContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """The result of the tool, new or recorded."""

        async def call(args: dict[str, Any]) -> Any:
            return await self.wrapped.call_tool(name, args, ctx, tool)

        return await self.steps.call_tool(name, ctx.tool_call_id or "", tool_args, call)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The value that a tool returned, or its message to the model, to retry or about a failure."""

    value: Any = None
    kind: Literal["returned", "retry", "failed"] = "returned"
    message: str = ""

    def get(self) -> Any:
        """The value; a message is raised as Pydantic AI expects it."""
        if self.kind == "retry":
            raise ModelRetry(self.message)
        if self.kind == "failed":
            raise ToolFailed(self.message)
        return self.value


async def outcome_of(name: str, call: Awaitable[Any]) -> ToolOutcome:
    """The outcome of a tool call; errors of the tool are raised, unless they are meant for the model.

    A tool may return texts, JSON values, pydantic models, dataclasses, and Pydantic AI's files and links.
    Other values raise `TypeError`, since they can be neither sent to the model nor recorded.
    """
    try:
        value = await call
    except ModelRetry as error:
        return ToolOutcome(kind="retry", message=error.message)
    except ToolFailed as error:
        return ToolOutcome(kind="failed", message=error.message)
    if not isinstance(value, ToolReturn):
        return ToolOutcome(_copied(name, value))
    returned = cast("ToolReturn[Any]", value)
    metadata = to_jsonable_python(returned.metadata, bytes_mode="base64", fallback=repr)
    own = replace(returned, return_value=_copied(name, returned.return_value), metadata=metadata)
    return ToolOutcome(own)


def _copied(name: str, value: Any) -> Any:
    """A copy of a tool's result, which the tool can't change; raises `TypeError` if it has no JSON form.

    An iterator has none: the check would exhaust it.
    """
    try:
        if isinstance(value, Iterator):
            raise TypeError("an iterator can be read only once")  # noqa: TRY301 (the same message)
        data = json_form(copy := copy_of(value), bytes_mode="base64")
    except Exception as error:
        raise TypeError(
            f"The tool {name!r} returned {short_repr(value)}, which has no JSON form; expected a text, a "
            f"JSON value, a pydantic model or a dataclass. ({error})"
        ) from error
    sendable = _sendable(data)
    return copy if sendable is data else sendable


LONGEST_ENTRY = 1_500
"""The most characters of an entry of a transcript."""


_ERROR = re.compile(r"\s*(?:error\b|[\w.]*(?:Error|Exception)\s*:)", re.IGNORECASE)
"""The beginning of a tool's answer that is an error as a text."""


def error_in(part: ToolReturnPart) -> str:
    """The error in a tool's answer to the model; empty for any other answer."""
    if part.outcome in ("failed", "retried"):
        return part.model_response_str()
    content: Any = part.content
    if isinstance(content, Mapping):
        error = cast("Mapping[str, Any]", content).get("error")
        return as_text(error) if error else ""
    return content if isinstance(content, str) and _ERROR.match(content) else ""


def transcript(messages: Sequence[ModelMessage]) -> str:
    """Render the prompts, answers and tool calls of a conversation, in order."""
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
    if len(text) <= LONGEST_ENTRY:
        return text
    return f"{text[:LONGEST_ENTRY]} ... ({len(text) - LONGEST_ENTRY} characters more)"


def unanswered(messages: Sequence[ModelMessage]) -> list[ModelRequest]:
    """The requests since the model's last response."""
    latest: list[ModelRequest] = []
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            break
        latest.insert(0, message)
    return latest


def count_responses(messages: Sequence[ModelMessage]) -> int:
    """The number of the model's responses in a conversation."""
    return sum(isinstance(message, ModelResponse) for message in messages)


def input_tokens(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Estimate the input of the next request: the usage up to the last response, and the messages since.

    The input of the first request includes instructions and tools.
    """
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    texts = [
        as_text(getattr(part, "content", "")) for message in unanswered(messages) for part in message.parts
    ]
    if last is not None and last.usage.total_tokens:
        before = last.usage.total_tokens
    else:
        tools = [*parameters.function_tools, *parameters.output_tools]
        before = sum(estimate_tokens(json.dumps(tool.parameters_json_schema)) for tool in tools)
        texts += [f"{tool.name} {tool.description}" for tool in tools]
        texts += [message.instructions or "" for message in unanswered(messages)[-1:]]
    return before + sum(map(estimate_tokens, texts))
