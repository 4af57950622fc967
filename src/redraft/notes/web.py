"""The dashboard's pages of tasks with notes: a list, and a page for each with its versions and runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft.errors import ConfigError
from redraft.notes.note import Note, NotedTask, NoteUse
from redraft.notes.notes import (
    LISTED_RUNS,
    SHOWN_REVISIONS,
    SHOWN_RUNS,
    Notes,
    TaskNotes,
    find_revision,
    payoff_of_notes,
    read_notes,
)
from redraft.notes.store import NoteStore
from redraft.stats import Payoff
from redraft.web.charts import MOST_DOTS, ScoreCurve, Scored, Sparkline, score_curve, sparkline
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import TextChange, text_change

if TYPE_CHECKING:
    from collections.abc import Sequence


PAGE_SIZE = 50
LATEST_RUNS = 20
"""Runs of a task that are listed one by one."""


# --- the tasks with notes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task in the table: its notes, how many runs it had, and how they scored."""

    task: TaskNotes
    runs: int

    @property
    def curve(self) -> Sparkline:
        """The mean scores before any note, then with each version."""
        return sparkline(self.task.trend)


@dataclass(frozen=True, slots=True)
class TasksView:
    """One page of tasks; `older` is the identity of the last one if there is another page."""

    rows: tuple[TaskRow, ...]
    payoff: Payoff
    older: str


async def tasks(request: PageRequest) -> TasksView:
    """Read one page of the tasks that have notes, the most recently noted first."""
    store, before = NoteStore(request.project.store), request.query.get("before", "")
    try:
        found = await store.page(PAGE_SIZE + 1, before=before)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    counts = await store.run_counts()
    noted_tasks = await request.project.redacted(found[:PAGE_SIZE], full=request.full)
    read = [read_notes(store, noted, runs=LISTED_RUNS, revisions=0) for noted in noted_tasks]
    rows = tuple(TaskRow(notes, counts.get(notes.noted.identity, 0)) for notes in await asyncio.gather(*read))
    payoff = payoff_of_notes(row.task for row in rows)
    return TasksView(rows, payoff, found[PAGE_SIZE - 1].identity if len(found) > PAGE_SIZE else "")


def _tasks_document(view: TasksView) -> dict[str, Any]:
    rows = [
        {
            **to_json(row.task.noted),
            "state": row.task.state,
            "runs": row.runs,
            "score_before": row.task.before,
            "score_now": row.task.now,
            "trend": row.task.trend,
        }
        for row in view.rows
    ]
    return {"payoff": to_json(view.payoff), "tasks": rows, "older": view.older or None}


# --- one task ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)  # without slots, for the cached properties
class TaskView:
    """The notes on a task, two versions to compare if there are two, and its latest runs, the newest first.

    `linked` are the ids of those runs that have a page.
    """

    task: TaskNotes
    older: Note | None
    newer: Note | None
    latest: tuple[NoteUse, ...]
    linked: frozenset[str]

    @cached_property
    def controls(self) -> int:
        """How many scored control runs a trial had."""
        return sum(use.arm == "control" and use.score is not None for use in self.task.uses)

    @cached_property
    def chart(self) -> ScoreCurve:
        """The latest scores, run by run."""
        return score_curve(points_of(self.task.uses), best_so_far=False)

    @cached_property
    def change(self) -> TextChange | None:
        """How the two versions differ, as prompts include them."""
        if self.older is None or self.newer is None:
            return None
        return text_change(self.task.block(self.older), self.task.block(self.newer))


async def task(request: PageRequest) -> TaskView:
    """Read the notes on a task; compare version `a` with `b`, by default the one in force with its base."""
    project = request.project
    store = NoteStore(project.store)
    noted = await _noted(request)
    read = await read_notes(store, noted, runs=SHOWN_RUNS, revisions=SHOWN_REVISIONS)
    older, newer = await _compared(request, store, noted)
    latest = read.uses[: -LATEST_RUNS - 1 : -1]
    linked = await project.stored_runs(use.run_id for use in latest)
    noted, notes, older, newer, latest, shown = await project.redacted(
        (noted, read.revisions, older, newer, latest, read.uses if request.full else ()), full=request.full
    )
    # A page draws the runs that it does not list, and shows none of their texts.
    runs = shown if request.full else read.uses
    return TaskView(TaskNotes(noted, notes, runs), older, newer, latest, linked)


async def _noted(request: PageRequest | Form) -> NotedTask:
    identity = request.path["identity"]
    noted = await NoteStore(request.project.store).noted(identity)
    if noted is None:
        raise NotFoundError(f"There are no notes on the task {identity!r}.")
    return noted


async def _compared(
    request: PageRequest, store: NoteStore, noted: NotedTask
) -> tuple[Note | None, Note | None]:
    if noted.run_count == 0:
        return None, None
    try:
        name = request.query.get("b") or str(noted.in_force or noted.run_count)
        newer = await find_revision(store, noted, name)
        base = newer.based_on or newer.version - 1
        name = request.query.get("a") or (str(base) if base else "")
        return (await find_revision(store, noted, name) if name else None), newer
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


def _task_document(view: TaskView) -> dict[str, Any]:
    change = None
    if view.older is not None and view.newer is not None:
        change = view.task.diff_document(view.older, view.newer)
    return {**view.task.document(), "change": change}


def points_of(uses: Sequence[NoteUse]) -> list[Scored]:
    """Return the latest scored runs of a task for a chart, each with its note where that changes.

    A run that a trial left without its note says nothing about which one was in force.
    """
    points: list[Scored] = []
    before = ""
    for use in [one for one in uses if one.score is not None][-MOST_DOTS:]:
        if use.arm == "control":
            points.append(Scored("", use.score, kind="cross"))
            continue
        name = "none" if use.version is None else f"v{use.version}"
        kind = "hollow" if use.version is None else "filled"
        points.append(Scored("" if name == before else name, use.score, kind=kind))
        before = name
    return points


# --- what a person changes --------------------------------------------------------------------------------


async def _roll_back(form: Form) -> str:
    task = await _noted(form)
    task = (await Notes(form.project.store).roll_back(task, form.text("version"))).noted
    return f"Version {task.in_force} is in force, until a run with it leads to the next version."


async def _pin(form: Form) -> str:
    task = await _noted(form)
    task = (await Notes(form.project.store).pin(task, form.text("version"))).noted
    return f"Version {task.in_force} is pinned: no newer version replaces it."


async def _unpin(form: Form) -> str:
    task = await _noted(form)
    task = (await Notes(form.project.store).unpin(task)).noted
    return f"Version {task.in_force} is in force, until a run with it leads to the next version."


async def _switch_off(form: Form) -> str:
    task = await _noted(form)
    await Notes(form.project.store).switch(task, off=True, why=form.text("why", "").strip())
    return "The notes on this task are off. What its runs teach is still recorded."


async def _switch_on(form: Form) -> str:
    task = await _noted(form)
    task = (await Notes(form.project.store).switch(task, off=False)).noted
    return f"The notes on this task are on; version {task.in_force} is in force."


PATH = "/tasks/{identity:path}"
SLICE = Slice(
    pages=(
        Page("/tasks", "notes/templates/tasks.html", tasks, _tasks_document),
        Page(PATH, "notes/templates/task.html", task, _task_document),
    ),
    changes=(
        Change(f"{PATH}/rollback", _roll_back),
        Change(f"{PATH}/pin", _pin),
        Change(f"{PATH}/unpin", _unpin),
        Change(f"{PATH}/off", _switch_off),
        Change(f"{PATH}/on", _switch_on),
    ),
)
