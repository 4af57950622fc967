"""Agents and cycles as rows: how each stands, how each went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from redraft.cli.notes_rows import GAP
from redraft.cli.show import BAD, GOOD, QUIET
from redraft.core.summary import render_usd
from redraft.core.texts import shortened
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.cycles.agents import AgentSummary
    from redraft.cycles.record import CycleRecord

STATES = {
    "finished": GOOD,
    "failed": BAD,
    "abandoned": BAD,
    "killed": BAD,
    "damaged": BAD,
    "waiting": "yellow",
    "running": "cyan",
    "new": QUIET,
}
LEAST_TEXT = 12
NONE = "-"
SECOND, MINUTE = 1_000, 60_000


def agent_rows(agents: Sequence[AgentSummary], width: int) -> Table:
    """Render agents as a table, a line each."""
    columns: dict[str, list[str | Text]] = {
        "agent": [visible(one.name) for one in agents],
        "status": [Text(one.status, STATES[one.status]) for one in agents],
        "cycle": [NONE if one.last is None else str(one.last.number) for one in agents],
        "began": [NONE if one.last is None else _when(one.last) for one in agents],
        "feedback": [f"{one.pending} new" if one.pending else NONE for one in agents],
        "triggers": [", ".join(one.card.triggers) or NONE for one in agents],
    }
    return _table(_fitted(columns, width, ("triggers", "began")), right=("cycle",))


def cycle_rows(cycles: Sequence[CycleRecord], width: int) -> Table:
    """Render cycles as a table, the newest first."""
    columns: dict[str, list[str | Text]] = {
        "cycle": [str(one.number) for one in cycles],
        "status": [Text(one.status, STATES[one.status]) for one in cycles],
        "began": [_when(one) for one in cycles],
        "by": [one.trigger for one in cycles],
        "actions": [actions_said(one.derived_data) for one in cycles],
        "memory": [f"{len(one.changes)} changed" if one.changes else NONE for one in cycles],
    }
    room = max(LEAST_TEXT, width - _taken(columns))
    columns["said"] = [shortened(visible(one.error or NONE), room) for one in cycles]
    return _table(_fitted(columns, width, ("memory", "by")), right=("cycle",))


def metrics_rows(cycles: Sequence[CycleRecord], width: int) -> Table:
    """Render the metrics of cycles as a table, the newest first; what a file does not track is a dash."""
    metrics = [one.metrics for one in cycles]
    columns: dict[str, list[str | Text]] = {
        "cycle": [str(one.number) for one in cycles],
        "status": [Text(one.status, STATES[one.status]) for one in cycles],
        "time": [NONE if one.duration_ms is None else time_said(one.duration_ms) for one in metrics],
        "tokens": [NONE if one.tokens is None else f"{one.tokens:,}" for one in metrics],
        "cost": [NONE if one.cost_usd is None else render_usd(one.cost_usd) for one in metrics],
        "anomalies": [NONE if one.anomalies is None else str(one.anomalies) for one in metrics],
        "alerts": [NONE if one.alerts is None else str(one.alerts) for one in metrics],
        "failures": [Text(str(len(one.failures)), BAD if one.failures else QUIET) for one in metrics],
        "skipped": [Text(str(len(one.skipped)), "" if one.skipped else QUIET) for one in metrics],
    }
    numbers = ("cycle", "time", "tokens", "cost", "anomalies", "alerts", "failures", "skipped")
    return _table(_fitted(columns, width, ("cost", "skipped")), right=numbers)


def no_agents() -> Text:
    """Say that there is nothing, and what would change that."""
    return Text("No agent has run here yet: redraft cycle run FILE")


def actions_said(derived: Mapping[str, Any]) -> str:
    """Say how many actions of a cycle were done, and how many were not."""
    actions: list[Mapping[str, Any]] = derived.get("execution", {}).get("actions", [])
    done = sum(one["status"] == "succeeded" for one in actions)
    if not actions:
        return NONE
    return f"{done} done" if done == len(actions) else f"{done} of {len(actions)} done"


def time_said(milliseconds: float) -> str:
    """Return a time as it is read at a glance."""
    if milliseconds < SECOND:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / SECOND:.1f} s" if milliseconds < MINUTE else f"{milliseconds / MINUTE:.1f} min"


def _when(cycle: CycleRecord) -> str:
    return f"{cycle.started_at.astimezone():%m-%d %H:%M:%S}"


def _fitted(
    columns: dict[str, list[str | Text]], width: int, dropped: Sequence[str]
) -> dict[str, list[str | Text]]:
    """Return the columns that have room; the ones to be dropped are named, the first first."""
    for name in dropped:
        if _taken(columns) > width:
            del columns[name]
    return columns


def _taken(columns: dict[str, list[str | Text]]) -> int:
    return sum(max(map(len, (name, *cells))) + GAP for name, cells in columns.items())


def _table(columns: dict[str, list[str | Text]], *, right: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in columns:
        table.add_column(name, no_wrap=True, justify="right" if name in right else "left")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table
