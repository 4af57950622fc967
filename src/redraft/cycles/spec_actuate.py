"""Actuate: what an agent can do, as its file has it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from redraft.cycles.spec_parts import (
    Call,
    Check,
    Expression,
    MayCall,
    Name,
    Named,
    Prompted,
    Request,
    Strict,
    Template,
)


class Action(Strict):
    """Declare an action; a plan can only name what is declared, and give it `params`."""

    name: Name
    when: Expression | None = Field(
        None,
        description="It is done where this holds, planned or not. Without a "
        "`plan` in the file, an action that has none is done in every cycle.",
    )


class ApiCallAction(Action, Request):
    """Send something over HTTP, with an `Idempotency-Key`."""

    type: Literal["api_call"]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"


class FunctionAction(Action, Call):
    """Call a function of the program."""

    type: Literal["function"]
    function: Name
    with_: dict[str, Any] = Field(default_factory=dict[str, Any], alias="with")


class LogAction(Action):
    """Write a line into the log."""

    type: Literal["log"]
    message: Template
    severity: Literal["info", "warning", "critical"] = "info"


class AlertAction(Action):
    """Publish an alert on the bus, and in the log."""

    type: Literal["alert"]
    message: Template
    severity: Literal["info", "warning", "critical"] = "warning"


AnyAction: TypeAlias = Annotated[
    ApiCallAction | FunctionAction | LogAction | AlertAction, Field(discriminator="type")
]


class ExecuteConfig(Strict):
    """Configure what an agent can do."""

    actions: list[AnyAction] = Field(min_length=1)


class EvaluateConfig(MayCall):
    """Configure without a model how it is seen whether the actions worked."""

    checks: list[Check] = Field(default_factory=list[Check])


class Execute(Named):
    """Do what was planned and allowed."""

    type: Literal["execute"]
    config: ExecuteConfig


class Evaluate(Prompted):
    """Say whether it worked."""

    type: Literal["evaluate"]
    config: EvaluateConfig = EvaluateConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


ActuateSubstage: TypeAlias = Annotated[Execute | Evaluate, Field(discriminator="type")]


class Actuate(Strict):
    """Do it, and see whether it worked."""

    substages: list[ActuateSubstage] = Field(min_length=1)
