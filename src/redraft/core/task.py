"""Task and Advice: what is asked, and what earlier runs have to say about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """Say what is asked.

    `task_type` picks default criteria (`code_generation`, `writing`, `analysis`, `reasoning`) and groups
    lessons; `tools` names what the agent may use; `context` is background that belongs to this run alone.
    """

    description: str
    expected_output: str = ""
    task_type: str = ""
    tools: tuple[str, ...] = ()
    context: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """Carry one piece of advice into a run: its text, where it comes from, why it was chosen, its tokens."""

    text: str
    source: str
    reason: str = ""
    tokens: int = 0
