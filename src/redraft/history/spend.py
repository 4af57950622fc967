"""The spend page: usage and cost by role, model, agent, task and day, and what was spent in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from functools import partial
from heapq import nlargest
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from redraft._codec import from_record
from redraft.cycles.agents import Agents
from redraft.cycles.records import UNFINISHED
from redraft.cycles.web import KEPT_OPEN, AgentList
from redraft.errors import ConfigError
from redraft.loop.record import RUN
from redraft.loop.runs import Runs
from redraft.notes.checkpoint import CHECKPOINT
from redraft.notes.learner import Learned
from redraft.stores.base import Record, intact, listed
from redraft.stores.run_index import RunQuery, Totals, run_index
from redraft.web.charts import Period, PeriodBars, period_bars
from redraft.web.page import Page, PageRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from redraft.cycles.agents import AgentHandle
    from redraft.cycles.records import CycleRecord
    from redraft.stores.base import Store
    from redraft.types import TokenUsage
    from redraft.web.project import Project


K = TypeVar("K")
T = TypeVar("T")
PERIODS = {"7": "the last 7 days", "30": "the last 30 days", "90": "the last 90 days", "all": "all time"}
FIRST_PERIOD = "30"
MOST = 20
"""Rows in a table; the rest are added up in the last row."""
MOST_DAYS = 92
"""Longest period in days that is shown day by day; a longer one is shown by month."""
PATIENCE = 0.1
"""Seconds that a request waits for older cycles and notes to be counted."""
OF_A_NOTE = "/reflection"
"""Suffix of the key of a note's outcome; the id of its run comes before it."""
PAGE_SIZE = 50
"""Cycles or notes read at once."""
AT_ONCE = 500
"""How many runs of notes are looked up at once."""
CYCLE, NOTE = "cycle", "note"
"""What cycles and notes have as their role."""
LONGEST = 200


async def spend(request: PageRequest) -> SpendView:
    """Add up the spend of a period: `days` is 7, 30, 90 or all; `inner=0` leaves out inner runs."""
    period, inner = request.query.get("days", FIRST_PERIOD), request.query.get("inner") != "0"
    if period not in PERIODS:
        raise ConfigError(f"days must be one of {', '.join(PERIODS)}, got {period!r}.")
    since = None if period == "all" else datetime.now(UTC).date() - timedelta(days=int(period) - 1)
    runs, other_spend = Runs(request.project.store), request.project.shared(OtherSpend.of)
    spend = await runs.spend(since, inner=inner)
    days, tasks = _tallies(spend.days), _tallies(spend.tasks)
    roles, models, agents = _tallies(spend.roles), _tallies(spend.models), _tallies(spend.agents)
    await other_spend.read()
    for spent, used in other_spend.spent.items():
        if since is None or spent.day >= since:
            days.setdefault(spent.day, SpendTally()).add(used)
            for tallies, key in ((roles, spent.role), (models, spent.model), (agents, spent.agent)):
                tallies.setdefault(key, SpendTally()).add(used)
            if spent.task:
                tasks.setdefault(spent.task, SpendTally()).add(used)
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
        other_spend.is_complete,
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
    is_complete: bool
    """Whether all cycles and notes were counted."""
    periods: tuple[tuple[str, str], ...] = tuple(PERIODS.items())

    @property
    def bars(self) -> PeriodBars:
        """The days as a bar chart, in dollars, or in tokens if no cost is known."""
        days = list(reversed(self.days))
        if any(row.used.cost_usd > 0 for row in days):
            periods = [
                Period(row.key, row.used.cost_usd, row.used.later_usd, row.used.unknown > 0) for row in days
            ]
            return period_bars(periods, "dollars")
        return period_bars(
            [Period(row.key, row.used.total_tokens, row.used.later_tokens) for row in days], "tokens"
        )


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
    """Sums over runs, the cycles of agents and the notes made after runs.

    `cycles_and_notes` counts the latter two.
    """

    cycles_and_notes: int = 0

    @classmethod
    def of_runs(cls, totals: Totals) -> Self:
        """Return the tally of runs."""
        tally = cls()
        Totals.add(tally, totals)
        return tally

    @classmethod
    def of_one(cls, used: TokenUsage) -> Self:
        """Return the tally of one cycle or note."""
        return cls(
            requests=used.requests,
            failed_requests=used.failed_requests,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost_usd=used.cost_usd or 0.0,
            unknown=int(used.cost_usd is None),
            cycles_and_notes=1,
        )

    def add(self, other: Totals) -> None:
        """Add other sums to these."""
        Totals.add(self, other)
        self.cycles_and_notes += other.cycles_and_notes if isinstance(other, SpendTally) else 0


class Spent(NamedTuple):
    """What something was spent on; cycles have no `task`."""

    day: date
    role: str
    agent: str = ""
    model: str = ""
    task: str = ""


@dataclass(slots=True)
class _Backlog(Generic[T]):
    """Count each item of a growing list once: new ones first, then older ones, a page at a time.

    `count` returns False for an item that is not finished yet, and gets it again later.
    """

    key: Callable[[T], Hashable]
    count: Callable[[T], bool]
    is_complete: bool = False
    _oldest: T | None = None
    _counted: set[Hashable] = field(default_factory=set[Hashable])

    async def read(self, page_after: Callable[[T | None], Awaitable[list[T]]], until: float) -> None:
        """Count everything new, and older items until a time of the monotonic clock."""
        page = await page_after(None)
        while self._count_new(page) and self._oldest is not None:
            page = await page_after(page[-1])
        if self._oldest is None:
            self._extend(page)
        while not self.is_complete and monotonic() < until:
            page = await page_after(self._oldest)
            self._count_new(page)
            self._extend(page)

    def _count_new(self, page: list[T]) -> bool:
        """Count the new items of a page; return whether all were new, so there may be more."""
        new = [one for one in page if self.key(one) not in self._counted]
        self._counted.update(self.key(one) for one in new if self.count(one))
        return bool(page) and len(new) == len(page)

    def _extend(self, page: list[T]) -> None:
        self._oldest = page[-1] if page else self._oldest
        self.is_complete = len(page) < PAGE_SIZE


class OtherSpend:
    """Spend outside of runs: that of cycles and notes, read incrementally. `spent` has the sums."""

    def __init__(self, store: Store, agents: AgentList) -> None:
        self.spent: dict[Spent, SpendTally] = {}
        self._store = store
        self._agents = agents
        self._notes = _Backlog[Record](attrgetter("key"), self._count_note)
        self._new_notes: list[tuple[str, date, TokenUsage]] = []
        self._cycles: dict[str, _Backlog[CycleRecord]] = {}
        self._latest: dict[str, tuple[int, str]] = {}
        self._lock = asyncio.Lock()

    @classmethod
    def of(cls, project: Project) -> OtherSpend:
        """Create the one that a project shares."""
        return cls(project.store, project.shared(AgentList.of))

    @property
    def is_complete(self) -> bool:
        """Whether everything stored was counted."""
        return all(backlog.is_complete for backlog in (self._notes, *self._cycles.values()))

    async def read(self, patience: float = PATIENCE) -> None:
        """Count everything new, and older records for at most `patience` seconds.

        Raises `StoreError` if the store can't be read.
        """
        async with self._lock:
            until = monotonic() + patience
            await self._notes.read(self._notes_after, until - patience / 2)
            await self._sort_notes()
            for at, agent in enumerate(await self._agents.all()):
                latest = None if agent.last is None else (agent.last.number, agent.last.status)
                backlog = self._cycles.get(agent.name)
                if latest is None or (backlog and backlog.is_complete and latest == self._latest[agent.name]):
                    continue
                if backlog is None:
                    key = attrgetter("number", "started_at")
                    backlog = self._cycles[agent.name] = _Backlog(key, partial(self._count_cycle, agent.name))
                view = await Agents().get(agent.name)
                await backlog.read(partial(_cycles_after, view), until)
                self._latest[agent.name] = latest
                if at >= KEPT_OPEN:
                    await view.aclose()

    async def _notes_after(self, last: Record | None) -> list[Record]:
        return await self._store.find(CHECKPOINT, newest_first=True, after=last, limit=PAGE_SIZE)

    def _count_note(self, record: Record) -> bool:
        if record.key.endswith(OF_A_NOTE) and intact([record]):
            used = from_record(Learned, record.data["value"]).usage
            if used.total_tokens or used.requests or used.failed_requests or used.cost_usd is None:
                day = (record.created_at or datetime.now(UTC)).date()
                self._new_notes.append((record.key.removesuffix(OF_A_NOTE), day, used))
        return True

    async def _sort_notes(self) -> None:
        """Count new notes under the agent, model and task of their runs."""
        while self._new_notes:
            notes, self._new_notes = self._new_notes[:AT_ONCE], self._new_notes[AT_ONCE:]
            query = RunQuery({"run_id": tuple(run_id for run_id, _, _ in notes)})
            rows = await run_index(self._store).find(query)
            known = {row.run_id: (row.agent, row.model, row.task) for row in rows}
            for run_id, day, used in notes:
                self._count_one(Spent(day, NOTE, *known.get(run_id, ())), used)

    def _count_cycle(self, agent: str, cycle: CycleRecord) -> bool:
        if cycle.status in UNFINISHED:  # its usage is recorded when it ends
            return False
        self._count_one(Spent(cycle.started_at.astimezone(UTC).date(), CYCLE, agent), cycle.usage)
        return True

    def _count_one(self, on: Spent, used: TokenUsage) -> None:
        self.spent.setdefault(on, SpendTally()).add(SpendTally.of_one(used))


async def _cycles_after(view: AgentHandle, last: CycleRecord | None) -> list[CycleRecord]:
    """Return the cycles before the `last` one; none if it is gone, since then all earlier ones are, too."""
    try:
        return await view.cycles(before=last.number if last else None, limit=PAGE_SIZE)
    except ConfigError:
        return []


async def task_words(project: Project, run_ids: Iterable[str]) -> dict[str, str]:
    """Return the beginning of each run's task by run id, with secrets withheld.

    Redaction comes before truncation: half a secret would not be recognised.
    """
    found: dict[str, str] = {}
    for run_id in run_ids:
        record = await listed(project.store, RUN, run_id)
        if record is not None:
            damaged = "(a damaged record)"
            found[run_id] = damaged if record.damage else record.data["task"]["description"]
    shown = await project.redacted(list(found.values()))
    return {run_id: words[:LONGEST] for run_id, words in zip(found, shown, strict=True)}


PAGE = Page("/spend", "history/templates/spend.html", spend, _document)
