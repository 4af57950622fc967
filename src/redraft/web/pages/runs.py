"""Runs: the kept runs, the newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.core.result import ConvergenceReason
from redraft.loop.record import RunRecord
from redraft.loop.run_document import row_document
from redraft.loop.runs import Runs
from redraft.web.page import Asked, NotFoundError, Page
from redraft.web.sparkline import Sparkline, sparkline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from redraft.web.entry import Entry

STATES = ("running", "killed", "finished", "failed", "cancelled")
REASONS = tuple(reason.value for reason in ConvergenceReason)
MOST = 50
COMPARED = 12
"""Runs that a link to their comparison names at most."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """Hold a run as the table has it."""

    record: RunRecord
    curve: Sparkline
    budget_usd: float | None


@dataclass(frozen=True, slots=True)
class RunsView:
    """Hold a page of runs and how they were chosen; `older` is the last one where there is another page."""

    rows: tuple[RunRow, ...]
    wanted: Wanted
    older: str
    read: int | None = None
    """How many runs were looked through until now, where not all were yet."""
    states: tuple[str, ...] = STATES
    reasons: tuple[str, ...] = REASONS

    @property
    def comparable(self) -> tuple[str, ...]:
        """The newest runs that have ended, the oldest of them first: with that one the rest is compared."""
        ended = [row.record.run_id for row in self.rows if row.record.status != "running"]
        return tuple(reversed(ended[:COMPARED]))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Say which runs are wanted: of a state, a reason, a name (each empty for any), inner ones, too."""

    status: str
    reason: str
    name: str
    inner: bool
    before: str

    @classmethod
    def of(cls, asked: Asked) -> Wanted:
        """Return what the query says; raises `ConfigError` for a state or reason that no run can have."""
        query = asked.query
        return cls(
            _one_of("status", query.get("status", ""), STATES),
            _one_of("reason", query.get("reason", ""), REASONS),
            query.get("name", "").strip(),
            query.get("inner") == "1",
            query.get("before", ""),
        )

    @property
    def is_filtered(self) -> bool:
        """Whether not all runs are wanted."""
        return bool(self.status or self.reason or self.name)

    def admits(self, entry: Entry) -> bool:
        """Say whether a run is wanted."""
        return (
            (self.inner or not entry.is_inner)
            and self.reason in ("", entry.reason)
            and self.name in ("", entry.name)
            and (not self.status or self.status == entry.state)
        )


async def runs(asked: Asked) -> RunsView:
    """Read the runs that are wanted; where they are chosen, the ledger knows which these are."""
    wanted = Wanted.of(asked)
    reading, ledger = Runs(asked.project.store), asked.project.ledger
    if wanted.is_filtered:
        entries = chosen(await ledger.entries(), wanted)
        found = [await reading.get(entry.run_id) for entry in islice(entries, MOST + 1)]
    else:
        before = wanted.before or None
        found = await reading.find(inner=wanted.inner, before=before, limit=MOST + 1)
    rows = [await _row(asked, record) for record in found[:MOST]]
    older = found[MOST - 1].run_id if len(found) > MOST else ""
    read = None if ledger.is_whole or not wanted.is_filtered else len(await ledger.entries(0))
    return RunsView(tuple(rows), wanted, older, read)


def chosen(entries: Iterable[Entry], wanted: Wanted) -> Iterator[Entry]:
    """Return the entries that are wanted, of those before the one where the page begins."""
    found = iter(entries)
    if wanted.before and all(entry.run_id != wanted.before for entry in found):
        raise NotFoundError(f"There is no run {wanted.before!r} here, before which others could be.")
    return filter(wanted.admits, found)


async def _row(asked: Asked, record: RunRecord) -> RunRow:
    task, origin = await asked.project.shown((record.task, record.origin))
    curve = sparkline([version.evaluation.overall_score for version in record.versions])
    return RunRow(replace(record, task=task, origin=origin), curve, record.options.get("budget_usd"))


def _document(view: RunsView) -> dict[str, Any]:
    rows = [{**row_document(row.record), "budget_usd": row.budget_usd} for row in view.rows]
    return {"runs": rows, "older": view.older or None}


def _one_of(name: str, given: str, known: Collection[str]) -> str:
    if given and given not in known:
        raise ConfigError(f"{name} {given!r} is none; {nearest(given, known)}")
    return given


async def _mark(asked: Asked) -> str:
    """Return what differs when the table does: the newest run, and how far those at work are.

    A page of older runs does not move.
    """
    wanted, ledger = Wanted.of(asked), asked.project.ledger
    if wanted.before:
        return ""
    entries = await ledger.entries(0)
    found = list(islice(chosen(entries, wanted), MOST))
    running = [entry for entry in found if entry.state == "running"]
    told = [f"{entry.run_id} {await asked.project.moving.how_far(entry.run_id)}" for entry in running]
    reading = f"{len(entries)} read" if wanted.is_filtered and not ledger.is_whole else ""
    return "; ".join([found[0].run_id if found else "", *told, reading])


PAGE = Page("/runs", "runs.html", runs, _document, nav="Runs", mark=_mark)
