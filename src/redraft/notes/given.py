"""GivenNote: what a run of a task is given of its notes, chosen once and said in its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft.core.task import Advice
from redraft.notes.identity import TaskIdentity
from redraft.notes.injection import note_block, tokens_of
from redraft.notes.note import Arm
from redraft.notes.trial import arm_of
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.notes.config import ReflectionConfig
    from redraft.notes.notebook import Notebook
    from redraft.notes.task import Task


@dataclass(frozen=True, slots=True)
class GivenNote:
    """Hold what a run is given: the note as it stands in the prompt, or why there is none.

    `in_force` is the version that the task's notes stand at, `version` the one that was given, which a trial
    may make another or none. `unread` says that the notes could not be read, which was warned of.
    """

    arm: Arm = "none"
    version: int | None = None
    in_force: int | None = None
    text: str = ""
    tokens: int = 0
    why: str = ""
    unread: bool = False

    def advice(self) -> tuple[Advice, ...]:
        """Return the note as advice on this very task, for drafts and revisions alike, if there is one."""
        if not self.text:
            return ()
        source = "note" if self.version is None else f"note v{self.version}"
        return (Advice(self.text, source, self.why, self.tokens, is_note=True),)


NO_NOTE = GivenNote()


async def given_note(
    task: Task, config: ReflectionConfig, notebook: Notebook, inputs: Mapping[str, Any], run_id: str
) -> GivenNote:
    """Choose what a run is given: the note in force, or what a trial puts in its place.

    Where the notes can't be read, the run goes without, with one warning.
    """
    identity = TaskIdentity.of(task)
    try:
        current = await notebook.current(identity)
        note, arm, why = current, "note", "the note in force on this task"
        if current is None:
            return NO_NOTE
        if config.trial is not None and arm_of(config.trial, run_id, identity) == "control":
            arm, why = "control", "a control run of the trial: the note before the one in force"
            against = current.based_on if config.trial.against == "previous" else None
            note = None if against is None else await notebook.revision(identity, against)
    except Exception as error:  # noqa: BLE001 (whatever a store raises: a run without a note is better than none)
        logger.warning("The task %r runs without its note, which can't be read: %s", task.title, error)
        return GivenNote(unread=True)
    if note is None:
        return GivenNote("control", in_force=current.version, why="a control run of the trial: no note")
    text = note_block(note.reflection, task.asked(), inputs)
    version = note.version if notebook.keeps_revisions else None
    return GivenNote(arm, version, current.version, text, tokens_of(text), why)
