"""parsed_of: what goes into the `parsed` of a reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.errors import OutputError
from redraft.text.json_reply import json_of

if TYPE_CHECKING:
    from redraft.core.chat import ChatRequest


def parsed_of(text: str, request: ChatRequest) -> Any:
    """Return the JSON value of a reply's text where the request has a schema, else None.

    A text without one gives None, too: the caller of the model decides what that means.
    """
    if request.schema is None:
        return None
    try:
        return json_of(text)
    except OutputError:
        return None
