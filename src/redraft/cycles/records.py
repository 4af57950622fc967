"""Records: the stored forms of an agent's card, cycles and memory, and the memory after an earlier cycle."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from secrets import randbits
from threading import Lock
from time import time_ns
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from uuid import uuid4

from redraft._codec import from_record, to_json, to_record
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.spec import (
    ANY,
    CronTrigger,
    Execute,
    IntervalTrigger,
    MessagesSense,
    MessageTrigger,
    Trigger,
    WebhookTrigger,
    parameters_of,
    substages_of,
)
from redraft.errors import ConfigError, DamagedRecordError, StoreError
from redraft.redact.kinds import Category
from redraft.redact.redactor import redact_record, redactor_of_environment
from redraft.stores.base import Record
from redraft.stores.run_index import CYCLE, Expense, spent
from redraft.types import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from redraft.cycles.memory import Item
    from redraft.cycles.spec import AgentSpec
    from redraft.stores.base import Store

CycleStatus: TypeAlias = Literal["running", "waiting", "finished", "failed", "abandoned", "damaged"]


@dataclass(frozen=True, slots=True)
class CycleMetrics:
    """The metrics of a cycle; a metric that the agent's file does not track is None."""

    duration_ms: float | None = None
    """The time from the start of Sense to the end of Reflect."""
    tokens: int | None = None
    cost_usd: float | None = None
    anomalies: int | None = None
    alerts: int | None = None
    failures: tuple[str, ...] = ()
    """The substages and actions that failed, with their errors."""
    skipped: tuple[str, ...] = ()
    """The substages that did not run: after a failure, without an action to run, or rejected by a person."""


@dataclass(slots=True)
class CycleRecord:
    """A cycle: its trigger, its results, and its changes of the memory."""

    number: int
    started_at: datetime
    trigger: str = "manual"
    status: CycleStatus = "running"
    """A cycle that is `running`, `waiting` (for a person) or `abandoned` when its process ends resumes under
    its id. The `error` of a `damaged` cycle says what to do."""
    finished_at: datetime | None = None
    derived_data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The results of the stages, redacted; for a cycle under way, the results so far."""
    sense_errors: tuple[Mapping[str, Any], ...] = ()
    metrics: CycleMetrics = CycleMetrics()
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
    """The milliseconds of each stage."""
    usage: TokenUsage = NOTHING_USED
    changes: tuple[MemoryChange, ...] = ()
    error: str = ""
    waits_until: datetime | None = None
    """When a wait for a person ends; None without a limit."""
    id: str = ""
    """A ULID, from which all keys of the cycle derive; empty in records of earlier versions."""

    @property
    def is_undecided(self) -> bool:
        """Whether a person may still decide on its plan: now, or when the cycle resumes."""
        return self.status in ("waiting", "abandoned")

    @property
    def key(self) -> str:
        """The key of its record: its number, by which records are sorted, and its id."""
        return f"{cycle_prefix(self.number)}-{self.id}" if self.id else cycle_prefix(self.number)


UNFINISHED = ("running", "waiting", "abandoned")
"""The statuses of a cycle that resumes when the agent is restarted."""


def cycle_prefix(number: int) -> str:
    """The start of the key of a cycle's record: its number, in ten digits."""
    return f"{number:010d}"


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_id_lock = Lock()
_last_id = 0


def new_id() -> str:
    """A ULID: 48 bits of time and 80 random bits, greater than all earlier ids of this process."""
    global _last_id  # noqa: PLW0603 (ids of one process are in order)
    with _id_lock:
        _last_id = value = max(time_ns() // 1_000_000 << 80 | randbits(80), _last_id + 1)
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def is_id(text: str) -> bool:
    """Whether a text has the form of a cycle's id."""
    return len(text) == 26 and set(text) <= {*_ALPHABET}  # noqa: PLR2004 (the length of a ULID)


EXECUTION = "execution"
MAX_DERIVED = 50_000
"""The size limit of each key of the derived data in the record of a cycle, in characters of JSON."""


def stored_cycle(cycle: CycleRecord) -> Record:
    """The record of a cycle."""
    # The codec omits defaults; `find` needs the status.
    data = to_record(cycle) | {"status": cycle.status}
    if cycle.status not in UNFINISHED:  # its usage is complete
        data["index"] = Expense(cycle.started_at, **spent([cycle.usage])).to_data()
    return Record(CYCLE, cycle.key, data)


def cycle_from(record: Record) -> CycleRecord:
    """The cycle in a record. Raises `DamagedRecordError` if it can't be read."""
    return from_record(CycleRecord, record.data)


def listed_cycle(record: Record) -> CycleRecord:
    """The cycle in a record, for a list; a cycle that can't be read has the status `damaged`."""
    try:
        return cycle_from(record)
    except DamagedRecordError as error:
        began = record.created_at or datetime.now(UTC)
        number, _, cycle_id = record.key.partition("-")
        return CycleRecord(
            int(number) if number.isdecimal() else 0, began, status="damaged", error=str(error), id=cycle_id
        )


def redacted_cycle(cycle: CycleRecord, redact: Callable[[Any], Any]) -> CycleRecord:
    """A cycle without secrets and personal data, and with bounded derived data."""
    derived = dict(cycle.derived_data)
    keys: list[str] = []
    if EXECUTION in derived:
        # Idempotency keys are not secret, and so random that they are the slowest texts to redact.
        actions: list[dict[str, Any]] = derived[EXECUTION].get("actions", [])
        keys = [action["idempotencyKey"] for action in actions]
        bare = [
            {name: value for name, value in action.items() if name != "idempotencyKey"} for action in actions
        ]
        derived[EXECUTION] = {**derived[EXECUTION], "actions": bare}
    # In a single call, so that a name that one part reveals is removed from all parts.
    failures = list(cycle.metrics.failures)
    clean, sense_errors, failures, error = redact([derived, list(cycle.sense_errors), failures, cycle.error])
    if EXECUTION in derived:
        actions = clean[EXECUTION]["actions"]
        clean[EXECUTION]["actions"] = [
            action | {"idempotencyKey": key} for action, key in zip(actions, keys, strict=True)
        ]
    return replace(
        cycle,
        derived_data={key: _bounded(clean[key]) for key in derived},
        sense_errors=tuple(sense_errors),
        metrics=replace(cycle.metrics, failures=tuple(failures)),
        error=error,
    )


def _bounded(value: Any) -> Any:
    size = len(json.dumps(value, ensure_ascii=False))
    return value if size <= MAX_DERIVED else {"leftOut": f"{size:,} characters, more than {MAX_DERIVED:,}"}


CACHED_TEXTS, CACHED_LENGTH = 4_096, 400
"""The number of cached redacted texts, and their maximum length."""
_HARMLESS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|\d{1,7}(-\d{1,3})?", re.ASCII)
"""A timestamp, or the number of a cycle or action: new in every cycle, never secret."""


def data_redactor(also: Collection[Category] = (Category.PERSONAL,)) -> Callable[[Any], Any]:
    """A function that removes secrets and personal data from plain JSON data, and preserves its shape.

    Host names stay, so that an agent knows its systems. With `also=()`, only secrets are removed: for data
    that a receiver acts on, since no order can be shipped to a placeholder. Results are cached, because an
    agent repeats the same keys and names in every cycle.
    """
    redactor = redactor_of_environment(also=also)

    def read(text: str) -> tuple[str, frozenset[str]]:
        names = set[str]()
        return redactor.redact(text, names).text, frozenset(names)

    cached = lru_cache(CACHED_TEXTS)(read)

    def redact_text(text: str, names: set[str]) -> str:
        if _HARMLESS.fullmatch(text):
            return text
        clean, text_names = cached(text) if len(text) <= CACHED_LENGTH else read(text)
        names |= text_names
        return clean

    def redact(value: Any) -> Any:
        return redact_record(value, redact_text)

    return redact


def as_object(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty object."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def values_in(derived: Mapping[str, Any], stage: str, name: str) -> Sequence[Any]:
    """The array `name` of a stage's results; empty if there is none."""
    values = as_object(derived.get(stage)).get(name)
    return cast("Sequence[Any]", values) if isinstance(values, list | tuple) else ()


def objects_in(derived: Mapping[str, Any], stage: str, name: str) -> list[Mapping[str, Any]]:
    """The objects in the array `name` of a stage's results."""
    return [as_object(value) for value in values_in(derived, stage, name) if isinstance(value, Mapping)]


def memory_at(memory: Memory, records: Iterable[CycleRecord], cycle: int) -> Memory:
    """The memory after an earlier cycle (0: before the first), by undoing later changes.

    `records` are the later cycles, in any order; earlier ones are ignored. Raises `ConfigError` for a cycle
    that has not happened, or if the record of a later cycle was deleted.
    """
    by_number = {record.number: record for record in records}
    latest = max(memory.cycle, *by_number, 0) if by_number else memory.cycle
    if not 0 <= cycle <= latest:
        raise ConfigError(f"There is no cycle {cycle!r}; expected a number from 0 to {latest}.")
    items: dict[str, Sequence[Item]] = dict(memory.items)
    for number in range(memory.cycle, cycle, -1):
        if number not in by_number:
            raise ConfigError(
                f"The memory after cycle {cycle!r} is no longer known: the changes of cycle {number} were "
                f"deleted. Ask for {number} or a later one."
            )
        by_key: dict[str, list[MemoryChange]] = {}
        for change in by_number[number].changes:
            by_key.setdefault(change.key, []).append(change)
        items |= {key: _undone(items.get(key, ()), changes) for key, changes in by_key.items()}
    return Memory(items, cycle)


def _undone(items: Sequence[Item], changes: Sequence[MemoryChange]) -> list[Item]:
    """The items under a key before changes: new items are last, removed items return to their positions."""
    added = sum(change.before is None for change in changes)
    replaced = {change.id: change.before for change in changes if change.before and change.after}
    left = list(items[: len(items) - added])
    if replaced:
        left = [replaced.get(str(item.get("id")), item) for item in left]
    gone = [(change.at, change.before) for change in changes if change.before and not change.after]
    for at, item in sorted(gone, key=lambda removal: removal[0] or 0):
        left.insert(at or 0, item)
    return left


MEMORY = ("memory", "memory")
"""The kind and key of the record of the memory."""


def memory_record(memory: Memory) -> Record:
    """The record of a memory."""
    # Items are plain JSON data already; converting each would be most of the work.
    return Record(*MEMORY, {"items": dict(memory.items), "cycle": memory.cycle})


def memory_from(record: Record) -> Memory:
    """The memory in a record. Raises `StoreError` for a record in another format."""
    items, cycle = record.data.get("items"), record.data.get("cycle")
    if not isinstance(cycle, int) or not _is_memory(items):
        raise StoreError(
            f"The record {record.kind!r} {record.key!r} is not an agent's memory that this version of "
            f"Redraft can read: expected 'items', lists of objects by key, and 'cycle', a number; got "
            f"{', '.join(map(repr, record.data)) or 'nothing'}. Upgrade redraft if a newer one wrote it."
        )
    return Memory(cast("dict[str, list[dict[str, Any]]]", items), cycle)


async def stored_memory(store: Store) -> Memory | None:
    """The stored memory; None before the first cycle. Raises `StoreError` if it can't be read."""
    record = await store.get(*MEMORY)
    return None if record is None else memory_from(record)


def _is_memory(items: object) -> bool:
    if not isinstance(items, dict):
        return False
    return all(
        isinstance(values, list) and all(isinstance(item, dict) for item in cast("list[object]", values))
        for values in cast("dict[str, object]", items).values()
    )


CARD = "agent"
"""The kind and key of the record in the agent's own space."""


@dataclass(frozen=True, slots=True)
class AgentCard:
    """The profile of an agent, by which people and other agents find it."""

    name: str = ""
    id: str = ""
    """Made with the agent's store: an agent of the same name in another store has another id."""
    description: str = ""
    file: str = ""
    triggers: tuple[str, ...] = ()
    """Its triggers, as text."""
    topics: tuple[str, ...] = ()
    """The topics that it listens to (`*`: all)."""
    actions: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Its actions, each with the parameters that it reads (`*`: any)."""

    def listens_to(self, topic: str) -> bool:
        """Whether the agent listens to a topic."""
        return topic in self.topics or ANY in self.topics

    @property
    def record(self) -> Record:
        """The record of the card."""
        return Record(CARD, CARD, to_json(self))

    @classmethod
    def of(cls, spec: AgentSpec, file: str) -> AgentCard:
        """The card of an agent, with a new id."""
        topics = [trigger.topic or ANY for trigger in spec.triggers if isinstance(trigger, MessageTrigger)]
        topics += [source.config.topic or ANY for source in substages_of(spec, MessagesSense)]
        triggers = tuple(map(_trigger_text, spec.triggers))
        actions = {
            action.name: parameters_of(action)
            for substage in substages_of(spec, Execute)
            for action in substage.config.actions
        }
        return cls(
            spec.name, uuid4().hex, spec.description, file, triggers, tuple(dict.fromkeys(topics)), actions
        )


def _trigger_text(trigger: Trigger) -> str:
    match trigger:
        case IntervalTrigger():
            return f"every {trigger.interval_ms:,} ms"
        case CronTrigger():
            return f"cron {trigger.expression} {trigger.timezone}"
        case WebhookTrigger():
            return f"webhook {trigger.topic}"
        case _:
            return trigger.type


async def card_of(store: Store) -> AgentCard:
    """The card of the agent in a store; an empty card if none is stored yet."""
    record = await store.get(CARD, CARD)
    return AgentCard() if record is None else from_record(AgentCard, dict(record.data))
