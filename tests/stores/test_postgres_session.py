import asyncio
import logging
import re
import signal
import socket
import traceback
from contextlib import closing
from datetime import UTC, datetime
from threading import Event

import psycopg
import pytest

from redraft._sync import run_sync
from redraft.errors import ConfigError, StoreError
from redraft.stores import postgres_session as postgres_database
from redraft.stores.base import Record
from redraft.stores.postgres import PostgresStore
from redraft.stores.postgres_session import ROLE, IsolatedDatabase
from redraft.stores.run_index import RunRow, Share
from support.postgres_server import Place, with_schema
from support.store_faults import child, note

PASSWORD = "hush"
TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'redraft' AND pid <> pg_backend_pid()"""


@pytest.fixture
def server(own_postgres):
    return own_postgres


@pytest.fixture
def place(server):
    place = Place(server.url())
    yield place
    place.drop()


def attempt(url, *, write=True, **options):
    """Put or get a record; return the message of the error, which has no password in it anywhere."""

    async def main():
        store = PostgresStore(url, **options)
        try:
            with pytest.raises(StoreError) as found:
                await (store.put(note()) if write else store.get("note", "a"))
        finally:
            await store.aclose()
        assert PASSWORD not in repr(store)
        assert PASSWORD not in "".join(traceback.format_exception(found.value))
        return str(found.value)

    return asyncio.run(main())


# Refused


def test_an_unreachable_server_is_reported(tmp_path):
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        said = attempt(f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/mine")
    assert said.startswith(f"The PostgreSQL database 'mine' on 127.0.0.1:{port} can't be reached: check")
    said = attempt(f"postgresql://me:{PASSWORD}@/mine?host={tmp_path}&port=1234")
    assert said.startswith(f"The PostgreSQL database 'mine' on {tmp_path}:1234 can't be reached")
    assert "can't be reached" in attempt(f"postgresql://me:{PASSWORD}@no-host.invalid/mine")


def test_a_silent_server_times_out():
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        said = attempt(f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/mine?connect_timeout=2")
    assert "can't be reached" in said
    assert "timeout" in said


def test_missing_privileges_are_explained(server, place):
    rules = server.data / "pg_hba.conf"
    rules.write_text("local all locked scram-sha-256\nlocal all shut reject\n" + rules.read_text())
    place.ask("SELECT pg_reload_conf()")
    place.ask(f"CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'")
    place.ask("CREATE ROLE shut LOGIN")
    place.ask("CREATE ROLE reader LOGIN")
    wrong = PASSWORD + "-hush"
    rows = [
        (server.url(user="locked", password=wrong), "rejects the password.*REDRAFT_DATABASE_URL"),
        (server.url(user="locked"), "rejects the password"),
        (server.url(user="shut", password=wrong), "rejects this user"),
        (server.url(user="nobody", password=wrong), "rejects this user"),
        (server.url("nowhere", password=wrong), "'nowhere' on .* does not exist: create it with `createdb`"),
        (place.url.replace("postgres@", f"reader:{wrong}@"), "has no schema in which this user may create"),
    ]
    for url, message in rows:
        assert re.search(message, attempt(url)), attempt(url)
    schema = place.schema
    place.ask(f"GRANT USAGE ON SCHEMA {schema} TO reader")
    reader = place.url.replace("postgres@", "reader@")
    assert "can't be used by this user: let it create" in attempt(reader)

    async def main():
        store, reading = PostgresStore(place.url), PostgresStore(reader)
        await store.put(note(x=1))
        with pytest.raises(StoreError, match="can't be used by this user"):
            await reading.get("note", "a")
        place.ask(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader")
        assert (await reading.get("note", "a")).data == {"x": 1}
        with pytest.raises(StoreError, match="can't be used by this user"):
            await reading.put(note())
        await store.aclose()
        await reading.aclose()

    asyncio.run(main())


def test_a_database_without_utf_8_is_refused(server, place):
    place.ask("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    assert "has the encoding LATIN1, which can't hold every text" in attempt(server.url("latin"))


def test_a_read_only_server_is_reported(place):
    said = attempt(place.url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20"))
    assert "is read-only" in said


def test_waiting_for_a_lock_is_bounded(place):
    async def main():
        store = PostgresStore(place.url, wait=0.2)
        await store.put(note())
        with closing(psycopg.connect(place.url)) as other:
            other.execute("UPDATE redraft_records SET revision = 9")
            with pytest.raises(StoreError, match="has been locked by another session"):
                await store.put(note())
            assert (await store.get("note", "a")).revision == 1
        assert (await store.put(note())).revision == 2
        await store.aclose()

    asyncio.run(main())


def test_dropped_tables_are_recreated(place):
    async def main():
        store = PostgresStore(place.url)
        await store.put(note())
        await store.get("note", "a")
        ours = "SELECT relname FROM pg_class WHERE relname LIKE 'redraft_%' AND relkind = 'r'"
        for (table,) in place.ask(f"{ours} AND pg_table_is_visible(oid)"):
            place.ask(f"DROP TABLE {table}")
        for call in (store.put(note()), store.get("note", "a")):
            with pytest.raises(StoreError, match='"redraft_records" does not exist'):
                await call
        assert (await store.put(note())).revision == 1
        await store.aclose()

    asyncio.run(main())


# Lost


def test_a_lost_connection_is_reopened(place, caplog):
    async def main():
        store = PostgresStore(place.url)
        await store.put(note(x=0))
        for turn in range(1, 4):
            await store.get("note", "a")
            place.ask(TERMINATE)
            written = await asyncio.gather(*(store.put(note(key, x=turn)) for key in "abc"))
            assert [record.revision for record in written] == [turn + 1, turn, turn]
            place.ask(TERMINATE)
            assert (await store.get("note", "a")).data == {"x": turn}
        await store.aclose()

    asyncio.run(main())
    assert [record.message for record in caplog.records if record.levelno > logging.INFO] == []


def test_a_write_of_unknown_outcome_is_not_repeated(place, caplog):
    async def main():
        store = PostgresStore(place.url)
        await store.put(note())
        place.ask(
            "CREATE FUNCTION end_this() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); RETURN NULL; END$$"
        )
        place.ask(
            "CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON redraft_records "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION end_this()"
        )
        with pytest.raises(StoreError, match="lost while a write was committed, which may be there or not"):
            await store.put(note())
        place.ask("DROP TRIGGER at_commit ON redraft_records")
        assert (await store.put(note())).revision == 2
        await store.aclose()

    asyncio.run(main())
    assert [record.message for record in caplog.records if record.levelno > logging.INFO] == []


def test_acknowledged_writes_survive_a_server_kill(server, place):
    acknowledged, failed, said = [], [], []

    async def write(store, task, until):
        number = 0
        while not until.is_set():
            key = f"{task}/{number}"
            number += 1
            try:
                await store.put(note(key))
            except StoreError as error:
                said.append(str(error))
                failed.append(key)
                await asyncio.sleep(0.01)
            else:
                acknowledged.append(key)

    async def more(keys, before):
        async with asyncio.timeout(60):
            while len(keys) <= before:  # noqa: ASYNC110 (the tasks that write tell nobody)
                await asyncio.sleep(0.05)

    async def main():
        store, until = PostgresStore(place.url), asyncio.Event()
        tasks = [asyncio.create_task(write(store, task, until)) for task in range(5)]
        for how in (signal.SIGKILL, signal.SIGINT):
            await asyncio.sleep(0.3)
            before = len(failed)
            await asyncio.to_thread(server.stop, how)
            await more(failed, before)
            with pytest.raises(StoreError, match="can't be reached"):
                await store.get("note", "a")
            server.start()
            await more(acknowledged, len(acknowledged))
        until.set()
        await asyncio.gather(*tasks)
        expected = ("can't be reached", "is starting or stopping", "may be there or not", "is stopping")
        assert [each for each in said if not any(text in each for text in expected)] == []
        records = await store.find("note")
        kept = {record.key for record in records}
        assert kept >= set(acknowledged)
        assert kept <= set(acknowledged) | set(failed)
        assert {record.revision for record in records} == {1}
        await store.aclose()

    asyncio.run(main())


def test_cancelled_callers_leave_the_store_usable(place):
    async def main():
        store = PostgresStore(place.url)
        await store.put(note())
        with closing(psycopg.connect(place.url)) as other:
            other.execute("UPDATE redraft_records SET revision = 9")
            waiting = [asyncio.create_task(store.put(note(key))) for key in "abc"]
            await asyncio.sleep(0.1)
            for task in waiting:
                task.cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in results)
        records = []
        while len(records) < 3:
            records = await store.find("note")
            await asyncio.sleep(0.01)
        assert (await store.put(note("d"))).revision == 1
        await store.aclose()

    asyncio.run(main())


def test_a_process_that_cannot_write_still_ends(server, tmp_path):
    script = """
from redraft.stores.postgres import PostgresStore
async def main():
    store = PostgresStore(sys.argv[2])
    try:
        await store.put(Record("note", "a", {}))
    except StoreError as error:
        print(error)
    task = asyncio.create_task(store.put(Record("note", "b", {})))
    await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())
"""
    with child(script, f"postgresql://me:{PASSWORD}@/mine?host={tmp_path}") as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert "can't be reached" in out


def test_an_idle_transaction_does_not_block_others(place, monkeypatch):
    monkeypatch.setattr(postgres_database, "IDLE_TIMEOUT", 0.2)

    async def main():
        store = PostgresStore(place.url)
        await store.put(Record("lease", "lease", {"by": "the first"}))
        database = postgres_database.Database(place.url, 30.0)
        with closing(database.connect()) as stopped:
            stopped.execute("BEGIN")
            stopped.execute(postgres_database.PostgresWriter(database, 30.0)._settings)
            stopped.execute("UPDATE redraft_records SET schema_version = 2")
            async with asyncio.timeout(60):
                await store.put(Record("lease", "lease", {"by": "the next"}))
        assert (await store.get("lease", "lease")).data == {"by": "the next"}
        await store.aclose()

    asyncio.run(main())


READ = "SELECT space, key FROM redraft_agent_records ORDER BY space, key"
WRITE = """
INSERT INTO redraft_agent_records VALUES ('agent:other', 'note', 'x', '{}', '{}', 1, NULL, 1, 1, 1)"""
PASSED_OVER = "bypasses row-level security"


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
def test_a_session_sees_only_its_own_space(user_of, caplog, rights):
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


def test_a_session_sees_only_runs_of_its_own_space(user_of):
    async def main():
        url = user_of("")
        one, other = (PostgresStore(url, space, isolated=True) for space in ("agent:one", "agent:other"))
        for store, name in ((one, "mine"), (other, "theirs")):
            row = RunRow(name, datetime.now(UTC), "finished", shares=(Share("role", "x"),))
            await store.put(Record("run", name, {"index": row.to_data()}))
        assert [row.run_id for row in await one.run_index().find()] == ["mine"]
        async with await one.session() as session:
            for table in ("redraft_agent_runs", "redraft_agent_run_shares"):
                seen = await session.execute(f"SELECT run_id FROM {table}")  # noqa: S608 (a constant)
                assert await seen.fetchall() == [("mine",)]
                assert (await session.execute(f"DELETE FROM {table}")).rowcount == 1  # noqa: S608 (likewise)
        await one.aclose()

    asyncio.run(main())


def test_a_role_that_bypasses_policies_is_warned_once(user_of, caplog, postgres):
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
def test_without_the_right_to_the_role_a_warning_is_logged(user_of, caplog, rights, option):
    """One may not make it, or be granted it; one may not let it look into the schema."""

    async def main():
        store = await two_agents(user_of(rights, option))
        assert [record.key for record in await store.find("note")] == ["mine"]
        await store.aclose()

    with caplog.at_level(logging.WARNING, "redraft"):
        asyncio.run(main())
    assert caplog.text.count(PASSED_OVER) == 1


def test_a_granted_role_needs_no_createrole(user_of, caplog, postgres):
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
def test_a_space_may_have_any_name(postgres, space):
    async def main():
        store = PostgresStore(postgres.url, space, isolated=True)
        await store.put(note())
        async with await store.session() as session:
            assert await (await session.execute(READ)).fetchall() == [(space, "a")]
        await store.aclose()

    asyncio.run(main())


def test_the_directory_is_a_read_only_view_of_agents(postgres):
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


def test_records_of_agents_and_projects_are_separate(postgres):
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


def test_many_connect_at_once(postgres):
    """Each makes the role and its rights, or finds them made."""

    async def main():
        stores = [PostgresStore(postgres.url, "agent:x", wait=wait, isolated=True) for wait in range(10, 16)]
        await asyncio.gather(*(store.put(note(str(number))) for number, store in enumerate(stores)))
        assert len(await stores[0].find("note")) == len(stores)
        await asyncio.gather(*(store.aclose() for store in stores))

    asyncio.run(main())


def test_a_session_that_is_cancelled_while_it_connects_leaves_no_connection_open(monkeypatch):
    begun, go_on, closed = Event(), Event(), Event()

    class Connection:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            closed.set()

    def connect(_):
        begun.set()
        assert go_on.wait(60)
        return Connection()

    monkeypatch.setattr(IsolatedDatabase, "connect", connect)
    monkeypatch.setattr(postgres_database, "_scalar", lambda *_: "somebody")

    async def main():
        database = IsolatedDatabase("postgresql://user@127.0.0.1:1/none", 1.0)
        opening = asyncio.create_task(database.session("space"))
        assert await asyncio.to_thread(begun.wait, 60)
        opening.cancel()
        await asyncio.wait([opening])
        go_on.set()
        assert await asyncio.to_thread(closed.wait, 60)

    asyncio.run(main())
