"""Isolated stores: what a session sees, whoever its user is, and whatever it asks."""

import asyncio
import logging
from contextlib import closing

import psycopg
import pytest

from postgres_server import with_schema
from redraft.core.errors import ConfigError, StoreError
from redraft.core.sync import run_sync
from redraft.stores.base import Record
from redraft.stores.migrate import scripts
from redraft.stores.postgres import PostgresStore
from redraft.stores.postgres_isolation import ROLE

READ = "SELECT space, key FROM redraft_agent_records ORDER BY space, key"
WRITE = """
INSERT INTO redraft_agent_records VALUES ('agent:other', 'note', 'x', '{}', '{}', 1, NULL, 1, 1, 1)"""
PASSED_OVER = "passes over row-level security"


def note(key="a", **data):
    return Record("note", key, data)


def drop_role(place):
    if (ROLE,) in place.ask("SELECT rolname FROM pg_roles"):
        place.ask(f"DROP OWNED BY {ROLE} CASCADE")
        place.ask(f"DROP ROLE {ROLE}")


@pytest.fixture
def user_of(postgres, postgres_server):
    """Make users of the place; return their URLs."""
    made = []

    def user_with(rights, option=" WITH GRANT OPTION"):
        name = f"{postgres.schema}_{len(made)}"
        made.append(name)
        if "CREATEROLE" in rights:
            drop_role(postgres)  # others have made it, and only who makes it may take it on
        postgres.ask(f"CREATE ROLE {name} LOGIN PASSWORD 'x' {rights}")
        postgres.ask(f"GRANT CREATE, USAGE ON SCHEMA {postgres.schema} TO {name}{option}")
        return with_schema(postgres_server.replace("postgres@", f"{name}:x@"), postgres.schema)

    yield user_with
    for name in made:
        postgres.ask(f"DROP OWNED BY {name} CASCADE")
        postgres.ask(f"DROP ROLE {name}")


async def two_agents(url):
    """Have two agents keep something; return the store of the first."""
    one, other = (PostgresStore(url, space, isolated=True) for space in ("agent:one", "agent:other"))
    await asyncio.gather(one.put(note("mine")), other.put(note("theirs")))
    return one


async def refused(session, sql):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await session.execute(sql)


@pytest.mark.parametrize("rights", ["SUPERUSER", "", "BYPASSRLS CREATEROLE"])
def test_a_session_sees_its_own_space_whatever_it_asks(user_of, caplog, rights):
    """The owner of the table, a superuser, and one who passes over policies and may make roles."""

    async def main():
        store = await two_agents(user_of(rights))
        async with await store.session() as session:

            async def seen():
                return await (await session.execute(READ)).fetchall()

            own = [("agent:one", "mine")]
            assert await seen() == own
            for reset in ("RESET ROLE", "RESET redraft.space", "RESET ALL", "DISCARD ALL"):
                await session.execute(reset)
                assert await seen() == own
            assert (
                await session.execute("DELETE FROM redraft_agent_records WHERE key = 'theirs'")
            ).rowcount == 0
            assert (await session.execute("UPDATE redraft_agent_records SET data = '{}'")).rowcount == 1
            await refused(session, "UPDATE redraft_agent_records SET space = 'agent:other'")
            await refused(session, WRITE)
            await session.execute("SET redraft.space = ''")
            assert await seen() == []
        assert (await store.get("note", "mine")).data == {}
        assert await store.get("note", "theirs") is None
        await store.aclose()

    asyncio.run(main())
    assert PASSED_OVER not in caplog.text


def test_who_passes_over_policies_for_good_is_warned_once(user_of, caplog, postgres):
    """A role that an administrator has made powerful; stores keep agents apart all the same."""

    async def main():
        url = user_of("BYPASSRLS CREATEROLE")
        store = await two_agents(url)
        assert PASSED_OVER not in caplog.text
        await store.aclose()
        postgres.ask(f"ALTER ROLE {ROLE} BYPASSRLS")
        try:
            assert [record.key for record in await store.find("note")] == ["mine"]
            await store.aclose()
            await store.put(note("again"))
        finally:
            postgres.ask(f"ALTER ROLE {ROLE} NOBYPASSRLS")
        await store.aclose()

    with caplog.at_level(logging.WARNING, "redraft"):
        asyncio.run(main())
    assert caplog.text.count(PASSED_OVER) == 1
    assert f"CREATE ROLE {ROLE}" in caplog.text


@pytest.mark.parametrize(
    ("rights", "option"), [("BYPASSRLS", " WITH GRANT OPTION"), ("BYPASSRLS CREATEROLE", "")]
)
def test_who_may_not_take_on_the_role_is_warned_and_goes_on(user_of, caplog, rights, option):
    """One may not make it, or be granted it; one may not let it look into the schema."""

    async def main():
        store = await two_agents(user_of(rights, option))
        assert [record.key for record in await store.find("note")] == ["mine"]
        await store.aclose()

    with caplog.at_level(logging.WARNING, "redraft"):
        asyncio.run(main())
    assert caplog.text.count(PASSED_OVER) == 1


def test_who_is_granted_the_role_needs_no_right_to_make_it(user_of, caplog, postgres):
    async def main():
        await (await two_agents(postgres.url)).aclose()
        url = user_of("BYPASSRLS")
        postgres.ask(f"GRANT {ROLE} TO {postgres.schema}_0")
        postgres.ask(f"GRANT SELECT ON redraft_schema TO {postgres.schema}_0")
        store = PostgresStore(url, "agent:one", isolated=True)
        async with await store.session() as session:
            assert await (await session.execute(READ)).fetchall() == [("agent:one", "mine")]
        await store.aclose()

    with caplog.at_level(logging.WARNING, "redraft"):
        asyncio.run(main())
    assert caplog.text == ""


@pytest.mark.parametrize("space", ["a b\\c\t'\"; -c x=y", "ä東🔑", ""])
def test_a_session_is_in_a_space_of_any_name(postgres, space):
    async def main():
        store = PostgresStore(postgres.url, space, isolated=True)
        await store.put(note())
        async with await store.session() as session:
            assert await (await session.execute(READ)).fetchall() == [(space, "a")]
        await store.aclose()

    asyncio.run(main())


def test_the_directory_shows_what_agents_say_of_themselves(postgres):
    async def main():
        store = await two_agents(postgres.url)
        await store.put(Record("agent", "agent", {"name": "one"}))
        directory = PostgresStore(postgres.url, "agents", isolated=True)
        async with await directory.session() as session:
            assert await (await session.execute(READ)).fetchall() == [("agent:one", "agent")]
            assert (await session.execute("DELETE FROM redraft_agent_records")).rowcount == 0
        assert await directory.find("agent") == []
        await store.aclose()
        await directory.aclose()

    asyncio.run(main())


def test_records_of_agents_are_none_of_the_projects(postgres):
    async def main():
        isolated, plain = PostgresStore(postgres.url, "x", isolated=True), PostgresStore(postgres.url, "x")
        await asyncio.gather(isolated.put(note("a")), plain.put(note("b")))
        assert [[record.key for record in await store.find("note")] for store in (isolated, plain)] == [
            ["a"],
            ["b"],
        ]
        await asyncio.gather(isolated.aclose(), plain.aclose())

    asyncio.run(main())


def test_only_an_isolated_store_has_sessions(postgres, tmp_path):
    with pytest.raises(ConfigError, match="isolated=True"):
        run_sync(PostgresStore(postgres.url).session())
    nowhere = PostgresStore(f"postgresql://me@/mine?host={tmp_path}", isolated=True)
    with pytest.raises(StoreError, match="can't be reached"):
        run_sync(nowhere.session())


def test_a_database_of_before_is_brought_up_to_date(postgres):
    first = scripts("postgres")[0]
    with closing(psycopg.connect(postgres.url, autocommit=True)) as connection:
        connection.execute(first.encode())
        connection.execute("UPDATE redraft_schema SET version = 1")
        connection.execute(
            "INSERT INTO redraft_records VALUES ('', 'note', 'old', '{}', '{}', 1, NULL, 1, 1, 1)"
        )

    async def main():
        store = PostgresStore(postgres.url)
        assert [record.key for record in await store.find("note")] == ["old"]
        await (await two_agents(postgres.url)).aclose()
        await store.aclose()

    asyncio.run(main())


def test_many_connect_at_once(postgres):
    """Each makes the role and its rights, or finds them made."""

    async def main():
        stores = [PostgresStore(postgres.url, "agent:x", wait=wait, isolated=True) for wait in range(10, 16)]
        await asyncio.gather(*(store.put(note(str(number))) for number, store in enumerate(stores)))
        assert len(await stores[0].find("note")) == len(stores)
        await asyncio.gather(*(store.aclose() for store in stores))

    asyncio.run(main())
