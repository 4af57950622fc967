"""Text: one text of the project, served whole and as nothing but text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from redraft.web.page import Asked


@dataclass(frozen=True, slots=True)
class Text:
    """Describe a text: what `read` returns is served at `path`, with its secrets withheld.

    For what a page shows only the beginning of. `read` raises `NotFoundError` for what is not there.
    """

    path: str
    read: Callable[[Asked], Awaitable[str]]
