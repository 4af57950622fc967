"""The dashboard's pages of tasks that have notes: the list of them, and each one."""

from __future__ import annotations

import asyncio
from bisect import insort
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from redraft._codec import from_record, to_json
from redraft.errors import ConfigError
from redraft.notes.history import (
    FEW,
    FEW_REVISIONS,
    MANY,
    TaskNotes,
    diff_document,
    mean_of,
    named_revision,
    notes_document,
    version_named,
)
from redraft.notes.note import Note, NotedTask, NoteUse
from redraft.notes.store import NOTE_USE, NoteStore
from redraft.stats import Effect
from redraft.web.charts import Sparkline, sparkline
from redraft.web.feed import Feed
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import TextChange, text_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.stores.base import Record, Store
    from redraft.web.project import Project


@dataclass(slots=True)
class _Latest:
    """Hold a task's latest uses, the earliest first, and apart from them those before any note."""

    runs: int = 0
    uses: list[NoteUse] = field(default_factory=list[NoteUse])
    bare: list[NoteUse] = field(default_factory=list[NoteUse])

    def add(self, use: NoteUse) -> None:
        self.runs += 1
        _keep(self.uses, use, MANY)
        if use.arm == "none":
            _keep(self.bare, use, FEW)


class NoteUses:
    """Remember of each task its latest runs; those of a task with 100,000 take long to sort in a store."""

    def __init__(self, store: Store) -> None:
        self._tasks: dict[str, _Latest] = {}
        self.feed = Feed(store, NOTE_USE, self._note)

    @classmethod
    def of(cls, project: Project) -> NoteUses:
        """Return those of a project."""
        return cls(project.store)

    def runs(self, identity: str) -> int:
        """Return how many runs of a task are known of."""
        return self._of(identity).runs

    def latest(self, identity: str, most: int = MANY) -> tuple[NoteUse, ...]:
        """Return a task's latest uses, the earliest first, behind those before any note."""
        found = self._of(identity)
        uses = found.uses[-most:]
        earlier = (use for use in found.bare if uses and use.at < uses[0].at)
        return (*earlier, *uses)

    def _of(self, identity: str) -> _Latest:
        return self._tasks.get(identity) or _Latest()

    def _note(self, record: Record) -> None:
        identity = unquote(record.key.partition("/")[0], errors="surrogatepass")
        self._tasks.setdefault(identity, _Latest()).add(from_record(NoteUse, record.data))


def _keep(uses: list[NoteUse], use: NoteUse, most: int) -> None:
    """Put a use in its place, unless there are enough later ones."""
    if len(uses) < most or use.at > uses[0].at:
        insort(uses, use, key=attrgetter("at"))
        del uses[:-most]


@dataclass(frozen=True, slots=True)
class NoteChange:
    """Hold two versions of a note, and what differs: `hunks` of lines, or both texts `whole`."""

    older: Note
    newer: Note
    text: TextChange


def note_change(task: TaskNotes, older: Note, newer: Note) -> NoteChange:
    """Compare two versions of a note."""
    return NoteChange(older, newer, text_change(task.block(older), task.block(newer)))


WIDTH, HEIGHT = 960.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 16.0, 30.0, 34.0
MOST_DRAWN = 120
"""Runs that are drawn: the latest."""
APART = 56.0
"""How far apart two marks with words must be, so that their words do not run into one another."""


@dataclass(frozen=True, slots=True)
class RunPoint:
    """Place one run; `arm` says what it was given, and `words` all that is known of it."""

    x: float
    y: float
    arm: str
    words: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """Hold the runs that had one note, from `start` to `end`, with the height of their mean.

    `label` names the note where there is room.
    """

    start: float
    end: float
    mean: float
    label: str


@dataclass(frozen=True, slots=True)
class NoteChart:
    """Hold the runs that were scored, the earliest first, and the stretches between changes of the note."""

    points: tuple[RunPoint, ...]
    stretches: tuple[Stretch, ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: int
    has_control: bool
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


def note_chart(uses: Sequence[NoteUse]) -> NoteChart:
    """Lay out the runs of a task that were scored, at most the latest 120.

    What a trial took the note from, or gave another, changes nothing of which note is in force.
    """
    scored = [(use, use.score) for use in uses if use.score is not None]
    drawn = scored[-MOST_DRAWN:]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(drawn))
    places = [(LEFT + (at + 0.5) * step, use, score) for at, (use, score) in enumerate(drawn)]
    points = tuple(RunPoint(x, _height(score), use.arm, _words(use)) for x, use, score in places)
    stretches: list[Stretch] = []
    labelled = float("-inf")
    in_force = [one for one in places if one[1].arm != "control"]
    for version, group in groupby(in_force, key=lambda one: one[1].version):
        runs = list(group)
        start, label = runs[0][0] - step / 2, ""
        if start - labelled >= APART:
            label, labelled = "no note" if version is None else f"v{version}", start
        mean = _height(fmean(score for _, _, score in runs))
        stretches.append(Stretch(start, runs[-1][0] + step / 2, mean, label))
    return NoteChart(
        points,
        tuple(stretches),
        tuple((_height(score), f"{score:g}") for score in (0, 0.25, 0.5, 0.75, 1)),
        len(scored) - len(drawn),
        any(use.arm == "control" for use, _ in drawn),
    )


def _height(score: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(1.0, max(0.0, score)))


def _words(use: NoteUse) -> str:
    given = "no note" if use.version is None else f"version {use.version}"
    control = ", by a trial" if use.arm == "control" else ""
    return f"{given}{control}: {use.score:.2f}"


MOST = 50


@dataclass(frozen=True, slots=True)
class TaskRow:
    """Hold a task as the table has it: how its notes stand, and how its latest runs did."""

    task: TaskNotes
    runs: int

    @property
    def curve(self) -> Sparkline:
        """The mean scores before any note and with each, in their order."""
        return sparkline(self.task.trend)


@dataclass(frozen=True, slots=True)
class TasksView:
    """Hold a page of tasks; `older` is the last one where there is another page."""

    rows: tuple[TaskRow, ...]
    older: str = ""
    is_whole: bool = True
    """Whether all runs of all tasks were looked through."""


async def tasks(request: PageRequest) -> TasksView:
    """Read a page of the tasks that have notes, the one that was noted last first."""
    uses = request.project.shared(NoteUses.of)
    await uses.feed.read()
    try:
        found = await NoteStore(request.project.store).page(MOST + 1, before=request.query.get("before", ""))
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    shown = await request.project.redacted(found[:MOST], full=request.full)
    rows = tuple(
        TaskRow(TaskNotes(noted, uses=uses.latest(noted.identity, FEW)), uses.runs(noted.identity))
        for noted in shown
    )
    older = found[MOST - 1].identity if len(found) > MOST else ""
    return TasksView(rows, older, uses.feed.is_complete)


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
    return {"tasks": rows, "older": view.older or None, "is_whole": view.is_whole}


LATEST = 20
"""Runs that are listed one by one."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """Hold the notes on a task, two versions to compare where there are two, and its latest runs.

    `kept` are those of these runs that have a page; `is_whole` says whether all runs were looked through.
    """

    task: TaskNotes
    older: Note | None
    newer: Note | None
    latest: tuple[NoteUse, ...]
    kept: frozenset[str]
    is_whole: bool


async def task(request: PageRequest) -> TaskView:
    """Read the notes on a task; version `a` is compared with `b` (default: what is in force, and before)."""
    store, uses = NoteStore(request.project.store), request.project.shared(NoteUses.of)
    noted = await _noted(store, request.path["identity"])
    await uses.feed.read()
    notes = await store.revisions(noted.identity, latest=FEW_REVISIONS)
    if noted.in_force is not None and notes and noted.in_force < notes[0].version:
        current = await store.revision(noted.identity, noted.in_force)
        notes = notes if current is None else [current, *notes]
    older, newer = await _compared(request, store, noted)
    used = uses.latest(noted.identity)
    latest = used[: -LATEST - 1 : -1]
    kept = await request.project.stored_runs(use.run_id for use in latest)
    noted, notes, older, newer, latest, used = await request.project.redacted(
        (noted, notes, older, newer, latest, used if request.full else ()), full=request.full
    )
    # A chart of them shows no text of theirs.
    runs = used or uses.latest(noted.identity)
    return TaskView(TaskNotes(noted, tuple(notes), runs), older, newer, latest, kept, uses.feed.is_complete)


async def _noted(store: NoteStore, identity: str) -> NotedTask:
    noted = await store.noted(identity)
    if noted is None:
        raise NotFoundError(f"There are no notes on the task {identity!r}.")
    return noted


async def _compared(
    request: PageRequest, store: NoteStore, noted: NotedTask
) -> tuple[Note | None, Note | None]:
    if noted.run_count == 0:
        return None, None
    try:
        newer = await named_revision(
            store, noted, request.query.get("b") or str(noted.in_force or noted.run_count)
        )
        before = newer.based_on or newer.version - 1
        wanted = request.query.get("a") or (str(before) if before else "")
        return (await named_revision(store, noted, wanted) if wanted else None), newer
    except ConfigError as error:
        raise NotFoundError(str(error)) from error


def _task_document(view: TaskView) -> dict[str, Any]:
    change = None
    if view.older is not None and view.newer is not None:
        change = diff_document(view.task, view.older, view.newer)
    return {**notes_document(view.task), "change": change, "is_whole": view.is_whole}


async def _roll_back(wanted: Form) -> str:
    store = NoteStore(wanted.project.store)
    noted = await _noted(store, wanted.path["identity"])
    version = version_named(noted, wanted.text("version"))
    await store.rollback(noted.identity, version)
    return f"Version {version} is in force, until a run with it has taught the next."


async def _switch_off(wanted: Form) -> str:
    store = NoteStore(wanted.project.store)
    noted = await _noted(store, wanted.path["identity"])
    await store.switch(noted.identity, off=True, why=wanted.text("why", "").strip())
    return "The notes on this task are off. What its runs teach is kept all the same."


async def _switch_on(wanted: Form) -> str:
    store = NoteStore(wanted.project.store)
    noted = await _noted(store, wanted.path["identity"])
    noted = await store.switch(noted.identity, off=False)
    return f"The notes on this task are on; version {noted.in_force} is in force."


@dataclass(frozen=True, slots=True)
class NoteRow:
    """Hold a version of the note as the table has it: how many runs had it, and what they scored."""

    note: Note
    runs: int
    score: float | None


@dataclass(frozen=True, slots=True)
class NotesView:
    """Hold what the page of a task shows; the latest of `rows` and `runs` come first."""

    task: TaskNotes
    rows: tuple[NoteRow, ...]
    earlier: int
    runs: tuple[tuple[NoteUse, bool], ...]
    chart: NoteChart
    effect: Effect | None
    control: tuple[float, ...]
    block: str
    change: NoteChange | None
    is_whole: bool


def notes_view(view: TaskView) -> NotesView:
    """Work out what the page shows."""
    task, note = view.task, view.task.in_force
    rows = tuple(
        NoteRow(one, sum(use.version == one.version for use in task.uses), mean_of(task.scores(one.version)))
        for one in reversed(task.revisions)
    )
    change = None
    if view.older is not None and view.newer is not None:
        change = note_change(task, view.older, view.newer)
    return NotesView(
        task,
        rows,
        task.noted.run_count - len(task.revisions),
        tuple((use, use.run_id in view.kept) for use in view.latest),
        note_chart(task.uses),
        task.effect,
        tuple(use.score for use in task.uses if use.arm == "control" and use.score is not None),
        "" if note is None else task.block(note),
        change,
        view.is_whole,
    )


async def _warm_up(project: Project) -> None:
    uses = project.shared(NoteUses.of)
    while not uses.feed.is_complete:
        await uses.feed.read()
        await asyncio.sleep(0.1)


PATH = "/tasks/{identity:path}"
SLICE = Slice(
    (
        Page("/tasks", "notes/templates/tasks.html", tasks, _tasks_document),
        Page(PATH, "notes/templates/task.html", task, _task_document, present=notes_view),
    ),
    (
        Change(f"{PATH}/rollback", _roll_back),
        Change(f"{PATH}/off", _switch_off),
        Change(f"{PATH}/on", _switch_on),
    ),
    warm_up=_warm_up,
)
