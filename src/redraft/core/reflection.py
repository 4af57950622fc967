"""Reflection: a look back in the middle of a run, and what it said."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.core.usage import NOTHING_USED, TokenUsage


@dataclass(frozen=True, slots=True)
class Reflection:
    """Keep one look back in the middle of a run: what set it off, when, and what was said.

    `iteration` is the 1-based version that was being made, `step` how many steps the model had taken in the
    conversation (0: between two versions). `text` went into the conversation; it is empty where the
    reflecting model failed, and `problem` says how. Specification 2.3.
    """

    trigger: str
    text: str
    iteration: int
    step: int = 0
    usage: TokenUsage = NOTHING_USED
    problem: str = ""
