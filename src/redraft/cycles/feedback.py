"""Feedback: what a person says about what an agent did or is about to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Verdict: TypeAlias = Literal["approve", "reject", "modify"]


@dataclass(frozen=True, slots=True)
class Feedback:
    """Hold one verdict.

    `cycle` is what it is about (None: in general); with `action` about this one of its actions alone, by its
    name or id. `changes` are the parameters that a `modify` puts in place of the planned ones.
    """

    id: str
    verdict: Verdict
    message: str
    timestamp: str
    cycle: int | None = None
    action: str | None = None
    changes: Mapping[str, Any] | None = None
    by: str = ""
