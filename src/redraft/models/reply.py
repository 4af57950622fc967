"""Parse a model's reply and its log probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.errors import OutputError
from redraft.text.replies import json_of, verdict_json_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.protocols import ChatRequest


def parsed_of(text: str, request: ChatRequest) -> Any:
    """Return the JSON value in a reply if the request has a schema, else None.

    A reply without JSON, or a judge's reply with several values, gives None, too: the caller of the model
    decides what that means.
    """
    if request.schema is None:
        return None
    try:
        return verdict_json_of(text) if request.role == "evaluation" else json_of(text)
    except OutputError:
        return None


def alternatives_of(token: Mapping[str, Any]) -> dict[str, float]:
    """Map a generated token and its alternatives to log probabilities, most likely first.

    `token` has OpenAI's format, with `token`, `logprob` and `top_logprobs`.
    """
    alternatives: dict[str, float] = {}
    for each in (*token["top_logprobs"], token):
        alternatives.setdefault(each["token"], each["logprob"])  # of equal texts, the likelier one
    return alternatives
