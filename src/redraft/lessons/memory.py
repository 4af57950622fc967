"""Memory: all that is kept for one agent: its lessons' files, the index over them, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.core.errors import LessonFileError
from redraft.lessons.backlog import Backlog
from redraft.lessons.counting import Counting
from redraft.lessons.duties import Duties
from redraft.lessons.embedding import of_many_machines
from redraft.lessons.filing import Filing
from redraft.lessons.index import LessonIndex
from redraft.lessons.playbooks import Playbooks
from redraft.lessons.rules import Rules
from redraft.lessons.waiting import WaitingRoom
from redraft.redact.log import logger

if TYPE_CHECKING:
    from datetime import date

    from redraft.lessons.rule import Rule
    from redraft.models.embed import NamedEmbedder
    from redraft.stores.base import Store


@dataclass(frozen=True, slots=True)
class Memory:
    """Hold the parts of one agent's memory. `agent` is its name, `folder` that of its files."""

    agent: str
    folder: str
    path: Path
    now: Callable[[], datetime]
    filing: Filing
    rules: Rules
    playbooks: Playbooks
    index: LessonIndex
    backlog: Backlog
    duties: Duties
    counting: Counting
    waiting: WaitingRoom

    @classmethod
    def of(
        cls,
        path: Path,
        agent: str,
        store: Store,
        embedder: NamedEmbedder | None,
        now: Callable[[], datetime],
    ) -> Memory:
        """Return the memory of an agent under a path; nothing is read or written yet."""

        def today() -> date:
            return now().date()

        filing = Filing(path, agent)
        folder = filing.folder.name
        index = LessonIndex(path, embedder, shared=of_many_machines(store))
        return cls(
            agent,
            folder,
            path,
            now,
            filing,
            Rules(path, agent, now=today),
            Playbooks(path, agent, now=today),
            index,
            Backlog(index),
            Duties(store, folder, now),
            Counting(store, folder),
            WaitingRoom(store, folder),
        )

    def active_rules(self) -> list[Rule]:
        """Return the rules to put before the agent; none, with a warning, where their file can't be read."""
        try:
            return self.rules.active()
        except LessonFileError as error:
            logger.warning("The agent goes without its rules: %s", error)
            return []

    def filing_of(self, lesson_id: str) -> Filing:
        """Return the filing of the agent whose lesson this is."""
        folder = lesson_id.partition("/")[0]
        return self.filing if folder == self.folder else Filing(self.path, folder)
