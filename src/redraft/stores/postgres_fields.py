"""The fields of a record's data, in a form that PostgreSQL can index."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from redraft.stores.row import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 200
"""Characters of a name or value that stand for themselves; of longer ones, the index has a digest."""


def entries(data: Mapping[str, Any]) -> list[str]:
    """Return an entry for each field that is not null: `"status":"finished"`; `"items":#` for no scalar."""
    return [
        entry(name, json_text(value) if isinstance(value, str | int | float) else "#")
        for name, value in data.items()
        if value is not None
    ]


def entry(name: str, text: str) -> str:
    """Return the entry of a field whose value has a JSON text; the fields of one name begin alike."""
    return beginning(name) + _short(text)


@lru_cache(maxsize=1024)
def beginning(name: str) -> str:
    """Return how the entry of a field begins, whatever its value, and how that of no other field does."""
    return f"{_short(json_text(name))}:"


def _short(text: str) -> str:
    # No JSON text begins with "#".
    return text if len(text) <= _LONGEST else f"#{blake2b(text.encode(), digest_size=16).hexdigest()}"
