"""Tasks: those that have notes, which note is in force, and where their scores go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redraft._codec import to_json
from redraft.errors import ConfigError
from redraft.notes.history import FEW, TaskNotes
from redraft.notes.store import NoteStore
from redraft.web.page import Asked, NotFoundError, Page
from redraft.web.sparkline import Sparkline, sparkline

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


async def tasks(asked: Asked) -> TasksView:
    """Read a page of the tasks that have notes, the one that was noted last first."""
    uses = asked.project.note_uses
    await uses.chronicle.read()
    try:
        found = await NoteStore(asked.project.store).page(MOST + 1, before=asked.query.get("before", ""))
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    shown = await asked.project.shown(found[:MOST], whole=asked.whole)
    rows = tuple(
        TaskRow(TaskNotes(noted, uses=uses.latest(noted.identity, FEW)), uses.runs(noted.identity))
        for noted in shown
    )
    older = found[MOST - 1].identity if len(found) > MOST else ""
    return TasksView(rows, older, uses.chronicle.is_whole)


def _document(view: TasksView) -> dict[str, Any]:
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


PAGE = Page("/tasks", "tasks.html", tasks, _document, nav="Tasks")
