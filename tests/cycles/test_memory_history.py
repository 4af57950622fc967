import pytest

from cycles_made import at, ids, item, pattern, reflecting
from cycling import NOON
from properties import given, some
from redraft.core.errors import ConfigError
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.memory_history import differences, memory_after, memory_at
from redraft.cycles.next_memory import next_memory
from redraft.cycles.record import CycleRecord
from redraft.cycles.spec_reflect import Retention

KEPT = Retention(max_items=5)
WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord")

LEARNT = some.fixed_dictionaries(
    {},
    optional={
        "newPatterns": some.lists(some.sampled_from(WORDS), max_size=4),
        "reinforcedPatterns": some.lists(some.sampled_from(WORDS), max_size=3),
        "deprecatedPatterns": some.lists(some.sampled_from(WORDS), max_size=3),
    },
)


def lived(learnings, clocks=()):
    """Return the memories after each of several cycles, the first before any, and the cycles' records."""
    memories, records = [Memory()], []
    for number, learnt in enumerate(learnings, 1):
        cycle = reflecting(memory=memories[-1].items)
        cycle.number, cycle.learnt = number, [("patterns", learnt)]
        moment = at(clocks[number - 1] if clocks else number)
        made = next_memory(cycle, {"patterns": KEPT}, moment)
        memories.append(made.memory)
        records.append(CycleRecord(number, moment, status="finished", changes=made.changes))
    return memories, records


@given(some.lists(LEARNT, max_size=6), some.lists(some.integers(-5, 5), min_size=6, max_size=6))
def test_every_memory_that_was_is_found_again(learnings, clocks):
    memories, records = lived(learnings, clocks)
    for number, memory in enumerate(memories):
        found = memory_at(memories[-1], reversed(records), number)
        assert found.cycle == number
        assert {key: list(items) for key, items in found.items.items() if items} == {
            key: list(items) for key, items in memory.items.items() if items
        }


@given(some.lists(LEARNT, max_size=6), some.lists(some.integers(-5, 5), min_size=6, max_size=6))
def test_every_memory_leads_to_the_last_one(learnings, clocks):
    memories, records = lived(learnings, clocks)
    for number, memory in enumerate(memories):
        found = memory_after(memory, records[number:])
        assert found.cycle == len(records)
        assert {key: list(items) for key, items in found.items.items() if items} == {
            key: list(items) for key, items in memories[-1].items.items() if items
        }


def test_what_is_gone_is_known_wherever_it_stands():
    memory = Memory({"patterns": [item("old"), item("a"), item("b"), item("a")]}, 7)
    gone = (
        MemoryChange("patterns", "b", item("b"), None, 1),  # an earlier memory was joined since: now at 2
        MemoryChange("patterns", "a", item("a"), None, 3),  # the one of its id that stands there
        MemoryChange("patterns", "never", item("never"), None, 0),
    )
    under_way = CycleRecord(9, NOON)
    found = memory_after(memory, [CycleRecord(8, NOON, status="finished", changes=gone), under_way])
    assert found == Memory({"patterns": [item("old"), item("a")]}, 8)


@given(some.lists(LEARNT, min_size=1, max_size=6))
def test_a_cycle_says_of_its_changes_all_that_differs(learnings):
    memories, records = lived(learnings)
    for before, after, record in zip(memories[:-1], memories[1:], records, strict=True):
        assert sorted(differences(before, after), key=repr) == sorted(record.changes, key=repr)


@pytest.mark.parametrize(
    ("cycle", "message"),
    [
        (-1, "There is no cycle -1: expected one from 0 to 9"),
        (10, "There is no cycle 10"),
        (4, "what cycle 6 changed is not kept. Ask for 6 or a later one"),
    ],
)
def test_what_can_t_be_looked_back_at(cycle, message):
    records = [CycleRecord(number, NOON) for number in (7, 8, 9)]
    with pytest.raises(ConfigError, match=message):
        memory_at(Memory(cycle=8), records, cycle)


def test_cycles_that_left_the_memory_alone_have_the_one_before():
    memory = Memory({"patterns": [pattern("p1-1", "amber")]}, 2)
    found = memory_at(memory, [CycleRecord(3, NOON), CycleRecord(2, NOON)], 3)
    assert (ids(found.of("patterns")), found.cycle) == (["p1-1"], 3)


def test_the_difference_of_two_memories():
    before = Memory({"patterns": [item("a"), item("b", n=1)], "own": [item("c")]})
    after = Memory({"patterns": [item("b", n=2), item("d")], "own": [item("c")]})
    assert differences(before, after) == (
        MemoryChange("patterns", "a", item("a"), None, 0),
        MemoryChange("patterns", "b", item("b", n=1), item("b", n=2)),
        MemoryChange("patterns", "d", None, item("d")),
    )
