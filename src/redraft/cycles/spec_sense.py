"""Sense: the sources of an agent, as its file has them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from redraft.cycles.spec_parts import Call, Name, Named, Request, Strict, Template


class Source(Strict):
    """Say where in the payload what was sensed goes, and whether the cycle can do without."""

    into: str | None = Field(
        None, description="The key of the payload. Without one an object is merged, all else goes by name."
    )
    required: bool = Field(
        default=False, description="Whether the cycle fails with it; else its error is noted in the data."
    )


class ApiSource(Source, Request):
    """Configure a source over HTTP."""


class CsvSource(Source):
    """Configure a CSV file; its path is seen from the agent's file."""

    path: Template
    delimiter: str = Field(",", min_length=1, max_length=1)
    last: int | None = Field(None, ge=1, description="Only so many rows, from the end.")


class MessagesSource(Source):
    """Configure what other agents and programs sent to this one since the last cycle."""

    topic: Name | None = None
    most: int = Field(100, ge=1, description="The newest so many.")


class FunctionSource(Source, Call):
    """Configure a function of the program as a source."""

    function: Name
    with_: dict[str, Any] = Field(default_factory=dict[str, Any], alias="with")


class ApiSense(Named):
    """Ask an HTTP source."""

    type: Literal["api"]
    config: ApiSource


class CsvSense(Named):
    """Read a CSV file."""

    type: Literal["csv"]
    config: CsvSource


class MessagesSense(Named):
    """Take the messages that came."""

    type: Literal["agent-messages"]
    config: MessagesSource = MessagesSource()  # pyright: ignore[reportCallIssue] (all its fields have defaults)


class FunctionSense(Named):
    """Call a function of the program."""

    type: Literal["function"]
    config: FunctionSource


SenseSubstage: TypeAlias = Annotated[
    ApiSense | CsvSense | MessagesSense | FunctionSense, Field(discriminator="type")
]


class Sense(Strict):
    """Look at the world."""

    substages: list[SenseSubstage] = Field(min_length=1)
