"""What every queue must do: the sentences of its protocol, on every backend."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import time_ns

import pytest

from redraft.fleet.postgres_queue import ProcrastinateQueue
from redraft.fleet.queue import JOB, WAITING, WORKER, FleetJob, StoreQueue, WorkerCard
from redraft.stores.base import Record
from redraft.stores.sqlite import MemoryStore, SqliteStore
from redraft.text.characters import visible


def memory(_request):
    stores = {}
    return lambda space="": StoreQueue(stores.setdefault(space, MemoryStore()))


def sqlite(request):
    folder = request.getfixturevalue("tmp_path")
    return lambda space="": StoreQueue(SqliteStore(folder / "redraft.db", space))


def procrastinate(request):
    place = request.getfixturevalue("postgres")
    return lambda space="": ProcrastinateQueue(place.url, space)


@pytest.fixture(params=[memory, sqlite, procrastinate])
def open_queue(request):
    """A context manager that opens a queue of a space, with a worker where one is asked for."""
    make = request.param(request)

    @asynccontextmanager
    async def opened(space="", programs=("clerk",), version="v1", name="worker"):
        queue = make(space)
        await queue.open()
        if programs:
            await queue.register(WorkerCard(name, "here", 1, version, programs, 4))
        try:
            yield queue
        finally:
            await queue.leave()

    return opened


def job(run_id, program="clerk", **more):
    return FleetJob(run_id, program, {"text": f"Do {run_id}."}, **more)


async def test_a_job_goes_from_submission_to_its_end(open_queue):
    async with open_queue() as queue:
        new, is_new = await queue.submit(job("a", priority=3))
        assert is_new
        assert (new.state, new.priority, new.claim) == ("queued", 3, 0)
        claimed = await queue.claim()
        assert (claimed.run_id, claimed.task, claimed.claim) == ("a", {"text": "Do a."}, 1)
        running = await queue.get("a")
        assert (running.state, running.claim) == ("running", 1)
        assert running.worker
        assert await queue.claim() is None
        assert (await queue.heartbeat()).held == {"a": 1}
        assert await queue.finish(claimed, "finished")
        ended = await queue.get("a")
        assert ended.state == "finished"
        assert ended.submitted_at <= ended.started_at <= ended.ended_at
        assert (await queue.heartbeat()).held == {}
        assert (await queue.depth()).jobs["finished"] == 1
        assert not await queue.finish(claimed, "failed")


async def test_a_job_keeps_the_version_that_began_it_and_its_trace(open_queue):
    async with open_queue() as old, open_queue(version="v2") as new:
        await old.submit(job("a", trace="00-1-2-01"))
        assert (await old.depth()).waiting_for == {"": 1}
        await new.hand_back(await new.claim())
        assert (await old.depth()).waiting_for == {"v2": 1}
        assert await old.claim() is None
        assert (await new.get("a")).trace == "00-1-2-01"
        claimed = await new.claim()
        assert (claimed.version, claimed.trace) == ("v2", "00-1-2-01")


async def test_an_id_is_a_single_job_for_all_submitters(open_queue):
    async with open_queue() as queue, open_queue() as other:
        news = await asyncio.gather(*(one.submit(job("a")) for one in (queue, other) * 10))
        assert sum(is_new for _, is_new in news) == 1
        claimed = await queue.claim()
        await queue.finish(claimed, "finished")
        there, is_new = await other.submit(job("a"))
        assert (there.state, is_new) == ("finished", False)
        assert await other.claim() is None


async def test_priorities_go_first_and_then_the_order_of_submission(open_queue):
    async with open_queue() as queue:
        for run_id, priority in {"a": 0, "b": 0, "c": -5, "d": 1000, "e": 7}.items():
            await queue.submit(job(run_id, priority=priority))
        assert [one.run_id for one in await queue.find(("queued",))] == ["d", "e", "a", "b", "c"]
        assert [(await queue.claim()).run_id for _ in range(5)] == ["d", "e", "a", "b", "c"]


async def test_a_job_waits_until_it_is_due(open_queue):
    async with open_queue() as queue:
        due = datetime.now(UTC) + timedelta(seconds=0.4)
        await queue.submit(job("later", priority=9, due=due))
        await queue.submit(job("now"))
        assert (await queue.claim()).run_id == "now"
        assert await queue.claim() is None
        await asyncio.sleep(0.5)
        assert (await queue.claim()).run_id == "later"


async def test_many_workers_never_claim_the_same_job(open_queue):
    async with open_queue() as one, open_queue() as two:
        await asyncio.gather(*(one.submit(job(f"job-{number}")) for number in range(30)))
        claimed = []

        async def work(queue):
            while (found := await queue.claim()) is not None:
                claimed.append(found.run_id)
                await queue.finish(found, "finished")

        await asyncio.gather(work(one), work(two), work(one), work(two))
        assert sorted(claimed) == sorted(f"job-{number}" for number in range(30))


async def test_a_worker_leaves_programs_alone_that_it_does_not_have(open_queue):
    async with open_queue() as queue:
        await queue.submit(job("theirs", "editor"))
        await queue.submit(job("ours"))
        assert (await queue.claim()).run_id == "ours"
        assert await queue.claim() is None


async def test_a_job_that_was_begun_waits_for_its_version(open_queue):
    async with open_queue() as old, open_queue(version="v2") as new:
        await old.submit(job("begun"))
        await old.submit(job("fresh"))
        begun = await old.claim()
        assert await old.hand_back(begun)
        assert (await old.get("begun")).version == "v1"
        assert (await new.claim()).run_id == "fresh"
        assert await new.claim() is None
        continued = await old.claim()
        assert (continued.run_id, continued.version) == ("begun", "v1")
        assert continued.claim > begun.claim
        await old.hand_back(continued)
        assert (await new.claim(any_version=True)).run_id == "begun"


async def test_a_job_handed_back_with_an_error_waits_and_keeps_the_count_of_its_tries(open_queue):
    async with open_queue() as queue:
        await queue.submit(job("a"))
        failed = replace(await queue.claim(), tries=1, store_tries=2)
        assert await queue.hand_back(failed, delay=0.3, error="The provider is down.")
        there = await queue.get("a")
        assert (there.state, there.tries, there.error) == ("queued", 1, "The provider is down.")
        assert await queue.claim() is None
        await asyncio.sleep(0.4)
        again = await queue.claim()
        assert (again.tries, again.store_tries) == (1, 2)
        await queue.finish(again, "finished")
        assert (await queue.get("a")).error == ""


async def test_a_waiting_job_is_cancelled_immediately_and_a_running_job_by_its_worker(open_queue):
    async with open_queue() as queue:
        await queue.submit(job("waiting", priority=-1))
        await queue.submit(job("running"))
        running = await queue.claim()
        assert (await queue.cancel("waiting")).state == "cancelled"
        assert (await queue.cancel("running")).is_cancelling
        heartbeat = await queue.heartbeat()
        assert heartbeat.cancelling == {"running"}
        assert await queue.claim() is None
        assert await queue.finish(running, "cancelled")
        assert (await queue.get("running")).state == "cancelled"
        assert (await queue.cancel("running")).state == "cancelled"
        assert await queue.cancel("unknown") is None


@pytest.mark.parametrize("state", ["failed", "poisoned", "cancelled"])
async def test_a_job_that_did_not_finish_can_be_tried_again(open_queue, state):
    async with open_queue() as queue:
        await queue.submit(job("a"))
        first = await queue.claim()
        await queue.finish(first, state, "It broke.")
        ended = await queue.get("a")
        assert (ended.state, ended.error) == (state, "It broke.")
        assert [one.run_id for one in await queue.find((state,))] == ["a"]
        assert await queue.find(("queued", "running", "finished")) == []
        assert (await queue.depth()).jobs[state] == 1
        assert (await queue.retry("a")).state == "queued"
        again = await queue.claim()
        assert again.claim > first.claim
        await queue.finish(again, "finished")
        assert (await queue.retry("a")).state == "finished"
        assert await queue.retry("unknown") is None


async def test_the_jobs_of_a_silent_worker_are_picked_up_and_its_word_no_longer_counts(open_queue):
    async with open_queue() as dead, open_queue(name="other") as alive:
        await dead.submit(job("a"))
        lost = await dead.claim()
        await asyncio.sleep(0.6)
        await alive.heartbeat()
        assert await alive.reap(30) == []
        await alive.heartbeat()
        assert await alive.reap(0.5) == ["a"]
        assert await alive.reap(0.5) == []
        there = await alive.get("a")
        assert (there.state, there.version) == ("queued", "v1")
        taken = await alive.claim()
        assert taken.claim > lost.claim
        assert not await dead.finish(lost, "finished")
        assert not await dead.hand_back(lost)
        assert "a" not in (await dead.heartbeat()).held
        assert (await alive.heartbeat()).held == {"a": taken.claim}
        assert (await alive.get("a")).state == "running"


async def test_a_cancelled_job_of_a_dead_worker_stays_cancelled(open_queue):
    async with open_queue() as dead, open_queue(name="other") as alive:
        await dead.submit(job("a"))
        await dead.claim()
        await dead.cancel("a")
        await asyncio.sleep(0.3)
        await alive.heartbeat()
        await alive.reap(0.2)
        assert (await alive.get("a")).state == "cancelled"
        assert await alive.claim() is None


async def test_workers_are_listed_with_their_jobs(open_queue):
    async with open_queue(name="one") as one, open_queue(name="two", programs=("clerk", "editor")):
        await one.submit(job("a"))
        await one.claim()
        found = {worker.card.name: worker for worker in await one.workers()}
        assert set(found) == {"one", "two"}
        assert (found["one"].running, found["two"].running) == (1, 0)
        assert found["two"].card.programs == ("clerk", "editor")
        assert found["one"].seconds_silent < 10
    async with open_queue(programs=()) as queue:
        assert await queue.workers() == []


async def test_the_depth_counts_jobs_and_has_the_longest_wait(open_queue):
    async with open_queue() as queue:
        empty = await queue.depth()
        assert (set(empty.jobs.values()), empty.waiting_for, empty.oldest_seconds) == ({0}, {}, None)
        later = datetime.now(UTC) + timedelta(hours=1)
        await queue.submit(job("later", due=later))
        assert (await queue.depth()).oldest_seconds is None
        await queue.submit(job("begun"))
        await queue.submit(job("fresh"))
        await queue.hand_back(await queue.claim())
        await asyncio.sleep(0.1)
        depth = await queue.depth()
        assert depth.waiting_for == {"": 2, "v1": 1}
        assert depth.jobs["queued"] == 3
        assert 0.05 < depth.oldest_seconds < 60
        await queue.finish(await queue.claim(), "poisoned")
        assert (await queue.depth(("queued", "running"))).jobs == {"queued": 2, "running": 0}
        assert (await queue.depth(("failed",))).jobs == {"failed": 0}
        assert (await queue.depth(("poisoned",))).jobs == {"poisoned": 1}


async def test_spaces_see_only_their_own(open_queue):
    async with open_queue("one") as one, open_queue("two") as two:
        assert (await one.submit(job("a")))[1]
        assert await two.claim() is None
        assert await two.find() == []
        assert await two.cancel("a") is None
        assert (await two.submit(job("a")))[1]
        assert (await one.claim()).run_id == "a"


@pytest.mark.parametrize("text", ["nul \0", "half \ud83d", 'quote " \\u0000', "東京 🔑"])
async def test_any_text_survives(open_queue, text):
    async with open_queue() as queue:
        await queue.submit(FleetJob("a", "clerk", text))
        for _ in range(2):
            claimed = await queue.claim()
            assert claimed.task == text
            assert await queue.hand_back(claimed, error=text)
        assert await queue.finish(await queue.claim(), "failed", text)
        assert visible((await queue.get("a")).error) == visible(text)


async def test_waiting_ends_when_a_job_comes(open_queue):
    async with open_queue() as queue, open_queue() as other:
        await asyncio.sleep(0.2)  # its listener connects
        waiting = asyncio.create_task(queue.wait(20))
        await asyncio.sleep(0)
        await other.submit(job("a"))
        await asyncio.wait_for(waiting, 60)


async def test_a_job_that_a_clock_from_the_future_delayed_is_due_now(monkeypatch):
    queue = StoreQueue(MemoryStore())
    await queue.register(WorkerCard("worker", "here", 1, "v1", ("clerk",), 4))
    now = datetime.now(UTC)
    await queue.submit(job("later", due=now + timedelta(seconds=90)))
    with monkeypatch.context() as wrong:
        wrong.setattr("redraft.stores.sqlite.time_ns", lambda: time_ns() + 9_000 * 24 * 3600 * 10**9)
        await queue.submit(job("ahead", due=now + timedelta(days=9_000, seconds=90)))
    assert (await queue.claim()).run_id == "ahead"
    assert await queue.claim() is None


async def test_a_sign_of_life_from_the_future_does_not_keep_a_dead_worker(monkeypatch):
    dead, alive = StoreQueue(MemoryStore()), None
    alive = StoreQueue(dead._store)
    await dead.register(WorkerCard("dead", "here", 1, "v1", ("clerk",), 4))
    await dead.submit(job("a"))
    await dead.claim()
    now = datetime.now(UTC)
    monkeypatch.setattr("redraft.fleet.queue._now", lambda: now - timedelta(days=1_000))
    await alive.register(WorkerCard("alive", "here", 1, "v1", ("clerk",), 4))
    assert [worker.seconds_silent for worker in await alive.workers()] == [0, 0]
    assert await alive.reap(30) == ["a"]


async def test_a_job_of_another_form_holds_no_other_job_up(caplog):
    store = MemoryStore()
    queue = StoreQueue(store)
    await queue.submit(job("newer", priority=5))
    await queue.submit(job("mine"))
    there = await store.get(JOB, "newer")
    await store.put(replace(there, data={**there.data, "tries": "many"}))
    await queue.register(WorkerCard("w", "here", 1, "v1", ("clerk",), 4))
    assert (await queue.claim()).run_id == "mine"
    assert await queue.claim() is None
    assert (await queue.heartbeat()).held == {"mine": 1}
    assert [one.run_id for one in await queue.find()] == ["mine"]
    assert (await queue.depth()).jobs["running"] == 1
    assert caplog.text.count("the job is not claimed") == 1


@pytest.mark.parametrize("fields", [{}, {"program": "clerk", "version": "", "claim": 0, "due": "soon"}])
async def test_a_damaged_place_in_the_line_and_a_damaged_worker_hold_no_job_up(fields):
    store = MemoryStore()
    gone, queue = StoreQueue(store), StoreQueue(store)
    await store.put(Record(WAITING, "0000", fields))
    await gone.submit(job("a"))
    for each in (gone, queue):
        await each.register(WorkerCard("w", "here", 1, "v1", ("clerk",), 4))
    assert (await gone.claim()).run_id == "a"
    [running] = await gone.find(["running"])
    await store.put(Record(WORKER, running.worker, {}))
    assert await queue.reap(0) == ["a"]
    assert (await queue.claim()).run_id == "a"
