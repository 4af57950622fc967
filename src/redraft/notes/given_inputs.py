"""The inputs of a run, checked against what the tasks of an ensemble ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.notes.placeholders import fill, placeholders_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.notes.task import Task


def checked_inputs(tasks: Sequence[Task], inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs of a run.

    Raises `ConfigError` for a placeholder without an input, and for an input that no task knows; where a
    handler or an input guardrail sees all inputs, it may know any.
    """
    if inputs is not None and not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
        raise ConfigError(f'inputs must be a dict such as {{"topic": "tea"}}, got {inputs!r}.')
    given = dict(inputs or {})
    known: dict[str, None] = {}
    for task in tasks:
        for text in (task.description, task.expected_output):
            fill(text, given, task.title)
            known |= dict.fromkeys(placeholders_of(text))
    if any(task.handler is not None or task.input_guardrails for task in tasks):
        return given
    for name in given:
        if name not in known:
            raise ConfigError(f"No task has a placeholder for the input {name!r}; {nearest(name, known)}")
    return given
