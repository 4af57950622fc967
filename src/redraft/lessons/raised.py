"""Raised: the last runs that raised, by what they raised."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from redraft.lessons.outcome import Outcome

_REMEMBERED = 64


class _Run(NamedTuple):
    run_id: str
    task: str
    error: str


class Raised:
    """Remember in which run an error was raised: who catches it knows the error alone.

    Serves many tasks and threads at once.
    """

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque(maxlen=_REMEMBERED)

    def add(self, outcome: Outcome) -> None:
        """Remember how a run ended that raised."""
        self._runs.append(_Run(outcome.run_id, outcome.task.description, outcome.error))

    def run_of(self, outcome: Outcome) -> str:
        """Return the id of the run that ended so: the one that the outcome names, else the last; or nothing.

        The run may have been told more than the task, such as what was tried before.
        """
        if outcome.run_id or not outcome.error:
            return outcome.run_id
        said, told = outcome.error, outcome.task.description
        last_first = reversed(tuple(self._runs))
        return next((one.run_id for one in last_first if one.error == said and told in one.task), "")
