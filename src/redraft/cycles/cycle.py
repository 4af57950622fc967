"""Cycle: the state that the stages of a cycle share, its result, and its events."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft._texts import as_text, counted, shortened
from redraft._validation import named_error
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
    from redraft.cycles.outbox import Outbox

DERIVED = ("analysis", "plan", "governance", "execution", "evaluation", "learnings")
"""The keys of `derived_data`. All exist from the start, so a prompt may read one before a stage writes it."""
MAX_ERROR = 500
"""Maximum characters of an error message; longer ones are shortened."""


@dataclass(slots=True)
class CycleState:
    """The data of a cycle, as templates and functions see it: plain JSON data."""

    environmental_data: dict[str, Any] = field(default_factory=lambda: {"payload": {}, "errors": []})
    """`payload`, with all sources merged, and `errors`, each with `source` and `error`."""
    derived_data: dict[str, Any] = field(default_factory=lambda: {key: {} for key in DERIVED})
    """The results of the stages; an empty object for a stage that wrote nothing."""
    memory: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    """Every memory key that the file names, with the pending feedback. Read-only: `update-state` builds the
    next memory."""

    def scopes(self, **more: Any) -> dict[str, Any]:
        """The names that templates and expressions see, and `more` names such as `action`."""
        return {
            "environmentalData": self.environmental_data,
            "derivedData": self.derived_data,
            "memory": self.memory,
            **more,
        }


@dataclass(frozen=True, slots=True)
class Runtime:
    """The dependencies that all cycles of an agent share."""

    functions: Mapping[str, Callable[..., Any]]
    """The program's functions, by the names that the agent's file uses."""
    model_for: Callable[[str | None], ChatModel]
    """Returns the model of a name in the file; None means the agent's own model."""
    bus: "AgentBus"
    outbox: "Outbox"
    egress: Egress
    """Runs actions, and sources with side effects, under the lease and their limits."""
    folder: Path
    """The folder of the agent's file."""
    clock: Callable[[], datetime]
    """Returns the current time in UTC."""
    redact: Callable[[Any], Any]
    """Removes secrets and personal data from plain JSON data."""


@dataclass(slots=True)
class Cycle:
    """One cycle under way."""

    spec: AgentSpec
    id: str
    """A ULID, from which all unique keys of the cycle derive."""
    number: int
    """The number of the cycle, for people."""
    started_at: datetime
    state: CycleState
    runtime: Runtime
    step: Step
    """Runs every effect (a source, a model call, an action, a wait), so that an interrupted cycle repeats no
    effect that had finished."""
    memory: Memory = Memory()  # noqa: RUF009 (frozen, so sharing it is safe)
    """The memory as it was stored before the cycle."""
    pending: tuple[Feedback, ...] = ()
    """The feedback since the last cycle; `update-state` commits it."""
    taken: list[AgentMessage] = field(default_factory=list[AgentMessage])
    """The messages that the sources of this cycle have taken."""
    rendered: set[str] = field(default_factory=set[str])
    """The ids of the memory items that prompts of Reason showed."""
    usage: TokenUsage = NOTHING_USED
    failures: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    learnings: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """The answer of each `learn`, after the memory key for its new patterns."""
    next_memory: Memory | None = None
    """The memory after the cycle; None if `update-state` did not run, which leaves the memory unchanged."""
    changes: tuple[MemoryChange, ...] = ()
    """The differences between the two memories."""
    waits_until: datetime | None = None
    """The deadline of a wait for a person that an earlier process began."""
    previous_start: datetime | None = None
    """When the previous cycle began; None if that is not stored."""
    actions: Mapping[str, AnyAction] = field(init=False)
    """The actions that the file declares, by name."""

    def __post_init__(self) -> None:
        executes = substages_of(self.spec, Execute)
        self.actions = {action.name: action for execute in executes for action in execute.config.actions}

    def idempotency_key(self, *place: str | int) -> str:
        """The key of an effect: the same when a killed cycle resumes, different in every other cycle."""
        parts = json.dumps([self.spec.name, self.id, *place])
        return sha256(parts.encode()).hexdigest()[:32]

    def item_id(self, position: int) -> str:
        """The id of a memory item; it has only the end of the ULID, to save tokens in prompts."""
        return f"{self.id[-10:]}-{position}"

    def scopes(self, action: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The names that a condition or a message sees, including a planned `action` and its `params`."""
        agent = {"name": self.spec.name, "description": self.spec.description}
        scopes = self.state.scopes(agent=agent, cycle=self.number)
        return scopes if action is None else {**scopes, "action": action, "params": action["params"]}

    def outward_scopes(self, action: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The names that a request, a path or a call sees: also `env`, which prompts must not show."""
        env = {name: value for name in self.spec.env if (value := os.environ.get(name)) is not None}
        return {**self.scopes(action), "env": env}


@dataclass(frozen=True, slots=True)
class CycleResult:
    """The result of a cycle."""

    number: int
    status: CycleStatus
    """`finished`, or `failed` if a substage raised; Reflect runs in both cases."""
    state: Mapping[str, Any]
    """Plain JSON data, as templates see it: `environmentalData`, `derivedData`, and `memory` after the
    cycle."""
    metrics: CycleMetrics = CycleMetrics()  # noqa: RUF009 (frozen, so sharing it is safe)
    changes: tuple[MemoryChange, ...] = ()
    """The changes of the memory."""
    usage: TokenUsage = NOTHING_USED
    """The usage of its model calls."""
    stages: Mapping[str, float] | None = None
    """The milliseconds of each stage."""
    trigger: str = "manual"
    error: str = ""
    """The first failure."""
    id: str = ""
    """The ULID of the cycle."""

    def __repr__(self) -> str:
        failures = f", {counted(len(self.metrics.failures), 'failure')}" if self.metrics.failures else ""
        changes = counted(len(self.changes), "change")
        return f"<{type(self).__name__} {self.number} {self.status}: {changes} to the memory{failures}>"

    @property
    def success(self) -> bool:
        """Whether no substage failed."""
        return self.status == "finished"


@dataclass(frozen=True, slots=True)
class CycleStarted:
    """A cycle starts, or resumes where another process left off."""

    agent: str
    number: int
    trigger: str = "manual"
    resumed: bool = False
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class CycleWaiting:
    """A cycle waits for a person to decide on its plan."""

    agent: str
    number: int
    within: float | None = None
    """The longest wait, in seconds; None: no limit."""
    url: str = ""
    """The page of the cycle on the dashboard; empty without the setting `dashboard_url`."""
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class SubstageFinished:
    """A substage finished, failed with `error`, or was skipped. All sources of Sense are one substage."""

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
    """A cycle ended, and its changes of the memory are stored, or held while the store is away."""

    agent: str
    number: int
    result: CycleResult
    schema_version: int = 1


CycleEvent: TypeAlias = CycleStarted | CycleWaiting | SubstageFinished | CycleFinished
"""The events for the `on_event` listener of an agent, in this order."""


def render_text(source: str, scopes: Mapping[str, Any]) -> str:
    """Render a template as text; values other than text become JSON. Raises `TemplateError`."""
    return as_text(template(source).render(scopes))


def error_line(error: BaseException) -> str:
    """The type and message of an error, on one printable line."""
    return shortened(visible(named_error(error)), MAX_ERROR)
