"""Made: what an action or a piece of code gave, and what it used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from redraft.core.usage import NOTHING_USED, TokenUsage


@dataclass(frozen=True, slots=True)
class Made:
    """Hold a value; `is_reply` says that a model said it."""

    value: Any
    usage: TokenUsage = NOTHING_USED
    is_reply: bool = False


class FailedAttempt(BaseModel):
    """Stand in for the output of an attempt whose generator or corrector raised."""

    message: str
