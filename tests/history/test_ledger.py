import asyncio
import random
from dataclasses import replace

import pytest

from redraft import TokenUsage
from redraft.errors import StoreError
from redraft.history.entry import task_key
from redraft.history.ledger import FIRST, MOST, Ledger
from redraft.loop.progress import Progress
from redraft.loop.record import RUN
from redraft.stores.base import Record
from redraft.stores.memory import MemoryStore
from support.dashboards import put
from support.kept_runs import GONE, record
from support.versions import history

CALL = TokenUsage(10, 5, requests=1, cost_usd=0.5)


class Counted(MemoryStore):
    """A store that counts the records of runs that were read."""

    read = 0

    async def find(self, kind, /, **asked):
        found = await super().find(kind, **asked)
        self.read += len(found)
        return found


def run(run_id, *scores, reason="plateau", **fields):
    return record(history(*scores, token_usage=CALL), reason, run_id=run_id, **fields)


def entries(ledger, patience=5.0):
    """Read as if the last time were long ago."""
    ledger._read_at = ledger._unended_at = float("-inf")
    return asyncio.run(ledger.entries(patience))


def test_an_entry_says_what_lists_and_sums_need():
    store = MemoryStore()
    put(store, run("a", 0.2, 0.9, 0.4, 0.3, usage_by_role={"revision": CALL}))
    (entry,) = entries(Ledger(store))
    assert (entry.state, entry.reason, entry.versions) == ("finished", "plateau", 4)
    assert (entry.first_score, entry.best_score) == (0.2, 0.9)
    assert (entry.usage, entry.after_best) == ({"revision": CALL}, CALL + CALL)
    assert (entry.name, entry.model, entry.task) == ("redraft revise", "any:model", task_key("Say it."))


def test_a_ledger_is_read_in_portions_and_then_only_what_is_new():
    store = Counted()
    put(store, *(run(f"{number:04d}", 0.5) for number in range(FIRST + MOST + 3)))
    ledger = Ledger(store)
    some = entries(ledger, patience=0)
    assert (len(some), ledger.is_whole, store.read) == (FIRST, False, FIRST)
    whole = entries(ledger)
    assert (len(whole), ledger.is_whole) == (FIRST + MOST + 3, True)
    assert [entry.run_id for entry in whole] == sorted((entry.run_id for entry in whole), reverse=True)
    store.read = 0
    put(store, run("9999", 0.5))
    assert entries(ledger)[0].run_id == "9999"
    # All of these runs were begun within the time that is read again.
    assert store.read <= FIRST + MOST + 4


def test_the_newest_are_first_whatever_came_and_went_between():
    rng = random.Random(8)  # noqa: S311 (no secrets here)
    store = MemoryStore()
    ledger = Ledger(store)
    for number in range(60):
        put(store, run(f"{rng.randrange(30):02}", 0.5, reason=rng.choice(("plateau", None))))
        if number % 4 == 0:
            asyncio.run(store.delete(RUN, f"{rng.randrange(30):02}"))
        found = [entry.run_id for entry in entries(ledger)]
        kept = [one.key for one in asyncio.run(store.find(RUN, newest_first=True))]
        # Of those that had ended and were then deleted nothing is heard.
        assert [run_id for run_id in found if run_id in kept] == kept
        assert len(found) == len(set(found))


def test_what_was_read_a_moment_ago_is_new_enough():
    store = Counted()
    put(store, run("a", 0.5))
    ledger = Ledger(store)

    async def main():
        await ledger.entries()
        store.read = 0
        await ledger.entries()

    asyncio.run(main())
    assert store.read == 0


def test_a_run_that_ends_or_goes_is_seen():
    store = MemoryStore()
    at_work = run("a", reason=None)
    put(store, at_work, run("b", reason=None, process=GONE), run("c", reason=None))
    ledger = Ledger(store)
    assert {entry.run_id: entry.state for entry in entries(ledger)} == {
        "a": "running",
        "b": "killed",
        "c": "running",
    }
    put(store, replace(at_work, status="finished"))
    asyncio.run(store.delete(RUN, "c"))
    assert {entry.run_id: entry.state for entry in entries(ledger)} == {"a": "finished", "b": "killed"}


@pytest.mark.parametrize("data", [{}, {"task": 3}, {"task": {"description": "x"}, "versions": [1]}])
def test_a_damaged_record_is_named(data):
    store = MemoryStore()
    asyncio.run(store.put(Record(RUN, "a", data)))
    with pytest.raises(StoreError, match="'a' is damaged"):
        entries(Ledger(store))


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
