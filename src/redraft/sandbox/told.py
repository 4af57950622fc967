"""What a sandbox told of a script, as the value or the error that it means."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redraft.core.errors import (
    SandboxError,
    SandboxForbiddenError,
    SandboxMemoryError,
    SandboxTimeoutError,
    ScriptError,
)
from redraft.core.script import ScriptOutcome

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
            return ScriptOutcome(json.loads(answer["value"]), answer["printed"])
        except (ValueError, TypeError, RecursionError) as error:  # never from a worker that is what it was
            raise ScriptError(f"The {title} script gave a result that is no JSON: {error}.") from error
    line = answer.get("line")
    message = f"The {title} script{f', line {line},' if line else ''} {answer['message']}."
    if answer["kind"] in _ERRORS:
        raise _ERRORS[answer["kind"]](message)
    raise ScriptError(message, line=line)
