"""Pages, changes and plain texts: the parts that features add to the dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redraft._codec import to_json
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.web.project import Project


class NotFoundError(LookupError):
    """The requested page or record does not exist; the dashboard answers 404."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page."""

    project: Project
    path: Mapping[str, str]
    """The path parameters."""
    query: Mapping[str, str]
    """The last value of each query parameter."""
    full: bool = False
    """Whether to leave long texts uncut: for JSON, not for HTML."""

    def one_of(self, name: str, choices: Collection[str]) -> str:
        """A query parameter, which must be empty or one of `choices`; raises `ConfigError`."""
        value = self.query.get(name, "")
        if value and value not in choices:
            raise ConfigError(f"Unknown {name} {value!r}; {nearest(value, choices)}")
        return value


@dataclass(frozen=True, slots=True)
class Page:
    """A page: HTML at `path`, and JSON at `path` with `.json` appended.

    A page with a `fingerprint` is live: each open copy polls this text every second. When the text changes,
    the copy fetches the page again and replaces the elements with `data-live`.
    """

    path: str
    template: str
    read: Callable[[PageRequest], Awaitable[Any]]
    """Reads the data that the template gets as `page`.

    It must go through `Project.redacted` before anything is computed from its texts. Raises `NotFoundError`
    if the record does not exist, and `ConfigError` for a bad request."""
    document: Callable[[Any], Any] = to_json
    """Turns that data into plain data."""
    functions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Functions and constants of the template, besides the filters of `rendering`."""
    fingerprint: Callable[[PageRequest], Awaitable[str]] | None = None
    """A text that changes with the page; it must be cheap. Empty if the page will never change again."""
    section: str = ""
    """The path in the navigation that the page belongs to, unless its own path begins with it."""
    kinds: tuple[str, ...] = ()
    """The kinds of records that the page shows, by their `run_id`."""
    redirects: bool = False
    """Whether the id of a record of another kind redirects to the page of that kind."""


@dataclass(frozen=True, slots=True)
class Form:
    """A submitted form: the path parameters and the fields."""

    project: Project
    path: Mapping[str, str]
    fields: Mapping[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        """A text field; raises `ConfigError` if it is missing or not a text."""
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise ConfigError(f"The field {name!r} must be a string, got {value!r}.")
        return value


@dataclass(frozen=True, slots=True)
class Change:
    """A change: a POST of JSON to `path` that answers `{"message": ...}`.

    `make` makes the change and returns the message, a sentence on the result. If it raises `ConfigError`
    (400), `NotFoundError` (404) or `StoreError` (503), nothing has changed, and the answer is
    `{"error": ...}`. In a template, a form with `data-change` posts its fields to its action, and the page
    shows the answer.
    """

    path: str
    make: Callable[[Form], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class PlainText:
    """The whole of a text that a page cuts, served at `path` with secrets withheld.

    `read` raises `NotFoundError` if the text does not exist.
    """

    path: str
    read: Callable[[PageRequest], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Slice:
    """The parts that a feature adds to the dashboard."""

    pages: Sequence[Page]
    changes: Sequence[Change] = ()
    texts: Sequence[PlainText] = ()
