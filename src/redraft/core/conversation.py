"""Conversation: how an agent that acts came to an output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from redraft.core.reflection import Reflection


@dataclass(frozen=True, slots=True)
class Conversation:
    """Keep what was said and done on the way to one output, so that a revision can go on from there.

    `messages` are those of the agent's framework, as JSON data, from the first prompt on: a revision's hold
    those of the version it was made from. `reflections` are the looks back on the way to this output alone.
    """

    messages: list[Any] = field(default_factory=list[Any])
    reflections: tuple[Reflection, ...] = ()
