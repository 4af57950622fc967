"""Reason: how an agent comes to a plan, as its file has it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from redraft.cycles.spec_parts import (
    Check,
    Expression,
    MayCall,
    Milliseconds,
    Name,
    Named,
    Prompted,
    Rule,
    Strict,
    Template,
)


class AnalyzeConfig(MayCall):
    """Configure an analysis without a model: by rules, or by a function of the program."""

    rules: list[Rule] = Field(default_factory=list[Rule], description="Those that hold are anomalies.")


class PlanRule(Strict):
    """Plan an action where a condition holds."""

    when: Expression | None = None
    action: Name = Field(description="The name of an action of `execute`.")
    params: dict[str, Any] = Field(default_factory=dict[str, Any])
    reason: Template = ""


class PlanConfig(MayCall):
    """Configure a plan without a model."""

    rules: list[PlanRule] = Field(default_factory=list[PlanRule])


class Constraint(Check):
    """Name something that has to hold, of each planned `action` where it speaks of one.

    What can't be judged, since a parameter that it reads is not there, does not hold: say `| default(0)`.
    """

    enforce: Literal["block", "record"] = "block"


class GovernConfig(Strict):
    """Configure what a plan must keep to."""

    constraints: list[Constraint] = Field(default_factory=list[Constraint])


class AuthorizeConfig(Strict):
    """Configure who decides on the plan.

    Autonomous: the agent. Supervised: a person within `timeoutMs`, else the default. Controlled: a person.
    """

    mode: Literal["autonomous", "supervised", "controlled"] = "autonomous"
    timeout_ms: Milliseconds = 60_000
    default: Literal["approve", "reject"] = "reject"
    when: Expression | None = Field(None, description="Only then a person is asked.")


class Analyze(Prompted):
    """Say what the data mean."""

    type: Literal["analyze"]
    config: AnalyzeConfig = AnalyzeConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class Plan(Prompted):
    """Say what to do: actions by their names."""

    type: Literal["plan"]
    config: PlanConfig = PlanConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class Govern(Named):
    """Hold the plan against constraints; violations are recorded."""

    type: Literal["govern"]
    config: GovernConfig


class Authorize(Named):
    """Have the plan decided on."""

    type: Literal["authorize"]
    config: AuthorizeConfig = AuthorizeConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


ReasonSubstage: TypeAlias = Annotated[Analyze | Plan | Govern | Authorize, Field(discriminator="type")]


class Reason(Strict):
    """Say what it means and what to do."""

    substages: list[ReasonSubstage] = Field(min_length=1)
