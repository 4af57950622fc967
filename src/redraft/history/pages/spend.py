"""Spend: where the money went: by role, model, agent, task and day, and what bought nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError
from redraft.history.beside import Beside
from redraft.history.entry import AT_WORK
from redraft.history.ledger import Ledger
from redraft.history.spending import day_of
from redraft.history.tally import Tally
from redraft.history.task_words import task_words
from redraft.web.charts import Period, PeriodBars, period_bars
from redraft.web.page import Page, PageRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    kept: int
    """How many runs there are, of any time; as far as they were looked through."""
    read: int | None
    """How many runs were looked through until now, where not all were yet."""
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
    ledger = request.project.shared(Ledger.of)
    entries = await ledger.entries()
    await request.project.shared(Beside.of).read()
    since = date.min if period == "all" else datetime.now(UTC).date() - timedelta(days=int(period) - 1)
    days = {
        key: sums for key, sums in ledger.spending.days.items() if key[0] >= since and not sums.whole.is_empty
    }
    total, by_day = ledger.spending.total(since, inner=inner), dict[date, Tally]()
    for (day, is_inner), sums in days.items():
        if inner or not is_inner:
            by_day.setdefault(day, Tally()).add(sums.whole)
    by_month = bool(by_day) and (max(by_day) - min(by_day)).days >= MOST_DAYS
    unended = [one for one in ledger.spending.unended.values() if day_of(one) >= since]
    interrupted = sum(one.state not in AT_WORK for one in unended)
    return SpendView(
        period,
        inner,
        total.whole,
        await _named(request, total.roles),
        await _named(request, total.models),
        await _named(request, total.names),
        await _tasks(request, total.tasks),
        _days(by_day, by_month=by_month),
        by_month,
        sum(sums.whole.runs for (_, is_inner), sums in days.items() if is_inner),
        len(unended) - interrupted,
        interrupted,
        len(entries),
        None if ledger.is_whole else len(entries),
        request.project.shared(Beside.of).is_whole,
    )


def _dearest(tallies: Mapping[str, Tally]) -> tuple[list[tuple[str, Tally]], int, Tally | None]:
    """Return those that cost most (or, where no cost is known, used most), and the others added up."""
    items = [(key, used) for key, used in tallies.items() if not used.is_empty]
    first = nlargest(MOST, items, key=lambda item: (item[1].cost_usd, item[1].total_tokens))
    if len(items) == len(first):
        return first, 0, None
    rest, shown = Tally(), {key for key, _ in first}
    for key, used in items:
        if key not in shown:
            rest.add(used)
    return first, len(items) - len(first), rest


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
        "read": view.read,
    }


def _table(rows: Rows) -> dict[str, Any]:
    told = [{"name": row.name, **_told(row.used)} for row in rows.rows]
    others = None if rows.rest is None else {"count": rows.others, **_told(rows.rest)}
    return {"rows": told, "others": others}


def _told(used: Tally) -> dict[str, Any]:
    """Tell a tally; `cost_usd` is at least that where `unknown` runs cost more."""
    return {field.name: getattr(used, field.name) for field in fields(used) if field.name != "latest"}


PAGE = Page("/spend", "history/templates/spend.html", spend, _document)
