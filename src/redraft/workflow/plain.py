"""Plain JSON data: all that a workflow's state holds."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_jsonable_python

from redraft.core.errors import ConfigError

_encoded = json.JSONEncoder(allow_nan=False).encode


def plain_data(value: Any, what: str) -> Any:
    """Return a copy of `value` as plain JSON data: models and dataclasses as objects, times in ISO 8601.

    Raises `ConfigError`, which begins with `what`, for what has no such form, NaN and infinities among it.
    """
    try:
        data = to_jsonable_python(value)
        _encoded(data)
    except ValueError as error:  # pydantic's own is one
        raise ConfigError(f"{what} is no JSON data: {error}") from error
    return data


def copy_of(data: Any) -> Any:
    """Return a copy of what is plain JSON data already."""
    return to_jsonable_python(data)
