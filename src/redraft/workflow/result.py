"""WorkflowResult: what a workflow came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redraft.core.usage import NOTHING_USED, TokenUsage


@dataclass(slots=True)
class WorkflowResult:
    """Hold the state at the end, which nodes ran in which order, and what it cost.

    `usage` is what models used in all nodes; a node whose function does not say makes its cost unknown.
    `execution_time` is in seconds of work, over all processes that worked on it.
    """

    state: dict[str, Any]
    run_id: str = ""
    nodes: tuple[str, ...] = ()
    usage: TokenUsage = NOTHING_USED
    execution_time: float = 0.0
