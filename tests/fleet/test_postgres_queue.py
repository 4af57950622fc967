"""What only the queue in PostgreSQL has: its tables, who made them, and what a database may lack."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from redraft.errors import ConfigError, StoreError
from redraft.fleet import postgres_queue
from redraft.fleet.postgres_queue import _SESSION, ProcrastinateQueue
from redraft.fleet.queue import FleetJob, WorkerCard
from support.postgres_server import with_schema

CARD = WorkerCard("worker", "here", 1, "v1", ("clerk",), 1)


def run(queue, act):
    async def main():
        try:
            return await act(queue)
        finally:
            await queue.leave()

    return asyncio.run(main())


async def test_many_workers_that_come_first_make_the_tables_once(postgres):
    queues = [ProcrastinateQueue(postgres.url, "a") for _ in range(8)]
    await asyncio.gather(*(queue.open() for queue in queues))
    await queues[0].submit(FleetJob("a", "clerk", "x"))
    assert (await queues[7].get("a")).state == "queued"
    await asyncio.gather(*(queue.leave() for queue in queues))
    assert postgres.ask("SELECT version FROM redraft_fleet") == [(1,)]


def test_the_tables_of_a_newer_redraft_are_left_alone(postgres):
    run(ProcrastinateQueue(postgres.url), lambda queue: queue.open())
    postgres.ask("UPDATE redraft_fleet SET version = 2")
    with pytest.raises(ConfigError, match="has version 2 of the fleet's tables, and this Redraft knows 1"):
        run(ProcrastinateQueue(postgres.url), lambda queue: queue.register(CARD))


def test_a_database_user_without_rights_gets_an_error(postgres, postgres_server):
    postgres.ask("CREATE ROLE redraft_fleet_test LOGIN")
    try:
        url = with_schema(postgres_server.replace("postgres@", "redraft_fleet_test@", 1), postgres.schema)
        with pytest.raises((ConfigError, StoreError), match=r"permission|privilege|schema"):
            run(ProcrastinateQueue(url), lambda queue: queue.register(CARD))
    finally:
        postgres.ask("DROP ROLE redraft_fleet_test")


def test_a_delay_does_not_depend_on_the_clock_of_the_submitter(postgres, monkeypatch):
    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=1)

    monkeypatch.setattr(postgres_queue, "datetime", Ahead)
    job = FleetJob("a", "clerk", "x", due=Ahead.now(UTC) + timedelta(hours=1))
    stored, _ = run(ProcrastinateQueue(postgres.url), lambda queue: queue.submit(job))
    assert timedelta() < stored.due - datetime.now(UTC) < timedelta(hours=2)


def test_the_jobs_of_other_applications_on_procrastinate_are_left_alone(postgres):
    async def main(queue):
        await queue.register(CARD)
        await queue.submit(FleetJob("ours", "clerk", "x"))
        async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as connection:
            await connection.execute(
                """INSERT INTO procrastinate_jobs (queue_name, task_name, args, status)
                VALUES ('default', 'theirs', '{"run_id": "theirs"}', 'doing'),
                    ('default', 'theirs', '{"run_id": "theirs"}', 'todo')"""
            )
            # Each of their workers deletes the rows of silent workers, ours included.
            assert (await queue.claim()).run_id == "ours"
            await connection.execute("DELETE FROM procrastinate_workers")
        assert (await queue.heartbeat()).held == {}  # and it has registered again
        assert await queue.reap(60) == ["ours"]
        assert (await queue.claim()).run_id == "ours"
        assert await queue.claim() is None
        assert (await queue.depth()).jobs["running"] == 1

    run(ProcrastinateQueue(postgres.url), main)
    statuses = postgres.ask(
        "SELECT status::text FROM procrastinate_jobs WHERE task_name = 'theirs' ORDER BY id"
    )
    assert statuses == [("doing",), ("todo",)]


def test_a_worker_that_has_lost_its_session_is_gone_after_half_the_time(postgres):
    """As after a SIGKILL; one that was stopped keeps its session, and counts as gone after the whole time."""

    async def main():
        url = f"{postgres.url}&application_name={postgres.schema}"
        stopped, killed, cut, other = [ProcrastinateQueue(url) for _ in range(4)]
        locks = f"""FROM pg_locks JOIN pg_stat_activity USING (pid)
            WHERE classid = {_SESSION} AND application_name = '{postgres.schema}'"""
        for name, queue in {"a": stopped, "b": killed, "c": cut}.items():
            await queue.register(CARD)
            await queue.submit(FleetJob(name, "clerk", "x"))
            await queue.claim()

        async def sessions(*there):
            ids = {f"{queue._worker}" for queue in there}
            async with asyncio.timeout(30):
                while {one for (one,) in postgres.ask(f"SELECT objid::text {locks}")} != ids:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

        try:
            await sessions(stopped, killed, cut)
            postgres.ask(f"SELECT pg_terminate_backend(pid) {locks}")
            await sessions(stopped, killed, cut)  # they have come back
            await killed._stop_listening()
            await sessions(stopped, cut)
            postgres.ask("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '40 s'")
            assert await other.reap(100) == []
            assert await other.reap(60) == ["b"]
            assert await other.reap(60) == []
            assert sorted(await other.reap(30)) == ["a", "c"]
        finally:
            for queue in (stopped, killed, cut, other):
                await queue.leave()

    asyncio.run(main())


async def test_a_worker_without_a_recent_heartbeat_does_not_reap(postgres):
    lost, late = ProcrastinateQueue(postgres.url), ProcrastinateQueue(postgres.url)
    try:
        await lost.register(CARD)
        await late.register(CARD)
        await lost.submit(FleetJob("a", "clerk", "x"))
        await lost.claim()
        postgres.ask("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '90 s'")
        assert await late.reap(60) == []
        await late.heartbeat()
        assert await late.reap(60) == ["a"]
    finally:
        await lost.leave()
        await late.leave()


def test_a_queue_serves_one_event_loop_after_another(postgres):
    queue = ProcrastinateQueue(postgres.url)
    assert run(queue, lambda queue: queue.submit(FleetJob("a", "clerk", "x")))[1]
    assert run(queue, lambda queue: queue.get("a")).state == "queued"


@pytest.mark.parametrize("fault", ["connect", "notifies"])
def test_an_unexpected_error_of_the_listener_is_logged_once_and_it_listens_again(
    postgres, monkeypatch, caplog, fault
):
    real, calls = getattr(psycopg.AsyncConnection, fault), []

    def failing(*args, **options):
        calls.append(fault)
        if len(calls) <= 3:
            raise RuntimeError("the event loop is odd")
        return real(*args, **options)

    async def main(queue):
        other = ProcrastinateQueue(postgres.url)
        await queue.open()
        monkeypatch.setattr(psycopg.AsyncConnection, fault, failing)
        try:
            await queue.register(CARD)
            locks = f"FROM pg_locks WHERE classid = {_SESSION} AND objid = {queue._worker}"
            async with asyncio.timeout(30):
                while len(calls) < 4 or not postgres.ask(f"SELECT 1 {locks}"):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                assert await queue.claim() is None  # from here on, only news end the waiting
                waiting = asyncio.create_task(queue.wait(600))
                await other.submit(FleetJob("a", "clerk", "x"))
                await waiting
            assert (await queue.claim()).run_id == "a"
        finally:
            await other.leave()

    monkeypatch.setattr(postgres_queue, "_AFTER_FAULT", 0.05)
    run(ProcrastinateQueue(postgres.url), main)
    logged = [record for record in caplog.records if "can't listen for new jobs" in record.message]
    assert len(logged) == 1
    assert "the event loop is odd" in logged[0].exc_text
