"""Project: what the pages read and change, with the secrets in it withheld."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from redraft.redact.data import redact_object
from redraft.redact.redactor import Redactor, redact_record, redactor_of_environment
from redraft.stores.base import Store
from redraft.stores.location import project_place, required_project_store
from redraft.web.rendering import LONGEST, clipped, cut_note

T = TypeVar("T")

OVERLAP = 4_096
"""Characters redacted beyond the cut, so that a secret that straddles it is still recognised."""
SHORT = 2_000
REMEMBERED = 20_000
"""How many short texts are remembered in redacted form: lists show the same ones again and again."""


@dataclass(frozen=True, slots=True)
class Project:
    """The store of a project, where it is (for people), and the redactor of this process.

    What a page shows goes through `redacted` before anything is computed from it: a text taken apart first,
    word by word, would hide its secrets from the redactor.
    """

    store: Store
    place: str
    redactor: Redactor = field(default_factory=redactor_of_environment)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the dashboard shuts down, so that streams end."""
    _shared: dict[Any, Any] = field(default_factory=dict[Any, Any])
    _redact_short: Callable[[str], tuple[str, frozenset[str]]] = field(init=False)

    def __post_init__(self) -> None:
        def redact(text: str) -> tuple[str, frozenset[str]]:
            names = set[str]()
            return self.redactor.redact(text, names).text, frozenset(names)

        object.__setattr__(self, "_redact_short", lru_cache(REMEMBERED)(redact))

    @classmethod
    def here(cls) -> Project:
        """Return the project of the working directory; raises `ConfigError` if the settings keep nothing."""
        return cls(required_project_store("runs"), str(project_place()))

    def shared(self, make: Callable[[Project], T]) -> T:
        """Return `make(project)`, made once: what a feature remembers from one request to the next."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return cast("T", self._shared[make])

    async def stored_runs(self, run_ids: Iterable[str]) -> frozenset[str]:
        """Return those of these runs that are stored, and so have a page to link to."""
        return frozenset([one for one in run_ids if one and await self.store.get("run", one) is not None])

    async def redacted(
        self,
        value: T,
        *,
        full: bool = False,
        spared: tuple[type, ...] = (),
        allow: Collection[str] = (),
    ) -> T:
        """Return a value as it may be shown: secrets withheld and, unless `full`, long texts cut.

        Values of a `spared` class stay as they are, and so do the terms in `allow`, except for secrets. It
        takes a quarter of a second for a megabyte, so it is done in a thread.
        """
        if allow:
            allowing = replace(self, redactor=redactor_of_environment(allow=allow))
            return await allowing.redacted(value, full=full, spared=spared)
        text = self._redact if full else self._redact_and_cut

        def walk(value: Any, redact: Callable[[str], str]) -> Any:
            return redact_object(value, redact, spared)

        return await asyncio.to_thread(redact_record, value, text, walk)

    async def redacted_text(self, text: str) -> str:
        """Return a text, uncut, with the secrets in it withheld."""
        return await asyncio.to_thread(self._redact, text, set())

    def _redact(self, text: str, names: set[str]) -> str:
        if len(text) > SHORT:
            return self.redactor.redact(text, names).text
        clean, found = self._redact_short(text)
        names |= found
        return clean

    def _redact_and_cut(self, text: str, names: set[str]) -> str:
        if len(text) <= LONGEST + OVERLAP:
            return clipped(self._redact(text, names))
        head = self._redact(text[: LONGEST + OVERLAP], names)[:LONGEST]
        return f"{head}{cut_note(len(text) - LONGEST)}"
