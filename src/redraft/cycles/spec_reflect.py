"""Reflect: how an agent learns within bounds, as its file has it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from redraft.cycles.spec_parts import Named, Strict, Template


class LearnConfig(Strict):
    """Configure where new patterns go."""

    target: str | None = Field(
        None,
        pattern=r"^memory\.[A-Za-z_][A-Za-z0-9_]*$",
        description="Default: the one key of your own that the prompt names, else `memory.patterns`.",
    )


class Retention(Strict):
    """Bound an array of the memory: by number, by age, or by both."""

    policy: Literal["max_items", "ttl"] | list[Literal["max_items", "ttl"]] | None = Field(
        None, description="May be left out: what is given applies."
    )
    max_items: int | None = Field(None, ge=0, description="Keep the most recent so many.")
    ttl_ms: int | None = Field(None, ge=0, description="Discard what is older, in milliseconds.")


class UpdateStateConfig(Strict):
    """Configure how long the memory keeps what; a key is written `memory.patterns`."""

    retention: dict[str, Retention] = Field(default_factory=dict[str, Retention])


class MetricsConfig(Strict):
    """Configure what is recorded of each cycle; a flag that is absent is off."""

    track_cycle_duration: bool = False
    track_llm_tokens: bool = Field(default=False, alias="trackLLMTokens")
    track_cost: bool = False
    track_anomaly_count: bool = False
    track_alert_count: bool = False


class Learn(Named):
    """Ask the model what can be learned of the cycle."""

    type: Literal["learn"]
    prompt: Template
    output_schema: dict[str, Any] | None = Field(
        None, description="JSON Schema that the reply has to follow."
    )
    model: str | None = Field(None, description="Default: the agent's.")
    config: LearnConfig = LearnConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class UpdateState(Named):
    """Write the memory: the one place where it changes."""

    type: Literal["update-state"]
    config: UpdateStateConfig = UpdateStateConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class CaptureMetrics(Named):
    """Record how the cycle went."""

    type: Literal["capture-metrics"]
    config: MetricsConfig = MetricsConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


ReflectSubstage: TypeAlias = Annotated[Learn | UpdateState | CaptureMetrics, Field(discriminator="type")]


class Reflect(Strict):
    """Learn from it, within bounds."""

    substages: list[ReflectSubstage] = Field(min_length=1)
