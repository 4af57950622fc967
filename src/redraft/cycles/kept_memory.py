"""The memory as it is kept: as a whole now and then, and what each cycle since then has changed of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from redraft.core.errors import StoreError
from redraft.cycles.kept_cycle import cycle_of
from redraft.cycles.memory import Memory
from redraft.cycles.memory_history import memory_after
from redraft.cycles.record import CYCLE, cycle_key
from redraft.stores.base import Record

if TYPE_CHECKING:
    from redraft.stores.base import Store

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
