"""ReflectionStore: where notes are kept between runs; two methods are enough for one of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from redraft.notes.reflection import TaskReflection


class ReflectionStore(Protocol):
    """Keep the latest reflection on each task, by `TaskIdentity`. Both methods may be async or not.

    The ones that come with Redraft keep every revision, too. With one of your own, the runs of one process
    take turns; what other processes write at the same moment is for the store to guard.
    """

    def store(self, task_identity: str, reflection: TaskReflection, /) -> Awaitable[None] | None:
        """Keep a reflection in place of the one before."""
        ...

    def retrieve(self, task_identity: str, /) -> Awaitable[TaskReflection | None] | TaskReflection | None:
        """Return the latest reflection on a task, None where there is none."""
        ...
