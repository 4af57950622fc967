"""Graph: which task comes after which, and whose outputs it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError
from redraft.notes.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Graph:
    """Order the tasks of an ensemble.

    `after` names the tasks that must have ended before one begins, `needs` those without whose outputs it
    can't be carried out. Where no task names another, each comes after the one before it in the list and
    needs nothing of it.
    """

    tasks: tuple[Task, ...]
    needs: Mapping[Task, tuple[Task, ...]]
    after: Mapping[Task, tuple[Task, ...]]


def graph_of(tasks: Sequence[Task]) -> Graph:
    """Order tasks by the context that they name.

    Raises `ConfigError` where there is no task, one comes twice, needs one that is not among them, or needs
    itself by any way.
    """
    if not tasks:
        raise ConfigError("An ensemble needs at least one task.")
    for task, times in Counter(tasks).items():
        if times > 1:
            raise ConfigError(f"The task {task.title!r} is in the ensemble {times} times; make a second one.")
    needs = {task: _needed(task) for task in tasks}
    for task, needed in needs.items():
        for other in needed:
            if other not in needs:
                raise ConfigError(
                    f"The task {task.title!r} needs {other.title!r}, which is not among the ensemble's tasks."
                )
    if any(needs.values()):
        _check_ends(needs)
        return Graph(tuple(tasks), needs, needs)
    before = [(), *((task,) for task in tasks)]
    return Graph(tuple(tasks), needs, dict(zip(tasks, before, strict=False)))


def _needed(task: Task) -> tuple[Task, ...]:
    return () if isinstance(task.context, str) else tuple(dict.fromkeys(task.context))


def _check_ends(needs: Mapping[Task, tuple[Task, ...]]) -> None:
    """Refuse tasks that wait for each other: a list given as context may have changed since."""
    left = dict(needs)
    while ready := [task for task, needed in left.items() if not any(each in left for each in needed)]:
        for task in ready:
            del left[task]
    if left:
        waiting = ", ".join(repr(task.title) for task in left)
        raise ConfigError(f"These tasks need each other, so none of them can begin: {waiting}.")
