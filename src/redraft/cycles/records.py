"""Cycles and memory as they are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from redraft._codec import from_record, to_record
from redraft.cycles.memory import Memory, MemoryChange
from redraft.errors import ConfigError, StoreError
from redraft.stores.base import Record
from redraft.types import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redraft.cycles.memory import Item
    from redraft.stores.base import Store

CYCLE = "cycle"
"""The kind of the records of cycles; the key is the number, ten digits long."""

CycleStatus: TypeAlias = Literal["running", "waiting", "finished", "failed", "abandoned", "damaged"]


@dataclass(frozen=True, slots=True)
class CycleMetrics:
    """Count how a cycle went; what its file does not track is None. `duration_ms` is from Sense to Reflect.

    `failures` name the substages and actions that failed, with what they said; `skipped` the substages that
    did not run, because one before them failed, nothing was to be done, or a person said no.
    """

    duration_ms: float | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    anomalies: int | None = None
    alerts: int | None = None
    failures: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(slots=True)
class CycleRecord:
    """Hold one cycle: what it began for, what came out of it, what it changed of the memory.

    `waiting` is one that waits for a person, until `waits_until` at the latest (None: as long as it takes). A
    `running`, `waiting` or `abandoned` one whose process is gone is resumed under its number, and waits no
    longer than that. Of a `damaged` one no more than its number is known, and `error` says what to do.
    `derived_data` is redacted, and of a cycle under way what it has come to so far; `stages` says how long
    each took, in milliseconds.
    """

    number: int
    started_at: datetime
    trigger: str = "manual"
    status: CycleStatus = "running"
    finished_at: datetime | None = None
    derived_data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sense_errors: tuple[Mapping[str, Any], ...] = ()
    metrics: CycleMetrics = CycleMetrics()
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
    usage: TokenUsage = NOTHING_USED
    changes: tuple[MemoryChange, ...] = ()
    error: str = ""
    waits_until: datetime | None = None

    @property
    def is_undecided(self) -> bool:
        """Whether a person may still decide on its plan: it waits for that, or may do so when it goes on."""
        return self.status in ("waiting", "abandoned")

    @property
    def key(self) -> str:
        """The key of its record."""
        return cycle_key(self.number)


PROVISIONAL = 5_000_000_000
"""Cycles that begin while nobody can read the number of the last one are numbered from here, for the time
being; when it can be read, they get the numbers that follow it."""

UNFINISHED = ("running", "waiting", "abandoned")
"""The statuses of a cycle that goes on when the agent is started again."""


def cycle_key(number: int) -> str:
    """Return the key of a cycle's record."""
    return f"{number:010d}"


EXECUTION = "execution"
MOST_DERIVED = 50_000
"""Characters of JSON that each key of the derived data has in the record of a cycle."""


def stored_cycle(cycle: CycleRecord) -> Record:
    """Return a cycle as the record that keeps it."""
    # What cycles are searched by is there whatever it is.
    return Record(CYCLE, cycle.key, to_record(cycle) | {"status": cycle.status})


def cycle_of(record: Record) -> CycleRecord:
    """Return the cycle that a record keeps; raises `StoreError` for one that is damaged."""
    return from_record(CycleRecord, record.data)


def listed_cycle(record: Record) -> CycleRecord:
    """Return the cycle that a record keeps, for a list; one that is damaged has that as its status."""
    if not record.damage:
        return cycle_of(record)
    began = record.created_at or datetime.now(UTC)
    number = int(record.key) if record.key.isdecimal() else 0
    return CycleRecord(number, began, status="damaged", error=record.damage)


def fit_to_keep(cycle: CycleRecord, withheld: Callable[[Any], Any]) -> CycleRecord:
    """Return a cycle as it may be written down or shown: without secrets, and bounded."""
    return replace(
        cycle,
        derived_data=_fit_derived(cycle.derived_data, withheld),
        sense_errors=tuple(withheld(list(cycle.sense_errors))),
        metrics=replace(cycle.metrics, failures=tuple(withheld(list(cycle.metrics.failures)))),
        error=withheld(cycle.error),
    )


def _fit_derived(derived: Mapping[str, Any], withheld: Callable[[Any], Any]) -> dict[str, Any]:
    fit = {key: withheld(value) for key, value in derived.items() if key != EXECUTION}
    if EXECUTION in derived:
        # The keys are ours, new each time, and look so random that to redact them takes longer than all else.
        done: list[dict[str, Any]] = derived[EXECUTION].get("actions", [])
        keys = [one["idempotencyKey"] for one in done]
        bare = [{name: value for name, value in one.items() if name != "idempotencyKey"} for one in done]
        clean = withheld({**derived[EXECUTION], "actions": bare})
        clean["actions"] = [
            one | {"idempotencyKey": key} for one, key in zip(clean["actions"], keys, strict=True)
        ]
        fit[EXECUTION] = clean
    return {key: _bounded(fit[key]) for key in derived}


def _bounded(value: Any) -> Any:
    size = len(json.dumps(value, ensure_ascii=False))
    return value if size <= MOST_DERIVED else {"leftOut": f"{size:,} characters, more than {MOST_DERIVED:,}"}


def memory_at(memory: Memory, records: Iterable[CycleRecord], cycle: int) -> Memory:
    """Return the memory as it was after an earlier cycle (0: before the first): undo what changed since.

    `records` are those of the cycles after it, in any order; others don't matter. Raises `ConfigError` for a
    cycle that has not been, or whose followers are not kept any more.
    """
    kept = {record.number: record for record in records}
    latest = max(memory.cycle, *kept, 0) if kept else memory.cycle
    if not 0 <= cycle <= latest:
        raise ConfigError(f"There is no cycle {cycle!r}: expected one from 0 to {latest}.")
    items: dict[str, Sequence[Item]] = dict(memory.items)
    for number in range(memory.cycle, cycle, -1):
        if number not in kept:
            raise ConfigError(
                f"The memory after cycle {cycle!r} is not known any more: what cycle {number} changed is not "
                f"kept. Ask for {number} or a later one."
            )
        _undo(items, kept[number].changes)
    return Memory(items, cycle)


def memory_after(memory: Memory, records: Iterable[CycleRecord]) -> Memory:
    """Return the memory as it is after later cycles: do again what they have changed.

    `records` are those of the cycles after it, in their order; one that has not ended has changed nothing.
    """
    items: dict[str, Sequence[Item]] = dict(memory.items)
    cycle = memory.cycle
    for record in records:
        if record.status not in UNFINISHED:
            cycle = record.number
        for key, changes in _by_key(record.changes).items():
            items[key] = _redone(items.get(key, ()), changes)
    return Memory(items, cycle)


def differences(before: Memory, after: Memory) -> tuple[MemoryChange, ...]:
    """Return what differs between two memories: what is gone, what changed, what is new, key by key."""
    changes: list[MemoryChange] = []
    for key in dict.fromkeys([*before.items, *after.items]):
        old, new = _by_id(before.of(key)), _by_id(after.of(key))
        changes += [
            MemoryChange(key, name, item, None, at)
            for at, (name, item) in enumerate(old.items())
            if name not in new
        ]
        changes += [
            MemoryChange(key, name, old[name], item)
            for name, item in new.items()
            if name in old and item != old[name]
        ]
        changes += [MemoryChange(key, name, None, item) for name, item in new.items() if name not in old]
    return tuple(changes)


def _undo(items: dict[str, Sequence[Item]], changes: Sequence[MemoryChange]) -> None:
    for key, own in _by_key(changes).items():
        items[key] = _undone(items.get(key, ()), own)


def _by_key(changes: Sequence[MemoryChange]) -> dict[str, list[MemoryChange]]:
    by_key: dict[str, list[MemoryChange]] = {}
    for change in changes:
        by_key.setdefault(change.key, []).append(change)
    return by_key


def _redone(items: Sequence[Item], changes: Sequence[MemoryChange]) -> list[Item]:
    """Return the items under a key as they became: what is gone goes, what is new stands at the end."""
    gone = {_place_of(change, items) for change in changes if change.after is None}
    replaced = {change.id: change.after for change in changes if change.before and change.after}
    left = [item for at, item in enumerate(items) if at not in gone]
    if replaced:
        left = [replaced.get(str(item.get("id")), item) for item in left]
    return left + [change.after for change in changes if change.before is None and change.after is not None]


def _place_of(change: MemoryChange, items: Sequence[Item]) -> int | None:
    """Return where an item stands that a cycle took away: elsewhere, if an earlier memory was joined."""
    at = change.at
    if at is not None and at < len(items) and str(items[at].get("id")) == change.id:
        return at
    return next((at for at, item in enumerate(items) if str(item.get("id")) == change.id), None)


def _undone(items: Sequence[Item], changes: Sequence[MemoryChange]) -> list[Item]:
    """Return the items under a key as they were: what is new stands at the end, what is gone says where."""
    added = sum(change.before is None for change in changes)
    replaced = {change.id: change.before for change in changes if change.before and change.after}
    left = list(items[: len(items) - added])
    if replaced:
        left = [replaced.get(str(item.get("id")), item) for item in left]
    gone = [(change.at, change.before) for change in changes if change.before and not change.after]
    for at, item in sorted(gone, key=lambda one: one[0] or 0):
        left.insert(at or 0, item)
    return left


def _by_id(items: Sequence[Item]) -> Mapping[str, Item]:
    return {str(item.get("id")): item for item in items}


MEMORY = ("memory", "memory")
"""The kind and key of the record of a whole memory."""
EACH = 32
"""After so many cycles the memory is written as a whole again, to be read in no time."""


def memory_record(memory: Memory) -> Record:
    """Return a memory as the record that keeps it as a whole."""
    # What is remembered is plain JSON data already; to look at each item would be most of the work.
    return Record(*MEMORY, {"items": dict(memory.items), "cycle": memory.cycle})


def memory_of(record: Record) -> Memory:
    """Return the memory that a record keeps as a whole; raises `StoreError` for one of another form."""
    items, cycle = record.data.get("items"), record.data.get("cycle")
    if not isinstance(cycle, int) or not _is_memory(items):
        raise StoreError(
            f"The record {record.kind!r} {record.key!r} is none of an agent's memory that this Redraft can "
            f"read: expected 'items', lists of objects by key, and 'cycle', a number; got "
            f"{', '.join(map(repr, record.data)) or 'nothing'}. Upgrade redraft if a newer one wrote it."
        )
    return Memory(cast("dict[str, list[dict[str, Any]]]", items), cycle)


async def stored_memory(store: Store) -> Memory | None:
    """Return what an agent remembers after the last cycle that is written; None before the first.

    Raises `StoreError` for what can't be read.
    """
    whole = await store.get(*MEMORY)
    if whole is None:
        return None
    memory = memory_of(whole)
    since = await store.find(CYCLE, after=replace(whole, kind=CYCLE, key=cycle_key(memory.cycle)))
    return memory_after(memory, map(cycle_of, since))


async def make_whole(store: Store, cycle: int) -> None:
    """Write the memory as a whole unless it is there as of a cycle or a later one.

    What that cycle and those before it have changed is not needed then to know the memory.
    """
    whole, memory = await store.get(*MEMORY), await stored_memory(store)
    if whole is not None and memory is not None and memory_of(whole).cycle < cycle:
        # If the agent itself is quicker, its own is newer.
        await store.replace(replace(whole, data=memory_record(memory).data))


def _is_memory(items: object) -> bool:
    if not isinstance(items, dict):
        return False
    lists = cast("dict[str, object]", items).values()
    return all(
        isinstance(one, list) and all(isinstance(item, dict) for item in cast("list[object]", one))
        for one in lists
    )
