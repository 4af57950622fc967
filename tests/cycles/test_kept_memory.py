import asyncio

import pytest

from agents import MONITOR, monitor, run
from redraft.core.errors import StoreError
from redraft.cycles import agent_view
from redraft.cycles.kept_memory import EACH, MEMORY, make_whole, memory_record, stored_memory
from redraft.cycles.memory import Memory
from redraft.stores.base import Record
from redraft.stores.memory import MemoryStore

CYCLES = 2 * EACH + 5


class Counting(MemoryStore):
    """Keep account of the cycles with which the memory is written as a whole."""

    def __init__(self):
        super().__init__()
        self.whole = []

    async def put_all_if(self, kind, key, where, records):
        self.whole += [record.data["cycle"] for record in records if (record.kind, record.key) == MEMORY]
        return await super().put_all_if(kind, key, where, records)


def alike(one, other):
    """Say whether two memories are the same, but for keys without items."""
    kept = [{key: list(items) for key, items in each.items.items() if items} for each in (one, other)]
    return kept[0] == kept[1] and one.cycle == other.cycle


def test_each_cycle_s_memory_is_kept_and_written_as_a_whole_now_and_then():
    async def main():
        store = Counting()
        async with monitor(storage=store) as agent:
            for number in range(1, CYCLES + 1):
                if number % 10 == 0:
                    await agent.send_feedback("approve", f"{number} is fine")
                await agent.run_cycle()
                assert alike(await stored_memory(store), agent.memory)
            before = agent.memory
        async with monitor(storage=store) as again:
            assert alike((await again.opened()).home.memory, before)
            await again.run_cycle()
            assert alike(await stored_memory(store), again.memory)
        return store.whole

    assert run(main()) == [1, 1 + EACH, 1 + 2 * EACH, CYCLES + 1]


@pytest.mark.parametrize("cycles", [1, 2, 5])
def test_what_is_deleted_of_old_cycles_is_in_the_memory(cycles):
    async def main():
        store = Counting()
        async with monitor(text=f"{MONITOR}memory: {{cycles: {cycles}}}\n", storage=store) as agent:
            for _ in range(12):
                await agent.run_cycle()
                await (await agent.opened()).home._sweep()
                assert alike(await stored_memory(store), agent.memory)
        assert len(await store.find("cycle")) == cycles

    run(main())


def test_an_older_memory_is_read_and_goes_over_by_itself():
    async def main():
        store = MemoryStore()
        items = [{"id": "p1", "timestamp": "2026-11-22T10:00:00.000Z", "description": "from before"}]
        await store.put(Record("memory", "memory", {"items": {"patterns": items}, "cycle": 41}))
        async with monitor(storage=store) as agent:
            await agent.run_cycle()
            assert [one["id"] for one in agent.memory.of("patterns")] == ["p1"]
        assert alike(await stored_memory(store), agent.memory)

    run(main())


def test_pruning_makes_the_memory_whole_first():
    async def main():
        store = Counting()
        async with monitor(storage=store) as agent:
            for _ in range(9):
                await agent.run_cycle()
            view = await agent_view("monitor")
            assert (await view.prune(2))["cycles"] == 7
            assert alike(await view.memory(), agent.memory)
            await agent.run_cycle()
            assert alike(await view.memory(), agent.memory)
        assert (await store.get(*MEMORY)).data["cycle"] == 9
        await make_whole(store, 9)  # it is
        assert (await store.get(*MEMORY)).revision == 2

    run(main())


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
def test_a_record_of_another_form_is_an_error_that_names_it(data):
    async def main():
        store = MemoryStore()
        await store.put(Record("memory", "memory", data))
        with pytest.raises(StoreError, match="'memory' 'memory' is none of an agent's memory"):
            await stored_memory(store)

    asyncio.run(main())


def test_a_memory_and_its_record():
    record = memory_record(Memory({"own": [{"id": "a"}]}, 3))
    assert (record.kind, record.key, record.data) == (*MEMORY, {"items": {"own": [{"id": "a"}]}, "cycle": 3})
