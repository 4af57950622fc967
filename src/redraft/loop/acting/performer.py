"""Performer: an agent of Pydantic AI that makes drafts, a run each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_ai import UsageLimits
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.tools import DeferredToolRequests

from redraft.core.chat import ChatRequest
from redraft.core.errors import ConfigError, ModelError, RedraftError, UnfinishedError
from redraft.core.nearest import nearest
from redraft.core.steps import allowance
from redraft.core.version import Draft
from redraft.loop.acting.capability import Watched
from redraft.loop.acting.trail import Trail
from redraft.models.provider import ProviderModel, model_error

if TYPE_CHECKING:
    from pydantic_ai.agent import AgentRunResult
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

    from redraft.core.context import RunContext
    from redraft.loop.live import LiveRun
    from redraft.loop.triggers import Triggers


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
