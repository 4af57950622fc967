"""Outcome: how a task ended, to be reflected on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redraft.core.task import Task


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tell how a task ended.

    `status`: `failed` and `partial` must be reflected on, `success` may be. `decision` is a choice worth
    keeping, whatever came of it. `output` is what was made, `error` what went wrong in the words of the
    program, `transcript` what was done, step by step. `trusted` says that nothing in it comes from outside
    (web pages, tool results, users): a lesson drawn from anything else waits in quarantine. `run_id` names
    the run. Reflexion Protocol, section 2.
    """

    task: Task
    status: Literal["failed", "partial", "success", "decision"]
    output: str = ""
    error: str = ""
    transcript: str = ""
    tools: tuple[str, ...] = ()
    run_id: str = ""
    trusted: bool = False
