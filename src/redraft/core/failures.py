"""Failures as data: an exception written down, and raised again from what was written."""

from __future__ import annotations

import builtins
from typing import Any

from redraft.core import errors
from redraft.core.codec import from_json, to_json
from redraft.core.conversation import Conversation
from redraft.core.errors import ModelError, RedraftError, UnfinishedError
from redraft.core.result import ConvergenceReason
from redraft.core.usage import TokenUsage

MISTAKES = (TypeError, AttributeError, NameError)
"""What code with a mistake in it raises, whatever it is given: trying again never helps."""

OF_A_FUNCTION = "The function of the criterion "
"""How a note on an exception begins which a criterion's function raised."""


def is_of_a_function(error: BaseException) -> bool:
    """Say whether a criterion's function raised an error."""
    return any(note.startswith(OF_A_FUNCTION) for note in getattr(error, "__notes__", ()))


class RecordedError(RedraftError):
    """Stand in for an exception whose class can't be made again; its own class is named as that one was."""


def said_of(error: BaseException) -> str:
    """Return what an error says, after the name of its class where that is not Redraft's own.

    The message of another's may be a single word, as that of a `KeyError` is.
    """
    if isinstance(error, RedraftError) and not isinstance(error, RecordedError):
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def failure_to_json(error: Exception) -> dict[str, Any]:
    """Return an exception as JSON: type and message, what was paid on the way, and what a retry needs."""
    data = to_json(error)
    if isinstance(error, RedraftError) and error.usage is not None:
        data["usage"] = to_json(error.usage)
    if isinstance(error, ModelError):
        data |= {"status": error.status, "retryable": error.retryable, "retry_after": error.retry_after}
    if isinstance(error, UnfinishedError):
        data |= {"reason": to_json(error.reason), "conversation": to_json(error.conversation)}
    return data


def failure_from_json(data: dict[str, Any]) -> Exception:
    """Return the exception that was written down: of the same class if that is Python's or Redraft's own.

    Any other becomes a `RecordedError`, which has its name and message.
    """
    name, message = data["type"], data["message"]
    if name == ModelError.__name__:
        failure: Exception = ModelError(
            message,
            status=data["status"],
            retryable=data["retryable"],
            retry_after=data["retry_after"],
        )
    elif name == UnfinishedError.__name__:
        reason, said = data["reason"], data["conversation"]
        failure = UnfinishedError(
            message,
            conversation=None if said is None else from_json(Conversation, said),
            reason=None if reason is None else ConvergenceReason(reason),
        )
    else:
        failure = _made_of(name, message)
    if isinstance(failure, RedraftError) and data.get("usage") is not None:
        failure.usage = from_json(TokenUsage, data["usage"])
    return failure


def _made_of(name: str, message: str) -> Exception:
    for place in (errors, builtins):
        kind: Any = vars(place).get(name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(message)
            except TypeError:  # one that wants more than a message
                break
    return type(name, (RecordedError,), {})(message)
