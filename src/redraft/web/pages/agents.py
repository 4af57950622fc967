"""Agents: those that go round in cycles, how each stands, and what waits for a person."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft.cycles.agents import AgentSummary, summary_document
from redraft.cycles.mail import Feedback
from redraft.web.cycle_view import CycleView, cycle_view, without_keys
from redraft.web.page import Asked, Page

if TYPE_CHECKING:
    from redraft.cycles.records import CycleRecord


@dataclass(frozen=True, slots=True)
class AgentsView:
    """Hold the agents by name, and the plans of those that wait for a person.

    `heard` is the feedback that each of those has, as `agents` has them; of the others it is empty.
    """

    agents: tuple[AgentSummary, ...]
    heard: tuple[tuple[Feedback, ...], ...]
    waiting: tuple[tuple[AgentSummary, CycleView], ...] = ()


async def agents(asked: Asked) -> AgentsView:
    """Read how all agents stand."""
    seen = await asked.project.agents.all()
    slim = tuple(replace(one, last=_slim(one.last)) for one in seen)
    heard = [await _heard(asked, one) for one in seen]
    return await asked.project.shown(AgentsView(slim, tuple(heard)), whole=asked.whole)


async def _heard(asked: Asked, agent: AgentSummary) -> tuple[Feedback, ...]:
    if agent.last is None or agent.last.status != "waiting" or not agent.pending:
        return ()
    view = await asked.project.agents.view(agent.name)
    return tuple(await view.pending())


def _slim(cycle: CycleRecord | None) -> CycleRecord | None:
    """Leave out what the page does not show: of a cycle that does not wait, all but its metrics."""
    if cycle is None:
        return None
    if cycle.status == "waiting":
        return without_keys(cycle)
    return replace(cycle, derived_data={}, changes=(), sense_errors=())


def _arranged(view: AgentsView) -> AgentsView:
    waiting = tuple(
        (one, cycle_view(one.last, heard))
        for one, heard in zip(view.agents, view.heard, strict=True)
        if one.last is not None and one.last.status == "waiting"
    )
    return replace(view, waiting=waiting)


def _document(view: AgentsView) -> dict[str, Any]:
    return {"agents": [summary_document(one) for one in view.agents]}


async def _mark(asked: Asked) -> str:
    """Return what differs when the table does."""
    seen = await asked.project.agents.all()
    return "; ".join(
        f"{one.name} {one.status} {one.last.number if one.last else 0} {one.pending}" for one in seen
    )


PAGE = Page("/agents", "agents.html", agents, _document, nav="Agents", mark=_mark, arrange=_arranged)
