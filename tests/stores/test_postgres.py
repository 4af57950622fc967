import asyncio
import gc
import json
import subprocess
import sys
from functools import partial
from random import Random

import pytest

from redraft.errors import MissingExtraError, StoreError
from redraft.stores import postgres as module
from redraft.stores import postgres_session
from redraft.stores.base import Record
from redraft.stores.postgres import LONGEST_SPACE, PostgresStore
from redraft.stores.postgres_session import MIGRATIONS
from redraft.stores.postgres_sql import Space, select
from redraft.stores.run_index import CYCLE, RUN
from support.store_faults import TESTS, note, run


@pytest.fixture
def store(postgres):
    store = PostgresStore(postgres.url)
    yield store
    asyncio.run(store.aclose())


def test_data_is_stored_verbatim(store, postgres):
    data = {"z": 1.0, "a": 1e22, "nul": "\0", "high": "\ud83d", "é": [2**70, -0.0], "n": None}

    async def main():
        await store.put(Record("note", "a", data))
        ((text, fields),) = postgres.ask("SELECT data, fields FROM redraft_records")
        assert text == (
            '{"z":1.0,"a":1e+22,"nul":"\\u0000","high":"\\ud83d","é":[1180591620717411303424,-0.0],"n":null}'
        )
        assert fields == ['"z":1.0', '"a":1e+22', '"nul":"\\u0000"', '"high":"\\ud83d"', '"é":#']
        found = (await store.get("note", "a")).data
        assert json.dumps(found) == json.dumps(data)

    asyncio.run(main())


def test_the_longest_names_can_be_indexed(postgres):
    chance = Random(5)  # noqa: S311 (no secret)
    long = ["".join(chance.choices("abcdefgh", k=length)) for length in (LONGEST_SPACE, 1000, 1000)]

    async def main():
        store = PostgresStore(postgres.url, long[0])
        written = await store.put(Record(long[1], long[2], {long[1]: long[2], long[2]: 1}))
        assert await store.find(long[1], where={long[1]: long[2]}) == [written]
        assert await store.find(long[1], where={long[1]: long[2] + "a"}) == []
        assert await store.find(long[1], where={long[1]: None}) == []
        assert await store.find(long[1], where={long[1] + "a": None}) == [written]
        await store.aclose()

    asyncio.run(main())
    with pytest.raises(StoreError, match=r"space .* \(501 bytes\) must have at most 500"):
        PostgresStore(postgres.url, "x" * (LONGEST_SPACE + 1))


def test_concurrent_puts_share_transactions(store, postgres):
    async def main():
        await store.put(note("first"))
        await asyncio.gather(*(store.put(note(str(number))) for number in range(200)))
        ((transactions,),) = postgres.ask("SELECT count(DISTINCT xmin::text) FROM redraft_records")
        assert transactions <= 10

    asyncio.run(main())


def test_a_write_waits_for_the_server_once_before_its_commit(store, monkeypatch):
    waits = []
    sync = postgres_session._sync
    monkeypatch.setattr(postgres_session, "_sync", lambda *given: (waits.append(given), sync(*given)))

    async def main():
        for kind in ("note", CYCLE, RUN):
            await store.put(Record(kind, "a", {}))
            await store.put_all_if(kind, "a", {}, [Record(kind, "b", {}), Record("note", "c", {})])
            await store.delete(kind, "a")
        assert len(waits) == 9

    asyncio.run(main())


def test_a_refused_record_does_not_affect_others(store, postgres):
    async def main():
        await store.put(note("first"))
        postgres.ask("ALTER TABLE redraft_records ADD CONSTRAINT no_bad CHECK (key <> 'bad')")
        keys = [str(number) for number in range(20)]
        results = await asyncio.gather(
            *(store.put(note(key)) for key in (*keys, "bad", "last")), return_exceptions=True
        )
        errors = [each for each in results if isinstance(each, StoreError)]
        assert len(errors) == 1
        assert "no_bad" in str(errors[0])
        records = await store.find("note")
        assert {record.key for record in records} == {*keys, "first", "last"}
        assert {record.revision for record in records} == {1}

    asyncio.run(main())


def test_filters_use_an_index(store, postgres):
    async def main():
        for start in range(0, 3000, 1000):
            await asyncio.gather(
                *(
                    store.put(note(f"{number}", name=f"agent {number}"))
                    for number in range(start, start + 1000)
                )
            )
        assert [record.key for record in await store.find("note", where={"name": "agent 77"})] == ["77"]

    asyncio.run(main())
    postgres.ask("ANALYZE redraft_records")
    plan = postgres.ask(
        "EXPLAIN SELECT key FROM redraft_records WHERE space = '' AND kind = 'note' "
        """AND fields && ARRAY['"name":"agent 77"']"""
    )
    assert "redraft_records_fields" in str(plan)


# The schema


BEGIN = "from redraft.stores.postgres import PostgresStore\n"


def test_an_older_schema_is_migrated(postgres, monkeypatch):
    first = PostgresStore(postgres.url)
    asyncio.run(first.put(note("old")))
    asyncio.run(first.aclose())
    more = (*MIGRATIONS, "ALTER TABLE redraft_records ADD COLUMN more integer;")
    monkeypatch.setattr("redraft.stores.postgres_session.MIGRATIONS", more)
    assert [record.key for record in asyncio.run(first.find("note"))] == ["old"]
    asyncio.run(first.aclose())
    assert postgres.ask("SELECT version, more FROM redraft_schema, redraft_records") == [(len(more), None)]


def test_a_schema_of_a_newer_redraft_is_refused(store, postgres):
    async def main():
        await store.put(note())
        await store.aclose()
        postgres.ask("UPDATE redraft_schema SET version = 99")
        for call in (store.get("note", "a"), store.put(note())):
            with pytest.raises(StoreError, match=r"has version 99 of the schema.*upgrade redraft"):
                await call
        postgres.ask(f"UPDATE redraft_schema SET version = {len(MIGRATIONS)}")  # noqa: S608 (a number)
        assert (await store.get("note", "a")).revision == 1

    asyncio.run(main())


# Processes and threads


def test_stores_of_one_database_share_their_connections(postgres):
    async def main():
        stores = [PostgresStore(postgres.url, f"space {number}") for number in range(50)]
        await asyncio.gather(*(store.put(note()) for store in stores))
        await asyncio.gather(*(store.get("note", "a") for store in stores))
        ((connections,),) = postgres.ask(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'redraft' "
            "AND query LIKE '%redraft_records%'"
        )
        assert connections <= 2
        await stores[0].aclose()

    asyncio.run(main())
    gc.collect()
    assert (postgres.url, 30.0) not in module._servers  # nothing holds on to what is forgotten


WRITE_THE_SAME = """
from dataclasses import replace
from random import Random
from support.store_faults import at_once

async def write(store, chance):
    for _ in range(8):
        key, changed = chance.choice("abc"), None
        while not changed:
            record, _ = await store.put_if_absent(Record("count", key, {"n": 0}))
            changed = await store.replace(replace(record, data={"n": record.data["n"] + 1}))
        await asyncio.gather(*(store.put(Record("same", chance.choice("abcdefgh"), {})) for _ in range(8)))
        mixed = [[Record("together", key, {}) for key in chance.sample("abcd", 3)] for _ in range(3)]
        await asyncio.gather(*map(store.put_all, mixed))

async def main(process):
    store = PostgresStore(sys.argv[2])
    await asyncio.gather(*(write(store, Random(f"{process}/{task}")) for task in range(3)))
    await store.aclose()

at_once(6, lambda process: asyncio.run(main(process)))
"""


def test_processes_that_write_the_same_records_lose_nothing(postgres, store):
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = postgres.ask(deadlocks)
    run(BEGIN + WRITE_THE_SAME, postgres.url)
    assert postgres.ask(deadlocks) == before
    counts = asyncio.run(store.find("count"))
    assert sum(record.data["n"] for record in counts) == 6 * 3 * 8
    assert sum(record.revision for record in asyncio.run(store.find("same"))) == 6 * 3 * 8 * 8
    assert sum(record.revision for record in asyncio.run(store.find("together"))) == 6 * 3 * 8 * 3 * 3


def test_without_the_extra_the_error_has_the_pip_command():
    script = """
import sys
sys.modules["psycopg"] = None
from redraft.errors import MissingExtraError
from redraft.stores.postgres import PostgresStore
try:
    PostgresStore("postgresql://me:hush@host/db")
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=TESTS
    )
    assert "pip install 'redraft[postgres]'" in done.stdout
    assert MissingExtraError


def test_a_hasty_store_writes_without_waiting_for_the_disk(postgres):
    async def main():
        store = PostgresStore(postgres.url, "one")
        hasty = store.hasty()
        await hasty.put_all([Record("step", "a", {"n": 1}), Record("step", "b", {"n": 2})])
        found = [record.data["n"] for record in await store.find("step")]
        await store.put(Record("step", "a", {"n": 3}))
        again = await hasty.get("step", "a")
        await store.aclose()
        await hasty.delete("step", "b")
        left = await store.find("step")
        await store.aclose()
        return found, again, [record.key for record in left]

    found, again, left = asyncio.run(main())
    assert found == [1, 2]
    assert again.data == {"n": 3}
    assert left == ["a"]


@pytest.mark.parametrize(("hasty", "waits"), [(False, "on"), (True, "off")])
def test_only_a_hasty_write_does_not_wait_for_the_disk(postgres, hasty, waits):
    async def main():
        store = PostgresStore(postgres.url)
        ask = partial(select, Space(""), "SELECT current_setting('synchronous_commit')", {})
        try:
            [found] = await (store.hasty() if hasty else store)._write([(("", "note", "a"), ask)])
            return found
        finally:
            await store.aclose()

    assert asyncio.run(main()) == [(waits,)]
