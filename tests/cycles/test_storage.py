"""Long-term storage: one per network, with a space of its own for each agent."""

import asyncio
import logging

import psycopg
import pytest

from redraft.cycles.storage import LongTermStorage, known_locations, locate, storage_of
from redraft.errors import ConfigError, LeaseError, StoreError
from redraft.stores.base import Record
from redraft.stores.sqlite import MemoryStore
from support.store_faults import child, run

READ = "SELECT space, key, data FROM redraft_agent_records"


@pytest.fixture
def register():
    """Create storages, and close them after the test, since each network has only one."""
    storages = []

    def make(*arguments, **options):
        storages.append(LongTermStorage(*arguments, **options))
        return storages[-1]

    yield make
    storages.append(storage_of())
    for storage in storages:
        if storage is not None:
            asyncio.run(storage.aclose())


def memory(agent, cycle=1):
    return Record("memory", "memory", {"cycle": cycle, "items": {"patterns": [{"id": agent}]}})


def card(agent):
    return Record("agent", "agent", {"name": agent})


# Registered once


def test_a_network_has_one_storage(register):
    url = "postgresql://me:hush@here/db"
    first = register(url)
    assert storage_of() is first
    assert storage_of("plant") is None
    with pytest.raises(
        ConfigError, match=r"The network 'default' already has a long-term .* postgresql://me@here/db,"
    ):
        LongTermStorage("postgresql://other/db")
    second = register("postgresql://other/db", network="plant")
    assert (storage_of(), storage_of("plant")) == (first, second)
    asyncio.run(first.aclose())
    assert storage_of() is None
    assert storage_of("plant") is second
    register(url)
    assert "hush" not in f"{first} {first!r}"


def test_a_removed_option_says_what_replaces_it():
    with pytest.raises(TypeError, match=r"'spool'\. Leave it out: what an agent has not stored"):
        LongTermStorage("postgresql://me@here/db", spool="folder")
    assert storage_of() is None


def test_the_storage_of_the_setting(register, monkeypatch):
    monkeypatch.setenv("REDRAFT_LONG_TERM_STORAGE", "postgresql://one/db")
    found = storage_of("plant")
    assert found.dsn == "postgresql://one/db"
    assert storage_of("plant") is found
    assert storage_of() is not found
    with pytest.raises(ConfigError, match="already has a long-term storage"):
        LongTermStorage("postgresql://two/db", network="plant")
    monkeypatch.setenv("REDRAFT_LONG_TERM_STORAGE", "postgresql://two/db")
    assert storage_of("plant").dsn == "postgresql://two/db"
    asyncio.run(storage_of("plant").aclose())
    registered = register("postgresql://three/db", network="plant")
    assert storage_of("plant") is registered


@pytest.mark.parametrize("url", ["", "mysql://here/db", "postgresql://me:hu@sh/@here/db"])
def test_rejects_an_invalid_database_url(monkeypatch, url):
    with pytest.raises(ConfigError, match="PostgreSQL database"):
        LongTermStorage(url)
    assert storage_of() is None
    monkeypatch.setenv("REDRAFT_LONG_TERM_STORAGE", url)
    with pytest.raises(
        ConfigError, match=r"The setting `long_term_storage` \(REDRAFT_LONG_TERM_STORAGE\): The URL"
    ):
        storage_of()


# Each agent for itself


NAMES = [
    "a",
    "a:b",
    "b",
    "a%3Ab",
    "a'; --",
    "A",
    "ä",
    "東" * 60,
    "東" * 61,
    "x" * 200,
    "x" * 199 + "y",
    "",
    "#",
]


async def test_no_two_agents_share_a_space(register, postgres):
    storages = [register(postgres.url, network=network) for network in ("default", "default:a", "東" * 200)]
    stores = {(each.network, name): each.store_for(name) for each in storages for name in NAMES}
    await asyncio.gather(*(store.put(memory(f"{key}")) for key, store in stores.items()))
    for key, store in stores.items():
        (found,) = await store.find("memory")
        assert found.data["items"]["patterns"] == [{"id": f"{key}"}]
    assert storages[0].store_for("a") is stores["default", "a"]


@pytest.mark.parametrize("rights", ["SUPERUSER", "NOSUPERUSER"])
def test_no_agent_reads_rows_of_another(register, postgres, postgres_server, caplog, rights):
    user = f"{postgres.schema}_user"
    postgres.ask(f"CREATE ROLE {user} LOGIN {rights}")
    postgres.ask(f"GRANT CREATE, USAGE ON SCHEMA {postgres.schema} TO {user} WITH GRANT OPTION")
    storage = register(postgres.url.replace("postgres@", f"{user}@"))
    names = [f"agent {number}" for number in range(100)]

    async def one(name, others):
        async with storage.connection(name) as connection:
            rows = await (await connection.execute(READ)).fetchall()
            assert [(space, key) for space, key, _ in rows] == [(rows[0][0], "agent"), (rows[0][0], "memory")]
            assert {name in data for _, _, data in rows} == {True}
            found = await connection.execute(f"{READ} WHERE data LIKE %s", (f'%"{others}"%',))
            assert await found.fetchall() == []
            changed = await connection.execute("UPDATE redraft_agent_records SET revision = revision + 1")
            assert changed.rowcount == 2
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute("UPDATE redraft_agent_records SET space = 'agent:default:x'")

    async def main():
        stores = [storage.store_for(name) for name in names]
        await asyncio.gather(
            *(store.put_all([card(name), memory(name)]) for name, store in zip(names, stores, strict=True))
        )
        for start in range(0, 100, 20):
            await asyncio.gather(
                *(one(f"agent {n}", f"agent {(n + 1) % 100}") for n in range(start, start + 20))
            )
        for store, name in zip(stores, names, strict=True):
            assert [record.data["items"]["patterns"] for record in await store.find("memory")] == [
                [{"id": name}]
            ]
        assert await storage.agents() == sorted(names)
        await storage.aclose()

    with caplog.at_level(logging.WARNING, "redraft"):
        asyncio.run(main())
    assert caplog.text == ""
    postgres.ask(f"DROP OWNED BY {user} CASCADE")
    postgres.ask(f"DROP ROLE {user}")


async def test_a_network_lists_its_own_agents(register, postgres):
    here, there = register(postgres.url), register(postgres.url, network="default:x")
    assert await here.agents() == []
    await asyncio.gather(*(here.store_for(name).put(card(name)) for name in ("b", "a", "東" * 100)))
    await there.store_for("c").put(card("c"))
    assert await here.agents() == ["a", "b", "東" * 100]
    assert await there.agents() == ["c"]


async def test_an_unreachable_database_is_named(register, tmp_path):
    storage = register(f"postgresql://me:hush@/mine?host={tmp_path}")
    with pytest.raises(StoreError, match=r"'mine' on .* can't be reached"):
        await storage.agents()
    with pytest.raises(StoreError, match="can't be reached"):
        async with storage.connection("a"):
            pass


# Processes

RUNS = """
from redraft.cycles.storage import LongTermStorage
async def main():
    write_behind = LongTermStorage(sys.argv[2]).location_of("monitor").write_behind()
    found = await write_behind.load()
    cycle = found.cycle if found else 0
    await write_behind.save([Record("memory", "memory", {"cycle": cycle + 1, "items": {}})])
    await write_behind.flush()
    print(cycle + 1, flush=True)
    if sys.argv[3] == "stays":
        await asyncio.sleep(60)
    await write_behind.aclose()
asyncio.run(main())
"""


def test_only_one_live_process_runs_an_agent(register, postgres):
    async def refused(write_behind, process):
        with pytest.raises(LeaseError, match=rf"The agent 'monitor' is run by process \({process.pid} on "):
            await write_behind.load()

    async def taken_over(write_behind):
        assert (await write_behind.load()).cycle == 2
        await write_behind.aclose()

    assert run(RUNS, postgres.url, "ends") == "1\n"
    storage = register(postgres.url)
    with child(RUNS, postgres.url, "stays") as process:
        assert process.stdout.readline() == "2\n"
        asyncio.run(refused(storage.location_of("monitor").write_behind(), process))
        process.kill()
        process.wait()
    asyncio.run(taken_over(storage.location_of("monitor").write_behind()))
    assert run(RUNS, postgres.url, "ends") == "3\n"


def test_an_agent_of_another_thread_that_is_made_during_a_listing_does_no_harm():
    made = []

    class Network(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            made.append(locate(f"later {len(made)}", MemoryStore(), "busy"))
            return str(self) == other

    first = locate("first", MemoryStore(), "busy")
    assert first in asyncio.run(known_locations(Network("busy")))
