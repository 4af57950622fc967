"""LessonFiles: the files of lessons as the dashboard lists them, each read again only after a change."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.errors import LessonFileError, StoreError
from redraft.lessons.folder import REFLECTIONS, LessonFolder, agents_in, folder_name
from redraft.lessons.index import modified
from redraft.lessons.lesson import Lesson
from redraft.lessons.lessons import Problem, broken_in, problems_among
from redraft.lessons.playbooks import Playbook, Playbooks
from redraft.lessons.rules import Rule, Rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.lessons.folder import Entry

MOST_AGENTS = 50
"""Agents whose files are counted for the list of them."""
MOST_ARCHIVED = 200
"""Archived lessons that are listed: the newest by their names."""
COMPARED = 200
"""Active lessons that are looked through for duplicates; learning keeps no more than 30."""


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """Count the files of an agent: those where lessons are active or wait, and those in the archive."""

    name: str
    lessons: int
    archived: int
    newest: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """Hold an agent's lessons, the newest first, and what a person should look at among them.

    `rules` and `playbooks` are what its lessons left beside themselves. `archived_ids` are all that lie in
    the archive, whether they were read or not.
    """

    agent: str
    lessons: tuple[Lesson, ...]
    archived_ids: frozenset[str]
    problems: tuple[Problem, ...]
    rules: tuple[Rule, ...]
    playbooks: tuple[Playbook, ...]


@dataclass(slots=True)
class LessonFiles:
    """Read the lessons under `path`, the folder of all agents, remembering what each file said.

    What it does takes a moment: it is called in a thread. Raises `StoreError` where a folder can't be read.
    """

    path: Path
    _known: dict[str, tuple[tuple[int, int], Lesson | Problem]] = field(
        default_factory=dict[str, tuple[tuple[int, int], "Lesson | Problem"]]
    )
    _playbooks: dict[str, Playbooks] = field(default_factory=dict[str, Playbooks])

    def agents(self) -> list[str]:
        """Return the folders of the agents, those first whose lessons changed last."""
        # A folder of another name is nobody's; `redraft lessons doctor` tells.
        names = [name for name in agents_in(self.path) if folder_name(name) == name]
        reflections = self.path / REFLECTIONS
        return sorted(names, key=lambda name: (-modified(f"{reflections}/{name}"), name))

    def counted(self, agents: Iterable[str]) -> list[AgentFiles]:
        """Count the files of agents, of no more than 50."""
        found: list[AgentFiles] = []
        for agent in list(agents)[:MOST_AGENTS]:
            entries = list(LessonFolder(self.path, agent).entries())
            days = (str(entry.day) for entry in entries if not entry.archived)
            archived = sum(entry.archived for entry in entries)
            found.append(AgentFiles(agent, len(entries) - archived, archived, max(days, default="")))
        return found

    def shelf(self, agent: str, *, with_archived: bool = False) -> Shelf:
        """Return the lessons of an agent; of the archived ones the newest 200, where they are wanted."""
        folder = LessonFolder(self.path, agent)
        entries = list(folder.entries())
        archived = sorted((one for one in entries if one.archived), key=_stem, reverse=True)
        wanted = [one for one in entries if not one.archived]
        wanted += archived[:MOST_ARCHIVED] if with_archived else []
        lessons: list[Lesson] = []
        problems: list[Problem] = []
        for entry in wanted:
            said = self._read(folder, entry)
            (problems if isinstance(said, Problem) else lessons).append(said)  # pyright: ignore[reportArgumentType] (each to its own)
        archived_ids = frozenset(one.id for one in archived)
        lessons.sort(key=lambda one: (one.id not in archived_ids, one.day, one.id), reverse=True)
        looked_at = [one for one in lessons if one.id not in archived_ids][:COMPARED]
        rules, playbooks = Rules(self.path, agent), self._playbooks_of(agent)
        problems += broken_in(rules, playbooks, agent)
        problems += problems_among(looked_at[::-1])
        known: list[Rule] = []
        with suppress(LessonFileError):  # which is among the problems
            known = [*rules.permanent(), *rules.proposed(), *rules.active(), *rules.due()]
        return Shelf(
            agent,
            tuple(lessons),
            archived_ids,
            tuple(problems),
            tuple(dict.fromkeys(known)),
            tuple(playbooks.active()),
        )

    def _playbooks_of(self, agent: str) -> Playbooks:
        if agent not in self._playbooks:
            self._playbooks[agent] = Playbooks(self.path, agent)
        return self._playbooks[agent]

    def _read(self, folder: LessonFolder, entry: Entry) -> Lesson | Problem:
        mark = (entry.changed_ns, entry.size)
        known = self._known.get(entry.file)
        if known is not None and known[0] == mark:
            return known[1]
        try:
            said = folder.read_entry(entry)
        except StoreError as error:
            said = Problem(entry.id, "broken", str(error))
        self._known[entry.file] = (mark, said)
        return said


def _stem(entry: Entry) -> str:
    return entry.id.partition("/")[2]
