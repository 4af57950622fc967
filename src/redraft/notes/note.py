"""Note: one revision of what is put before a task, where it came from, and how the runs with it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from redraft.notes.reflection import TaskReflection

Arm = Literal["note", "control", "none"]


@dataclass(frozen=True, slots=True)
class Note:
    """Hold one revision of a task's note.

    `version` counts the revisions from 1. `run_id` is the run that it came from, `based_on` the version that
    was in force then (None: there was none). `tokens` is what it costs in a prompt.
    """

    version: int
    reflection: TaskReflection
    run_id: str = ""
    based_on: int | None = None
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class NoteUse:
    """Say what a run of a task was given and how well it did.

    `version` is the note that was put before it, None where it went without. `arm` is `note`, `control` (a
    trial took it, or gave the previous one) or `none` (there was no note, or it was off). `score` is the
    first version's (0..1), None where nothing judged it.
    """

    run_id: str
    version: int | None
    arm: Arm = "none"
    score: float | None = None
    at: datetime = field(default_factory=partial(datetime.now, UTC))


@dataclass(frozen=True, slots=True)
class Rollback:
    """Say why a note was taken out of force by itself: runs with it did worse than runs without.

    `version` was in force, `to` is what took its place (None: no note). `effect` is the mean difference of
    the scores, `low` and `high` its 95 % interval, over `with_runs` and `without_runs`.
    """

    version: int
    to: int | None
    effect: float
    low: float
    high: float
    with_runs: int
    without_runs: int


@dataclass(frozen=True, slots=True)
class NotedTask:
    """Tell how the notes on a task stand: the definition, how many revisions, and which is in force.

    `in_force` is None where no note is given: there is none yet, it is switched `off`, or it was rolled back
    to nothing. `since` is the version with which the present line of notes began: what was rolled back does
    not count for or against what came after. `why_off` says who or what took the note away.
    """

    identity: str
    description: str
    expected_output: str = ""
    name: str = ""
    run_count: int = 0
    in_force: int | None = None
    off: bool = False
    why_off: str = ""
    since: int = 1
