"""What the stages of one cycle read, write and share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from redraft._codec import to_json
from redraft._texts import as_text, shortened
from redraft.cycles.mail import AgentMessage, Feedback
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.records import CycleMetrics, CycleStatus
from redraft.cycles.spec import AgentSpec
from redraft.errors import OutputError
from redraft.protocols import ChatModel, Step
from redraft.redact.data import redact_plain
from redraft.redact.kinds import Category
from redraft.redact.redactor import redactor_of_environment
from redraft.text.characters import visible
from redraft.text.schema_source import size_of
from redraft.text.templates import template
from redraft.types import NOTHING_USED, TokenUsage

DERIVED = ("analysis", "plan", "governance", "execution", "evaluation", "learnings")
"""The keys of `derived_data`; all are there from the begin, so that a prompt may read what no stage wrote."""


@dataclass(slots=True)
class CycleState:
    """Hold what was sensed, what was made of it, and the memory as this cycle sees it.

    `environmental_data` has `payload` (all sources merged) and `errors` (`source`, `error`).
    `derived_data` has what stages write, an empty object where none did. `memory` has every key that the
    file names, the pending feedback included; nobody writes it: `update-state` makes the next one. All is
    plain JSON data. Specification 004.
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


@dataclass(frozen=True, slots=True)
class CycleResult:
    """Hold how a cycle went.

    `status` is `finished`, or `failed` where a substage raised: `error` says the first that did, and Reflect
    ran all the same. `state` is plain JSON data, as templates see it: `environmentalData`, `derivedData`, and
    `memory` as it is after the cycle. `metrics` always name what failed and what was skipped. `changes` are
    what the cycle changed of the memory, and `usage` is what its model calls used.
    """

    number: int
    status: CycleStatus
    state: Mapping[str, Any]
    metrics: CycleMetrics = CycleMetrics()  # noqa: RUF009 (frozen, so sharing it is safe)
    changes: tuple[MemoryChange, ...] = ()
    usage: TokenUsage = NOTHING_USED
    stages: Mapping[str, float] | None = None
    trigger: str = "manual"
    error: str = ""

    @property
    def success(self) -> bool:
        """Whether no substage failed."""
        return self.status == "finished"


@dataclass(frozen=True, slots=True)
class CycleStarted:
    """A cycle begins, or goes on where another process left it."""

    agent: str
    number: int
    trigger: str = "manual"
    resumed: bool = False
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class CycleWaiting:
    """A cycle waits for a person to decide on its plan, `within` so many seconds; None: until one does."""

    agent: str
    number: int
    within: float | None = None
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class SubstageFinished:
    """A substage came to its end, failed with `error`, or was skipped; Sense is one with all its sources."""

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
    """A cycle came to its end, and what it changed of the memory is written or on its way."""

    agent: str
    number: int
    result: CycleResult
    schema_version: int = 1


CycleEvent: TypeAlias = CycleStarted | CycleWaiting | SubstageFinished | CycleFinished


def scopes_of(cycle: Cycle, action: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the names that a condition or a message sees; with those of a planned `action`."""
    agent = {"name": cycle.spec.name, "description": cycle.spec.description}
    scopes = cycle.state.scopes(agent=agent, cycle=cycle.number)
    return scopes if action is None else {**scopes, "action": action, "params": action["params"]}


def outward_scopes(cycle: Cycle, action: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the names that a request, a path or a call sees: `env`, too, which no prompt shows."""
    env = {name: value for name in cycle.spec.env if (value := os.environ.get(name)) is not None}
    return {**scopes_of(cycle, action), "env": env}


def render(value: Any, scopes: Mapping[str, Any]) -> Any:
    """Return `value` with every text in it rendered, once: what comes of it is data."""
    if isinstance(value, str):
        return template(value).render(scopes)
    if isinstance(value, Mapping):
        return {key: render(item, scopes) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [render(item, scopes) for item in cast("list[Any]", value)]
    return value


def render_text(source: str, scopes: Mapping[str, Any]) -> str:
    """Return a template rendered as text; what is no text becomes JSON. Raises `TemplateError`."""
    return as_text(template(source).render(scopes))


LONGEST_FAILURE = 500


def plain_data(value: Any, source: str) -> Any:
    """Return what `source` gave as plain JSON data; raises `OutputError` for what is none.

    That is a number that is not finite, or more than 100 levels of nesting; dataclasses, models and times
    become data, and what has no such form its `repr`.
    """
    try:
        data = to_json(value)
        size_of(data)
    except (ValueError, RecursionError) as error:
        raise OutputError(f"{source} gave what is no plain JSON data: {error}.") from error
    return data


def said(error: BaseException) -> str:
    """Return a failure in one line that is fit to be shown: its type, and what it said."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 (an error that can't be told must not be another one)
        message = "it can't say what is wrong"
    return shortened(visible(f"{type(error).__name__}: {message}"), LONGEST_FAILURE)


REMEMBERED, LONGEST = 4_096, 400
"""Of so many texts, no longer than so many characters, it is remembered what becomes of them."""
_OURS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|\d{1,7}(-\d{1,3})?|5\d{9}-\d{1,3}", re.ASCII)
"""A time of day, or the number of a cycle or action, a provisional one of an outage too: new in each cycle,
and nothing to look into."""


def withholding(also: Collection[Category] = (Category.PERSONAL,)) -> Callable[[Any], Any]:
    """Return what gives plain JSON data with secrets and personal data withheld, its shape kept.

    What is sent to be acted on loses its secrets alone (`also=()`): no order can be shipped to a mark. Names
    of hosts stay, so that an agent knows what it acted on. An agent says the same keys and names in every
    cycle, so they are looked at once.
    """
    redactor = redactor_of_environment(also=also)

    def redact(text: str) -> str:
        return redactor.redact(text).text

    remembered = lru_cache(REMEMBERED)(redact)

    def once(text: str) -> str:
        if _OURS.fullmatch(text):
            return text
        return remembered(text) if len(text) <= LONGEST else redact(text)

    def withheld(value: Any) -> Any:
        return redact_plain(value, once)

    return withheld
