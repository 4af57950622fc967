"""Outcome: how a task ended, to be reflected on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from redraft.core.check import check_choice
from redraft.core.errors import ConfigError
from redraft.core.task import Task

Ended = Literal["failed", "partial", "success", "decision"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tell how a task ended.

    `status`: `failed` and `partial` must be reflected on, `success` may be. `decision` is a choice worth
    keeping, whatever came of it. `output` is what was made, `error` what went wrong in the words of the
    program, `transcript` what was done, step by step. `trusted` says that nothing in it comes from outside
    (web pages, tool results, users): a lesson drawn from anything else waits in quarantine. `run_id` names
    the run. Raises `ConfigError` for a task or a status that is none. Reflexion Protocol, section 2.
    """

    task: Task
    status: Ended
    output: str = ""
    error: str = ""
    transcript: str = ""
    tools: tuple[str, ...] = ()
    run_id: str = ""
    trusted: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] (whatever is given)
            raise ConfigError(f"The task of an Outcome must be a Task, got {self.task!r}.")
        check_choice("status", self.status, get_args(Ended))
