"""Playbooks: the steps in which tasks were done before."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

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

Ending = Literal["success", "failure"]

MOST_PLAYBOOKS = 100
"""Active playbooks of an agent."""
LIFE: dict[Ending, timedelta] = {"success": timedelta(weeks=4), "failure": timedelta(weeks=8)}
"""How long a playbook stays active; failures are worth remembering for longer."""
REPLAYED = 3
"""Playbooks that are recalled for a task."""


@dataclass(frozen=True, slots=True)
class Playbook:
    """Steps to replay or, if they ended in a failure, to avoid.

    `title` names the lesson or its task, `strategy` the idea behind the steps. `lesson` is the id of its
    lesson, `source` that of the run. `id` is `<agent>/playbooks/<stem>`, empty until the playbook is stored.
    Raises `ConfigError` without steps or strategy.
    """

    title: str
    steps: tuple[str, ...]
    strategy: str
    outcome: Ending
    agent: str
    day: date
    task_type: str = ""
    tools: tuple[str, ...] = ()
    lesson: str = ""
    source: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        if not self.steps or not all(step.strip() for step in self.steps):
            raise ConfigError("A playbook needs steps, none of them empty.")
        if not self.strategy.strip():
            raise ConfigError("A playbook needs a strategy.")
        if self.outcome not in ("success", "failure"):
            raise ConfigError(
                f"The outcome of a playbook must be 'success' or 'failure', got {self.outcome!r}."
            )


class Playbooks:
    """The playbooks of one agent, as documents in the folder `<agent>/playbooks`.

    `place` is where the documents of all agents are; a path is that of a folder such as `memory`. At most a
    hundred are active, successes for four weeks and failures for eight; then they move to the archive of
    their year. Writes are atomic, and many processes may write at once. `today` returns the day. Raises
    `StoreError` if a document can't be read or written.
    """

    def __init__(
        self, place: Documents | Path | str, agent: str, *, today: Callable[[], date] = date.today
    ) -> None:
        self.agent = agent
        self._documents = documents_at(place)
        self._folder = f"{folder_name(agent)}/{PLAYBOOKS}"
        self._today = today

    def add(self, playbook: Playbook) -> Playbook:
        """Write a playbook, its secrets withheld; return it, or the same one if it is known.

        Archives others to make room. Raises `ConfigError` for content that no lesson may contain, and
        `LessonFileError` if the folder is not a folder.
        """
        clean = _checked(playbook)
        with self._documents.locked(self._folder):
            for known in self._playbooks():
                if _is_same(known, clean):
                    return known
            stem = f"{clean.day}-{short_title(clean.title)}"
            name = self._documents.add(f"{self._folder}/{stem}", render_playbook(clean))
            self._archive()
        return replace(clean, id=name)

    def active(self) -> list[Playbook]:
        """Return the unexpired playbooks, newest first."""
        return [one for one in self._playbooks() if not self._has_expired(one)]

    def for_task(self, task_type: str, k: int = REPLAYED) -> list[Playbook]:
        """Return at most `k` playbooks for a type of task, newest first, or none without a type.

        If there is one of a failure, it is among them.
        """
        fitting = [one for one in self.active() if task_type and one.task_type == task_type]
        chosen = fitting[:k]
        failure = next((one for one in fitting if one.outcome == "failure"), None)
        if chosen and failure is not None and failure not in chosen:
            chosen[-1] = failure
        return chosen

    def broken(self) -> list[LessonFileError]:
        """Return an error for each document that is not a playbook, or for the folder."""
        try:
            return [one for _, _, one in self._read() if isinstance(one, LessonFileError)]
        except LessonFileError as error:
            return [error]

    def archive(self) -> list[str]:
        """Archive expired playbooks, and the oldest beyond a hundred; return their ids."""
        if not self._playbooks():
            return []
        with self._documents.locked(self._folder):
            return self._archive()

    def drop(self, lesson: str) -> list[Playbook]:
        """Archive the playbooks of a lesson, and return them."""
        if not self._playbooks():
            return []
        with self._documents.locked(self._folder):
            taught = [one for one in self._playbooks() if lesson and one.lesson == lesson]
            self._move(taught)
        return taught

    def erase(
        self,
        is_wanted: Callable[[str, str, str], bool],
        *,
        on_unreadable: Callable[[str, StoreError], None],
        check: bool = False,
    ) -> list[str]:
        """Delete each document for which `is_wanted(text, run, lesson)`, archived or broken ones included.

        Returns the ids; with `check`, nothing is deleted. `on_unreadable` gets each document that is left
        out, or the folder.
        """
        found: list[Entry] = []
        try:
            for entry, text, known in self._read(archived=True):
                if not text and isinstance(known, StoreError):
                    on_unreadable(entry.place, known)
                    continue
                taught = (known.source, known.lesson) if isinstance(known, Playbook) else ("", "")
                if is_wanted(text, *taught):
                    found.append(entry)
        except StoreError as error:
            on_unreadable(self._documents.place(self._folder), error)
            return []
        if found and not check:
            with self._documents.locked(self._folder):
                for entry in found:
                    self._documents.delete(entry)
        return sorted(one.id for one in found)

    def _archive(self) -> list[str]:
        playbooks = self._playbooks()
        expired = [one for one in playbooks if self._has_expired(one)]
        unexpired = [one for one in playbooks if not self._has_expired(one)]
        return self._move([*expired, *unexpired[MOST_PLAYBOOKS:]])

    def _move(self, playbooks: list[Playbook]) -> list[str]:
        for one in playbooks:
            entry = self._documents.entry(one.id)
            if entry is not None:  # a person may just have removed it
                self._documents.archive(entry, one.day.year)
        return [one.id for one in playbooks]

    def _playbooks(self) -> list[Playbook]:
        """Return the playbooks outside the archive, newest first."""
        with suppress(LessonFileError):  # `broken` returns it
            return [one for _, _, one in self._read() if isinstance(one, Playbook)]
        return []

    def _read(self, *, archived: bool = False) -> Iterator[tuple[Entry, str, Playbook | StoreError]]:
        """Yield documents, newest first, with their texts and playbooks, or why one can't be read."""
        entries = list(self._documents.entries(self._folder, archived=archived))
        entries.sort(key=lambda one: (one.stem[:10], one.changed_ns), reverse=True)
        return parsed(
            self._documents,
            entries,
            lambda text, entry: parse_playbook(text, entry.id, self.agent),
            of="a playbook",
        )

    def _has_expired(self, playbook: Playbook) -> bool:
        return self._today() >= playbook.day + LIFE[playbook.outcome]


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


def _is_same(one: Playbook, other: Playbook) -> bool:
    return (one.task_type, one.outcome, one.steps) == (other.task_type, other.outcome, other.steps)


_KEYS = ("task_type", "tools", "lesson", "source", "agent")
_STEPS, _STRATEGY, _OUTCOME = "Steps", "Strategy", "Outcome"
_HEADINGS = {heading.casefold() for heading in (_STEPS, _STRATEGY, _OUTCOME)}
_TITLE = re.compile(r"# Playbook: (\d{4}-\d{2}-\d{2}) - (.+)")
_STEP = re.compile(r"\s*(?:\d+[.)]|[-*])(|\s.*)")


def render_playbook(playbook: Playbook) -> str:
    """Return the text of a playbook's file."""
    steps = "\n".join(f"{number}. {one_line(step)}" for number, step in enumerate(playbook.steps, 1))
    parts = [
        f"# Playbook: {playbook.day} - {one_line(playbook.agent)} - {one_line(playbook.title)}",
        section(_STEPS, steps, _HEADINGS),
        section(_STRATEGY, playbook.strategy, _HEADINGS),
        section(_OUTCOME, playbook.outcome.capitalize(), _HEADINGS),
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
    """Parse the text of a playbook's file, which needs no more than the three headings.

    Raises `LessonFileError` with the line if the text is invalid.
    """
    lines = lines_of(text)
    front, start = front_of(lines, file, _problem)
    title, sections = sections_of(lines, start, file, _HEADINGS)
    for heading in (_STEPS, _STRATEGY, _OUTCOME):
        if not sections.get(heading.casefold()):
            raise LessonFileError(f"There is nothing under '## {heading}'.", file=file, line=1)
    stem = file.rpartition("/")[2]
    found = _TITLE.fullmatch(title)
    day = found[1] if found else stem[:10]
    agent = front.get("agent", agent)
    summary = found[2].removeprefix(f"{one_line(agent)} - ") if found else title.removeprefix("# ")
    steps = _steps(sections[_STEPS.casefold()])
    if not steps:
        raise LessonFileError(f"There is no step under '## {_STEPS}'.", file=file)
    try:
        return Playbook(
            summary or stem[11:].replace("-", " "),
            steps,
            sections[_STRATEGY.casefold()],
            _outcome(sections[_OUTCOME.casefold()], file),
            agent,
            date.fromisoformat(day),
            tools=tuple(front.get("tools", ())),
            id=file,
            **{name: front[name] for name in ("task_type", "lesson", "source") if name in front},
        )
    except ValueError as error:
        raise LessonFileError(f"{day!r} is not a day (YYYY-MM-DD).", file=file, line=start + 1) from error


def _problem(key: Any, value: Any) -> str:
    if key not in _KEYS:  # a playbook's file is never written again
        return ""
    if key == "tools":
        return wrong_tools(value)
    return "" if isinstance(value, str) else f"{key} must be a text, got {value!r}; put it in quotes."


def _steps(text: str) -> tuple[str, ...]:
    """Return the items of a list, with continuation lines joined."""
    steps: list[str] = []
    for line in text.split("\n"):
        if found := _STEP.fullmatch(line):
            steps.append(found[1].strip())
        elif steps:
            steps[-1] = f"{steps[-1]} {line.strip()}".strip()
        elif line.strip():
            steps.append(line.strip())
    return tuple(filter(None, steps))


def _outcome(text: str, file: str) -> Ending:
    word = text.casefold()
    if word.startswith("success"):
        return "success"
    if word.startswith("fail"):
        return "failure"
    raise LessonFileError(f"Expected Success or Failure under '## {_OUTCOME}', got {text[:40]!r}.", file=file)
