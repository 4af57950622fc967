"""All notes on a task with what the runs scored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft._texts import counted, shortened
from redraft._validation import only
from redraft.errors import ConfigError
from redraft.notes.note import Note, NotedTask, NoteUse, note_block
from redraft.stats import effect_of
from redraft.text.diff import word_diff
from redraft.types import Task, render_score

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.notes.store import NoteStore
    from redraft.stats import Effect

FEWEST_SCORES = 2
"""How many scores a side an effect takes."""
LATEST = 5
"""How many runs tell how it goes now."""
LONGEST_TITLE = 40
"""How many tasks a message names, and how much of each."""
FEW, MANY = 200, 2000
"""How many of a task's latest runs are read to list it among others, and to show it."""
FEW_REVISIONS = 20
"""How many of its latest revisions are shown."""


@dataclass(frozen=True)  # without slots, for what is added up once
class TaskNotes:
    """Hold how the notes on a task stand, with revisions from the oldest and runs from the earliest.

    They are all there are, or as many of the latest as were asked for, with the note in force and the runs
    before any note.
    """

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

    def block(self, note: Note) -> str:
        """Render a note as it is put before the task, with no inputs filled in."""
        return note_block(note.reflection, Task(self.noted.description, self.noted.expected_output), {})

    def scores(self, version: int | None, arm: str = "note") -> list[float]:
        """Return what the runs scored that were given a version in an arm (None, "none": before any note)."""
        return self._scores.get((version, arm), [])

    @cached_property
    def _scores(self) -> dict[tuple[int | None, str], list[float]]:
        found: dict[tuple[int | None, str], list[float]] = {}
        for use in self.uses:
            if use.score is not None:
                found.setdefault((use.version, use.arm), []).append(use.score)
        return found

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
            use.score
            for use in self.uses
            if use.arm == "note" and use.version is not None and use.version >= self.noted.since
            if use.score is not None
        ]
        control = [use.score for use in self.uses if use.arm == "control" and use.score is not None]
        if min(len(with_notes), len(control)) < FEWEST_SCORES:
            return None
        return _effect(tuple(with_notes), tuple(control))


@lru_cache(maxsize=64)  # of 2,000 runs it takes a tenth of a second, and who looks, looks again
def _effect(with_notes: tuple[float, ...], control: tuple[float, ...]) -> Effect:
    return effect_of(with_notes, control)


def mean_of(scores: list[float]) -> float | None:
    """Return the mean; None where there is no score."""
    return fmean(scores) if scores else None


async def task_notes(
    store: NoteStore, noted: NotedTask, *, runs: int | None = None, revisions: int | None = None
) -> TaskNotes:
    """Read the notes on a task: all of it, or its latest `runs` and `revisions` (0: none of these)."""
    identity = noted.identity
    uses = await store.uses(identity, latest=runs)
    if runs is not None and len(uses) == runs:  # there may be more, and those before any note count
        seen = {use.run_id for use in uses}
        bare = await store.uses(identity, latest=runs, arm="none")
        uses = [*(use for use in bare if use.run_id not in seen), *uses]
    notes = [] if revisions == 0 else await store.revisions(identity, latest=revisions)
    if notes and noted.in_force is not None and noted.in_force < notes[0].version:
        current = await store.revision(identity, noted.in_force)
        notes = notes if current is None else [current, *notes]
    return TaskNotes(noted, tuple(notes), tuple(uses))


async def named_revision(store: NoteStore, noted: NotedTask, wanted: str) -> Note:
    """Read a revision by its name; raises `ConfigError` for one that there is not."""
    note = await store.revision(noted.identity, version_named(noted, wanted))
    if note is None:
        raise ConfigError(f"The version {wanted!r} of the notes on this task is not there any more.")
    return note


def version_named(noted: NotedTask, wanted: str) -> int:
    """Return which version is meant: `2` or `v2`, `first`, `last`, `now` (in force).

    Raises `ConfigError` for one that there is not.
    """
    if wanted == "now" and noted.in_force is None:
        raise ConfigError("No note on this task is in force.")
    names = {"first": 1, "last": noted.run_count, "now": noted.in_force}
    number = wanted.removeprefix("v")
    version = names.get(wanted, int(number) if number.isdecimal() else None)
    if version is None or not 1 <= version <= noted.run_count:
        raise ConfigError(
            f"There is no version {wanted!r} of the notes on this task; there are versions 1 to "
            f"{noted.run_count}, first, last and now."
        )
    return version


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
    task = only(fitting, wanted, "tasks", lambda one: f"{one.identity[:8]} {_short(one)}")
    if task is None:
        raise ConfigError(
            f"There are no notes on a task {wanted!r}; `redraft notes` lists the tasks that have."
        )
    return task


def _short(task: NotedTask) -> str:
    return shortened(task.name or task.description, LONGEST_TITLE)


def notes_row(task: TaskNotes) -> dict[str, Any]:
    """Describe how the notes on a task stand."""
    return {
        **to_json(task.noted),
        "state": task.state,
        "score_before": task.before,
        "score_now": task.now,
        "trend": task.trend,
        "effect": task.effect,
    }


def notes_document(task: TaskNotes) -> dict[str, Any]:
    """Describe the notes on a task with the revisions and runs that were read."""
    note = task.in_force
    return {
        **notes_row(task),
        "block": None if note is None else task.block(note),
        "revisions": [
            {**to_json(each), "score": mean_of(task.scores(each.version))} for each in task.revisions
        ],
        "uses": task.uses,
    }


def diff_document(task: TaskNotes, older: Note, newer: Note) -> dict[str, Any]:
    """Describe what differs between two revisions."""
    words = word_diff(task.block(older), task.block(newer))
    return {
        "identity": task.noted.identity,
        "from": {"version": older.version, "score": mean_of(task.scores(older.version))},
        "to": {"version": newer.version, "score": mean_of(task.scores(newer.version))},
        "words": [{"op": op, "text": text} for op, text in words],
    }


def notes_markdown(task: TaskNotes) -> str:
    """Render the notes on a task for people: each revision as it is put before the task, the newest first."""
    noted = task.noted
    force = "none is in force" if noted.in_force is None else f"version {noted.in_force} is in force"
    why = f" ({noted.why_off})" if noted.why_off else ""
    parts = [f"# Notes: {task.title}", f"`{noted.identity}`: {noted.run_count} revisions, {force}{why}."]
    for note in reversed(task.revisions):
        scores = task.scores(note.version)
        runs = (
            f"{counted(len(scores), 'scored run')}, mean {render_score(mean_of(scores)).strip()}"
            if scores
            else "no scored run"
        )
        parts.append(f"## Version {note.version} ({note.reflection.reflected_at:%Y-%m-%d %H:%M}, {runs})")
        parts.append("\n".join(f"> {line}".rstrip() for line in task.block(note).splitlines()))
    return "\n\n".join(parts) + "\n"
