"""Watched: what Pydantic AI calls around each step of an agent's run."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.models import CompletedStreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.toolsets import WrapperToolset

from redraft.loop.acting.trail import Trail

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pydantic_ai import RunContext as AgentContext
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool


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
