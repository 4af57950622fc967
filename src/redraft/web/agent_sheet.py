"""AgentSheet: all that an agent's page shows, worked out before the template has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.cycles.agents import AgentSummary
from redraft.cycles.mail import Feedback
from redraft.cycles.records import CycleRecord
from redraft.web.agent_read import AgentRead, MemoryDiff
from redraft.web.cycle_view import CycleView, cycle_view, text_of
from redraft.web.memory_view import ChangeView, KeyView, change_views, memory_views
from redraft.web.rendering import cost, count
from redraft.web.trend import Trend, trend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.cycles.records import CycleMetrics

NONE = "-"
UNDER_WAY = ("running", "waiting", "abandoned")
SECOND, MINUTE = 1_000, 60_000


@dataclass(frozen=True, slots=True)
class CycleRow:
    """Hold a cycle as the table has it; a number that its file does not track is a dash."""

    record: CycleRecord
    duration: str
    tokens: str
    cost: str
    anomalies: str
    alerts: str
    memory: str


@dataclass(frozen=True, slots=True)
class AgentSheet:
    """Hold what the template needs.

    `waiting` is the cycle that waits for a person; `untracked` are the metrics that no cycle has, each with
    the flag that would have it recorded; `pending` is feedback with the parameters in it as JSON.
    """

    agent: AgentSummary
    waiting: CycleView | None
    rows: tuple[CycleRow, ...]
    older: int | None
    trends: tuple[Trend, ...]
    untracked: tuple[tuple[str, str], ...]
    chosen: CycleView | None
    pending: tuple[tuple[Feedback, str], ...]
    keys: tuple[KeyView, ...]
    after: int
    diff: MemoryDiff | None
    changes: tuple[tuple[str, tuple[ChangeView, ...]], ...]


def agent_sheet(read: AgentRead) -> AgentSheet:
    """Work out what a page shows of an agent."""
    last, diff = read.agent.last, read.diff
    is_waiting = last is not None and last.status == "waiting"
    trends = _trends([one for one in reversed(read.cycles) if one.status not in UNDER_WAY])
    return AgentSheet(
        read.agent,
        cycle_view(last, read.pending) if last is not None and is_waiting else None,
        tuple(_row(one) for one in read.cycles),
        read.older,
        tuple(drawn for _, _, drawn in trends if drawn is not None),
        tuple((name, flag) for name, flag, drawn in trends if drawn is None and read.cycles),
        None if read.chosen is None else cycle_view(read.chosen, read.pending),
        tuple((one, text_of(one.changes) if one.changes else "") for one in read.pending),
        memory_views(read.memory, read.sizes),
        read.memory.cycle,
        diff,
        () if diff is None else change_views(diff),
    )


def duration(milliseconds: float | None) -> str:
    """Render a time that may be a millisecond or an hour."""
    if milliseconds is None:
        return NONE
    if milliseconds < SECOND:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / SECOND:.1f} s" if milliseconds < MINUTE else f"{milliseconds / MINUTE:.1f} min"


def _row(cycle: CycleRecord) -> CycleRow:
    metrics = cycle.metrics
    return CycleRow(
        cycle,
        duration(metrics.duration_ms),
        _number(metrics.tokens),
        NONE if metrics.cost_usd is None else cost(metrics.cost_usd),
        _number(metrics.anomalies),
        _number(metrics.alerts),
        _memory_words(cycle),
    )


def _number(value: float | None) -> str:
    return NONE if value is None else count(round(value))


def _memory_words(cycle: CycleRecord) -> str:
    new = sum(change.before is None for change in cycle.changes)
    gone = sum(change.after is None for change in cycle.changes)
    changed = len(cycle.changes) - new - gone
    counts = ((new, "+"), (changed, "~"), (gone, "-"))
    return " ".join(f"{mark}{many}" for many, mark in counts if many) or NONE


def _trends(cycles: Sequence[CycleRecord]) -> list[tuple[str, str, Trend | None]]:
    """Return each metric with the flag that tracks it, and its chart; the oldest cycle first."""
    drawn: tuple[tuple[str, str, Callable[[CycleMetrics], float | None], Callable[[float], str]], ...] = (
        ("Duration", "trackCycleDuration", lambda one: one.duration_ms, duration),
        ("Tokens", "trackLLMTokens", lambda one: one.tokens, _number),
        ("Cost", "trackCost", lambda one: one.cost_usd, cost),
        ("Anomalies", "trackAnomalyCount", lambda one: one.anomalies, _number),
        ("Alerts", "trackAlertCount", lambda one: one.alerts, _number),
        ("Failures", "", lambda one: len(one.failures), _number),
    )
    numbers = [one.number for one in cycles]
    return [
        (name, flag, trend(name, numbers, [value(one.metrics) for one in cycles], text))
        for name, flag, value, text in drawn
    ]
