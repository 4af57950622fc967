"""What a sandbox told of a script, as the value or the error that it means."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redraft.errors import (
    SandboxError,
    SandboxForbiddenError,
    SandboxMemoryError,
    SandboxTimeoutError,
    ScriptError,
)
from redraft.protocols import ScriptOutcome
from redraft.sandbox.inside.plain import DEPTH, is_too_deep

if TYPE_CHECKING:
    from collections.abc import Mapping

_ERRORS = {
    "timeout": SandboxTimeoutError,
    "memory": SandboxMemoryError,
    "forbidden": SandboxForbiddenError,
    "output": SandboxError,
}


def outcome_of(title: str, answer: Mapping[str, Any]) -> ScriptOutcome:
    """Return the outcome that an answer carries; raises the `SandboxError` that it means otherwise."""
    if "value" in answer:
        try:
            value = json.loads(answer["value"])
        except (ValueError, TypeError, RecursionError) as error:  # such as a number of too many digits
            raise ScriptError(f"The {title} script gave a result that is no JSON: {error}.") from error
        if len(answer["value"]) > DEPTH and is_too_deep(value):  # each level takes a bracket at least
            raise ScriptError(
                f"The {title} script gave a result that is too deep: {DEPTH} levels are allowed."
            )
        return ScriptOutcome(value, answer["printed"])
    line = answer.get("line")
    message = f"The {title} script{f', line {line},' if line else ''} {answer['message']}."
    if answer["kind"] in _ERRORS:
        raise _ERRORS[answer["kind"]](message)
    raise ScriptError(message, line=line)
