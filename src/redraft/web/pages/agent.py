"""Agent: how one agent does, what it remembers, and what a person tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft.cycles.agents import (
    change_document,
    cycle_document,
    memory_document,
    metrics_document,
    summary_document,
)
from redraft.cycles.memory import Memory
from redraft.errors import ConfigError, DamagedRecordError
from redraft.web.agent_feedback import AgentFeedback, number_of
from redraft.web.agent_read import AgentRead, MemoryDiff
from redraft.web.agent_sheet import agent_sheet
from redraft.web.change import Change, Wanted
from redraft.web.cycle_view import deprecated, without_keys
from redraft.web.page import Asked, NotFoundError, Page

if TYPE_CHECKING:
    from redraft.cycles.agents import AgentHandle
    from redraft.cycles.memory import Item
    from redraft.cycles.records import CycleRecord
    from redraft.web.project import Project

MOST = 50
"""Cycles on one page."""
SHOWN = 20
"""Items of a key that are shown, the newest."""
MOST_CHANGES = 200
LOOKED_AT = 200
"""Cycles between two memories, at most, that are looked through for what they retired."""


async def agent(asked: Asked) -> AgentRead:
    """Read an agent.

    Its cycles `before` one, the details of the one named in `cycle`, and what changed of the memory `from`
    the end of a cycle `to` that of another; without these the newest.
    """
    view = await _viewed(asked.project, asked.path["name"])
    summary = await view.summary()
    try:
        memory, damage = await view.memory(), ""
    except DamagedRecordError as error:  # the cycles can be shown all the same
        memory, damage = Memory(), str(error)
    cycles = await view.cycles(before=number_of("before", asked.query.get("before", "")), limit=MOST + 1)
    chosen = await _chosen(view, asked) or summary.last
    read = AgentRead(
        replace(summary, last=None if summary.last is None else without_keys(summary.last)),
        tuple(replace(one, derived_data={}, sense_errors=()) for one in cycles[:MOST]),
        cycles[MOST - 1].number if len(cycles) > MOST else None,
        None if chosen is None else without_keys(chosen),
        tuple(await view.pending()),
        memory if asked.whole else _newest(memory),
        {key: len(items) for key, items in memory.items.items()},
        MemoryDiff(0, 0, unknown=damage) if damage else await _diff(view, asked, memory, chosen),
    )
    return await asked.project.shown(read, whole=asked.whole)


async def _viewed(project: Project, name: str) -> AgentHandle:
    try:
        return await project.agents.view(name)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


async def _chosen(view: AgentHandle, asked: Asked) -> CycleRecord | None:
    number = number_of("cycle", asked.query.get("cycle", ""))
    if number is None:
        return None
    try:
        return await view.cycle(number)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


def _newest(memory: Memory) -> Memory:
    items: dict[str, list[Item]] = {key: list(found)[-SHOWN:] for key, found in memory.items.items()}
    return replace(memory, items=items)


async def _diff(
    view: AgentHandle, asked: Asked, memory: Memory, chosen: CycleRecord | None
) -> MemoryDiff | None:
    """Return what changed between two cycles: those that were asked for, else in the one that is chosen."""
    if chosen is None or memory.cycle == 0:
        return None
    newer = number_of("to", asked.query.get("to", ""))
    newer = min(chosen.number, memory.cycle) if newer is None else newer
    older = number_of("from", asked.query.get("from", ""))
    older = max(0, newer - 1) if older is None else older
    is_chosen = (older, newer) == (chosen.number - 1, chosen.number)
    try:
        changes = chosen.changes if is_chosen else await view.diff(older, newer)
    except (ConfigError, DamagedRecordError) as error:
        return MemoryDiff(older, newer, unknown=str(error))
    between = [chosen] if is_chosen else await _between(view, older, newer)
    retired = tuple(name for one in between for name in deprecated(one))
    most = len(changes) if asked.whole else MOST_CHANGES
    return MemoryDiff(
        older,
        newer,
        tuple(changes[:most]),
        retired if len(between) >= newer - older else None,
        max(0, len(changes) - most),
    )


async def _between(view: AgentHandle, older: int, newer: int) -> list[CycleRecord]:
    """Return the cycles after one, up to another: none where they are too many, or not kept any more."""
    if not 0 < newer - older <= LOOKED_AT:
        return []
    newest = await view.cycles(limit=1)
    try:
        before = None if newest[0].number <= newer else newer + 1
        found = await view.cycles(before=before, limit=newer - older + 1)
    except ConfigError:
        return []
    return [one for one in found if older < one.number <= newer]


def _document(read: AgentRead) -> dict[str, Any]:
    diff = read.diff
    return {
        **summary_document(read.agent),
        "feedback": read.pending,
        "cycles": [metrics_document(one) for one in read.cycles],
        "older": read.older,
        "cycle": None if read.chosen is None else cycle_document(read.chosen),
        "memory": memory_document(read.memory),
        "diff": None
        if diff is None
        else {
            "from": diff.older,
            "to": diff.newer,
            "changes": [change_document(one) for one in diff.changes],
            "retired": diff.retired,
            "unknown": diff.unknown or None,
        },
    }


async def _mark(asked: Asked) -> str:
    """Return what differs when an agent has done more, or was told something."""
    view = await _viewed(asked.project, asked.path["name"])
    summary = await view.summary()
    return f"{summary.status} {summary.last.number if summary.last else 0} {summary.pending}"


async def _tell(wanted: Wanted) -> str:
    """Tell an agent what a person thinks of it."""
    said = AgentFeedback.of(wanted)
    view = await _viewed(wanted.project, wanted.path["name"])
    try:
        return await said.leave(view)
    finally:
        wanted.project.agents.changed()


PAGE = Page("/agents/{name:path}", "agent.html", agent, _document, mark=_mark, arrange=agent_sheet)
FEEDBACK = Change("/agents/{name:path}/feedback", _tell)
