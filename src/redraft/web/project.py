"""Project: the store behind the pages, and the redaction of everything that they show."""

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
CACHED = 20_000
"""Short texts whose redacted forms are cached: lists show the same texts again and again."""


@dataclass(frozen=True, slots=True)
class Project:
    """The store of a project, and the redactor of this process.

    Data must go through `redacted` before a page computes anything from it: the redactor would not recognise
    the secrets in a text that is already split into words.
    """

    store: Store
    place: str
    """The location of the store, for people."""
    redactor: Redactor = field(default_factory=redactor_of_environment)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the dashboard shuts down, so that streams end."""
    _shared: dict[Any, Any] = field(default_factory=dict[Any, Any])
    _redact_short: Callable[[str], tuple[str, frozenset[str]]] = field(init=False)

    def __post_init__(self) -> None:
        def redact(text: str) -> tuple[str, frozenset[str]]:
            names = set[str]()
            return self.redactor.redact(text, names).text, frozenset(names)

        object.__setattr__(self, "_redact_short", lru_cache(CACHED)(redact))

    @classmethod
    def here(cls) -> Project:
        """The project of the working directory; raises `ConfigError` if storage is turned off."""
        return cls(required_project_store("runs"), str(project_place()))

    def shared(self, make: Callable[[Project], T]) -> T:
        """The cached result of `make(project)`, for data that a feature shares between requests."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return cast("T", self._shared[make])

    async def stored_runs(self, run_ids: Iterable[str]) -> frozenset[str]:
        """The runs among these ids that are stored, and so have a page."""
        return frozenset(
            [run_id for run_id in run_ids if run_id and await self.store.get("run", run_id) is not None]
        )

    async def redacted(
        self,
        value: T,
        *,
        full: bool = False,
        spared: tuple[type, ...] = (),
        allow: Collection[str] = (),
    ) -> T:
        """Withhold the secrets in a value and, unless `full`, cut its long texts.

        Values of a `spared` class stay as they are, and so do the terms in `allow`, unless they are secrets.
        Runs in a thread, since it takes a quarter of a second for a megabyte.
        """
        if allow:
            allowing = replace(self, redactor=redactor_of_environment(allow=allow))
            return await allowing.redacted(value, full=full, spared=spared)
        text = self._redact if full else self._redact_and_cut

        def walk(value: Any, redact: Callable[[str], str]) -> Any:
            return redact_object(value, redact, spared)

        return await asyncio.to_thread(redact_record, value, text, walk)

    async def redacted_text(self, text: str) -> str:
        """Withhold the secrets in a text, uncut."""
        return await asyncio.to_thread(self._redact, text, set())

    def _redact(self, text: str, names: set[str]) -> str:
        if len(text) > SHORT:
            return self.redactor.redact(text, names).text
        clean, recognised = self._redact_short(text)
        names |= recognised
        return clean

    def _redact_and_cut(self, text: str, names: set[str]) -> str:
        if len(text) <= LONGEST + OVERLAP:
            return clipped(self._redact(text, names))
        head = self._redact(text[: LONGEST + OVERLAP], names)[:LONGEST]
        return f"{head}{cut_note(len(text) - LONGEST)}"
