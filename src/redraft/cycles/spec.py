"""AgentSpec: the file of an agent that runs in cycles, typed; its JSON Schema is made from it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from redraft.cycles.spec_actuate import Actuate
from redraft.cycles.spec_parts import Milliseconds, Name, Strict, Variable
from redraft.cycles.spec_reason import Reason
from redraft.cycles.spec_reflect import Reflect
from redraft.cycles.spec_sense import Sense


class IntervalTrigger(Strict):
    """Begin a cycle at fixed times; those that pass while a cycle runs, or nothing does, count as one."""

    type: Literal["interval"]
    interval_ms: Milliseconds = Field(description="From one begin to the next.")


class ManualTrigger(Strict):
    """Begin a cycle when somebody asks for one."""

    type: Literal["manual"]


class MessageTrigger(Strict):
    """Begin a cycle when a message comes over the bus."""

    type: Literal["message"]
    topic: Name | None = Field(None, description="Of which topic; without one, of any.")


Trigger: TypeAlias = Annotated[IntervalTrigger | ManualTrigger | MessageTrigger, Field(discriminator="type")]


class Stages(Strict):
    """The stages of a cycle; any may be left out."""

    sense: Sense | None = None
    reason: Reason | None = None
    actuate: Actuate | None = None
    reflect: Reflect | None = None


class MemoryLimits(Strict):
    """Bound what prompts show of the memory, and for how long cycles can be looked back at."""

    prompt_tokens: int = Field(2_000, ge=0, description="Of all memory keys of one prompt together.")
    cycles: int = Field(1_000, ge=1, description="Of so many the records and memory changes are kept.")


class AgentSpec(Strict):
    """An agent that goes round: Sense, Reason, Actuate, Reflect."""

    name: Name
    description: str = ""
    model: str | None = Field(None, description="The model where a substage names none.")
    models: dict[str, str] = Field(
        default_factory=dict[str, str], description="What a model's name stands for."
    )
    env: list[Variable] = Field(
        default_factory=list[str],
        description="The environment variables that requests and calls may read, as `env.NAME`: no key has "
        "to stand in the file, and no prompt can show one.",
    )
    triggers: list[Trigger] = Field(default_factory=lambda: [ManualTrigger(type="manual")])
    memory: MemoryLimits = MemoryLimits()  # pyright: ignore[reportCallIssue] (all its fields have defaults)
    stages: Stages
