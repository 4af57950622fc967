"""What a feature adds to the dashboard: pages, changes that a person can make there, and plain texts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redraft._codec import to_json
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.web.project import Project


class NotFoundError(LookupError):
    """The requested thing does not exist: the dashboard answers 404."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a browser asks a page for: path parameters, and the last value of each query parameter.

    `full` is set where long texts are wanted uncut: for JSON, not for HTML.
    """

    project: Project
    path: Mapping[str, str]
    query: Mapping[str, str]
    full: bool = False

    def one_of(self, name: str, choices: Collection[str]) -> str:
        """Return a query parameter that must be one of `choices`, or empty; else raise `ConfigError`."""
        value = self.query.get(name, "")
        if value and value not in choices:
            raise ConfigError(f"Unknown {name} {value!r}; {nearest(value, choices)}")
        return value


@dataclass(frozen=True, slots=True)
class Page:
    """A page: HTML at `path`, and the same as JSON at `path` with `.json` appended.

    `read` gets what `template` knows as `page`. All of it must have gone through `Project.redacted` before
    anything is computed from its texts. It raises `NotFoundError` for what does not exist, and `ConfigError`
    for a bad request. `document` turns it into plain data. `functions` are those, and the constants, that the
    template uses besides the filters of `rendering`. `section` is the path in the navigation that this page
    belongs under, where its own path does not begin with it.

    A page with a `fingerprint` is live: each open copy asks for that text every second, so it must be cheap,
    and when the text changes, fetches the page again and replaces the elements with `data-live`. An empty
    fingerprint says that nothing will change any more.

    `kinds` are those of the records that the page shows, by their `run_id`. With `redirects`, the id of a
    record of another kind leads to the page of that kind.
    """

    path: str
    template: str
    read: Callable[[PageRequest], Awaitable[Any]]
    document: Callable[[Any], Any] = to_json
    functions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fingerprint: Callable[[PageRequest], Awaitable[str]] | None = None
    section: str = ""
    kinds: tuple[str, ...] = ()
    redirects: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """What a person submits: the parameters of the path, and the fields of the form."""

    project: Project
    path: Mapping[str, str]
    fields: Mapping[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text field; raise `ConfigError` if it is missing, or not a text."""
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise ConfigError(f"The field {name!r} must be a string, got {value!r}.")
        return value


@dataclass(frozen=True, slots=True)
class Change:
    """A change: a POST of JSON to `path` makes it, and answers `{"message": ...}`.

    `make` returns that message: a sentence on what has happened. If it raises `ConfigError` (400),
    `NotFoundError` (404) or `StoreError` (503), nothing has changed, and the answer is `{"error": ...}`. In a
    template, a form with `data-change` posts its fields to its action, and the page shows the answer.
    """

    path: str
    make: Callable[[Form], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text of which a page shows only the beginning: `read` returns all of it, served at `path`.

    Secrets in it are withheld. `read` raises `NotFoundError` for what does not exist.
    """

    path: str
    read: Callable[[PageRequest], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Slice:
    """What one feature adds to the dashboard."""

    pages: Sequence[Page]
    changes: Sequence[Change] = ()
    texts: Sequence[PlainText] = ()
