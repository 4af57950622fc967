"""Project: what the pages read and change, with the secrets in it withheld."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from redraft.errors import ConfigError
from redraft.loop.record import Process
from redraft.redact.environment import redactor_of_environment
from redraft.redact.objects import walk_object
from redraft.redact.redactor import Redactor
from redraft.settings import load_settings, project_folder
from redraft.stores.base import Store
from redraft.stores.location import project_place
from redraft.web.agents_seen import AgentsSeen
from redraft.web.beside import Beside
from redraft.web.groups import Grouped
from redraft.web.ledger import Ledger
from redraft.web.lesson_files import LessonFiles
from redraft.web.lesson_uses import LessonUses
from redraft.web.moving import Moving
from redraft.web.note_uses import NoteUses
from redraft.web.shown import LONGEST, clipped, cut_note

if TYPE_CHECKING:
    from typing import Any


T = TypeVar("T")

OVERLAP = 4_096
"""Characters beyond the cut that are looked at, too: a secret that the cut goes through is still known."""
SHORT = 2_000
REMEMBERED = 20_000
"""How many short texts are remembered as they are shown: lists say the same ones again and again."""


@dataclass(frozen=True, slots=True)
class Project:
    """Hold the store of a project, where it is (for people), and the redactor of this process.

    What a page shows goes through `shown` before anything is made of it: what is taken apart first, word by
    word, hides a secret from the redactor, and no template can bring it back.
    """

    store: Store
    place: str
    redactor: Redactor = field(default_factory=redactor_of_environment)
    ledger: Ledger = field(init=False)
    beside: Beside = field(init=False)
    grouped: Grouped = field(default_factory=Grouped)
    moving: Moving = field(init=False)
    note_uses: NoteUses = field(init=False)
    lesson_uses: LessonUses = field(init=False)
    lessons: LessonFiles = field(init=False)
    agents: AgentsSeen = field(default_factory=AgentsSeen)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the dashboard ends, so that what streams ends, too."""
    _short: Callable[[str], str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ledger", Ledger(self.store))
        object.__setattr__(self, "beside", Beside(self.ledger, self.agents))
        object.__setattr__(self, "moving", Moving(self.store))
        object.__setattr__(self, "note_uses", NoteUses(self.store))
        object.__setattr__(self, "lesson_uses", LessonUses(self.store))
        object.__setattr__(self, "lessons", LessonFiles(project_folder() / load_settings().memory))

        def redacted(text: str) -> str:
            return self.redactor.redact(text).text

        object.__setattr__(self, "_short", lru_cache(REMEMBERED)(redacted))

    @classmethod
    def here(cls) -> Project:
        """Return the project that this process works in; raises `ConfigError` where it keeps nothing."""
        place = project_place()
        if place is None:
            raise ConfigError("The setting `home` (REDRAFT_HOME) is empty, so nothing is kept here to show.")
        return cls(place.open(), str(place))

    async def shown(self, value: T, *, whole: bool = False) -> T:
        """Return a value as it may be shown: secrets withheld and, unless `whole`, long texts cut.

        Done in a thread: a text of a megabyte takes a quarter of a second, in which others want answers.
        """
        text = self._whole if whole else self._cut
        # Whether a run was killed is known by its process, of which no page shows more than its number.
        return await asyncio.to_thread(walk_object, value, text, (Process,))

    async def text(self, text: str) -> str:
        """Return one text whole, with its secrets withheld."""
        return await asyncio.to_thread(self._whole, text)

    def withheld(self, document: Any) -> Any:
        """Return plain JSON data with the secrets in it withheld."""
        return self.redactor.redact_json(document)

    def _whole(self, text: str) -> str:
        return self._short(text) if len(text) <= SHORT else self.redactor.redact(text).text

    def _cut(self, text: str) -> str:
        if len(text) <= LONGEST + OVERLAP:
            return clipped(self._whole(text))
        kept = self._whole(text[: LONGEST + OVERLAP])[:LONGEST]
        return f"{kept}{cut_note(len(text) - LONGEST)}"
