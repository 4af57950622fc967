"""Cycle: what the stages of one cycle read, write and share, its result, and its events."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft._texts import as_text, shortened
from redraft.cycles.egress import Egress
from redraft.cycles.mail import AgentMessage, Feedback
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.records import CycleMetrics, CycleStatus
from redraft.cycles.spec import AgentSpec, AnyAction, Execute, substages_of
from redraft.protocols import ChatModel, Step
from redraft.text.characters import visible
from redraft.text.templates import template
from redraft.types import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from redraft.cycles.bus import AgentBus

DERIVED = ("analysis", "plan", "governance", "execution", "evaluation", "learnings")
"""The keys of `derived_data`; all exist from the start, so a prompt may read what no stage has written."""
MAX_ERROR = 500
"""Characters of an error message that are kept."""


@dataclass(slots=True)
class CycleState:
    """What was sensed, what was derived from it, and the memory as this cycle sees it.

    `environmental_data` has `payload` (all sources merged) and `errors` (`source`, `error`).
    `derived_data` has what stages write, and an empty object for each stage that wrote nothing. `memory` has
    every key that the file names, pending feedback included; it is read-only: `update-state` makes the next
    one. All of it is plain JSON data.
    """

    environmental_data: dict[str, Any] = field(default_factory=lambda: {"payload": {}, "errors": []})
    derived_data: dict[str, Any] = field(default_factory=lambda: {key: {} for key in DERIVED})
    memory: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])

    def scopes(self, **more: Any) -> dict[str, Any]:
        """Return the names that templates and expressions see, and further ones such as `action`."""
        return {
            "environmentalData": self.environmental_data,
            "derivedData": self.derived_data,
            "memory": self.memory,
            **more,
        }


@dataclass(frozen=True, slots=True)
class Runtime:
    """What an agent works with in all its cycles."""

    functions: Mapping[str, Callable[..., Any]]
    """The functions of the program that the agent's file names."""
    model_for: Callable[[str | None], ChatModel]
    """The model of a name in the file; None is the agent's own."""
    bus: "AgentBus"
    egress: Egress
    """Runs actions, and sources that act, under the lease and their limits."""
    folder: Path
    """The folder of the agent's file."""
    clock: Callable[[], datetime]
    """The time of day in UTC."""
    redact: Callable[[Any], Any]
    """Withholds the secrets in plain JSON data."""


@dataclass(slots=True)
class Cycle:
    """One cycle under way."""

    spec: AgentSpec
    id: str
    """A ULID. Whatever has to be unique derives from it."""
    number: int
    """The number of the cycle, for people."""
    started_at: datetime
    state: CycleState
    runtime: Runtime
    step: Step
    """The way to every effect (a source, a model call, an action, a wait), so that a cycle that was
    interrupted repeats nothing that had finished."""
    memory: Memory = Memory()  # noqa: RUF009 (frozen, so sharing it is safe)
    """The memory as it was stored before the cycle."""
    pending: tuple[Feedback, ...] = ()
    """The feedback since the last cycle, which `update-state` commits."""
    taken: list[AgentMessage] = field(default_factory=list[AgentMessage])
    """The messages that the cycle took, which `update-state` commits."""
    rendered: set[str] = field(default_factory=set[str])
    """The ids of the memory items that prompts of Reason showed."""
    usage: TokenUsage = NOTHING_USED
    failures: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    learnings: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """What each `learn` returned, with the memory key that its new patterns go to."""
    next_memory: Memory | None = None
    """The memory after the cycle; None if `update-state` did not run, and then nothing is written."""
    changes: tuple[MemoryChange, ...] = ()
    """The differences between the two memories."""
    waits_until: datetime | None = None
    """The deadline of a wait for a person that an earlier process began."""
    previous_start: datetime | None = None
    """When the previous cycle began, if that is stored."""
    actions: Mapping[str, AnyAction] = field(init=False)
    """The actions that the file declares, by name."""

    def __post_init__(self) -> None:
        executes = substages_of(self.spec, Execute)
        self.actions = {action.name: action for execute in executes for action in execute.config.actions}

    def idempotency_key(self, *place: str | int) -> str:
        """Return the key of an effect; the same when a killed cycle resumes, another one in other cycles."""
        parts = json.dumps([self.spec.name, self.id, *place])
        return sha256(parts.encode()).hexdigest()[:32]

    def item_id(self, position: int) -> str:
        """Return the id of a memory item; it ends the ULID, since prompts have no room for all of it."""
        return f"{self.id[-10:]}-{position}"

    def scopes(self, action: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the names that a condition or a message sees, with those of a planned `action`."""
        agent = {"name": self.spec.name, "description": self.spec.description}
        scopes = self.state.scopes(agent=agent, cycle=self.number)
        return scopes if action is None else {**scopes, "action": action, "params": action["params"]}

    def outward_scopes(self, action: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the names that a request, a path or a call sees: also `env`, which no prompt may show."""
        env = {name: value for name in self.spec.env if (value := os.environ.get(name)) is not None}
        return {**self.scopes(action), "env": env}


@dataclass(frozen=True, slots=True)
class CycleResult:
    """How a cycle went."""

    number: int
    status: CycleStatus
    """`finished`, or `failed` if a substage raised; Reflect ran all the same."""
    state: Mapping[str, Any]
    """Plain JSON data, as templates see it: `environmentalData`, `derivedData`, and `memory` as it is after
    the cycle."""
    metrics: CycleMetrics = CycleMetrics()  # noqa: RUF009 (frozen, so sharing it is safe)
    changes: tuple[MemoryChange, ...] = ()
    """What the cycle changed in the memory."""
    usage: TokenUsage = NOTHING_USED
    """What its model calls used."""
    stages: Mapping[str, float] | None = None
    """The milliseconds of each stage."""
    trigger: str = "manual"
    error: str = ""
    """The first failure."""
    id: str = ""
    """The ULID of the cycle."""

    @property
    def success(self) -> bool:
        """Whether no substage failed."""
        return self.status == "finished"


@dataclass(frozen=True, slots=True)
class CycleStarted:
    """A cycle starts, or resumes where another process left it."""

    agent: str
    number: int
    trigger: str = "manual"
    resumed: bool = False
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class CycleWaiting:
    """A cycle waits for a person to decide on its plan, for at most `within` seconds (None: no limit).

    `url` is its page on the dashboard, if the setting `dashboard_url` says where that is.
    """

    agent: str
    number: int
    within: float | None = None
    url: str = ""
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class SubstageFinished:
    """A substage finished, failed with `error`, or was skipped; Sense counts as one with all its sources."""

    agent: str
    number: int
    stage: str
    substage: str
    milliseconds: float = 0.0
    error: str = ""
    skipped: bool = False
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class CycleFinished:
    """A cycle ended, and what it changed in the memory is written or about to be."""

    agent: str
    number: int
    result: CycleResult
    schema_version: int = 1


CycleEvent: TypeAlias = CycleStarted | CycleWaiting | SubstageFinished | CycleFinished
"""What the `on_event` listener of an agent gets, in this order."""


def render_text(source: str, scopes: Mapping[str, Any]) -> str:
    """Return a rendered template as text, anything else as JSON; raises `TemplateError`."""
    return as_text(template(source).render(scopes))


def error_line(error: BaseException) -> str:
    """Return an error as one line that is fit to be shown: its type and its message."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 (an error that can't describe itself must not raise another)
        message = "(its message can't be read)"
    return shortened(visible(f"{type(error).__name__}: {message}"), MAX_ERROR)
