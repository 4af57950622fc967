"""TaskIdentity: what the notes on a task are kept under."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redraft.core.task import Task


class TaskIdentity:
    """Name a task by what it asks, the same in every process and on every machine."""

    @staticmethod
    def of(task: Task | str) -> str:
        """Return the SHA-256 of a task's description, in lowercase hexadecimal.

        The description is taken as it was written, before any input is filled in: so the notes of all runs of
        a template gather in one place, and a task that is described otherwise begins anew.
        """
        description = task if isinstance(task, str) else task.description
        return sha256(description.encode("utf-8", "surrogatepass")).hexdigest()
