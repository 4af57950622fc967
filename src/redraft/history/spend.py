"""The spend page: usage and cost by role, model, agent, task and day, and the wasted spend."""

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
from redraft.web.charts import LARGE, bars
from redraft.web.page import Page, PageRequest
from redraft.web.rendering import cost, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redraft.web.project import Project


K = TypeVar("K")
PERIODS = {"7": "the last 7 days", "30": "the last 30 days", "90": "the last 90 days", "all": "all time"}
FIRST_PERIOD = "30"
MOST = 20
"""Rows in a table; a last row adds up the others."""
MOST_DAYS = 92
"""Longest period in days that is shown by day; a longer period is shown by month."""
CYCLE, NOTE = "cycle", "note"
"""The roles of cycles and notes."""
LONGEST = 200


async def spend(request: PageRequest) -> dict[str, Any]:
    """The spend of a period: `days` is 7, 30, 90 or all; `inner=0` leaves out inner runs.

    `at_work` and `interrupted` count the runs that are not included yet. A period of more than `MOST_DAYS`
    has `months` instead of `days`. `has_runs` says whether any run is stored, in any period.
    """
    period, inner = request.query.get("days", FIRST_PERIOD), request.query.get("inner") != "0"
    if period not in PERIODS:
        raise ConfigError(f"days must be one of {', '.join(PERIODS)}, got {period!r}.")
    since = None if period == "all" else datetime.now(UTC).date() - timedelta(days=int(period) - 1)
    runs = Runs(request.project.store)
    spend = await runs.spend(since, inner=inner)
    days, tasks = _tallies(spend.days), _tallies(spend.tasks)
    roles, models, agents = _tallies(spend.roles), _tallies(spend.models), _tallies(spend.agents)
    expenses = [(NOTE, group, totals) for group, totals in spend.notes.items()]
    for name, by_day in (await request.project.shared(AgentList.of).spend()).items():
        expenses += [(CYCLE, ExpenseGroup(day, name), totals) for day, totals in by_day.items()]
    for role, group, totals in expenses:
        if since is None or group.day >= since:
            tally = SpendTally.of_expenses(totals)
            days.setdefault(group.day, SpendTally()).add(tally)
            for tallies, key in ((roles, role), (models, group.model), (agents, group.agent)):
                tallies.setdefault(key, SpendTally()).add(tally)
            if group.task:
                tasks.setdefault(group.task, SpendTally()).add(tally)
    total = SpendTally()
    for tally in days.values():
        total.add(tally)
    by_month = bool(days) and (max(days) - min(days)).days >= MOST_DAYS
    return {
        "period": period,
        "inner": inner,
        "total": _document(total),
        "roles": await _named_rows(request, roles),
        "models": await _named_rows(request, models),
        "agents": await _named_rows(request, agents),
        "tasks": await _task_rows(request, tasks),
        "months" if by_month else "days": _day_rows(days, by_month=by_month),
        "inner_runs": spend.inner_runs,
        "at_work": spend.at_work,
        "interrupted": spend.interrupted,
        "has_runs": bool(total.runs or await runs.rows(inner=True, limit=1)),
    }


def spend_chart(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The days or months as bars, with gaps where there was no run.

    The unit is dollars, or tokens if no cost is known; `bars` is None if nothing was spent.
    """
    by_name = {row["name"]: row for row in rows}
    names = without_gaps(sorted(by_name))
    is_priced = any(row["cost_usd"] > 0 for row in rows)
    field = "cost_usd" if is_priced else "total_tokens"
    values = [by_name[name][field] if name in by_name else 0 for name in names]
    drawn = bars(names, values, cost if is_priced else lambda value: count(round(value)), LARGE)
    return {"unit": "dollars" if is_priced else "tokens", "bars": drawn}


def _tallies(sums: Mapping[K, Totals]) -> dict[K, SpendTally]:
    return {key: SpendTally.of_runs(totals) for key, totals in sums.items()}


def _most_expensive(
    tallies: Mapping[str, SpendTally],
) -> tuple[list[tuple[str, SpendTally]], int, SpendTally | None]:
    """The tallies with the highest cost, else the most tokens; and the number and the sum of the others."""
    top = nlargest(MOST, tallies.items(), key=lambda item: (item[1].cost_usd, item[1].total_tokens))
    if len(tallies) == len(top):
        return top, 0, None
    rest, top_keys = SpendTally(), {key for key, _ in top}
    for key, tally in tallies.items():
        if key not in top_keys:
            rest.add(tally)
    return top, len(tallies) - len(top), rest


async def _named_rows(request: PageRequest, tallies: Mapping[str, SpendTally]) -> dict[str, Any]:
    top, others, rest = _most_expensive(tallies)
    names = await request.project.redacted([key for key, _ in top])
    rows = [
        {"name": name, "is_redacted": name != key, **_document(tally)}
        for (key, tally), name in zip(top, names, strict=True)
    ]
    return _table(rows, others, rest)


async def _task_rows(request: PageRequest, tallies: Mapping[str, SpendTally]) -> dict[str, Any]:
    top, others, rest = _most_expensive(tallies)
    newest = await Runs(request.project.store).newest_of_tasks([key for key, _ in top])
    words = await task_words(request.project, newest.values())
    rows = [{"name": words.get(newest.get(key, "")) or key, **_document(tally)} for key, tally in top]
    return _table(rows, others, rest)


def _table(rows: list[dict[str, Any]], others: int, rest: SpendTally | None) -> dict[str, Any]:
    """A table, most expensive row first; `others` adds up the rest."""
    return {"rows": rows, "others": None if rest is None else {"count": others, **_document(rest)}}


def _document(tally: SpendTally) -> dict[str, Any]:
    """A tally as plain data; with `unknown` runs, `cost_usd` is a lower bound."""
    sums = {field.name: getattr(tally, field.name) for field in fields(tally)}
    return {**sums, "total_tokens": tally.total_tokens}


def _day_rows(by_day: Mapping[date, SpendTally], *, by_month: bool) -> list[dict[str, Any]]:
    tallies: dict[str, SpendTally] = {}
    for day, tally in by_day.items():
        tallies.setdefault(f"{day:%Y-%m}" if by_month else f"{day}", SpendTally()).add(tally)
    return [{"name": name, **_document(tallies[name])} for name in sorted(tallies, reverse=True)]


def without_gaps(names: Sequence[str]) -> list[str]:
    """All days (`2026-11-23`) or months (`2026-11`) from the first name to the last."""
    if not names:
        return []
    if len(names[0]) == len("2026-11"):
        first, last = (int(name[:4]) * 12 + int(name[5:]) - 1 for name in (names[0], names[-1]))
        return [f"{month // 12:04d}-{month % 12 + 1:02d}" for month in range(first, last + 1)]
    first_day, last_day = date.fromisoformat(names[0]), date.fromisoformat(names[-1])
    return [f"{first_day + timedelta(days=days)}" for days in range((last_day - first_day).days + 1)]


@dataclass(slots=True)
class SpendTally(Totals):
    """Sums over runs, cycles of agents and notes on runs."""

    cycles_and_notes: int = 0
    """The number of cycles and notes; `runs` does not count them."""

    @classmethod
    def of_runs(cls, totals: Totals) -> Self:
        """The tally of runs."""
        tally = cls()
        tally.add(totals)
        return tally

    @classmethod
    def of_expenses(cls, totals: Totals) -> Self:
        """The tally of cycles or notes."""
        tally = cls.of_runs(totals)
        tally.runs, tally.cycles_and_notes = 0, totals.runs
        return tally


async def task_words(project: Project, run_ids: Iterable[str]) -> dict[str, str]:
    """The beginning of each run's task by run id, with secrets withheld.

    Redaction comes before truncation: half a secret would not be recognised.
    """
    tasks: dict[str, str] = {}
    for run_id in run_ids:
        record = await listed(project.store, RUN, run_id)
        if record is not None:
            try:
                with reading(record):
                    tasks[run_id] = str(record.data["task"]["description"])
            except DamagedRecordError:
                tasks[run_id] = "(a damaged record)"
    redacted = await project.redacted(list(tasks.values()))
    return {run_id: words[:LONGEST] for run_id, words in zip(tasks, redacted, strict=True)}


PAGE = Page(
    "/spend",
    "history/templates/spend.html",
    spend,
    functions={"PERIODS": PERIODS, "spend_chart": spend_chart},
)
