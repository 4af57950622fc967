"""Lessons: what an agent has learnt, with what is hidden, doubled or broken, its rules and its playbooks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft._validation import nearest
from redraft.errors import ConfigError, LessonFileError
from redraft.lessons.impact import Counters
from redraft.lessons.lesson import KINDS, STATUSES, Lesson, lesson_document
from redraft.lessons.lessons import Problem
from redraft.lessons.playbooks import Playbook
from redraft.lessons.rules import Rule, Rules
from redraft.web.change import Change, Wanted
from redraft.web.lesson_files import AgentFiles, Shelf
from redraft.web.page import Asked, NotFoundError, Page

if TYPE_CHECKING:
    from redraft.web.project import Project

MOST = 100


@dataclass(frozen=True, slots=True)
class LessonRow:
    """Hold a lesson as the table has it; `doubles` says that it repeats another one, `other` is which."""

    id: str
    kind: str
    status: str
    why: str
    superseded_by: str
    summary: str
    day: date
    task_type: str
    confidence: float
    counters: Counters
    archived: bool
    doubles: str
    other: str
    whole: Lesson | None = None
    """The lesson itself, where all of it is wanted."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Say which lessons are wanted: of a kind, of a status (each empty for any), archived ones, too."""

    kind: str
    status: str
    archived: bool
    before: str

    @classmethod
    def of(cls, asked: Asked) -> Filter:
        """Return what the query says; raises `ConfigError` for a kind or status that there is not."""
        query = asked.query
        return cls(
            asked.one_of("kind", tuple(KINDS)),
            asked.one_of("status", STATUSES),
            query.get("archived") == "1",
            query.get("before", ""),
        )

    def admits(self, lesson: Lesson) -> bool:
        """Say whether a lesson is wanted."""
        return self.kind in ("", lesson.kind) and self.status in ("", lesson.status)


@dataclass(frozen=True, slots=True)
class LessonsView:
    """Hold a page of an agent's lessons; without an `agent`, who has any. `older` names the next page."""

    agents: tuple[str, ...]
    wanted: Filter
    agent: str = ""
    counted: tuple[AgentFiles, ...] = ()
    rows: tuple[LessonRow, ...] = ()
    older: str = ""
    archived: int = 0
    broken: tuple[Problem, ...] = ()
    rules: tuple[Rule, ...] = ()
    playbooks: tuple[Playbook, ...] = ()
    is_whole: bool = True
    kinds: tuple[str, ...] = tuple(KINDS)
    statuses: tuple[str, ...] = STATUSES
    standings: dict[str, str] = field(
        default_factory=lambda: {
            "permanent": "Permanent",
            "proposed": "Proposed as permanent: a person decides",
            "tactical": "Tactical: at most ten, four weeks each",
        }
    )


async def lessons(asked: Asked) -> LessonsView:
    """Read the lessons of an agent: the one in the query, else the only one; of several, say who they are."""
    project, wanted = asked.project, Filter.of(asked)
    agents = await asyncio.to_thread(project.lessons.agents)
    agent = asked.query.get("agent", "").strip() or (agents[0] if len(agents) == 1 else "")
    if not agent:
        counted = await asyncio.to_thread(project.lessons.counted, agents)
        agents, counted = await project.shown((tuple(agents), tuple(counted)))
        return LessonsView(agents, wanted, counted=counted)
    if agent not in agents:
        raise NotFoundError(f"The agent {agent!r} has no lessons here. {nearest(agent, agents)}")
    await project.lesson_uses.chronicle.read()
    shelf = await asyncio.to_thread(project.lessons.shelf, agent, with_archived=wanted.archived)
    rows, older = _rows(asked, wanted, shelf)
    view = LessonsView(
        tuple(agents),
        wanted,
        agent,
        (),
        rows,
        older,
        len(shelf.archived_ids),
        tuple(one for one in shelf.problems if one.what == "broken"),
        shelf.rules,
        shelf.playbooks,
        project.lesson_uses.chronicle.is_whole,
    )
    return await project.shown(view, whole=asked.whole)


def _rows(asked: Asked, wanted: Filter, shelf: Shelf) -> tuple[tuple[LessonRow, ...], str]:
    """Return a page of lessons, and where the next one begins."""
    found = iter(shelf.lessons)
    if wanted.before and all(one.id != wanted.before for one in found):
        raise NotFoundError(f"There is no lesson {wanted.before!r} here, before which others could be.")
    page = list(islice(filter(wanted.admits, found), MOST + 1))
    doubles = {one.id: one for one in shelf.problems if one.what == "duplicate"}
    rows = tuple(
        LessonRow(
            one.id,
            one.kind,
            one.status,
            one.why,
            one.superseded_by,
            one.summary,
            one.day,
            one.task_type,
            one.confidence,
            asked.project.lesson_uses.counters(one.id),
            one.id in shelf.archived_ids,
            doubles[one.id].why if one.id in doubles else "",
            doubles[one.id].other if one.id in doubles else "",
            one if asked.whole else None,
        )
        for one in page[:MOST]
    )
    return rows, page[MOST - 1].id if len(page) > MOST else ""


def _document(view: LessonsView) -> dict[str, Any]:
    if not view.agent:
        return {"agents": [to_json(one) for one in view.counted]}
    rows = [
        {
            **(lesson_document(row.whole) if row.whole else {}),
            "counters": to_json(row.counters),
            "archived": row.archived,
            "doubles": row.doubles or None,
        }
        for row in view.rows
    ]
    return {
        "agent": view.agent,
        "lessons": rows,
        "older": view.older or None,
        "archived": view.archived,
        "broken": to_json(view.broken),
        "rules": to_json(view.rules),
        "playbooks": to_json(view.playbooks),
        "is_whole": view.is_whole,
    }


async def known_agent(project: Project, agent: str) -> str:
    """Return an agent that has lessons; raises `NotFoundError` for any other."""
    agents = await asyncio.to_thread(project.lessons.agents)
    if agent not in agents:
        raise NotFoundError(f"The agent {agent!r} has no lessons here.")
    return agent


async def _make_permanent(wanted: Wanted) -> str:
    agent = await known_agent(wanted.project, wanted.path["agent"])
    rules = Rules(wanted.project.lessons.path, agent)
    try:
        rule = await asyncio.to_thread(rules.make_permanent, wanted.text("rule"))
    except LessonFileError as error:  # no rule like that, or none can be read: not the store's fault
        raise ConfigError(str(error)) from error
    return f"The rule is permanent: {rule.text}"


PAGE = Page("/lessons", "lessons.html", lessons, _document, nav="Lessons")
CHANGES = (Change("/lessons/{agent}/permanent", _make_permanent),)
