"""ToolOutcome: what a tool call came to, as it is recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ToolReturn
from pydantic_core import PydanticSerializationError, to_jsonable_python

if TYPE_CHECKING:
    from collections.abc import Awaitable


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """Hold what a tool returned, or what it told the model instead: to try again, or that it failed."""

    value: Any = None
    kind: Literal["returned", "retry", "failed"] = "returned"
    message: str = ""

    def get(self) -> Any:
        """Return the value, or raise what tells the model."""
        if self.kind == "retry":
            raise ModelRetry(self.message)
        if self.kind == "failed":
            raise ToolFailed(self.message)
        return self.value


async def outcome_of(name: str, call: Awaitable[Any]) -> ToolOutcome:
    """Return what a tool call comes to; raises what the tool raises, unless it is meant for the model.

    A tool returns what has a JSON form: texts, JSON values, models and dataclasses, files and links of
    Pydantic AI. Anything else raises `TypeError`: the model could not be told, and no record could hold it.
    """
    try:
        value = await call
    except ModelRetry as error:
        return ToolOutcome(kind="retry", message=error.message)
    except ToolFailed as error:
        return ToolOutcome(kind="failed", message=error.message)
    if isinstance(value, ToolReturn):
        _check(name, value.return_value)  # pyright: ignore[reportUnknownMemberType] (a tool returns anything)
        return ToolOutcome(_for_the_record(value))  # pyright: ignore[reportUnknownArgumentType] (likewise)
    _check(name, value)
    return ToolOutcome(value)


def _check(name: str, value: Any) -> None:
    try:
        to_jsonable_python(value, bytes_mode="base64")
    except PydanticSerializationError as error:
        raise TypeError(
            f"The tool {name!r} returned {value!r}, which has no JSON form; expected a text, a JSON value, a "
            f"pydantic model or a dataclass. ({error})"
        ) from error


def _for_the_record(value: ToolReturn[Any]) -> ToolReturn[Any]:
    """Make JSON of what a tool hands to the application beside its result, by `repr` if need be."""
    return replace(value, metadata=to_jsonable_python(value.metadata, bytes_mode="base64", fallback=repr))
