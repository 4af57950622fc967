"""Making performers: of a model and tools, or of an agent that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pydantic_ai import Agent as ActingAgent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from redraft.core.errors import ConfigError
from redraft.loop.acting.performer import Performer
from redraft.loop.prompts import answering
from redraft.models.provider import ProviderModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.core.protocols import ChatModel


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
