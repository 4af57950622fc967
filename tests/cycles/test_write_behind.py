"""Write-behind to a store that is slow, away or silent."""

import asyncio
import logging
import math
from datetime import UTC, datetime

import pytest

from redraft.cycles import write_behind as module
from redraft.cycles.lease import LEASE, Lease
from redraft.cycles.memory import Memory
from redraft.cycles.records import CycleRecord, memory_record, stored_cycle, stored_memory
from redraft.cycles.write_behind import WriteBehind
from redraft.errors import LeaseError, StoreError
from redraft.stores.base import Record
from redraft.stores.sqlite import MemoryStore


class Database(MemoryStore):
    """A store that is away or silent on request; `writes` has the keys of each write."""

    def __init__(self):
        super().__init__()
        self.is_away = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.writes = []

    async def _answered(self):
        if self.is_away:
            raise StoreError("connection refused")
        await self.answers.wait()

    async def put_all(self, records):
        await self._answered()
        stored = await super().put_all(records)
        self.writes.append([record.key for record in records])
        return stored

    async def put_all_if(self, kind, key, where, records):
        await self._answered()
        stored = await super().put_all_if(kind, key, where, records)
        self.writes.append([record.key for record in records])
        return stored

    async def get(self, kind, key):
        await self._answered()
        return await super().get(kind, key)

    async def put_if_absent(self, record):
        await self._answered()
        return await super().put_if_absent(record)

    async def replace(self, record):
        await self._answered()
        return await super().replace(record)


def memory(*ids, cycle=1):
    return memory_record(Memory({"patterns": [{"id": each} for each in ids]}, cycle))


def cycle(number, *ids):
    """The records that a cycle saves: its own, and the memory with these items."""
    record = CycleRecord(number, datetime.now(UTC), status="finished", id=f"C{number}")
    return [memory(*ids, cycle=number), stored_cycle(record)]


async def stored(store):
    """The numbers of the stored cycles, and the ids in the stored memory."""
    cycles = await store.find("cycle")
    found = await stored_memory(store)
    return [record.data["number"] for record in cycles], [each["id"] for each in found.of("patterns")]


async def back(write_behind):
    async with asyncio.timeout(60):
        while write_behind.is_away:  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _quick(monkeypatch, caplog):
    quick = {
        "ANSWER_TIMEOUT": 0.1,
        "CLOSE_TIMEOUT": 0.1,
        "OPEN_TIMEOUT": 0.1,
        "MIN_RETRY": 0.005,
        "MAX_RETRY": 0.02,
    }
    for name, seconds in quick.items():
        monkeypatch.setattr(module, name, seconds)
    caplog.set_level(logging.INFO, "redraft")


def logged(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_save_returns_when_the_records_are_written(caplog, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_TIMEOUT", 60.0)
    store = Database()
    write_behind = WriteBehind(store, "a")
    assert await write_behind.load() is None
    await write_behind.save(cycle(1, "x"))
    assert await stored(store) == ([1], ["x"])
    store.answers.clear()
    saving = asyncio.ensure_future(write_behind.save(cycle(2, "x", "y")))
    done, _ = await asyncio.wait([saving], timeout=0.05)
    assert not done  # however slow the store is
    store.answers.set()
    await saving
    assert await stored(store) == ([1, 2], ["x", "y"])
    assert store.writes == [["memory", "0000000001-C1"], ["memory", "0000000002-C2"]]
    await write_behind.aclose()
    assert caplog.records == []


async def test_an_outage_is_logged_once_and_loses_nothing(caplog):
    store = Database()
    write_behind = WriteBehind(store, "a")
    await write_behind.load()
    await write_behind.save(cycle(1, "1"))
    for outage in range(2):
        store.is_away = True
        for number in range(2, 40):
            await write_behind.save(cycle(number + 100 * outage, str(number)))
            assert write_behind.is_away
        await write_behind.flush()  # returns immediately
        assert len(logged(caplog, logging.WARNING)) == outage + 1
        store.is_away = False
        await back(write_behind)
        assert await stored(store) == (
            sorted([*range(1, 40), *range(102, 140)][: 39 + 38 * outage]),
            ["39"],
        )
    await write_behind.aclose()
    assert [("continues without its store" in line) for line in logged(caplog, logging.WARNING)] == [True] * 2
    assert [("is reachable again" in line) for line in logged(caplog, logging.INFO)] == [True] * 2


async def test_a_silent_store_counts_as_away(caplog):
    store = Database()
    write_behind = WriteBehind(store, "a")
    await write_behind.load()
    store.answers.clear()
    for number in range(1, 40):
        await write_behind.save(cycle(number, "x"))
    assert write_behind.is_away
    store.answers.set()
    await back(write_behind)
    await write_behind.flush()
    assert (await stored(store))[0] == [*range(1, 40)]
    assert store.writes[0] == ["memory", "0000000001-C1"]  # written once
    await write_behind.aclose()
    assert [("has not answered for 0.1 s" in line) for line in logged(caplog, logging.WARNING)] == [True]
    assert len(logged(caplog, logging.INFO)) == 1


@pytest.mark.parametrize("is_silent", [False, True])
async def test_after_an_outage_at_the_start_stored_records_are_read_before_any_are_written(caplog, is_silent):
    store = Database()
    await store.put(memory("old", cycle=7))
    store.is_away = not is_silent
    if is_silent:
        store.answers.clear()
    caught_up = []

    async def catch_up():
        caught_up.append(await stored(store))
        return cycle(8, "old", "new")

    write_behind = WriteBehind(store, "a", lease=Lease(store, "a"))
    assert await write_behind.load(catch_up) is None
    assert (write_behind.is_away, write_behind.is_provisional) == (True, True)
    await write_behind.save([Record("feedback", "f", {})])
    store.is_away = False
    store.answers.set()
    await back(write_behind)
    assert not write_behind.is_provisional
    assert caught_up == [([], ["old"])]
    assert await stored(store) == ([8], ["old", "new"])
    assert await store.get("feedback", "f") is not None
    await write_behind.aclose()
    assert len(logged(caplog, logging.WARNING)) == len(logged(caplog, logging.INFO)) == 1


async def test_an_unstorable_record_is_dropped_and_blocks_nothing(caplog):
    store = Database()
    write_behind = WriteBehind(store, "a")
    await write_behind.load()
    await write_behind.save([memory("x"), Record("cycle", "1", {"rate": math.nan})])
    assert await stored(store) == ([], ["x"])
    store.is_away = True
    await write_behind.save([Record("cycle", "1", {"rate": math.nan})])
    await write_behind.save(cycle(2, "y"))
    store.is_away = False
    await back(write_behind)
    await write_behind.flush()
    assert await stored(store) == ([2], ["y"])
    await write_behind.aclose()
    assert [("data['rate'] is nan" in line) for line in logged(caplog, logging.ERROR)] == [True, True]


async def test_an_error_that_is_no_outage_is_raised():
    class Broken(Database):
        async def put_all(self, records):
            raise ZeroDivisionError

    write_behind = WriteBehind(Broken(), "a")
    await write_behind.load()
    with pytest.raises(ZeroDivisionError):
        await write_behind.save(cycle(1, "x"))


async def test_closing_writes_what_it_can(caplog):
    store = Database()
    write_behind = WriteBehind(store, "a", lease=Lease(store, "a"))
    await write_behind.load()
    store.is_away = True
    await write_behind.save(cycle(1, "x"))
    store.is_away = False
    await write_behind.aclose()
    assert (await stored(store))[0] == [1]
    assert (await store.get(LEASE, LEASE)).data["is_free"]
    assert "are lost" not in caplog.text
    other = WriteBehind(store, "a")
    await other.load()
    store.is_away = True
    await other.save(cycle(2, "y"))
    await other.aclose()
    assert "its unsaved records are lost" in caplog.text


async def test_closing_waits_for_a_slow_store(caplog, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_TIMEOUT", 60.0)
    monkeypatch.setattr(module, "CLOSE_TIMEOUT", 0.0)
    store = Database()
    write_behind = WriteBehind(store, "a", lease=Lease(store, "a"))
    await write_behind.load()
    store.answers.clear()
    saving = asyncio.ensure_future(write_behind.save(cycle(1, "x")))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(write_behind.aclose())
    done, _ = await asyncio.wait([saving, closing], timeout=0.05)
    assert not done
    store.answers.set()
    await asyncio.gather(saving, closing)
    assert await stored(store) == ([1], ["x"])
    assert (await store.get(LEASE, LEASE)).data["is_free"]
    assert caplog.records == []


async def test_nothing_is_written_once_another_process_runs_the_agent():
    store = Database()
    write_behind = WriteBehind(store, "a", lease=Lease(store, "a"))
    await write_behind.load()
    store.is_away = True
    await write_behind.save(cycle(1, "mine"))
    record = await MemoryStore.get(store, LEASE, LEASE)
    await MemoryStore.put_all(store, [Record(LEASE, LEASE, {**record.data, "is_free": True})])
    store.is_away = False
    other = Lease(store, "a")
    await other.acquire()
    async with asyncio.timeout(60):
        while not write_behind.lease.lost:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.005)
    with pytest.raises(LeaseError, match="is run by"):
        await write_behind.save(cycle(2, "mine"))
    await write_behind.flush()
    assert await store.find("cycle") == []
    await write_behind.aclose()
    with pytest.raises(LeaseError):
        await WriteBehind(store, "a", lease=Lease(store, "a")).load()
    await other.release()
