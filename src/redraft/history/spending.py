"""Spending: what the runs of each day used, by role, model, agent and task."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from redraft.history.entry import Entry
from redraft.history.tally import Tally
from redraft.types import NOT_REPORTED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from redraft.types import TokenUsage

JUDGED = ("evaluation", "reflection")
"""The roles of the model that judges, where a run names one of its own for that."""
REMEMBERED = 16
"""Ways of adding up that are remembered: of four periods, with inner runs and without, over a few days."""


def _tallies() -> defaultdict[str, Tally]:
    return defaultdict(Tally)


@dataclass(slots=True)
class Sums:
    """Hold what runs used in all, and by role, model, agent and task."""

    whole: Tally = field(default_factory=Tally)
    roles: dict[str, Tally] = field(default_factory=_tallies)
    models: dict[str, Tally] = field(default_factory=_tallies)
    names: dict[str, Tally] = field(default_factory=_tallies)
    tasks: dict[str, Tally] = field(default_factory=_tallies)

    def count(self, entry: Entry, sign: int) -> None:
        """Add a run that has ended; with a `sign` of -1 take it out again."""
        run_id, later = entry.run_id, entry.after_best
        # Where nothing was written down, the run failed before it could be, and may have been paid for.
        usage: Mapping[str, TokenUsage] = entry.usage or {"": NOT_REPORTED}
        for tally in (self.whole, self.names[entry.name], self.tasks[entry.task]):
            tally.count(run_id, usage.values(), later, sign)
        of_models: defaultdict[str, list[TokenUsage]] = defaultdict(list)
        for role, used in usage.items():
            self.roles[role].count(run_id, (used,), sign=sign)
            of_models[_model(entry, role)].append(used)
        for model, parts in of_models.items():
            self.models[model].count(run_id, parts, sign=sign)

    def count_beside(self, used: TokenUsage, *, role: str, model: str, name: str, task: str) -> None:
        """Add what is no run: a cycle of an agent, or a note. A cycle has no `task`."""
        for tally in (self.whole, self.roles[role], self.models[model], self.names[name]):
            tally.count_beside(used)
        if task:
            self.tasks[task].count_beside(used)

    def add(self, other: Sums) -> None:
        """Add what others used."""
        self.whole.add(other.whole)
        for ours, theirs in (
            (self.roles, other.roles),
            (self.models, other.models),
            (self.names, other.names),
            (self.tasks, other.tasks),
        ):
            for name, tally in theirs.items():
                if not tally.is_empty:
                    ours[name].add(tally)


@dataclass(slots=True)
class Spending:
    """Keep the sums of each day (in UTC), those of runs inside others apart, and the runs at work.

    What all days but the newest come to together is remembered until one of them changes: to add up
    thousands of tasks for each of many days takes a fifth of a second.
    """

    days: dict[tuple[date, bool], Sums] = field(default_factory=lambda: defaultdict(Sums))
    unended: dict[str, Entry] = field(default_factory=dict[str, Entry])
    _newest: date = date.min
    _before: dict[tuple[date, bool], Sums] = field(default_factory=dict[tuple[date, bool], Sums])

    def add(self, entry: Entry) -> None:
        """Count a run."""
        self._count(entry, 1)

    def remove(self, entry: Entry) -> None:
        """Count a run no more."""
        self._count(entry, -1)

    def add_beside(
        self, at: datetime, used: TokenUsage, *, role: str, model: str = "", name: str = "", task: str = ""
    ) -> None:
        """Count what is no run: a cycle of an agent, or a note."""
        day = at.astimezone(UTC).date()
        self._changed(day)
        self.days[day, False].count_beside(used, role=role, model=model, name=name, task=task)

    def total(self, since: date = date.min, *, inner: bool = True) -> Sums:
        """Add up what was used from a day on, with what runs inside others used if `inner`."""
        request = since, inner
        if request not in self._before:
            if len(self._before) >= REMEMBERED:
                self._before.clear()
            days = {day for day, _ in self.days if since <= day < self._newest}
            self._before[request] = self._sum(days, inner=inner)
        total = self._sum({self._newest} if since <= self._newest else (), inner=inner)
        total.add(self._before[request])
        return total

    def _sum(self, days: Collection[date], *, inner: bool) -> Sums:
        total = Sums()
        for (day, is_inner), sums in self.days.items():
            if day in days and (inner or not is_inner) and not sums.whole.is_empty:
                total.add(sums)
        return total

    def _count(self, entry: Entry, sign: int) -> None:
        if entry.process is None:
            self._changed(day_of(entry))
            self.days[day_of(entry), entry.is_inner].count(entry, sign)
        elif sign > 0:
            self.unended[entry.run_id] = entry
        else:
            del self.unended[entry.run_id]

    def _changed(self, day: date) -> None:
        if day != self._newest:
            self._newest = max(day, self._newest)
            self._before.clear()


def day_of(entry: Entry) -> date:
    """Return the day in UTC on which a run began."""
    return entry.created_at.astimezone(UTC).date()


def _model(entry: Entry, role: str) -> str:
    """Return the model that a role of a run was given to; empty where the run does not name it."""
    judge = entry.options["judge"] or ""
    # What a program made itself goes by its class, as `Judge(...)`: that is no model's name.
    return judge if role in JUDGED and judge and "(" not in judge and "<" not in judge else entry.model
