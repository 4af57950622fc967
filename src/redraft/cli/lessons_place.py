"""LessonsPlace: whose lessons a command is about, and which one is meant by a part of an id."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.core.settings import load_settings, project_folder
from redraft.lessons.clean import lesson_redactor
from redraft.lessons.folder import LessonFolder, agents_in
from redraft.lessons.names import folder_name
from redraft.text.visible import visible

if TYPE_CHECKING:
    from redraft.lessons.folder import Entry

LAST = "last"
DAY = "YYYY-MM-DD-"
"""What the name of a lesson's file begins with."""
SHOWN = 8
"""How many candidates are named."""
COMPARED = 1_000
"""How many of the newest are looked at for what was probably meant."""
LIKE = 0.5


@dataclass(frozen=True, slots=True)
class LessonsPlace:
    """Hold the folder of all agents' lessons, and the one agent that a command is about, if it is one."""

    path: Path
    agent: str | None = None

    @classmethod
    def of(cls, path: Path | None, agent: str | None = None) -> LessonsPlace:
        """Return the place that was given, else that of the settings, which is the project's.

        Raises `ConfigError` for an agent that has no lessons there, and names the nearest.
        """
        place = cls(path or project_folder() / load_settings().memory, agent)
        known = agents_in(place.path)
        if agent is not None and folder_name(agent) not in known:
            near = f" {nearest(agent, known)}" if known else ""
            raise ConfigError(
                f"The agent {visible(agent)!r} has no lessons in {str(place.path)!r}.{visible(near)}"
            )
        return place

    def folders(self) -> list[LessonFolder]:
        """Return the folders of the lessons that a command is about."""
        names = agents_in(self.path) if self.agent is None else [folder_name(self.agent)]
        # A folder of another name is nobody's; `redraft lessons doctor` tells.
        return [LessonFolder(self.path, name) for name in names if folder_name(name) == name]

    def meant(self, wanted: str) -> Entry:
        """Return the lesson that is meant: by its id, its beginning or its end, or `last` for the newest.

        The agent may be left out, and the day, too. Raises `ConfigError` where none fits, or several do, and
        names those.
        """
        entries: dict[str, Entry] = {}
        for folder in self.folders():
            for entry in folder.entries():
                entries.setdefault(entry.id, entry)  # of two with one name, the archived one comes later
        if wanted == LAST and entries:
            return max(entries.values(), key=_age)
        if wanted in entries:
            return entries[wanted]
        part = wanted.casefold()
        found = [entry for entry in entries.values() if part and _is_part(entry.id.casefold(), part)]
        exact = [entry for entry in found if _stem(entry.id) == wanted]
        if len(exact or found) == 1:
            return (exact or found)[0]
        raise ConfigError(_not_one(wanted, exact or found, list(entries), self.path))


def the_agent(place: LessonsPlace, agent: str | None) -> str:
    """Return the agent that was given, else the only one with lessons; raises `ConfigError` for neither."""
    if agent is not None:
        if not agent.strip():
            raise ConfigError("--agent needs a name.")
        return agent
    known = agents_in(place.path)
    if len(known) != 1:
        there = f"there are lessons of {', '.join(known)}" if known else "nobody has lessons yet"
        raise ConfigError(f"Whose lesson is it? Give --agent NAME; {visible(there)}.")
    return known[0]


def _is_part(lesson_id: str, part: str) -> bool:
    stem = _stem(lesson_id)
    return lesson_id.endswith(part) or any(
        one.startswith(part) for one in (lesson_id, stem, stem[len(DAY) :])
    )


def _stem(lesson_id: str) -> str:
    return lesson_id.partition("/")[2]


def _age(entry: Entry) -> tuple[str, int, str]:
    """Return what the newest lesson has most of: its day, by its name if that has one, then the time."""
    stem = _stem(entry.id)
    return stem[:10] if stem[:4].isdecimal() else str(entry.day), entry.changed_ns, entry.id


def _not_one(wanted: str, found: list[Entry], known: list[str], path: Path) -> str:
    if not known:
        return f"There are no lessons in {str(path)!r} yet."
    if found:
        names = [entry.id for entry in found]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        said = f"Several lessons fit {wanted!r}: {', '.join(names[:SHOWN])}{more}."
    else:
        near = get_close_matches(wanted, sorted(known, key=_stem)[-COMPARED:], cutoff=LIKE)
        hint = f"the nearest are {', '.join(near)}." if near else "`redraft lessons` lists them."
        said = f"There is no lesson {wanted!r} in {str(path)!r}; {hint}"
    return visible(lesson_redactor().redact(said).text)
