"""Change: what a person does on a page, as JSON that is posted and a sentence that comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redraft.errors import ConfigError
from redraft.web.project import Project


@dataclass(frozen=True, slots=True)
class Wanted:
    """Hold what a person wants changed: the parameters of the path, and the fields of the form."""

    project: Project
    path: Mapping[str, str]
    fields: Mapping[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        """Return a field that is a text; raises `ConfigError` where it is missing or no text."""
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise ConfigError(f"The field {name!r} must be a text, got {value!r}.")
        return value


@dataclass(frozen=True, slots=True)
class Change:
    """Describe a change: a POST to `path` does it and answers `{"happened": ...}`, what `make` returns.

    `make` raises `ConfigError` for what can't be done (400), `NotFoundError` for what is not there (404),
    `StoreError` where the store fails (503); the answer is then `{"error": ...}`, with nothing changed. A
    form in a template with `data-change` posts its fields there; then the page shows what happened.
    """

    path: str
    make: Callable[[Wanted], Awaitable[str]]
