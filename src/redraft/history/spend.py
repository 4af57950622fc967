"""The spend page: usage and cost by role, model, agent, task and day, and what was spent in vain."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Self, TypeVar

from redraft.cycles.web import AgentList
from redraft.errors import ConfigError, DamagedRecordError
from redraft.loop.record import RUN
from redraft.loop.runs import Runs
from redraft.stores.base import listed, reading
from redraft.stores.run_index import ExpenseGroup, Totals
from redraft.web.charts import LARGE, Bars, bars
from redraft.web.page import Page, PageRequest
from redraft.web.rendering import cost, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redraft.web.project import Project


K = TypeVar("K")
PERIODS = {"7": "the last 7 days", "30": "the last 30 days", "90": "the last 90 days", "all": "all time"}
FIRST_PERIOD = "30"
MOST = 20
"""Rows in a table; the rest are added up in the last row."""
MOST_DAYS = 92
"""Longest period in days that is shown day by day; a longer one is shown by month."""
CYCLE, NOTE = "cycle", "note"
"""The roles of cycles and notes."""
LONGEST = 200


async def spend(request: PageRequest) -> SpendView:
    """Add up the spend of a period: `days` is 7, 30, 90 or all; `inner=0` leaves out inner runs."""
    period, inner = request.query.get("days", FIRST_PERIOD), request.query.get("inner") != "0"
    if period not in PERIODS:
        raise ConfigError(f"days must be one of {', '.join(PERIODS)}, got {period!r}.")
    since = None if period == "all" else datetime.now(UTC).date() - timedelta(days=int(period) - 1)
    runs = Runs(request.project.store)
    spend = await runs.spend(since, inner=inner)
    days, tasks = _tallies(spend.days), _tallies(spend.tasks)
    roles, models, agents = _tallies(spend.roles), _tallies(spend.models), _tallies(spend.agents)
    expenses = [(NOTE, group, used) for group, used in spend.notes.items()]
    for name, of_days in (await request.project.shared(AgentList.of).spend()).items():
        expenses += [(CYCLE, ExpenseGroup(day, name), used) for day, used in of_days.items()]
    for role, group, totals in expenses:
        if since is None or group.day >= since:
            used = SpendTally.of_expenses(totals)
            days.setdefault(group.day, SpendTally()).add(used)
            for tallies, key in ((roles, role), (models, group.model), (agents, group.agent)):
                tallies.setdefault(key, SpendTally()).add(used)
            if group.task:
                tasks.setdefault(group.task, SpendTally()).add(used)
    total = SpendTally()
    for used in days.values():
        total.add(used)
    by_month = bool(days) and (max(days) - min(days)).days >= MOST_DAYS
    return SpendView(
        period,
        inner,
        total,
        await _named_rows(request, roles),
        await _named_rows(request, models),
        await _named_rows(request, agents),
        await _task_rows(request, tasks),
        _day_rows(days, by_month=by_month),
        by_month,
        spend.inner_runs,
        spend.at_work,
        spend.interrupted,
        bool(total.runs or await runs.rows(inner=True, limit=1)),
    )


@dataclass(frozen=True, slots=True)
class SpendView:
    """The page: the spend of a period; `at_work` and `interrupted` count runs not yet included in it."""

    period: str
    inner: bool
    total: SpendTally
    roles: SpendRows
    models: SpendRows
    names: SpendRows
    tasks: SpendRows
    days: tuple[SpendRow, ...]
    is_by_month: bool
    inner_runs: int
    at_work: int
    interrupted: int
    kept: bool
    """Whether there are any runs at all, in any period."""
    periods: tuple[tuple[str, str], ...] = tuple(PERIODS.items())

    @property
    def unit(self) -> str:
        """What the chart shows: dollars, or tokens if no cost is known."""
        return "dollars" if any(row.used.cost_usd > 0 for row in self.days) else "tokens"

    @property
    def chart(self) -> Bars | None:
        """The days or months as bars, with gaps for those without a run."""
        used = {row.key: row.used for row in self.days}
        names = without_gaps(sorted(used))
        if self.unit == "dollars":
            values = [used[name].cost_usd if name in used else 0.0 for name in names]
            return bars(names, values, cost, LARGE)
        values = [used[name].total_tokens if name in used else 0 for name in names]
        return bars(names, values, lambda value: count(round(value)), LARGE)


@dataclass(frozen=True, slots=True)
class SpendRows:
    """A table, most expensive first; `rest` is the sum of the `others` that did not fit."""

    rows: tuple[SpendRow, ...]
    others: int = 0
    rest: SpendTally | None = None


@dataclass(frozen=True, slots=True)
class SpendRow:
    """A row of a table; `key` identifies it in the runs, `name` is the key with secrets withheld."""

    key: str
    name: str
    used: SpendTally


def _tallies(sums: Mapping[K, Totals]) -> dict[K, SpendTally]:
    return {key: SpendTally.of_runs(totals) for key, totals in sums.items()}


def _most_expensive(
    tallies: Mapping[str, SpendTally],
) -> tuple[list[tuple[str, SpendTally]], int, SpendTally | None]:
    """Return the most expensive tallies (the largest, if no cost is known), and the sum of the others."""
    first = nlargest(MOST, tallies.items(), key=lambda item: (item[1].cost_usd, item[1].total_tokens))
    if len(tallies) == len(first):
        return first, 0, None
    rest, shown = SpendTally(), {key for key, _ in first}
    for key, used in tallies.items():
        if key not in shown:
            rest.add(used)
    return first, len(tallies) - len(first), rest


async def _named_rows(request: PageRequest, tallies: Mapping[str, SpendTally]) -> SpendRows:
    first, others, rest = _most_expensive(tallies)
    names = await request.project.redacted([key for key, _ in first])
    rows = tuple(SpendRow(key, name, used) for (key, used), name in zip(first, names, strict=True))
    return SpendRows(rows, others, rest)


async def _task_rows(request: PageRequest, tallies: Mapping[str, SpendTally]) -> SpendRows:
    first, others, rest = _most_expensive(tallies)
    newest = await Runs(request.project.store).newest_of_tasks([key for key, _ in first])
    words = await task_words(request.project, newest.values())
    rows = tuple(SpendRow(key, words.get(newest.get(key, "")) or key, used) for key, used in first)
    return SpendRows(rows, others, rest)


def _day_rows(by_day: Mapping[date, SpendTally], *, by_month: bool) -> tuple[SpendRow, ...]:
    found: dict[str, SpendTally] = {}
    for day, used in by_day.items():
        found.setdefault(f"{day:%Y-%m}" if by_month else f"{day}", SpendTally()).add(used)
    return tuple(SpendRow(key, key, found[key]) for key in sorted(found, reverse=True))


def without_gaps(names: Sequence[str]) -> list[str]:
    """Return all days (`2026-11-23`) or months (`2026-11`) from the first name to the last."""
    if not names:
        return []
    if len(names[0]) == len("2026-11"):
        first, last = (int(name[:4]) * 12 + int(name[5:]) - 1 for name in (names[0], names[-1]))
        return [f"{month // 12:04d}-{month % 12 + 1:02d}" for month in range(first, last + 1)]
    first_day, last_day = date.fromisoformat(names[0]), date.fromisoformat(names[-1])
    return [f"{first_day + timedelta(days=at)}" for at in range((last_day - first_day).days + 1)]


def _document(view: SpendView) -> dict[str, Any]:
    unit = "months" if view.is_by_month else "days"
    tables = {"roles": view.roles, "models": view.models, "agents": view.names, "tasks": view.tasks}
    return {
        "period": view.period,
        "inner": view.inner,
        "total": _tally_document(view.total),
        **{name: _table_document(rows) for name, rows in tables.items()},
        unit: [{"name": row.name, **_tally_document(row.used)} for row in view.days],
        "at_work": view.at_work,
        "interrupted": view.interrupted,
    }


def _table_document(rows: SpendRows) -> dict[str, Any]:
    shown = [{"name": row.name, **_tally_document(row.used)} for row in rows.rows]
    others = None if rows.rest is None else {"count": rows.others, **_tally_document(rows.rest)}
    return {"rows": shown, "others": others}


def _tally_document(used: SpendTally) -> dict[str, Any]:
    """Describe a tally as plain data; with `unknown` runs `cost_usd` is a lower bound."""
    return {field.name: getattr(used, field.name) for field in fields(used)}


@dataclass(slots=True)
class SpendTally(Totals):
    """Sums over runs, cycles of agents and notes on runs; `cycles_and_notes` counts the latter two."""

    cycles_and_notes: int = 0

    @classmethod
    def of_runs(cls, totals: Totals) -> Self:
        """Return the tally of runs."""
        tally = cls()
        Totals.add(tally, totals)
        return tally

    @classmethod
    def of_expenses(cls, totals: Totals) -> Self:
        """Return the tally of cycles or notes."""
        tally = cls.of_runs(totals)
        tally.runs, tally.cycles_and_notes = 0, totals.runs
        return tally

    def add(self, other: Totals) -> None:
        """Add other sums to these."""
        Totals.add(self, other)
        self.cycles_and_notes += other.cycles_and_notes if isinstance(other, SpendTally) else 0


async def task_words(project: Project, run_ids: Iterable[str]) -> dict[str, str]:
    """Return the beginning of each run's task by run id, with secrets withheld.

    Redaction comes before truncation: half a secret would not be recognised.
    """
    found: dict[str, str] = {}
    for run_id in run_ids:
        record = await listed(project.store, RUN, run_id)
        if record is not None:
            try:
                with reading(record):
                    found[run_id] = str(record.data["task"]["description"])
            except DamagedRecordError:
                found[run_id] = "(a damaged record)"
    shown = await project.redacted(list(found.values()))
    return {run_id: words[:LONGEST] for run_id, words in zip(found, shown, strict=True)}


PAGE = Page("/spend", "history/templates/spend.html", spend, _document)
