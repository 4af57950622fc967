"""Data from outside: held to be plain JSON, and failures in words."""

from __future__ import annotations

from typing import Any

from redraft.core.codec import to_json
from redraft.core.errors import OutputError
from redraft.core.texts import shortened
from redraft.text.schema_cost import size_of
from redraft.text.visible import visible

LONGEST_FAILURE = 500


def plain_data(value: Any, source: str) -> Any:
    """Return what `source` gave as plain JSON data; raises `OutputError` for what is none.

    That is a number that is not finite, or more than 100 levels of nesting; dataclasses, models and times
    become data, and what has no such form its `repr`.
    """
    try:
        data = to_json(value)
        size_of(data)
    except (ValueError, RecursionError) as error:
        raise OutputError(f"{source} gave what is no plain JSON data: {error}.") from error
    return data


def said(error: BaseException) -> str:
    """Return a failure in one line that is fit to be shown: its type, and what it said."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 (an error that can't be told must not be another one)
        message = "it can't say what is wrong"
    return shortened(visible(f"{type(error).__name__}: {message}"), LONGEST_FAILURE)
