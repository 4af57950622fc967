"""Groups: the runs that are kept, by what they have in common."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.history.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from redraft.web.project import Project

    Found: TypeAlias = "dict[tuple[str, str, str, tuple[str, ...]], list[Group]]"

LATEST = 200
"""Runs of a group that are compared: the newest."""
NEWEST = 50
"""Single runs that are looked at: each is a group of its own."""
REMEMBERED = 16
"""Ways of putting the same runs into groups that are remembered."""
WITH, WITHOUT = "with notes or lessons", "without"


def _option(name: str) -> Callable[[Entry], Any]:
    return lambda entry: entry.options[name]


BY: Mapping[str, Callable[[Entry], Any]] = {
    "agent": attrgetter("name"),
    "model": attrgetter("model"),
    "task": attrgetter("task"),
    "advice": lambda entry: WITH if entry.is_advised else WITHOUT,
    "strategy": _option("revision_strategy"),
    "revisions": _option("max_iterations"),
    "threshold": _option("quality_threshold"),
    "selection": _option("best_version_selection"),
    "judge": _option("judge"),
    "day": lambda entry: entry.created_at.date(),  # a store has its times in UTC
    "run": attrgetter("run_id"),
}
IN_TIME = ("day", "run")
IN_ORDER = ("revisions", "threshold")


@dataclass(frozen=True, slots=True)
class Group:
    """Hold runs that have something in common: how many there are, and the newest of them."""

    key: str
    value: Any
    runs: int
    newest: list[Entry]

    @property
    def tasks(self) -> set[str]:
        """The tasks of the newest runs."""
        return {entry.task for entry in self.newest}


@dataclass(slots=True)
class Grouped:
    """Remember how runs fall into groups until the ledger has other ones: to go through all takes a while."""

    _known: tuple[tuple[Entry, ...], Found] | None = None

    @classmethod
    def of(cls, _project: Project) -> Grouped:
        """Return one for a project."""
        return cls()

    def groups(
        self, entries: tuple[Entry, ...], by: str, *, name: str = "", task: str = "", of: tuple[str, ...] = ()
    ) -> list[Group]:
        """Return what `groups_of` does; from any thread."""
        known = self._known
        if known is None or known[0] is not entries or len(known[1]) >= REMEMBERED:
            nothing: Found = {}
            self._known = known = (entries, nothing)
        found = known[1]
        wanted = (by, name, task, of if by == "run" else ())  # no other groups depend on the ids
        if wanted not in found:
            found[wanted] = groups_of(entries, by, name=name, task=task, of=of)
        return found[wanted]


def groups_of(
    entries: Iterable[Entry], by: str, *, name: str = "", task: str = "", of: tuple[str, ...] = ()
) -> list[Group]:
    """Put the runs that have ended into groups, of an agent and a task alone if wanted.

    `entries` are the newest first. Single runs are the newest few, or those whose ids begin as one in `of`.
    Groups of days and single runs come the newest first, those of numbers in their order, others the largest
    first. Raises `ConfigError` for what runs can't be told apart by.
    """
    if by not in BY:
        raise ConfigError(f"by {by!r} is none; {nearest(by, BY)}")
    ended = (
        entry
        for entry in entries
        if entry.process is None and name in ("", entry.name) and task in ("", entry.task)
    )
    if by == "run":
        ended = islice((entry for entry in ended if not of or entry.run_id.startswith(of)), NEWEST)
    chosen = list(ended)
    values = list(map(BY[by], chosen))
    counts = Counter(values)
    newest: dict[Any, list[Entry]] = {value: [] for value in counts}
    for entry, value in zip(chosen, values, strict=True):
        if len(newest[value]) < LATEST:
            newest[value].append(entry)
    found = [
        Group("" if value is None else str(value), value, runs, newest[value])
        for value, runs in counts.items()
    ]
    if by in IN_TIME:
        return found
    if by in IN_ORDER:
        return sorted(found, key=lambda group: (group.value is None, group.value or 0))
    return sorted(found, key=lambda group: -group.runs)
