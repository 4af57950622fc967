from datetime import UTC, datetime

import pytest

from redraft.cycles import Agents
from redraft.cycles.memory import Memory, MemoryChange, differences
from redraft.cycles.records import (
    MEMORY,
    CycleRecord,
    data_redactor,
    is_id,
    memory_at,
    memory_record,
    new_id,
    redacted_cycle,
    stored_memory,
)
from redraft.cycles.reflect import next_memory
from redraft.cycles.spec import Retention
from redraft.errors import ConfigError, StoreError
from redraft.stores.base import Record
from redraft.stores.sqlite import MemoryStore
from support.cycle_memory import at, ids, item, pattern, reflecting
from support.cycles import NOON
from support.monitor import MONITOR, monitor
from support.properties import given, some


def alike(one, other):
    """Whether two memories are equal, ignoring keys without items."""
    kept = [{key: list(items) for key, items in each.items.items() if items} for each in (one, other)]
    return kept[0] == kept[1] and one.cycle == other.cycle


async def test_the_memory_is_stored_after_each_cycle():
    store = MemoryStore()
    async with monitor(storage=store) as agent:
        for number in range(1, 8):
            if number % 3 == 0:
                await agent.send_feedback("approve", f"{number} is fine")
            await agent.run_cycle()
            assert alike(await stored_memory(store), agent.memory)
        before = agent.memory
    async with monitor(storage=store) as again:
        assert alike((await again.open()).memory, before)
        await again.run_cycle()
        assert alike(await stored_memory(store), again.memory)


def test_ids_of_cycles_sort_in_the_order_in_which_they_are_made():
    made = [new_id() for _ in range(2_000)]
    assert made == sorted(set(made))
    assert all(map(is_id, made))
    assert not any(map(is_id, ["", "7", made[0].lower(), made[0][1:], "I" * 26]))


@pytest.mark.parametrize("cycles", [1, 2, 5])
async def test_the_memory_survives_the_deletion_of_old_cycles(cycles):
    store = MemoryStore()
    async with monitor(text=f"{MONITOR}memory: {{cycles: {cycles}}}\n", storage=store) as agent:
        for _ in range(12):
            await agent.run_cycle()
            await (await agent.open())._clean_up()
            assert alike(await stored_memory(store), agent.memory)
    assert len(await store.find("cycle")) == cycles


async def test_numbering_continues_after_the_stored_memory():
    store = MemoryStore()
    items = [{"id": "p1", "timestamp": "2026-11-22T10:00:00.000Z", "description": "from before"}]
    await store.put(Record("memory", "memory", {"items": {"patterns": items}, "cycle": 41}))
    async with monitor(storage=store) as agent:
        await agent.run_cycle()
        assert [pattern["id"] for pattern in agent.memory.of("patterns")] == ["p1"]
    assert alike(await stored_memory(store), agent.memory)


async def test_pruning_does_not_change_the_memory():
    store = MemoryStore()
    async with monitor(storage=store) as agent:
        for _ in range(9):
            await agent.run_cycle()
        handle = await Agents().get("monitor")
        assert (await handle.prune(2))["cycles"] == 7
        assert alike(await handle.memory(), agent.memory)
        await agent.run_cycle()
        assert alike(await handle.memory(), agent.memory)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"items": {}},
        {"items": {}, "cycle": "2"},
        {"items": [], "cycle": 2},
        {"items": {"patterns": {}}, "cycle": 2},
        {"items": {"patterns": ["a"]}, "cycle": 2},
    ],
)
async def test_a_record_in_another_format_is_an_error(data):
    store = MemoryStore()
    await store.put(Record("memory", "memory", data))
    with pytest.raises(StoreError, match="'memory' 'memory' is not an agent's memory"):
        await stored_memory(store)


def test_a_memory_survives_its_record():
    record = memory_record(Memory({"own": [{"id": "a"}]}, 3))
    assert (record.kind, record.key, record.data) == (*MEMORY, {"items": {"own": [{"id": "a"}]}, "cycle": 3})


KEPT = Retention(max_items=5)
WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord")

LEARNED = some.fixed_dictionaries(
    {},
    optional={
        "newPatterns": some.lists(some.sampled_from(WORDS), max_size=4),
        "reinforcedPatterns": some.lists(some.sampled_from(WORDS), max_size=3),
        "deprecatedPatterns": some.lists(some.sampled_from(WORDS), max_size=3),
    },
)


def run_cycles(learnings, clocks=()):
    """The memory before the first and after each of several cycles, and the cycles' records."""
    memories, records = [Memory()], []
    for number, learned in enumerate(learnings, 1):
        cycle = reflecting(memory=memories[-1].items)
        cycle.id, cycle.number, cycle.learnings = str(number), number, [("patterns", learned)]
        moment = at(clocks[number - 1] if clocks else number)
        following = next_memory(cycle, {"patterns": KEPT}, moment)
        memories.append(following.memory)
        records.append(CycleRecord(number, moment, status="finished", changes=following.changes))
    return memories, records


@given(some.lists(LEARNED, max_size=6), some.lists(some.integers(-5, 5), min_size=6, max_size=6))
def test_every_earlier_memory_can_be_reconstructed(learnings, clocks):
    memories, records = run_cycles(learnings, clocks)
    for number, memory in enumerate(memories):
        found = memory_at(memories[-1], reversed(records), number)
        assert found.cycle == number
        assert {key: list(items) for key, items in found.items.items() if items} == {
            key: list(items) for key, items in memory.items.items() if items
        }


@pytest.mark.parametrize(
    ("cycle", "message"),
    [
        (-1, "There is no cycle -1; expected a number from 0 to 9"),
        (10, "There is no cycle 10"),
        (4, "the changes of cycle 6 were deleted. Ask for 6 or a later one"),
    ],
)
def test_memory_at_rejects_unknown_cycles(cycle, message):
    records = [CycleRecord(number, NOON) for number in (7, 8, 9)]
    with pytest.raises(ConfigError, match=message):
        memory_at(Memory(cycle=8), records, cycle)


def test_cycles_without_changes_have_the_previous_memory():
    memory = Memory({"patterns": [pattern("p1-1", "amber")]}, 2)
    found = memory_at(memory, [CycleRecord(3, NOON), CycleRecord(2, NOON)], 3)
    assert (ids(found.of("patterns")), found.cycle) == (["p1-1"], 3)


def test_differences_of_two_memories():
    before = Memory({"patterns": [item("a"), item("b", n=1)], "own": [item("c")]})
    after = Memory({"patterns": [item("b", n=2), item("d")], "own": [item("c")]})
    assert differences(before, after) == (
        MemoryChange("patterns", "a", item("a"), None, 0),
        MemoryChange("patterns", "b", item("b", n=1), item("b", n=2)),
        MemoryChange("patterns", "d", None, item("d")),
    )


def test_a_name_in_one_part_of_a_cycle_is_redacted_in_all_parts():
    derived = {
        "input": {"note": "Put Mbeki's plans in a folder."},
        "reasoning": {"by": "approved by Thandeka Mbeki"},
    }
    cycle = CycleRecord(
        1, datetime(2026, 1, 1, tzinfo=UTC), derived_data=derived, error="Mbeki was not found"
    )
    clean = redacted_cycle(cycle, data_redactor())
    assert "Mbeki" not in repr(clean)
    assert clean.error == "[withheld: name] was not found"
