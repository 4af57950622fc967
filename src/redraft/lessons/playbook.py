"""Playbook: steps that were taken once for a kind of task, and how that ended, as a file of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from redraft.core.errors import ConfigError, LessonFileError
from redraft.core.nearest import nearest
from redraft.lessons.document import (
    front_of,
    lines_of,
    one_line,
    section,
    sections_of,
    with_front,
    wrong_tools,
)

Outcome = Literal["success", "failure"]

_KEYS = ("task_type", "tools", "lesson", "source", "agent")
_STEPS, _STRATEGY, _OUTCOME = "Steps", "Strategy", "Outcome"
_HEADINGS = {heading.casefold() for heading in (_STEPS, _STRATEGY, _OUTCOME)}
_TITLE = re.compile(r"# Playbook: (\d{4}-\d{2}-\d{2}) - (.+)")
_STEP = re.compile(r"\s*(?:\d+[.)]|[-*])(|\s.*)")


@dataclass(frozen=True, slots=True)
class Playbook:
    """Hold steps to replay, or, where they ended in a failure, to know again.

    `title` is the task in a few words, `strategy` the idea behind the steps. `lesson` is the one that it came
    with, `source` the run. `id` is `<agent>/playbooks/<file name without .md>`, empty until it is filed.
    Raises `ConfigError` for one that says nothing. Reflexion Protocol, section 6.
    """

    title: str
    steps: tuple[str, ...]
    strategy: str
    outcome: Outcome
    agent: str
    day: date
    task_type: str = ""
    tools: tuple[str, ...] = ()
    lesson: str = ""
    source: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        if not self.steps or not all(step.strip() for step in self.steps):
            raise ConfigError("A playbook needs steps, each of which says something.")
        if not self.strategy.strip():
            raise ConfigError("A playbook needs a strategy that says something.")
        if self.outcome not in ("success", "failure"):
            raise ConfigError(f"A playbook's outcome is 'success' or 'failure', got {self.outcome!r}.")


def render_playbook(playbook: Playbook) -> str:
    """Return the file of a playbook."""
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


def parse_playbook(text: str, file: str, agent: str) -> Playbook:
    """Read the file of a playbook: one that a person wrote needs the three headings alone.

    Raises `LessonFileError` with the line for what can't be understood.
    """
    lines = lines_of(text)
    front, start = front_of(lines, file, _problem)
    title, sections = sections_of(lines, start, file, _HEADINGS)
    for heading in (_STEPS, _STRATEGY, _OUTCOME):
        if not sections.get(heading.casefold()):
            raise LessonFileError(f"Nothing is said under '## {heading}'.", file=file, line=1)
    stem = file.rpartition("/")[2]
    found = _TITLE.fullmatch(title)
    day = found[1] if found else stem[:10]
    agent = front.get("agent", agent)
    summary = found[2].removeprefix(f"{one_line(agent)} - ") if found else title.removeprefix("# ")
    steps = _steps(sections[_STEPS.casefold()])
    if not steps:
        raise LessonFileError(f"No step stands under '## {_STEPS}'.", file=file)
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
        raise LessonFileError(f"{day!r} is no day (YYYY-MM-DD).", file=file, line=start + 1) from error


def _problem(key: Any, value: Any) -> str:
    if key not in _KEYS:
        return f"There is no {key!r}; {nearest(str(key), _KEYS)}"
    if key == "tools":
        return wrong_tools(value)
    return "" if isinstance(value, str) else f"{key} must be a text, got {value!r}; put it in quotes."


def _steps(text: str) -> tuple[str, ...]:
    """Return the items of a list; a line that is none belongs to the item before it."""
    steps: list[str] = []
    for line in text.split("\n"):
        if found := _STEP.fullmatch(line):
            steps.append(found[1].strip())
        elif steps:
            steps[-1] = f"{steps[-1]} {line.strip()}".strip()
        elif line.strip():
            steps.append(line.strip())
    return tuple(filter(None, steps))


def _outcome(text: str, file: str) -> Outcome:
    said = text.casefold()
    if said.startswith("success"):
        return "success"
    if said.startswith("fail"):
        return "failure"
    raise LessonFileError(f"Under '## {_OUTCOME}' stands {text[:40]!r}; say Success or Failure.", file=file)
