"""Write-behind to a store that is slow, away or silent, and the spool."""

import asyncio
import json
import logging
import math
import stat
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter

import pytest

from redraft.cycles import write_behind as module
from redraft.cycles.lease import LEASE, Lease
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.records import PROVISIONAL, CycleRecord, memory_record, stored_cycle, stored_memory
from redraft.cycles.write_behind import Reconciliation, Spool, WriteBehind, merged
from redraft.errors import LeaseError, StoreError
from redraft.stores.base import Record
from redraft.stores.memory import MemoryStore


class Database(MemoryStore):
    """A store that is away, slow or silent on request; `writes` has the keys of each write."""

    def __init__(self):
        super().__init__()
        self.is_away = False
        self.delay = 0.0
        self.answers = asyncio.Event()
        self.answers.set()
        self.writes = []

    async def _answered(self):
        if self.is_away:
            raise StoreError("connection refused")
        await asyncio.sleep(self.delay)
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
    """Return what a cycle saves: its record, and the memory with these items."""
    return [memory(*ids, cycle=number), *changing(number)]


def changing(number, *new):
    """Return the record of a cycle that added these items."""
    changes = tuple(MemoryChange("patterns", each, None, {"id": each}) for each in new)
    return [stored_cycle(CycleRecord(number, datetime.now(UTC), status="finished", changes=changes))]


async def stored(store):
    """Return the numbers of the stored cycles, and the ids in the stored memory."""
    cycles = await store.find("cycle")
    found = await stored_memory(store)
    return [record.data["number"] for record in cycles], ids_of(found)


def ids_of(memory):
    return [each["id"] for each in memory.of("patterns")]


async def eventually(holds):
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _quick(monkeypatch, caplog):
    quick = {"SILENCE": 0.1, "CLOSE_TIMEOUT": 0.1, "OPEN_TIMEOUT": 0.1, "MIN_RETRY": 0.005, "MAX_RETRY": 0.02}
    for name, seconds in quick.items():
        monkeypatch.setattr(module, name, seconds)
    caplog.set_level(logging.INFO, "redraft")


def logged(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_save_returns_when_the_records_are_written(caplog):
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a")
        assert await write_behind.load() is None
        await write_behind.save(cycle(1, "x"))
        assert await stored(store) == ([1], ["x"])
        await write_behind.save(cycle(2, "x", "y"))
        assert store.writes == [["memory", "0000000001"], ["memory", "0000000002"]]
        await write_behind.aclose()
        again = WriteBehind(store, "a")
        assert (await again.load()).cycle == 2
        await again.aclose()

    asyncio.run(main())
    assert caplog.records == []


def test_save_does_not_wait_for_a_slow_store(caplog):
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a")
        await write_behind.load()
        store.delay = 0.06
        for number in range(1, 6):
            await write_behind.save(cycle(number, "x"))
        await write_behind.flush()
        assert (await stored(store))[0] == [1, 2, 3, 4, 5]
        assert len(store.writes) < 5  # five if each save waited for its own write
        await write_behind.aclose()

    asyncio.run(main())
    assert caplog.records == []


def test_an_outage_is_logged_once_and_loses_nothing(caplog):
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a")
        await write_behind.load()
        await write_behind.save(cycle(1, "1"))
        for outage in range(2):
            store.is_away = True
            for number in range(2, 40):
                await write_behind.save(cycle(number + 100 * outage, str(number)))
                assert write_behind.is_away
            await write_behind.flush()  # returns at once
            assert len(logged(caplog, logging.WARNING)) == outage + 1
            store.is_away = False
            await eventually(lambda: not write_behind.is_away)
            assert await stored(store) == (
                sorted([*range(1, 40), *range(102, 140)][: 39 + 38 * outage]),
                ["39"],
            )
        await write_behind.aclose()

    asyncio.run(main())
    assert [("continues without its store" in line) for line in logged(caplog, logging.WARNING)] == [True] * 2
    assert [("is reachable again" in line) for line in logged(caplog, logging.INFO)] == [True] * 2


def test_a_silent_store_counts_as_away(caplog):
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a")
        await write_behind.load()
        store.answers.clear()
        started = perf_counter()
        for number in range(1, 40):
            await write_behind.save(cycle(number, "x"))
            await asyncio.sleep(0.005)
        assert write_behind.is_away
        assert perf_counter() - started < 30  # the store never answers
        store.answers.set()
        await eventually(lambda: not write_behind.is_away)
        await write_behind.flush()
        assert (await stored(store))[0] == [*range(1, 40)]
        assert store.writes[0] == ["memory", "0000000001"]  # written once
        await write_behind.aclose()

    asyncio.run(main())
    assert [("has not answered for 0.1 s" in line) for line in logged(caplog, logging.WARNING)] == [True]
    assert len(logged(caplog, logging.INFO)) == 1


@pytest.mark.parametrize("silent", [False, True])
def test_memory_from_an_outage_at_the_start_is_merged_later(caplog, silent):
    async def main():
        store = Database()
        await store.put(memory("old", "both", cycle=7))
        await store.put_all(changing(7))
        store.is_away = not silent
        if silent:
            store.answers.clear()
        write_behind = WriteBehind(store, "a", lease=Lease(store, "a"))
        assert await write_behind.load() is None
        assert write_behind.is_away
        assert write_behind.reconciliation() is None
        number = write_behind.last_provisional_number + 1
        assert number == PROVISIONAL + 1
        await write_behind.save(cycle(number, "both", "new"))
        store.is_away = False
        store.answers.set()
        await eventually(lambda: not write_behind.is_away)
        assert await stored(store) == ([7, 8], ["old", "both", "new"])
        await write_behind.save(cycle(number + 1, "new", "newer"))  # a cycle that began in the outage
        assert await stored(store) == ([7, 8, 9], ["old", "both", "new", "newer"])
        assert write_behind.stored_number(number + 1) == 9
        met = write_behind.reconciliation()
        assert ids_of(met.memory) == ["old", "both"]
        assert met.number(number + 1) == 9
        assert write_behind.reconciliation() is None
        await write_behind.save(cycle(10, "newest"))  # from here on, the agent knows the final number
        assert (await stored(store))[1] == ["newest"]
        await write_behind.save(changing(number + 1, "late"))  # still under its provisional number
        assert (await stored(store))[0] == [7, 8, 9, 10]
        await write_behind.aclose()

    asyncio.run(main())
    assert len(logged(caplog, logging.WARNING)) == len(logged(caplog, logging.INFO)) == 1


def test_memories_are_merged_by_the_ids_of_their_items():
    earlier = Memory({"a": [{"id": 1}, {"id": 2, "x": 1}], "b": [{"id": 5}]}, 3)
    later = Memory({"a": [{"id": 2, "x": 2}, {"id": 3}], "c": [{"id": 6}]}, 9)
    both = {"a": [{"id": 1}, {"id": 2, "x": 2}, {"id": 3}], "b": [{"id": 5}], "c": [{"id": 6}]}
    assert merged(earlier, later) == Memory(both, 9)
    assert merged(earlier, Memory()) == earlier
    assert merged(earlier, merged(earlier, later)) == merged(earlier, later)


def test_an_unstorable_record_is_dropped_and_blocks_nothing(caplog):
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a")
        await write_behind.load()
        await write_behind.save([memory("x"), Record("cycle", "1", {"rate": math.nan})])
        await write_behind.flush()
        assert await stored(store) == ([], ["x"])
        store.is_away = True
        await write_behind.save([Record("cycle", "1", {"rate": math.nan})])
        await write_behind.save(cycle(2, "y"))
        store.is_away = False
        await eventually(lambda: not write_behind.is_away)
        await write_behind.flush()
        assert await stored(store) == ([2], ["y"])
        await write_behind.aclose()

    asyncio.run(main())
    assert [("data['rate'] is nan" in line) for line in logged(caplog, logging.ERROR)] == [True, True]


# The spool


@pytest.fixture
def spool(tmp_path):
    spools = []

    def opened():
        spools.append(Spool(tmp_path / "a.jsonl"))
        return spools[-1]

    yield opened
    for each in spools:
        each.close()


async def die(write_behind):
    """End like a process that is killed: write nothing more."""
    write_behind._writer.cancel()
    await asyncio.wait([write_behind._writer])
    write_behind._spool.close()


def test_the_next_process_writes_the_spool_first(spool, caplog):
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a", spool())
        await write_behind.load()
        await write_behind.save(cycle(1, "1"))
        assert write_behind._spool.path.stat().st_size == 0
        store.is_away = True
        for number in (2, 3):
            await write_behind.save(cycle(number, str(number)))
        await die(write_behind)
        again = WriteBehind(store, "a", spool())
        assert (await again.load()).cycle == 3  # the database is still away
        await again.save(cycle(4, "4"))
        await die(again)
        store.is_away = False
        last = WriteBehind(store, "a", spool())
        assert (await last.load()).cycle == 4
        assert await stored(store) == ([1, 2, 3, 4], ["4"])
        assert last._spool.path.stat().st_size == 0
        await last.aclose()

    asyncio.run(main())


def test_a_partial_memory_in_the_spool_is_merged(spool):
    async def main():
        store = Database()
        await store.put(memory("old"))
        store.is_away = True
        write_behind = WriteBehind(store, "a", spool())
        await write_behind.load()
        await write_behind.save(cycle(PROVISIONAL + 1, "new"))
        await die(write_behind)
        store.is_away = False
        again = WriteBehind(store, "a", spool())
        found = await again.load()
        assert (ids_of(found), found.cycle) == (["old", "new"], 1)
        assert again.reconciliation() is None  # the loaded memory is merged already
        await again.aclose()

    asyncio.run(main())


def test_a_spool_without_a_memory_keeps_the_stored_one(spool):
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a", spool())
        await write_behind.load()
        await write_behind.save(cycle(1, "1"))
        store.is_away = True
        await write_behind.save([stored_cycle(CycleRecord(2, datetime.now(UTC), status="failed"))])
        await die(write_behind)
        partial = WriteBehind(store, "a", spool())
        assert await partial.load() is None  # the memory before the second cycle is unknown
        await partial.save(cycle(PROVISIONAL + 1, "3"))
        store.is_away = False
        await eventually(lambda: not partial.is_away)
        assert await stored(store) == ([1, 2, 3], ["1", "3"])
        assert ids_of(partial.reconciliation().memory) == ["1"]
        await partial.save(cycle(4, "1", "3", "4"))
        await partial.aclose()
        assert await stored(store) == ([1, 2, 3, 4], ["1", "3", "4"])

    asyncio.run(main())


def test_a_second_start_in_an_outage_continues_after_the_spool(spool):
    async def main():
        store = Database()
        await store.put_all(cycle(7, "p7-1"))
        store.is_away = True
        for number in (1, 2):
            write_behind = WriteBehind(store, "a", spool())
            await write_behind.load()
            assert write_behind.last_provisional_number == PROVISIONAL + number - 1
            new = f"p{PROVISIONAL + number}-1"
            await write_behind.save(cycle(PROVISIONAL + number, *[new]))
            await die(write_behind)
        store.is_away = False
        last = WriteBehind(store, "a", spool())
        assert ids_of(await last.load()) == ["p7-1", "p9-1"]
        assert (await stored(store))[0] == [7, 8, 9]
        await last.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("is_away_at_the_start", [False, True])
def test_a_spool_does_not_overwrite_a_later_process(spool, is_away_at_the_start):
    async def main():
        store = Database()
        first = WriteBehind(store, "a", spool(), lease=Lease(store, "a"))
        await first.load()
        await first.save(cycle(1, "p1-1"))
        store.is_away = True
        for number in (2, 3):
            await first.save(cycle(number, *(f"p{each}-1" for each in range(1, number + 1))))
            await first.save(changing(number, f"p{number}-1"))
        await die(first)
        first.lease._renewing.cancel()
        store.is_away = False
        lease = await store.get(LEASE, LEASE)
        await store.put(replace(lease, data={**lease.data, "until": "2020-01-01T00:00:00+00:00"}))
        second = WriteBehind(store, "a", lease=Lease(store, "a"))  # another machine, without the spool
        await second.load()
        await second.save([memory("p1-1", "p2-1", cycle=2), *changing(2, "p2-1")])
        await second.aclose()
        store.is_away = is_away_at_the_start
        third = WriteBehind(store, "a", spool(), lease=Lease(store, "a"))
        found = await third.load()
        if is_away_at_the_start:
            assert ids_of(found) == ["p1-1", "p2-1", "p3-1"]
            await third.save(cycle(PROVISIONAL + 1, *ids_of(found), f"p{PROVISIONAL + 1}-1"))
            store.is_away = False
            await eventually(lambda: not third.is_away)
        numbers, found = await stored(store)
        assert numbers == [1, 2, 3, 4, *([5] if is_away_at_the_start else [])]
        assert sorted(found) == [f"p{number}-1" for number in numbers]
        await third.aclose()

    asyncio.run(main())


def test_a_cycle_that_could_not_be_resumed_ends_as_failed():
    async def main():
        store = Database()
        running = CycleRecord(7, datetime.now(UTC), status="running")
        await store.put_all([memory("old", cycle=6), stored_cycle(running)])
        store.is_away = True
        write_behind = WriteBehind(store, "a")
        await write_behind.load()
        await write_behind.save(cycle(PROVISIONAL + 1, "new"))
        store.is_away = False
        await eventually(lambda: not write_behind.is_away)
        found = await store.find("cycle")
        assert [(one.data["number"], one.data["status"]) for one in found] == [(7, "failed"), (8, "finished")]
        assert "restarted while its database was unreachable" in found[0].data["error"]
        await write_behind.aclose()

    asyncio.run(main())


def test_everything_that_names_a_cycle_is_renumbered():
    numbers = Reconciliation(7, {2: 8})
    items = {"a": [{"id": f"v{PROVISIONAL + 2}-1", "cycle": PROVISIONAL + 2, "x": f"{PROVISIONAL + 2}-1"}]}
    renumbered = {"a": [{"id": "v9-1", "cycle": 9, "x": f"{PROVISIONAL + 2}-1"}]}
    assert numbers.merge(Memory(items, PROVISIONAL + 2)) == Memory(renumbered, 9)
    ids = {"p2-3": "p8-3", "2-1": "8-1", "p3-1": "p3-1", "20261122T1-2": "20261122T1-2", "x2-1": "x2-1"}
    old = Memory({"a": [{"id": each} for each in ids]}, 2)
    assert numbers.merge(old) == Memory({"a": [{"id": each} for each in ids.values()]}, 8)
    mail = Record("feedback", "f", {"cycle": PROVISIONAL + 1, "message": "no"})
    assert numbers.apply(mail).data == {"cycle": 8, "message": "no"}


@pytest.mark.parametrize("delay", [0.03, 1.0])
def test_unwritten_records_are_in_the_spool(spool, delay):
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a", spool())
        await write_behind.load()
        store.delay = delay
        for number in (1, 2):
            await write_behind.save(cycle(number, str(number)))
        await die(write_behind)
        store.delay = 0
        again = WriteBehind(store, "a", spool())
        await again.load()
        assert await stored(store) == ([1, 2], ["2"])
        await again.aclose()

    asyncio.run(main())


def test_closing_writes_what_it_can(spool, caplog):
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a", lease=Lease(store, "a"))
        await write_behind.load()
        store.is_away = True
        await write_behind.save(cycle(1, "x"))
        store.is_away = False
        await write_behind.aclose()
        assert (await stored(store))[0] == [1]
        assert (await store.get(LEASE, LEASE)).data["is_free"]
        for own, where in ((None, "are lost"), (spool(), "a.jsonl for the next start")):
            store.is_away = False
            other = WriteBehind(store, "a", own)
            await other.load()
            store.is_away = True
            await other.save(cycle(2, "y"))
            await other.aclose()
            assert where in caplog.text
            assert ("next start" in caplog.text) == (own is not None)

    asyncio.run(main())


# The lease


def test_nothing_is_written_once_another_process_runs_the_agent():
    async def main():
        store = Database()
        write_behind = WriteBehind(store, "a", lease=Lease(store, "a"))
        await write_behind.load()
        store.is_away = True
        await write_behind.save(cycle(1, "mine"))
        record = await MemoryStore.get(store, LEASE, LEASE)
        await MemoryStore.put(store, Record(LEASE, LEASE, {**record.data, "is_free": True}))
        store.is_away = False
        other = Lease(store, "a")
        await other.acquire()
        await eventually(lambda: write_behind.lease.lost)
        with pytest.raises(LeaseError, match="is run by"):
            await write_behind.save(cycle(2, "mine"))
        await write_behind.flush()
        assert await store.find("cycle") == []
        await write_behind.aclose()
        with pytest.raises(LeaseError):
            await WriteBehind(store, "a", lease=Lease(store, "a")).load()
        await other.release()

    asyncio.run(main())


# The spool by itself


def note(key, **data):
    return Record("note", key, data, 3)


def by_key(*records):
    return {(record.kind, record.key): record for record in records}


@pytest.fixture
def opened(tmp_path):
    """Open spools at one path, and close them after the test."""
    spools = []

    def open_one():
        spools.append(Spool(tmp_path / "stored" / "a.jsonl"))
        return spools[-1]

    yield open_one
    for each in spools:
        each.close()


def test_the_spool_returns_the_last_record_of_each_key(opened):
    first = opened()
    assert first.read() == ({}, False, 0)
    first.add([note("a", x="\ud800"), note("b")], is_partial=False)
    first.add([note("a", x=2)], is_partial=False)
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    first.close()
    assert opened().read() == (by_key(note("a", x=2), note("b")), False, 0)


def test_the_spool_skips_records_that_are_not_json(opened):
    first = opened()
    first.read()
    first.add([note("a", x={1})], is_partial=False)
    first.add([note("b")], is_partial=False)
    first.close()
    assert opened().read() == (by_key(note("b")), False, 0)


def test_the_spool_says_whether_its_memory_is_partial(opened):
    first = opened()
    first.read()
    first.add([note("a")], is_partial=True)
    first.add([note("b")], is_partial=False)
    first.close()
    assert opened().read()[1]


def test_the_spool_has_the_generation_of_the_lease(opened):
    first = opened()
    first.read()
    first.add([note("a")], is_partial=False, generation=3)
    first.add([note("b")], is_partial=True)  # the stored memory was unknown
    first.close()
    assert opened().read()[2] == 3


def test_a_cleared_spool_is_empty(opened):
    first = opened()
    first.read()
    first.add([note("a")], is_partial=False)
    first.clear()
    first.add([note("b")], is_partial=False)
    first.close()
    assert opened().read() == (by_key(note("b")), False, 0)


@pytest.mark.parametrize("torn", [b'\n{"is_partial": fal', b"\n{}", b'\n{"records": 1}', b"\n\xff"])
def test_a_torn_line_is_dropped_with_a_warning(opened, caplog, torn):
    first = opened()
    first.read()
    first.add([note("a")], is_partial=False)
    first.close()
    with first.path.open("ab") as file:
        file.write(torn)
    second = opened()
    assert second.read() == (by_key(note("a")), False, 0)
    assert "line 3 can't be read" in caplog.text
    second.add([note("b")], is_partial=False)
    second.close()
    assert opened().read()[0] == by_key(note("a"), note("b"))


def test_the_spool_of_a_version_with_vectors_is_read(opened):
    first = opened()
    first.read()
    record = ["note", "a", {"x": 1}, 3, [1.0, 0.5]]
    first.path.write_text(json.dumps({"is_partial": False, "generation": 2, "records": [record]}))
    first.close()
    assert opened().read() == (by_key(note("a", x=1)), False, 2)


def test_the_spool_serves_one_process_at_a_time(opened):
    first, second = opened(), opened()
    first.read()
    with pytest.raises(LeaseError, match="Another process on this machine runs the agent"):
        second.read()
    first.close()
    second.read()


def test_a_replaced_spool_holds_only_the_new_records(opened, monkeypatch):
    monkeypatch.setattr(module, "MAX_SPOOL", 1000)
    first = opened()
    first.read()
    while not first.is_large():
        first.add([note("a", text="x" * 100)], is_partial=False)
    first.replace([note("a", x=1)], is_partial=True)
    assert not first.is_large()
    first.add([note("b")], is_partial=False)
    with pytest.raises(LeaseError):
        opened().read()
    first.close()
    assert opened().read() == (by_key(note("a", x=1), note("b")), True, 0)


def test_an_unusable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"The spool .*a\.jsonl can't be used"):
        Spool(tmp_path / "file" / "a.jsonl").read()
