"""What the parts of an agent file have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from redraft.text.spec_file import TEMPLATED

Template = Annotated[str, Field(description=TEMPLATED)]
Expression = Annotated[
    str,
    Field(description="What has to hold, such as `environmentalData.payload.rate > 5`, in braces or bare."),
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Milliseconds = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """Refuse keys that are not known; a file writes them in camelCase, Python as they are."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True
    )


class Named(Strict):
    """Have a name of one's own within the stage."""

    name: Name


class Prompted(Named):
    """Ask a model, whose reply follows `outputSchema`; a substage that does not, leaves both out."""

    prompt: Template | None = None
    output_schema: dict[str, Any] | None = Field(
        None, description="JSON Schema that the reply has to follow."
    )
    model: str | None = Field(None, description="Default: the agent's.")


class Call(Strict):
    """Call a function of the program."""

    timeout_ms: Milliseconds | None = Field(
        None, description="How long the function may take, in milliseconds. Default: as long as it does."
    )


class MayCall(Call):
    """Call a function of the program, if one is named."""

    function: Name | None = None


class Rule(Strict):
    """Name something that is to be found where a condition holds."""

    name: Name
    when: Expression
    severity: Literal["info", "warning", "critical"] = "warning"
    message: Template = ""


class Check(Strict):
    """Name something that has to hold."""

    name: Name
    require: Expression
    message: Template = ""


class Request(Strict):
    """Say what is sent over HTTP."""

    url: Template
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    headers: dict[str, Template] = Field(default_factory=dict[str, str])
    body: Any = Field(None, description="Sent as JSON; texts in it may hold templates.")
    timeout_ms: Milliseconds = 10_000
