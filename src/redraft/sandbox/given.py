"""What a script is given, as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from redraft.protocols import Script

_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def names_of(script: Script) -> dict[str, Any]:
    """Return the names that a script sees; raises `ConfigError` for one that is none."""
    for name in script.names:
        if not (name.isidentifier() and name.isascii()):
            raise ConfigError(f"A script's name must be an identifier in ASCII, got {name!r}.")
    return dict(script.names)


def as_json(value: Any) -> bytes:
    """Return data for a script as JSON; raises `ConfigError` for what is none."""
    try:
        return _encoded(value).encode(errors="replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"What a script is given must be JSON: {error}.") from error
