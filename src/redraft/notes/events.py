"""TaskReflectedEvent: a note was made, or taken away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from redraft.notes.note import Rollback
from redraft.notes.reflection import TaskReflection


@dataclass(frozen=True, slots=True)
class TaskReflectedEvent:
    """Tell of a reflection that was stored.

    `is_first_reflection` is the store's word: of two runs at once only one is the first. `version` is the
    revision that was stored. `rollback` says that the note in force was found to hurt, and what took its
    place.
    """

    task_description: str
    reflection: TaskReflection
    is_first_reflection: bool
    task_identity: str = ""
    version: int = 0
    run_id: str = ""
    rollback: Rollback | None = None
    schema_version: int = 1


ReflectedListener: TypeAlias = Callable[[TaskReflectedEvent], Awaitable[None] | None]
