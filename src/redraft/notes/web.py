"""The dashboard's pages of tasks with notes: a list, and a page per task with its versions and runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError
from redraft.notes.notes import (
    LISTED_RUNS,
    SHOWN_REVISIONS,
    SHOWN_RUNS,
    Notes,
    TaskNotes,
    find_revision,
    payoff_of_notes,
    payoff_sentence,
    read_notes,
)
from redraft.notes.store import NoteStore
from redraft.web.charts import MOST_DOTS, ScoreCurve, Scored, score_curve, sparkline
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import text_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.notes.note import Note, NotedTask, NoteUse


PAGE_SIZE = 50
LATEST_RUNS = 20
"""How many runs of a task to list."""


# --- the tasks with notes --------------------------------------------------------------------------------


async def tasks(request: PageRequest) -> dict[str, Any]:
    """A page of the tasks with notes, the newest first.

    `older` is the identity of the last task if there is another page.
    """
    store, before = NoteStore(request.project.store), request.query.get("before", "")
    try:
        listed = await store.page(PAGE_SIZE + 1, before=before)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    counts = await store.run_counts()
    redacted = await request.project.redacted(listed[:PAGE_SIZE], full=request.full)
    page = await asyncio.gather(
        *(read_notes(store, noted, runs=LISTED_RUNS, revisions=0) for noted in redacted)
    )
    return {
        "payoff": payoff_of_notes(page),
        "tasks": [{**notes.row(), "runs": counts.get(notes.noted.identity, 0)} for notes in page],
        "older": listed[PAGE_SIZE - 1].identity if len(listed) > PAGE_SIZE else None,
    }


# --- one task ---------------------------------------------------------------------------------------------


async def task(request: PageRequest) -> dict[str, Any]:
    """The notes on a task, two versions to compare if there are two, and its latest runs, newest first.

    The query names the versions `a` and `b`, by default the version in force and its base. `stored_runs` are
    the latest runs that have a page.
    """
    project = request.project
    store = NoteStore(project.store)
    noted = await _noted(request)
    read = await read_notes(store, noted, runs=SHOWN_RUNS, revisions=SHOWN_REVISIONS)
    compared = await _compared(request, store, noted)
    latest = read.uses[: -LATEST_RUNS - 1 : -1]
    noted, notes, compared, latest, uses = await project.redacted(
        (noted, read.revisions, compared, latest, read.uses if request.full else ()), full=request.full
    )
    # A page draws the runs that it does not list, and shows none of their texts.
    runs = uses if request.full else read.uses
    return {
        "task": TaskNotes(noted, notes, runs),
        "compared": compared,
        "latest": latest,
        "stored_runs": await project.stored_runs(use.run_id for use in latest),
    }


async def _noted(request: PageRequest | Form) -> NotedTask:
    identity = request.path["identity"]
    noted = await NoteStore(request.project.store).noted(identity)
    if noted is None:
        raise NotFoundError(f"There are no notes on the task {identity!r}.")
    return noted


async def _compared(request: PageRequest, store: NoteStore, noted: NotedTask) -> tuple[Note, Note] | None:
    if noted.run_count == 0:
        return None
    try:
        name = request.query.get("b") or str(noted.in_force or noted.run_count)
        newer = await find_revision(store, noted, name)
        base = newer.based_on or newer.version - 1
        name = request.query.get("a") or (str(base) if base else "")
        return (await find_revision(store, noted, name), newer) if name else None
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


def _task_document(page: dict[str, Any]) -> dict[str, Any]:
    task: TaskNotes = page["task"]
    change = None if page["compared"] is None else task.diff_document(*page["compared"])
    return {**task.document(), "change": change}


def score_chart(uses: Sequence[NoteUse]) -> ScoreCurve:
    """The latest scores, run by run."""
    return score_curve(points_of(uses), best_so_far=False)


def points_of(uses: Sequence[NoteUse]) -> list[Scored]:
    """The latest scored runs of a task for a chart, with the note's version where it changes.

    A control run is not such a change: it does not say which note was in force.
    """
    points: list[Scored] = []
    before = ""
    for use in [use for use in uses if use.score is not None][-MOST_DOTS:]:
        if use.arm == "control":
            points.append(Scored("", use.score, kind="cross"))
            continue
        name = "none" if use.version is None else f"v{use.version}"
        kind = "hollow" if use.version is None else "filled"
        points.append(Scored("" if name == before else name, use.score, kind=kind))
        before = name
    return points


# --- changes by a person --------------------------------------------------------------------------------


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
        Page(
            "/tasks",
            "notes/templates/tasks.html",
            tasks,
            functions={"payoff_sentence": payoff_sentence, "sparkline": sparkline},
        ),
        Page(
            PATH,
            "notes/templates/task.html",
            task,
            _task_document,
            functions={"score_chart": score_chart, "text_change": text_change},
        ),
    ),
    changes=(
        Change(f"{PATH}/rollback", _roll_back),
        Change(f"{PATH}/pin", _pin),
        Change(f"{PATH}/unpin", _unpin),
        Change(f"{PATH}/off", _switch_off),
        Change(f"{PATH}/on", _switch_on),
    ),
)
