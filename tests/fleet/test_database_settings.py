"""Stores, agents' storage and the queue on a database with other settings than PostgreSQL's own."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from redraft.errors import StoreError
from redraft.fleet.postgres_queue import ProcrastinateQueue
from redraft.fleet.queue import FleetJob, WorkerCard
from redraft.stores import postgres_sql as sql
from redraft.stores.base import Record
from redraft.stores.postgres import PostgresStore
from redraft.stores.postgres_session import Database
from support.postgres_server import Place

PREPARED = "FROM pg_prepared_statements"
CHANGED = "FROM pg_settings WHERE source = 'session' AND name <> 'TimeZone'"
CARD = WorkerCard("worker", "here", 1, "v1", ("clerk",), 1)
TEXT = "naïve ☃ \\ ' \" \n"


@pytest.fixture(scope="module")
def database(postgres_server):
    """The URL of a database of this module's own, and a function that runs SQL on the server."""
    name = f"redraft_test_{uuid4().hex[:12]}"
    ask = Place.ask
    ask(None, f"CREATE DATABASE {name}", postgres_server)
    parts = urlsplit(postgres_server)
    url = urlunsplit(parts._replace(path=f"/{name}"))
    yield name, url, lambda sql: ask(None, sql, postgres_server)
    ask(None, f"DROP DATABASE {name} WITH (FORCE)", postgres_server)


async def use(url, space):
    """Write and read by each way to a database."""
    store, queue = PostgresStore(url, space), ProcrastinateQueue(url, space)
    agents = PostgresStore(url, f"agent:{space}", isolated=True)
    due = datetime.now(UTC) + timedelta(days=400, microseconds=5)
    try:
        await asyncio.gather(*(store.put(Record("thing", f"{n}", {"text": TEXT})) for n in range(20)))
        assert [record.data for record in await store.find("thing")] == [{"text": TEXT}] * 20
        await store.hasty().put(Record("thing", "hasty", {}))
        await agents.put(Record("thing", "a", {"text": TEXT}))
        assert (await agents.get("thing", "a")).data == {"text": TEXT}
        async with await agents.session() as session:
            cursor = await session.execute("SELECT data, now() FROM redraft_agent_records")
            [(data, now)] = await cursor.fetchall()
            assert (json.loads(data), now.tzinfo is not None) == ({"text": TEXT}, True)
        await queue.register(CARD)
        await queue.submit(FleetJob("later", "clerk", TEXT, due=due))
        assert abs((await queue.get("later")).due - due) < timedelta(minutes=5)  # by the database's clock
        await queue.submit(FleetJob("now", "clerk", TEXT))
        job = await queue.claim()
        assert (job.run_id, job.task) == ("now", TEXT)
        assert abs((await queue.heartbeat()).now - datetime.now(UTC)) < timedelta(minutes=5)
        assert await queue.hand_back(job, delay=90)
        assert timedelta(0) < (await queue.get("now")).due - datetime.now(UTC) < timedelta(minutes=5)
        assert await queue.reap(60) == []
        assert (await queue.workers())[0].seconds_silent < 60
        assert (await queue.depth()).jobs["queued"] == 2
        other = ProcrastinateQueue(url, space)
        await asyncio.gather(*(other.submit(FleetJob(f"more-{n}", "clerk", n)) for n in range(10)))
        claimed = await asyncio.gather(*(each.claim() for each in (queue, queue, queue)))
        assert len({job.run_id for job in claimed}) == 3
        assert [await queue.finish(job, "finished") for job in claimed] == [True] * 3
        await other.leave()
    finally:
        await queue.leave()
        await store.aclose()
        await agents.aclose()


async def submitted(url):
    queue = ProcrastinateQueue(url, "a")
    try:
        await queue.submit(FleetJob("a", "clerk", "x"))
    finally:
        await queue.leave()


SETTINGS = {
    "one": {
        "DateStyle": "'SQL, DMY'",
        "IntervalStyle": "'iso_8601'",
        "TimeZone": "'Asia/Kathmandu'",
        "bytea_output": "'escape'",
        "client_encoding": "'LATIN1'",
        "default_transaction_isolation": "'serializable'",
        "default_transaction_deferrable": "on",
        "extra_float_digits": "0",
    },
    "another": {
        "DateStyle": "'German'",
        "IntervalStyle": "'sql_standard'",
        "TimeZone": "'<weird>-03:30'",
        "standard_conforming_strings": "off",
        "search_path": "public, pg_catalog",
        "default_transaction_isolation": "'repeatable read'",
        "row_security": "off",
        "transform_null_equals": "on",
        "idle_session_timeout": "'200ms'",
    },
    "a third": {"DateStyle": "'Postgres, MDY'"},
}


@pytest.mark.parametrize("combination", SETTINGS)
def test_a_database_may_have_any_settings(database, combination):
    name, url, ask = database
    for setting, value in SETTINGS[combination].items():
        ask(f"ALTER DATABASE {name} SET {setting} = {value}")
    try:
        asyncio.run(use(url, combination))
    finally:
        ask(f"ALTER DATABASE {name} RESET ALL")


def test_a_database_that_is_read_only_is_named_and_stays_so(database):
    """An administrator, or a provider whose disk is nearly full, makes it so on purpose."""
    name, url, ask = database
    Database(url, 30.0).connect().close()  # which creates the tables
    ask(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        store = PostgresStore(url, "a")
        with pytest.raises(StoreError, match=r"is read-only \(.*default_transaction_read_only"):
            asyncio.run(store.put(Record("thing", "a", {})))
        asyncio.run(store.aclose())
        with pytest.raises(StoreError, match=r"is read-only \(.*default_transaction_read_only"):
            asyncio.run(submitted(url))
    finally:
        ask(f"ALTER DATABASE {name} RESET default_transaction_read_only")


async def test_connections_change_no_setting_of_a_session_and_prepare_no_statement(database):
    """So a pooler may give the session to another client after each transaction."""
    _, url, _ = database
    with Database(url, 30.0).connect() as connection:
        assert connection.execute(f"SELECT name {CHANGED}".encode()).fetchall() == []

    store, queue = PostgresStore(url, "sessions"), ProcrastinateQueue(url)
    try:
        for number in range(20):
            await store.put(Record("thing", f"{number}", {}))
            await store.hasty().put(Record("thing", f"{number}", {}))
            await store.get("thing", f"{number}")
            await queue.get("none")
        look = partial(sql.select, sql.Space("sessions"), f"SELECT statement {PREPARED}", {})
        assert await store._read(look) == []
        for each in (store, store.hasty()):
            assert await each._write([(("sessions", "thing", "0"), look)]) == [[]]
        assert await queue._run(f"SELECT statement {PREPARED} UNION ALL SELECT name {CHANGED}") == []
    finally:
        await queue.leave()
        await store.aclose()
