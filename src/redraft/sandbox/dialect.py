"""Dialect: how the workers of one language are started, and spoken to."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from redraft.protocols import Script

_Outcome = TypeVar("_Outcome")

Conversation: TypeAlias = Generator[bytes, bytes, _Outcome]
"""Yield what is to be said to a worker, be sent each message that it says, and return what came of it."""

Answer: TypeAlias = dict[str, Any]
"""What a worker tells of a script, as in `redraft.sandbox.inside.answer`."""


class SpoiledError(Exception):
    """Say that a worker is of no more use, and the answer that its script gets."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer["message"])
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Dialect:
    """Describe the talk with a worker.

    `entry` is the module of `redraft.sandbox.inside` that a worker starts with. `greet` returns why it does
    not work, or None. `converse` raises `ConfigError` before a word is said, and `SpoiledError` later on.
    `farewell` is said after a script has its answer, before the next one, and nobody waits for what it
    brings. `grace` are the seconds beyond a script's limit in which a worker may still say itself what
    happened.
    """

    entry: str
    greet: Callable[[], Conversation[str | None]]
    converse: Callable[[Script], Conversation[Answer]]
    farewell: bytes = b""
    grace: float = 0.3
