"""Calling: a function of a task, with what it asks for by name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft.core.calls import awaited
from redraft.core.errors import ConfigError
from redraft.core.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TOLD = ("feedback", "lessons")
_NUMBER = "attempt"


@dataclass(frozen=True, slots=True)
class Calling:
    """Call a function with a task, and with what it asks for by name."""

    call: Callable[..., Awaitable[Any]]
    task: str | Task
    names: tuple[str, ...]

    @classmethod
    def of(cls, fn: Callable[..., Any], task: Any) -> Calling:
        """Look at what a function takes; raises `ConfigError` for one that can't be called so."""
        if not isinstance(task, str | Task):
            raise ConfigError(f"The task must be a text or a Task, got {task!r}.")
        if not callable(fn):
            raise ConfigError(f"fn must be a function of a task, got {fn!r}.")
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):  # a builtin without a signature takes what it is given
            return cls(awaited(fn), task, ())
        if not parameters:
            raise ConfigError(f"fn is called with a task; {fn!r} takes nothing.")
        return cls(awaited(fn), task, tuple(_names(fn, parameters[1:])))

    async def __call__(self, said: str, number: int) -> Any:
        """Call for an attempt by its number (from 1), with what is `said` of those before it."""
        values: dict[str, Any] = {name: number if name == _NUMBER else said for name in self.names}
        takes_it = any(name in _TOLD for name in self.names)
        task = self.task if takes_it or not said else _with(self.task, said)
        return await self.call(task, **values)


def _with(task: str | Task, said: str) -> str | Task:
    """Return a task behind what is said of earlier attempts at it."""
    if isinstance(task, str):
        return f"{said}\n\n{task}"
    asked = task.asked()
    return replace(asked, context=f"{asked.context}\n\n{said}".strip())


def _names(fn: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Iterator[str]:
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if one.name in (*_TOLD, _NUMBER) and one.kind is not one.POSITIONAL_ONLY:
            yield one.name
        elif one.default is one.empty:
            raise ConfigError(
                f"Nothing fills the parameter {one.name!r} of {fn!r}: behind the task, 'feedback', 'lessons' "
                "and 'attempt' are filled, by name."
            )
