"""TaskNotes: all notes on a task with what the runs scored, to look at."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from redraft.core.effect import effect_of
from redraft.core.errors import ConfigError
from redraft.core.task import Task
from redraft.notes.injection import note_block
from redraft.notes.note import Note, NotedTask, NoteUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.core.effect import Effect
    from redraft.notes.note_store import NoteStore

FEWEST_SCORES = 2
"""How many scores a side an effect takes."""
LATEST = 5
"""How many runs tell how it goes now."""
SHOWN, LONGEST_TITLE = 5, 40
"""How many tasks a message names, and how much of each."""


@dataclass(frozen=True, slots=True)
class TaskNotes:
    """Hold how the notes on a task stand, every revision from the first, and every run from the earliest."""

    noted: NotedTask
    revisions: tuple[Note, ...] = ()
    uses: tuple[NoteUse, ...] = ()

    @property
    def title(self) -> str:
        """What to call the task: its name, else its description, in one line."""
        return self.noted.name or " ".join(self.noted.description.split())

    @property
    def state(self) -> str:
        """How the notes stand: `on`, `off`, or `rolled back` to an older one."""
        if self.noted.off:
            return "off"
        return "rolled back" if self.noted.why_off else "on"

    @property
    def in_force(self) -> Note | None:
        """The note in force."""
        return next((note for note in self.revisions if note.version == self.noted.in_force), None)

    def revision(self, wanted: str) -> Note:
        """Return a revision by its name: `2` or `v2`, `first`, `last`, `now` (in force).

        Raises `ConfigError` for one that there is not.
        """
        if wanted in ("first", "last") and self.revisions:
            return self.revisions[0 if wanted == "first" else -1]
        if wanted == "now":
            if (note := self.in_force) is None:
                raise ConfigError("No note on this task is in force.")
            return note
        number = wanted.removeprefix("v")
        for note in self.revisions:
            if number.isdecimal() and note.version == int(number):
                return note
        raise ConfigError(
            f"There is no version {wanted!r} of the notes on this task; there are versions 1 to "
            f"{len(self.revisions)}, first, last and now."
        )

    def block(self, note: Note) -> str:
        """Render a note as it is put before the task, with no inputs filled in."""
        return note_block(note.reflection, Task(self.noted.description, self.noted.expected_output), {})

    def scores(self, version: int | None, arm: str = "note") -> list[float]:
        """Return what the runs scored that were given a version in an arm (None, "none": before any note)."""
        return [
            use.score
            for use in self.uses
            if use.version == version and use.arm == arm and use.score is not None
        ]

    @property
    def before(self) -> float | None:
        """The mean score of the runs that had no note, other than by a trial."""
        return mean_of(self.scores(None, "none"))

    @property
    def now(self) -> float | None:
        """The mean score of the latest 5 runs with a note that is in force or leads to it."""
        noted = self.noted
        line = [
            use.score
            for use in self.uses
            if use.arm == "note" and use.version is not None and use.score is not None
            if use.version == noted.in_force or use.version >= noted.since
        ]
        return None if noted.in_force is None else mean_of(line[-LATEST:])

    @property
    def trend(self) -> list[float | None]:
        """The mean scores before any note and with each that was used, in their order."""
        used = {use.version for use in self.uses if use.version is not None and use.arm == "note"}
        return [self.before, *(mean_of(self.scores(version)) for version in sorted(used))]

    @property
    def effect(self) -> Effect | None:
        """By how much runs with the present line of notes differ from a trial's; None without any."""
        with_notes = [
            score
            for version in range(self.noted.since, self.noted.run_count + 1)
            for score in self.scores(version)
        ]
        control = [use.score for use in self.uses if use.arm == "control" and use.score is not None]
        return effect_of(with_notes, control) if min(len(with_notes), len(control)) >= FEWEST_SCORES else None


def mean_of(scores: list[float]) -> float | None:
    """Return the mean; None where there is no score."""
    return fmean(scores) if scores else None


async def task_notes(store: NoteStore, noted: NotedTask) -> TaskNotes:
    """Read all that is kept of a task's notes."""
    revisions, uses = await store.revisions(noted.identity), await store.uses(noted.identity)
    return TaskNotes(noted, tuple(revisions), tuple(uses))


def the_one(tasks: Iterable[NotedTask], wanted: str) -> NotedTask:
    """Return the task that is meant: by its name, its identity or how that begins, or a part of its text.

    Raises `ConfigError` where none or several fit, naming those.
    """
    found = list(tasks)
    exact = [task for task in found if wanted and wanted in (task.identity, task.name)]
    part = wanted.casefold()
    fitting = exact or [
        task
        for task in found
        if wanted
        and (
            task.identity.startswith(wanted)
            or part in task.name.casefold()
            or part in task.description.casefold()
        )
    ]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise ConfigError(
            f"There are no notes on a task {wanted!r}; `redraft notes` lists the tasks that have."
        )
    names = "; ".join(f"{task.identity[:8]} {_short(task)}" for task in fitting[:SHOWN])
    more = f" and {len(fitting) - SHOWN} more" if len(fitting) > SHOWN else ""
    raise ConfigError(f"Several tasks fit {wanted!r}: {names}{more}. Give more of the one you mean.")


def _short(task: NotedTask) -> str:
    text = " ".join((task.name or task.description).split())
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 3]}..."
