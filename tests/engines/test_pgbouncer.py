"""A fleet and its stores behind PgBouncer, in both modes of its pool."""

import asyncio
import subprocess
import sys
from uuid import uuid4

import pytest

from redraft.errors import StoreSettingsError
from redraft.fleet.postgres_queue import ProcrastinateQueue
from redraft.fleet.queue import FleetJob, WorkerCard
from redraft.stores.base import Record
from redraft.stores.postgres import PostgresStore
from support.pgbouncer import PgBouncer
from support.postgres_server import Place
from support.processes import Processes

CARD = WorkerCard("worker", "here", 1, "v1", ("clerk",), 1)
DEAF = "do not arrive"


@pytest.fixture(params=["transaction", "session"])
def pool(request, postgres_server):
    name = f"redraft_test_{uuid4().hex[:12]}"
    Place.ask(None, f"CREATE DATABASE {name}", postgres_server)
    found = PgBouncer(postgres_server, name, request.param)
    found.mode = request.param
    yield found
    found.stop()
    Place.ask(None, f"DROP DATABASE {name} WITH (FORCE)", postgres_server)


def test_stores_and_queues_share_the_sessions_of_a_pool(pool, caplog, monkeypatch):
    """More clients than sessions, and each statement often enough to be prepared, if that were on."""
    monkeypatch.setattr("redraft.fleet.postgres_queue._ECHO_WAIT", 1.0)

    async def main():
        store = PostgresStore(pool.url, "a")
        queues = [ProcrastinateQueue(pool.url, "a") for _ in range(2 if pool.mode == "transaction" else 1)]
        try:
            for number in range(20):
                await asyncio.gather(
                    *(store.put(Record("thing", f"{number}-{n}", {"n": n})) for n in range(10)),
                    *(queue.submit(FleetJob(f"job-{number}", "clerk", "x")) for queue in queues),
                    *(queue.get("none") for queue in queues),
                )
            assert len(await store.find("thing")) == 200
            worker = queues[0]
            await worker.register(CARD)
            for _ in range(20):
                job = await worker.claim()
                await worker.heartbeat()
                assert await worker.finish(job, "finished")
            assert await worker.claim() is None
            waiting = asyncio.create_task(worker.wait(60))
            while pool.mode == "transaction" and DEAF not in caplog.text:  # noqa: ASYNC110 (a log has no event)
                await asyncio.sleep(0.05)
            if pool.mode == "session":
                await waiting  # it hears, at least itself
            waiting.cancel()
        finally:
            for queue in queues:
                await queue.leave()
            await store.aclose()

    asyncio.run(asyncio.wait_for(main(), 120))
    assert (DEAF in caplog.text) == (pool.mode == "transaction")
    assert "prepared statement" not in pool.log()


@pytest.mark.parametrize("pool", ["transaction"], indirect=True)
def test_workers_run_jobs_behind_a_pool(pool, tmp_path):
    (tmp_path / "redraft.toml").touch()
    project = Processes(
        tmp_path, REDRAFT_DATABASE_URL=pool.url, REDRAFT_PROJECT="pool", REDRAFT_HOME=tmp_path / "home"
    )
    process = subprocess.run(
        [sys.executable, "-m", "support.poisoned", "killer", "a", "b", "c", "d"],
        env=project.environment,
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"killed": 3' in process.stdout, process.stderr
    assert process.stdout.count('"finished"') == 4, process.stderr


def test_a_superuser_is_refused_where_agents_are_isolated(pool):
    store = PostgresStore(pool.url, "agent:a", isolated=True)
    with pytest.raises(StoreSettingsError, match="behind a pooler, and its user bypasses"):
        asyncio.run(store.put(Record("thing", "a", {})))
    asyncio.run(store.aclose())


def test_a_pool_that_refuses_options_is_explained(pool):
    with pytest.raises(StoreSettingsError, match=r"behind a pooler .* ALTER ROLE"):
        asyncio.run(PostgresStore(f"{pool.url}?options=-csearch_path%3Dpublic").get("thing", "a"))
