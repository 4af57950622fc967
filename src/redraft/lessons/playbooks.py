"""Playbooks: steps that worked in earlier tasks."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.documents import PLAYBOOKS, documents_at, parsed
from redraft.lessons.folder import folder_name, short_title
from redraft.lessons.markdown import (
    front_of,
    lines_of,
    one_line,
    section,
    sections_of,
    with_front,
    wrong_tools,
)
from redraft.memory.safety import Cleaner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from redraft.lessons.documents import Documents, Entry

MOST_PLAYBOOKS = 100
"""Maximum active playbooks of an agent."""
PLAYBOOK_LIFE = timedelta(weeks=4)
"""How long a playbook stays active."""
REPLAYED = 3
"""Maximum playbooks that are recalled for a task."""


@dataclass(frozen=True, slots=True)
class Playbook:
    """Steps to replay.

    Raises `ConfigError` without steps or strategy.
    """

    title: str
    """The lesson or its task."""
    steps: tuple[str, ...]
    strategy: str
    """The idea behind the steps."""
    agent: str
    day: date
    task_type: str = ""
    tools: tuple[str, ...] = ()
    lesson: str = ""
    """The id of its lesson."""
    source: str = ""
    """The id of its run."""
    id: str = ""
    """`<agent>/playbooks/<stem>`; empty until the playbook is stored."""

    def __post_init__(self) -> None:
        if not self.steps or not all(step.strip() for step in self.steps):
            raise ConfigError("A playbook needs steps, none of them empty.")
        if not self.strategy.strip():
            raise ConfigError("A playbook needs a strategy.")


class Playbooks:
    """The playbooks of one agent, as documents in the folder `<agent>/playbooks`.

    `place` holds the documents of all agents: `Documents`, or the path of a folder such as `memory`. At most
    a hundred playbooks are active, for four weeks each; then they move to the archive of their year. Writes
    are atomic, and many processes may write concurrently. `today` returns the day. Raises `StoreError` if a
    document can't be read or written.
    """

    def __init__(
        self, place: Documents | Path | str, agent: str, *, today: Callable[[], date] = date.today
    ) -> None:
        self.agent = agent
        self._documents = documents_at(place)
        self._folder = f"{folder_name(agent)}/{PLAYBOOKS}"
        self._today = today

    def add(self, playbook: Playbook) -> Playbook:
        """Write a playbook with its secrets withheld, unless the same playbook exists.

        Archives others to make room. Raises `ConfigError` for content that no lesson may contain, and
        `LessonFileError` if the folder is not a folder.
        """
        clean = _checked(playbook)
        with self._documents.locked(self._folder):
            for existing in self._playbooks():
                if (existing.task_type, existing.steps) == (clean.task_type, clean.steps):
                    return existing
            stem = f"{clean.day}-{short_title(clean.title)}"
            name = self._documents.add(f"{self._folder}/{stem}", render_playbook(clean))
            self._archive()
        return replace(clean, id=name)

    def active(self) -> list[Playbook]:
        """The unexpired playbooks, newest first."""
        return [playbook for playbook in self._playbooks() if not self._has_expired(playbook)]

    def for_task(
        self, task_type: str, *, is_in_use: Callable[[Playbook], bool] = lambda _: True
    ) -> list[Playbook]:
        """At most three playbooks in use for a type of task, newest first; none without a type."""
        fitting = (playbook for playbook in self.active() if task_type and playbook.task_type == task_type)
        return list(islice(filter(is_in_use, fitting), REPLAYED))

    def broken(self) -> list[LessonFileError]:
        """An error for each document that is not a playbook, or for the folder."""
        try:
            return [error for _, _, error in self.read_all() if isinstance(error, LessonFileError)]
        except LessonFileError as error:
            return [error]

    def archive(self) -> list[str]:
        """Archive expired playbooks, and the oldest beyond a hundred, and list their ids."""
        if not self._playbooks():
            return []
        with self._documents.locked(self._folder):
            return self._archive()

    def drop(self, lesson: str) -> list[Playbook]:
        """Archive the playbooks of a lesson, and return them."""
        if not self._playbooks():
            return []
        with self._documents.locked(self._folder):
            taught = [playbook for playbook in self._playbooks() if lesson and playbook.lesson == lesson]
            self._move(taught)
        return taught

    def _archive(self) -> list[str]:
        playbooks = self._playbooks()
        expired = [playbook for playbook in playbooks if self._has_expired(playbook)]
        unexpired = [playbook for playbook in playbooks if not self._has_expired(playbook)]
        return self._move([*expired, *unexpired[MOST_PLAYBOOKS:]])

    def _move(self, playbooks: list[Playbook]) -> list[str]:
        for playbook in playbooks:
            entry = self._documents.entry(playbook.id)
            if entry is not None:  # a person may have removed it just now
                self._documents.archive(entry, playbook.day.year)
        return [playbook.id for playbook in playbooks]

    def _playbooks(self) -> list[Playbook]:
        """The playbooks outside the archive, newest first."""
        with suppress(LessonFileError):  # `broken` reports it
            return [playbook for _, _, playbook in self.read_all() if isinstance(playbook, Playbook)]
        return []

    def read_all(self, *, archived: bool = False) -> Iterator[tuple[Entry, str, Playbook | StoreError]]:
        """Yield documents, newest first, with their texts and playbooks, or with their errors."""
        entries = list(self._documents.entries(self._folder, archived=archived))
        entries.sort(key=lambda entry: (entry.stem[:10], entry.changed_ns), reverse=True)
        yield from parsed(
            self._documents,
            entries,
            lambda text, entry: parse_playbook(text, entry.id, self.agent),
            of="a playbook",
        )

    def _has_expired(self, playbook: Playbook) -> bool:
        return self._today() - playbook.day >= PLAYBOOK_LIFE


def _checked(playbook: Playbook) -> Playbook:
    cleaner = Cleaner.of(playbook.title, *playbook.steps, playbook.strategy)
    clean = replace(
        playbook,
        title=cleaner.redact(playbook.title),
        steps=tuple(one_line(cleaner.redact(step)) for step in playbook.steps),
        strategy=cleaner.redact(playbook.strategy),
    )
    parts = {"title": clean.title, "strategy": clean.strategy}
    parts |= {f"step {number}": step for number, step in enumerate(clean.steps, 1)}
    for name, text in parts.items():
        if why := cleaner.refusal(text):
            raise ConfigError(f"The {name} can't be kept in a playbook: {why}.")
    return clean


_KEYS = ("task_type", "tools", "lesson", "source", "agent")
_STEPS, _STRATEGY = "Steps", "Strategy"
_HEADINGS = {heading.casefold() for heading in (_STEPS, _STRATEGY)}
_TITLE = re.compile(r"# Playbook: (\d{4}-\d{2}-\d{2}) - (.+)")
_STEP = re.compile(r"\s*(?:\d+[.)]|[-*])(|\s.*)")


def render_playbook(playbook: Playbook) -> str:
    """The text of a playbook's file."""
    steps = "\n".join(f"{number}. {one_line(step)}" for number, step in enumerate(playbook.steps, 1))
    parts = [
        f"# Playbook: {playbook.day} - {one_line(playbook.agent)} - {one_line(playbook.title)}",
        section(_STEPS, steps, _HEADINGS),
        section(_STRATEGY, playbook.strategy, _HEADINGS),
    ]
    front = {
        "task_type": playbook.task_type,
        "tools": list(playbook.tools),
        "lesson": playbook.lesson,
        "source": playbook.source,
        "agent": playbook.agent,
    }
    return with_front(front, "\n\n".join(parts) + "\n")


@lru_cache(512)  # the same few files are read before every run
def parse_playbook(text: str, file: str, agent: str) -> Playbook:
    """Parse the text of a playbook's file, which needs only the two headings.

    Raises `LessonFileError` with the line if the text is invalid.
    """
    lines = lines_of(text)
    front, start = front_of(lines, file, _problem)
    title, sections = sections_of(lines, start, file, _HEADINGS)
    for heading in (_STEPS, _STRATEGY):
        if not sections.get(heading.casefold()):
            raise LessonFileError(f"There is nothing under '## {heading}'.", file=file, line=1)
    stem = file.rpartition("/")[2]
    match = _TITLE.fullmatch(title)
    day = match[1] if match else stem[:10]
    agent = front.get("agent", agent)
    summary = match[2].removeprefix(f"{one_line(agent)} - ") if match else title.removeprefix("# ")
    steps = _steps(sections[_STEPS.casefold()])
    if not steps:
        raise LessonFileError(f"There is no step under '## {_STEPS}'.", file=file)
    try:
        return Playbook(
            summary or stem[11:].replace("-", " "),
            steps,
            sections[_STRATEGY.casefold()],
            agent,
            date.fromisoformat(day),
            tools=tuple(front.get("tools", ())),
            id=file,
            **{name: front[name] for name in ("task_type", "lesson", "source") if name in front},
        )
    except ValueError as error:
        raise LessonFileError(f"{day!r} is not a day (YYYY-MM-DD).", file=file, line=start + 1) from error


def _problem(key: Any, value: Any) -> str:
    if key not in _KEYS:  # unknown keys are never lost, since a playbook's file is never rewritten
        return ""
    if key == "tools":
        return wrong_tools(value)
    return "" if isinstance(value, str) else f"{key} must be a text, got {value!r}; put it in quotes."


def _steps(text: str) -> tuple[str, ...]:
    """The items of a list, with continuation lines joined."""
    steps: list[str] = []
    for line in text.split("\n"):
        if match := _STEP.fullmatch(line):
            steps.append(match[1].strip())
        elif steps:
            steps[-1] = f"{steps[-1]} {line.strip()}".strip()
        elif line.strip():
            steps.append(line.strip())
    return tuple(filter(None, steps))
