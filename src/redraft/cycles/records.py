"""Records: an agent's card, cycles and memory as they are stored, and the memory after an earlier cycle."""

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
    """The metrics of a cycle; metrics that its file does not track are None."""

    duration_ms: float | None = None
    """The time from the start of Sense to the end of Reflect."""
    tokens: int | None = None
    cost_usd: float | None = None
    anomalies: int | None = None
    alerts: int | None = None
    failures: tuple[str, ...] = ()
    """The substages and actions that failed, with their errors."""
    skipped: tuple[str, ...] = ()
    """The substages that did not run: an earlier one failed, nothing was to do, or a person rejected it."""


@dataclass(slots=True)
class CycleRecord:
    """One cycle: what triggered it, what came of it, and what it changed in the memory."""

    number: int
    started_at: datetime
    trigger: str = "manual"
    status: CycleStatus = "running"
    """A cycle that is `running`, `waiting` (for a person) or `abandoned` when its process is gone resumes
    under its id. Of a `damaged` one, the `error` says what to do."""
    finished_at: datetime | None = None
    derived_data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the stages derived, redacted; so far, for a cycle under way."""
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
    """A ULID, from which all keys of the cycle derive; empty in the records of versions that had none."""

    @property
    def is_undecided(self) -> bool:
        """Whether a person may still decide on its plan: now, or when the cycle resumes."""
        return self.status in ("waiting", "abandoned")

    @property
    def key(self) -> str:
        """The key of its record: its number, by which records are listed, and its id."""
        return f"{cycle_prefix(self.number)}-{self.id}" if self.id else cycle_prefix(self.number)


UNFINISHED = ("running", "waiting", "abandoned")
"""The statuses of a cycle that resumes when the agent is restarted."""


def cycle_prefix(number: int) -> str:
    """Return how the key of a cycle's record begins: with the number, in ten digits."""
    return f"{number:010d}"


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_id_lock = Lock()
_last_id = 0


def new_id() -> str:
    """Return a ULID: 48 bits of time and 80 random ones, later than all others of this process."""
    global _last_id  # noqa: PLW0603 (ids of one process are in order)
    with _id_lock:
        _last_id = value = max(time_ns() // 1_000_000 << 80 | randbits(80), _last_id + 1)
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def is_id(text: str) -> bool:
    """Return whether a text has the form of a cycle's id."""
    return len(text) == 26 and set(text) <= {*_ALPHABET}  # noqa: PLR2004 (the length of a ULID)


EXECUTION = "execution"
MAX_DERIVED = 50_000
"""Characters of JSON of each key of the derived data in the record of a cycle."""


def stored_cycle(cycle: CycleRecord) -> Record:
    """Return the record of a cycle."""
    # The codec omits defaults; `find` needs the status.
    data = to_record(cycle) | {"status": cycle.status}
    if cycle.status not in UNFINISHED:  # its usage is known when it ends
        data["index"] = Expense(cycle.started_at, **spent([cycle.usage])).to_data()
    return Record(CYCLE, cycle.key, data)


def cycle_from(record: Record) -> CycleRecord:
    """Return the cycle in a record; raises `DamagedRecordError` if it can't be read."""
    return from_record(CycleRecord, record.data)


def listed_cycle(record: Record) -> CycleRecord:
    """Return the cycle in a record, for a list: one that can't be read has the status `damaged`."""
    try:
        return cycle_from(record)
    except DamagedRecordError as error:
        began = record.created_at or datetime.now(UTC)
        number, _, cycle_id = record.key.partition("-")
        return CycleRecord(
            int(number) if number.isdecimal() else 0, began, status="damaged", error=str(error), id=cycle_id
        )


def redacted_cycle(cycle: CycleRecord, redact: Callable[[Any], Any]) -> CycleRecord:
    """Return a cycle as it may be stored or shown: without secrets, and bounded."""
    derived = dict(cycle.derived_data)
    keys: list[str] = []
    if EXECUTION in derived:
        # Idempotency keys are our own, and look so random that they take longest to redact.
        actions: list[dict[str, Any]] = derived[EXECUTION].get("actions", [])
        keys = [one["idempotencyKey"] for one in actions]
        bare = [{name: value for name, value in one.items() if name != "idempotencyKey"} for one in actions]
        derived[EXECUTION] = {**derived[EXECUTION], "actions": bare}
    # At once: a name in one part is withheld in all.
    failures = list(cycle.metrics.failures)
    clean, sense_errors, failures, error = redact([derived, list(cycle.sense_errors), failures, cycle.error])
    if EXECUTION in derived:
        actions = clean[EXECUTION]["actions"]
        clean[EXECUTION]["actions"] = [
            one | {"idempotencyKey": key} for one, key in zip(actions, keys, strict=True)
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
"""How many redacted texts are cached, and of at most how many characters."""
_HARMLESS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z|\d{1,7}(-\d{1,3})?", re.ASCII)
"""A timestamp, or the number of a cycle or action: new in every cycle, never secret."""


def data_redactor(also: Collection[Category] = (Category.PERSONAL,)) -> Callable[[Any], Any]:
    """Return a function that withholds secrets and personal data in plain JSON data, keeping its shape.

    Names of hosts stay, so that an agent knows what it acted on. Data that others act on loses only its
    secrets (`also=()`): no order can be shipped to a placeholder. An agent repeats the same keys and names in
    every cycle, so results are cached.
    """
    redactor = redactor_of_environment(also=also)

    def read(text: str) -> tuple[str, frozenset[str]]:
        names = set[str]()
        return redactor.redact(text, names).text, frozenset(names)

    cached = lru_cache(CACHED_TEXTS)(read)

    def redact_one(text: str, names: set[str]) -> str:
        if _HARMLESS.fullmatch(text):
            return text
        clean, found = cached(text) if len(text) <= CACHED_LENGTH else read(text)
        names |= found
        return clean

    def redact(value: Any) -> Any:
        return redact_record(value, redact_one)

    return redact


def as_object(value: Any) -> Mapping[str, Any]:
    """Return a value if it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def values_in(derived: Mapping[str, Any], stage: str, name: str) -> Sequence[Any]:
    """Return the array `name` that a stage derived; an empty one if there is none."""
    found = as_object(derived.get(stage)).get(name)
    return cast("Sequence[Any]", found) if isinstance(found, list | tuple) else ()


def objects_in(derived: Mapping[str, Any], stage: str, name: str) -> list[Mapping[str, Any]]:
    """Return the objects in the array `name` that a stage derived."""
    return [as_object(one) for one in values_in(derived, stage, name) if isinstance(one, Mapping)]


def memory_at(memory: Memory, records: Iterable[CycleRecord], cycle: int) -> Memory:
    """Return the memory as it was after an earlier cycle (0: before the first), by undoing later changes.

    `records` are those of the cycles after it, in any order; others are ignored. Raises `ConfigError` for a
    cycle that has not happened, or if the record of a later one was deleted.
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
    """Return the items under a key as they were: new ones are last, a change has the position of old ones."""
    added = sum(change.before is None for change in changes)
    replaced = {change.id: change.before for change in changes if change.before and change.after}
    left = list(items[: len(items) - added])
    if replaced:
        left = [replaced.get(str(item.get("id")), item) for item in left]
    gone = [(change.at, change.before) for change in changes if change.before and not change.after]
    for at, item in sorted(gone, key=lambda one: one[0] or 0):
        left.insert(at or 0, item)
    return left


MEMORY = ("memory", "memory")
"""The kind and key of the record of the memory."""


def memory_record(memory: Memory) -> Record:
    """Return the record of a memory."""
    # Items are plain JSON data already; converting each would be most of the work.
    return Record(*MEMORY, {"items": dict(memory.items), "cycle": memory.cycle})


def memory_from(record: Record) -> Memory:
    """Return the memory in a record; raises `StoreError` for a record of another form."""
    items, cycle = record.data.get("items"), record.data.get("cycle")
    if not isinstance(cycle, int) or not _is_memory(items):
        raise StoreError(
            f"The record {record.kind!r} {record.key!r} is not an agent's memory that this version of "
            f"Redraft can read: expected 'items', lists of objects by key, and 'cycle', a number; got "
            f"{', '.join(map(repr, record.data)) or 'nothing'}. Upgrade redraft if a newer one wrote it."
        )
    return Memory(cast("dict[str, list[dict[str, Any]]]", items), cycle)


async def stored_memory(store: Store) -> Memory | None:
    """Return the stored memory, None before the first cycle; raises `StoreError` if it can't be read."""
    record = await store.get(*MEMORY)
    return None if record is None else memory_from(record)


def _is_memory(items: object) -> bool:
    if not isinstance(items, dict):
        return False
    lists = cast("dict[str, object]", items).values()
    return all(
        isinstance(one, list) and all(isinstance(item, dict) for item in cast("list[object]", one))
        for one in lists
    )


CARD = "agent"
"""The kind and key of the record in the agent's own space."""


@dataclass(frozen=True, slots=True)
class AgentCard:
    """The profile of an agent, by which people and other agents find it."""

    name: str = ""
    id: str = ""
    """As old as the agent's store: another agent of the same name, elsewhere or later, has another id."""
    description: str = ""
    file: str = ""
    triggers: tuple[str, ...] = ()
    """What starts its cycles."""
    topics: tuple[str, ...] = ()
    """The topics it listens to (`*`: all)."""
    actions: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The actions it can run, each with the parameters that it reads (`*`: any)."""

    def listens_to(self, topic: str) -> bool:
        """Return whether the agent listens to a topic."""
        return topic in self.topics or ANY in self.topics

    @property
    def record(self) -> Record:
        """The record of the card."""
        return Record(CARD, CARD, to_json(self))

    @classmethod
    def of(cls, spec: AgentSpec, file: str) -> AgentCard:
        """Return the card of an agent, with a new id."""
        topics = [one.topic or ANY for one in spec.triggers if isinstance(one, MessageTrigger)]
        topics += [one.config.topic or ANY for one in substages_of(spec, MessagesSense)]
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
    """Return the card of a store's agent; an empty one if it has none yet."""
    record = await store.get(CARD, CARD)
    return AgentCard() if record is None else from_record(AgentCard, dict(record.data))
