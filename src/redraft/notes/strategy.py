"""ReflectionStrategy: what turns an accepted output into a better brief."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.task import Task
from redraft.notes.reflection import TaskReflection

if TYPE_CHECKING:
    from collections.abc import Awaitable

MAX_TOKENS = 600


@dataclass(frozen=True, slots=True)
class ReflectionInput:
    """Show a strategy what there is to reflect on.

    `task` is the definition as it was written, without the inputs of the run; `task_output` the accepted
    output as a text. `prior_reflection` is the note that is in force, None before the first. `evaluation` is
    what the criteria of the task said of the output, where it has any. `max_tokens` bounds the note.
    """

    task: Task
    task_output: str
    prior_reflection: TaskReflection | None = None
    evaluation: ReflectionEvaluation | None = None
    max_tokens: int = MAX_TOKENS


class ReflectionStrategy(Protocol):
    """Say how a task's instructions could be better. A function is one, sync or async.

    Whatever it raises leaves the note as it was. The store counts the runs, whatever `run_count` says.
    """

    def __call__(self, given: ReflectionInput, /) -> TaskReflection | Awaitable[TaskReflection]:
        """Return the improved brief; what can't be improved stays as the task has it."""
        ...
