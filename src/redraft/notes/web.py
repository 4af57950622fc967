"""The dashboard's pages of tasks that have notes: the list of them, and each with its versions and runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
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
    mean_of,
    read_notes,
)
from redraft.notes.store import NoteStore
from redraft.stats import Effect
from redraft.web.charts import Series, SeriesSample, Sparkline, series, sparkline
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import TextChange, text_change

if TYPE_CHECKING:
    from collections.abc import Sequence


PAGE_SIZE = 50
LATEST_RUNS = 20
"""Runs of a task that are listed one by one."""


# --- the tasks that have notes --------------------------------------------------------------------------


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
    return TasksView(rows, found[PAGE_SIZE - 1].identity if len(found) > PAGE_SIZE else "")


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
    return {"tasks": rows, "older": view.older or None}


# --- one task ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskView:
    """The notes on a task, two versions to compare if there are two, and its latest runs.

    `stored` are those of these runs that have a page.
    """

    task: TaskNotes
    older: Note | None
    newer: Note | None
    latest: tuple[NoteUse, ...]
    stored: frozenset[str]


async def task(request: PageRequest) -> TaskView:
    """Read the notes on a task; compare version `a` with `b`, by default the one in force with its base."""
    project = request.project
    store = NoteStore(project.store)
    noted = await _noted(request)
    read = await read_notes(store, noted, runs=SHOWN_RUNS, revisions=SHOWN_REVISIONS)
    older, newer = await _compared(request, store, noted)
    latest = read.uses[: -LATEST_RUNS - 1 : -1]
    stored = await project.stored_runs(use.run_id for use in latest)
    noted, notes, older, newer, latest, shown = await project.redacted(
        (noted, read.revisions, older, newer, latest, read.uses if request.full else ()), full=request.full
    )
    # A page draws the runs that it does not list, and shows none of their texts.
    runs = shown if request.full else read.uses
    return TaskView(TaskNotes(noted, notes, runs), older, newer, latest, stored)


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


@dataclass(frozen=True, slots=True)
class NoteRow:
    """A version of the note in the table: how many runs had it, and their mean score."""

    note: Note
    runs: int
    score: float | None


@dataclass(frozen=True, slots=True)
class NoteChange:
    """How two versions of a note differ, as they stand in prompts."""

    older: Note
    newer: Note
    text: TextChange


@dataclass(frozen=True, slots=True)
class TaskPage:
    """What the page of a task shows, the latest versions and runs first.

    Each of `runs` comes with whether it has a page. `earlier` versions are not listed. `control` are the
    scores of the runs that a trial left without a note. `block` is the note in force.
    """

    task: TaskNotes
    rows: tuple[NoteRow, ...]
    earlier: int
    runs: tuple[tuple[NoteUse, bool], ...]
    chart: Series
    effect: Effect | None
    control: tuple[float, ...]
    block: str
    change: NoteChange | None


def task_page(view: TaskView) -> TaskPage:
    """Prepare the page of a task."""
    task, note, older, newer = view.task, view.task.in_force, view.older, view.newer
    rows = tuple(
        NoteRow(one, sum(use.version == one.version for use in task.uses), mean_of(task.scores(one.version)))
        for one in reversed(task.revisions)
    )
    change = None
    if older is not None and newer is not None:
        change = NoteChange(older, newer, text_change(task.block(older), task.block(newer)))
    return TaskPage(
        task,
        rows,
        task.noted.run_count - len(task.revisions),
        tuple((use, use.run_id in view.stored) for use in view.latest),
        series(samples_of(task.uses)),
        task.effect,
        tuple(use.score for use in task.uses if use.arm == "control" and use.score is not None),
        "" if note is None else task.block(note),
        change,
    )


def samples_of(uses: Sequence[NoteUse]) -> list[SeriesSample]:
    """Return the scored runs of a task for a chart, grouped by the note that was in force.

    A run that a trial left without its note says nothing about which one was in force.
    """
    samples: list[SeriesSample] = []
    for use in uses:
        if use.score is None:
            continue
        given = "no note" if use.version is None else f"version {use.version}"
        why = ", for a trial" if use.arm == "control" else ""
        label = "no note" if use.version is None else f"v{use.version}"
        group = None if use.arm == "control" else label
        samples.append(SeriesSample(use.score, use.arm, f"{given}{why}: {use.score:.2f}", group))
    return samples


# --- what a person changes --------------------------------------------------------------------------------


async def _roll_back(form: Form) -> str:
    task = await _noted(form)
    task = (await Notes(form.project.store).roll_back(task, form.text("version"))).noted
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
        Page(PATH, "notes/templates/task.html", task, _task_document, present=task_page),
    ),
    changes=(
        Change(f"{PATH}/rollback", _roll_back),
        Change(f"{PATH}/off", _switch_off),
        Change(f"{PATH}/on", _switch_on),
    ),
)
