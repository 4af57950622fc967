import asyncio

from redraft.loop.progress import Progress
from redraft.stores.base import Record
from redraft.stores.memory import MemoryStore


def test_how_far_a_run_is_differs_with_each_step_and_is_the_same_for_all_who_ask():
    async def main():
        store, told = MemoryStore(), []
        moving, other = Progress(store), Progress(store)
        for place in (None, "00001/model 1", "00001", "00002", "00003/model 1", "00003/model 2", "00003"):
            if place:
                await store.put(Record("step", f"a/{place}", {"name": place}))
            told.append(await moving.how_far("a"))
            assert await moving.how_far("a") == told[-1] == await other.how_far("a")
        return told

    told = asyncio.run(main())
    assert len(set(told)) == len(told)
