"""A PostgreSQL store on servers that refuse, end, hang and come back."""

import asyncio
import logging
import re
import signal
import socket
import traceback
from contextlib import closing

import psycopg
import pytest

from postgres_server import Place
from redraft.core.errors import StoreError
from redraft.stores import postgres_database
from redraft.stores.base import Record
from redraft.stores.postgres import PostgresStore
from store_faults import child

PASSWORD = "hush"
TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'redraft' AND pid <> pg_backend_pid()"""


def note(key="a", **data):
    return Record("note", key, data)


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


def test_where_no_server_is_the_message_says_so(tmp_path):
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        said = attempt(f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/mine")
    assert said.startswith(f"The PostgreSQL database 'mine' on 127.0.0.1:{port} can't be reached: see if")
    said = attempt(f"postgresql://me:{PASSWORD}@/mine?host={tmp_path}&port=1234")
    assert said.startswith(f"The PostgreSQL database 'mine' on {tmp_path}:1234 can't be reached")
    assert "can't be reached" in attempt(f"postgresql://me:{PASSWORD}@no-host.invalid/mine")


def test_a_server_that_does_not_answer_is_not_waited_for_without_end():
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        said = attempt(f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/mine?connect_timeout=2")
    assert "can't be reached" in said
    assert "timeout" in said


def test_who_may_not_is_told_why(server, place):
    rules = server.data / "pg_hba.conf"
    rules.write_text("local all locked scram-sha-256\nlocal all shut reject\n" + rules.read_text())
    place.ask("SELECT pg_reload_conf()")
    place.ask(f"CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'")
    place.ask("CREATE ROLE shut LOGIN")
    place.ask("CREATE ROLE reader LOGIN")
    wrong = PASSWORD + "-hush"
    rows = [
        (server.url(user="locked", password=wrong), "refuses the password.*REDRAFT_DATABASE_URL"),
        (server.url(user="locked"), "refuses the password"),
        (server.url(user="shut", password=wrong), "refuses this user"),
        (server.url(user="nobody", password=wrong), "refuses this user"),
        (server.url("nowhere", password=wrong), "'nowhere' on .* does not exist: make it with `createdb`"),
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


def test_a_database_that_can_not_hold_every_text_is_refused(server, place):
    place.ask("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    assert "has the encoding LATIN1, which can't hold every text" in attempt(server.url("latin"))


def test_a_server_that_can_only_be_read_is_named(place):
    said = attempt(place.url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20"))
    assert "can be read only" in said


def test_a_lock_of_another_session_is_waited_for_within_bounds(place):
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


def test_tables_that_are_gone_are_made_anew(place):
    async def main():
        store = PostgresStore(place.url)
        await store.put(note())
        await store.get("note", "a")
        place.ask("DROP TABLE redraft_records, redraft_agent_records, redraft_schema")
        for call in (store.put(note()), store.get("note", "a")):
            with pytest.raises(StoreError, match='"redraft_records" does not exist'):
                await call
        assert (await store.put(note())).revision == 1
        await store.aclose()

    asyncio.run(main())


# Lost


def test_a_connection_that_was_lost_in_between_is_opened_anew(place, caplog):
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


def test_a_write_whose_fate_is_not_known_is_not_repeated(place, caplog):
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


def test_a_server_that_is_killed_and_comes_back_has_all_that_was_acknowledged(server, place):
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

    async def main():
        store, until = PostgresStore(place.url), asyncio.Event()
        tasks = [asyncio.create_task(write(store, task, until)) for task in range(5)]
        for how in (signal.SIGKILL, signal.SIGINT):
            await asyncio.sleep(0.3)
            before = len(failed)
            await asyncio.to_thread(server.stop, how)
            await asyncio.sleep(0.1)
            with pytest.raises(StoreError, match="can't be reached"):
                await store.get("note", "a")
            assert len(failed) > before
            server.start()
            before = len(acknowledged)
            await asyncio.sleep(0.5)
            assert len(acknowledged) > before
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


def test_callers_that_are_cancelled_leave_the_store_usable(place):
    async def main():
        store = PostgresStore(place.url)
        await store.put(note())
        with closing(psycopg.connect(place.url)) as other:
            other.execute("UPDATE redraft_records SET revision = 9")
            waiting = [asyncio.create_task(store.put(note(key))) for key in "abc"]
            await asyncio.sleep(0.1)
            for task in waiting:
                task.cancel()
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in found)
        records = []
        while len(records) < 3:
            records = await store.find("note")
            await asyncio.sleep(0.01)
        assert (await store.put(note("d"))).revision == 1
        await store.aclose()

    asyncio.run(main())


def test_a_process_that_can_not_write_ends_all_the_same(server, tmp_path):
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


def test_who_stands_still_within_a_transaction_keeps_nobody_waiting(place, monkeypatch):
    monkeypatch.setattr(postgres_database, "STANDS_STILL", 0.2)

    async def main():
        store = PostgresStore(place.url)
        await store.put(Record("lease", "lease", {"by": "the first"}))
        with closing(postgres_database.Database(place.url, 30.0).connect()) as stopped:
            stopped.execute("BEGIN")
            stopped.execute("UPDATE redraft_records SET schema_version = 2")
            async with asyncio.timeout(20):
                await store.put(Record("lease", "lease", {"by": "the next"}))
        assert (await store.get("lease", "lease")).data == {"by": "the next"}
        await store.aclose()

    asyncio.run(main())
