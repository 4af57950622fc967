"""JSON pointers (RFC 6901)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def pointer(path: Iterable[str | int]) -> str:
    """Render a path of keys and positions as a pointer; the whole value is the empty string."""
    return "".join([f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path])


def path_of(pointer: str) -> tuple[str, ...]:
    """Split a pointer into its keys; a position in a list is a key of digits."""
    return tuple([key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]])
