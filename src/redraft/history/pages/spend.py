"""Spend: where the money went: by role, model, agent, task and day, and what bought nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from heapq import nlargest
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.errors import ConfigError
from redraft.history.beside import Beside, Tally
from redraft.history.task_words import task_words
from redraft.loop.runs import Runs
from redraft.web.charts import Period, PeriodBars, period_bars
from redraft.web.page import Page, PageRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.stores.run_index import Totals

K = TypeVar("K")

PERIODS = {"7": "the last 7 days", "30": "the last 30 days", "90": "the last 90 days", "all": "all time"}
FIRST_PERIOD = "30"
MOST = 20
"""Rows of one table; the rest are added up in the last one."""
MOST_DAYS = 92
"""Days that are shown one by one; of more, the months."""


@dataclass(frozen=True, slots=True)
class Row:
    """Hold what one of a kind used; `name` is as it may be shown, `key` what the runs call it."""

    key: str
    name: str
    used: Tally


@dataclass(frozen=True, slots=True)
class Rows:
    """Hold the rows of a table, what costs most first; `rest` adds up `others` that it has no room for."""

    rows: tuple[Row, ...]
    others: int = 0
    rest: Tally | None = None


@dataclass(frozen=True, slots=True)
class SpendView:
    """Hold what the runs of a period used; `at_work` and `interrupted` are runs that are not counted yet."""

    period: str
    inner: bool
    whole: Tally
    roles: Rows
    models: Rows
    names: Rows
    tasks: Rows
    days: tuple[Row, ...]
    is_by_month: bool
    inner_runs: int
    at_work: int
    interrupted: int
    kept: bool
    """Whether there is any run, of any time."""
    is_whole: bool
    """Whether all cycles and notes were looked through."""
    periods: tuple[tuple[str, str], ...] = tuple(PERIODS.items())

    @property
    def bars(self) -> PeriodBars:
        """The days as a drawing: of dollars, or of tokens where no cost is known."""
        days = list(reversed(self.days))
        if any(row.used.cost_usd > 0 for row in days):
            periods = [
                Period(row.key, row.used.cost_usd, row.used.later_usd, row.used.unknown > 0) for row in days
            ]
            return period_bars(periods, "dollars")
        return period_bars(
            [Period(row.key, row.used.total_tokens, row.used.later_tokens) for row in days], "tokens"
        )


async def spend(request: PageRequest) -> SpendView:
    """Add up what was spent in a period: `days` is 7, 30, 90 or all; `inner=0` leaves out inner runs."""
    period, inner = request.query.get("days", FIRST_PERIOD), request.query.get("inner") != "0"
    if period not in PERIODS:
        raise ConfigError(f"days must be one of {', '.join(PERIODS)}, got {period!r}.")
    since = None if period == "all" else datetime.now(UTC).date() - timedelta(days=int(period) - 1)
    runs, beside = Runs(request.project.store), request.project.shared(Beside.of)
    spend = await runs.spend(since, inner=inner)
    days, tasks = _tallies(spend.days), _tallies(spend.tasks)
    roles, models, agents = _tallies(spend.roles), _tallies(spend.models), _tallies(spend.agents)
    await beside.read()
    for spent, used in beside.spent.items():
        if since is None or spent.day >= since:
            days.setdefault(spent.day, Tally()).add(used)
            for tallies, key in ((roles, spent.role), (models, spent.model), (agents, spent.agent)):
                tallies.setdefault(key, Tally()).add(used)
            if spent.task:
                tasks.setdefault(spent.task, Tally()).add(used)
    whole = Tally()
    for used in days.values():
        whole.add(used)
    by_month = bool(days) and (max(days) - min(days)).days >= MOST_DAYS
    return SpendView(
        period,
        inner,
        whole,
        await _named(request, roles),
        await _named(request, models),
        await _named(request, agents),
        await _tasks(request, tasks),
        _days(days, by_month=by_month),
        by_month,
        spend.inner_runs,
        spend.at_work,
        spend.interrupted,
        bool(whole.runs or await runs.rows(inner=True, limit=1)),
        beside.is_whole,
    )


def _tallies(sums: Mapping[K, Totals]) -> dict[K, Tally]:
    return {key: Tally.of_runs(totals) for key, totals in sums.items()}


def _dearest(tallies: Mapping[str, Tally]) -> tuple[list[tuple[str, Tally]], int, Tally | None]:
    """Return those that cost most (or, where no cost is known, used most), and the others added up."""
    first = nlargest(MOST, tallies.items(), key=lambda item: (item[1].cost_usd, item[1].total_tokens))
    if len(tallies) == len(first):
        return first, 0, None
    rest, shown = Tally(), {key for key, _ in first}
    for key, used in tallies.items():
        if key not in shown:
            rest.add(used)
    return first, len(tallies) - len(first), rest


async def _named(request: PageRequest, tallies: Mapping[str, Tally]) -> Rows:
    first, others, rest = _dearest(tallies)
    names = await request.project.redacted([key for key, _ in first])
    rows = tuple(Row(key, name, used) for (key, used), name in zip(first, names, strict=True))
    return Rows(rows, others, rest)


async def _tasks(request: PageRequest, tallies: Mapping[str, Tally]) -> Rows:
    first, others, rest = _dearest(tallies)
    words = await task_words(request.project, [used.latest for _, used in first])
    rows = tuple(Row(key, words.get(used.latest) or key, used) for key, used in first)
    return Rows(rows, others, rest)


def _days(by_day: Mapping[date, Tally], *, by_month: bool) -> tuple[Row, ...]:
    found: dict[str, Tally] = {}
    for day, used in by_day.items():
        found.setdefault(f"{day:%Y-%m}" if by_month else f"{day}", Tally()).add(used)
    return tuple(Row(key, key, found[key]) for key in sorted(found, reverse=True))


def _document(view: SpendView) -> dict[str, Any]:
    unit = "months" if view.is_by_month else "days"
    tables = {"roles": view.roles, "models": view.models, "agents": view.names, "tasks": view.tasks}
    return {
        "period": view.period,
        "inner": view.inner,
        "total": _told(view.whole),
        **{name: _table(rows) for name, rows in tables.items()},
        unit: [{"name": row.name, **_told(row.used)} for row in view.days],
        "at_work": view.at_work,
        "interrupted": view.interrupted,
    }


def _table(rows: Rows) -> dict[str, Any]:
    told = [{"name": row.name, **_told(row.used)} for row in rows.rows]
    others = None if rows.rest is None else {"count": rows.others, **_told(rows.rest)}
    return {"rows": told, "others": others}


def _told(used: Tally) -> dict[str, Any]:
    """Tell a tally; `cost_usd` is at least that where `unknown` runs cost more."""
    return {field.name: getattr(used, field.name) for field in fields(used) if field.name != "latest"}


PAGE = Page("/spend", "history/templates/spend.html", spend, _document)
