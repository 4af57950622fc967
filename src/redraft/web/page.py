"""Page: one page of the dashboard: what it shows, as a view for its template and as data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from redraft._codec import to_json
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.web.project import Project


@dataclass(frozen=True, slots=True)
class Asked:
    """Hold what a browser asked for: the parameters of the path, and the last of each name in the query."""

    project: Project
    path: Mapping[str, str]
    query: Mapping[str, str]
    whole: bool = False
    """Whether long texts are wanted uncut: as data, not for a page."""

    def one_of(self, name: str, known: Collection[str]) -> str:
        """Return a name of the query that must be one of some, or empty; raises `ConfigError` for another."""
        given = self.query.get(name, "")
        if given and given not in known:
            raise ConfigError(f"{name} {given!r} is none; {nearest(given, known)}")
        return given


def _as_it_is(view: Any) -> Any:
    return view


@dataclass(frozen=True, slots=True)
class Page:
    """Describe a page: at `path` as HTML, at `path` and `.json` as data, both made of the same view.

    `view` is what `template` gets as `page`; all that it holds went through `Project.shown`. It raises
    `NotFoundError` for what is not there, `ConfigError` for what can't be asked. `document` makes the view
    plain data. `nav` is its word in the navigation, if it stands there; else `within` may be the path of the
    page there that leads to it, where its own path does not say. A page with a `mark` is live: when
    that text changes, an open page reads itself again and exchanges its parts marked `data-live`; an empty
    mark says that nothing will change any more. Each open page asks for it each second: it must be cheap.
    `arrange` works out of the view what the template gets, where that takes long: it runs in a thread.
    """

    path: str
    template: str
    view: Callable[[Asked], Awaitable[Any]]
    document: Callable[[Any], Any] = to_json
    nav: str = ""
    within: str = ""
    mark: Callable[[Asked], Awaitable[str]] | None = None
    arrange: Callable[[Any], Any] = _as_it_is


class NotFoundError(LookupError):
    """Say what is not there."""
