"""Cycle: what the substages of one cycle work with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from redraft.core.protocols import ChatModel, Step
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.cycles.feedback import Feedback
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.message import AgentMessage
from redraft.cycles.spec import AgentSpec
from redraft.cycles.state import CycleState


class Bus(Protocol):
    """Carry what people and programs send to one agent, and what it sends; kept until it is taken."""

    async def messages(self, topic: str | None, most: int, /) -> list[AgentMessage]:
        """Return the newest messages that no cycle has taken yet, oldest first."""
        ...

    async def publish(self, topic: str, data: Any, key: str, /) -> bool:
        """Publish something, once for each `key`; say if it is sent, and not to be sent later."""
        ...

    async def verdict(
        self, cycle: int, within: float | None, known: Collection[str] = (), /
    ) -> Feedback | None:
        """Wait for what a person says about the plan of a cycle; None when `within` seconds are over.

        `known` are the ids of what was said before: a person may decide on one action after the other.
        """
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """Hold what an agent works with in all its cycles.

    `functions` are those of the program that its file names. `folder` is where its file is. `clock` tells the
    time of day in UTC. `redacted` is plain JSON data with secrets withheld.
    """

    functions: Mapping[str, Callable[..., Any]]
    model_for: Callable[[str | None], ChatModel]
    bus: Bus
    folder: Path
    clock: Callable[[], datetime]
    redacted: Callable[[Any], Any]


@dataclass(slots=True)
class Cycle:
    """Hold one cycle under way.

    Every effect (a source, a model call, an action, a wait) goes through `step`, so that a cycle which was
    interrupted repeats none that was finished. `pending` is the feedback that came since the last one, and
    `taken` the messages that this one took: `update-state` commits them. `rendered` are the ids of the memory
    items that prompts of Reason showed. `failures` and `skipped` are what `CycleMetrics` says of them.

    `life` tells an agent from another one of its name that counts its cycles from 1, too: it is as old as its
    store.

    `memory` is what was stored before the cycle. `learnt` is what each `learn` gave, and the memory key that
    its new patterns go to. `update-state` makes `next_memory` of it all (None: it did not run, and nothing is
    written) and says in `changes` what differs.

    `waits_until` is until when the cycle that goes on here has waited for a person: the wait does not begin
    anew.
    """

    spec: AgentSpec
    number: int
    started_at: datetime
    state: CycleState
    means: Means
    step: Step
    pending: tuple[Feedback, ...] = ()
    taken: list[AgentMessage] = field(default_factory=list[AgentMessage])
    rendered: set[str] = field(default_factory=set[str])
    usage: TokenUsage = NOTHING_USED
    failures: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    memory: Memory = Memory()  # noqa: RUF009 (frozen, so sharing it is safe)
    learnt: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    next_memory: Memory | None = None
    life: str = ""
    changes: tuple[MemoryChange, ...] = ()
    waits_until: datetime | None = None
