"""Notebook: notes as an ensemble reads and writes them, whatever keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from redraft.core.task import Task
    from redraft.notes.config import Trial
    from redraft.notes.note import Note, NotedTask, NoteUse, Rollback
    from redraft.notes.reflection import TaskReflection


class Notebook(Protocol):
    """Keep the notes on tasks, safely under many tasks, threads and processes at once.

    A run asks for the `current` note, and with a trial that makes it a control run against the previous one
    for the `revision` that the note is `based_on`. It writes down with `used` what it was given and how it
    did, then with `append` what it taught, then lets `settle` see whether the note in force hurts.
    `notebook_of` makes one of any store. What the store raises comes through.
    """

    @property
    def keeps_revisions(self) -> bool:
        """Whether there are revisions, uses and rollbacks; without them there is no trial."""
        ...

    async def current(self, identity: str, /) -> Note | None:
        """Return the note in force; None where there is none, or notes are off."""
        ...

    async def revision(self, identity: str, version: int, /) -> Note | None:
        """Return one revision, in force or not; None where it is not kept."""
        ...

    async def revisions(self, identity: str, /) -> list[Note]:
        """Return all revisions that are kept, the first one first."""
        ...

    async def append(
        self,
        task: Task,
        reflection: TaskReflection,
        /,
        *,
        run_id: str = "",
        based_on: int | None = None,
        name: str = "",
        trial: Trial | None = None,
    ) -> tuple[Note, bool]:
        """Keep what an accepted run taught as the next revision; return it, and whether it is the first.

        `task` is the definition as it was written, for its description is what the notes are kept under.
        `reflection` counts its runs anew. `based_on` is the version that was in force when the run began, for
        a control run, too. The new revision comes into force unless `trial` holds the present one, notes are
        off, or what it is based on was rolled back meanwhile. Once more for the same `run_id` gives what is
        there.
        """
        ...

    async def used(self, identity: str, use: NoteUse, /) -> None:
        """Write down what a run was given and how well it did, in place of what was said of it before."""
        ...

    async def uses(self, identity: str, /, *, latest: int | None = None) -> list[NoteUse]:
        """Return what the runs of a task were given, the earliest first; `latest` bounds how many."""
        ...

    async def noted(self, identity: str, /) -> NotedTask | None:
        """Tell how the notes on a task stand; None where there are none."""
        ...

    async def rollback(self, identity: str, version: int | None, /) -> NotedTask:
        """Put an older version in force, or none. Raises `ConfigError` for one that there is not."""
        ...

    async def settle(self, identity: str, trial: Trial, /) -> Rollback | None:
        """Roll the note in force back if the trial shows that it hurts; say so to one caller only."""
        ...
