"""BenchTask: one thing to ask of a model, what the loop may see of its check, and what it may not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from redraft import QualityCriterion

Hidden = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class BenchTask:
    """One task. `criteria` judge inside the arms; `hidden` only scores them when they are done.

    Where `hidden` is None the criteria say all there is to say.
    """

    name: str
    prompt: str
    criteria: tuple[QualityCriterion, ...]
    hidden: Hidden | None = None
