"""Trail: one run of an agent under way, watched step by step."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    SkipToolExecution,
    ToolFailedError,
    ToolRetryError,
    UserError,
)
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    ToolReturnPart,
)
from pydantic_core import ValidationError

from redraft.core.conversation import Conversation
from redraft.core.errors import ModelError, RedraftError, UnfinishedError, over_budget
from redraft.core.steps import allowance
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.loop.acting.outcome import ToolOutcome, outcome_of
from redraft.loop.acting.transcript import input_tokens, news, steps_in, transcript
from redraft.loop.reflection_prompt import note
from redraft.models.provider import model_error, usage_of
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pydantic_ai import RunContext as AgentContext
    from pydantic_ai.messages import ModelMessage

    from redraft.core.chat import ModelRole
    from redraft.core.context import RunContext
    from redraft.core.reflection import Reflection
    from redraft.core.result import ConvergenceReason
    from redraft.loop.live import LiveRun

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
