"""The dashboard's page of the fleet, as HTML and JSON, and what a person can do there."""

import asyncio
import re
import time
from dataclasses import asdict, replace

import pytest

from redraft import MemoryStore
from redraft.fleet import StoreQueue
from redraft.fleet.gate import KEY, SPENDING, DailyBudget, SpendingState
from redraft.fleet.queue import FleetJob, WorkerCard
from redraft.stores.base import Record
from redraft.stores.sqlite import SqliteStore
from support.dashboards import HOSTILE, Seen, pages


def filled(store, version="v1"):
    """Fill the queue of a store: a job that runs, one that waits, one that failed, one for other code."""

    async def main():
        queue = StoreQueue(store)
        await queue.register(WorkerCard("worker-1", "here", 1, version, ("clerk",), 4))
        for run_id in ("stranded", "failed", "running", "waiting"):
            await queue.submit(FleetJob(run_id, "clerk", "Write."))
        other = StoreQueue(store)
        await other.register(WorkerCard("worker-2", "here", 1, "v0", ("clerk",), 4))
        await other.hand_back(await other.claim())
        await other.leave()
        await queue.finish(await queue.claim(), "failed", "ModelError: the key is wrong")
        await queue.claim()

    asyncio.run(main())


def test_the_empty_page_says_what_to_run():
    page = pages(MemoryStore()).get("/fleet")
    assert "redraft worker APP" in Seen(page.text).words


def test_workers_and_jobs_are_shown():
    store = MemoryStore()
    filled(store)
    words = Seen(pages(store).get("/fleet").text).words
    assert re.search(r"2 queued, 1 running, 1 failed; the oldest waits for \d+\.\d s\.", words)
    assert "1 job waits for version v0, which no worker has." in words
    assert "worker-1 v1 1 of 4" in words
    assert "✗ failed ModelError: the key is wrong" in words
    assert "waiting for version v0" in words
    document = pages(store).get("/fleet.json").json()
    assert document["stranded"] == {"v0": 1}
    assert {job["run_id"]: job["shown_as"] for job in document["jobs"]} == {
        "running": "running",
        "stranded": "waiting for version v0",
        "waiting": "queued",
        "failed": "failed",
    }


def test_the_spending_of_today_is_shown():
    store = MemoryStore()
    filled(store)
    spent = SpendingState(day="2020-01-01", spent=4.999, refused=0.01, unpriced=1, budget=5.0)
    today = spent.on(DailyBudget(5.0), time.time())
    today = replace(today, spent=4.999, refused=0.01, unpriced=1)
    asyncio.run(store.put(Record(SPENDING, KEY, asdict(today))))
    web = pages(store)
    words = Seen(web.get("/fleet").text).words
    assert f"Spent $5.00 of $5.00 on {today.day} (UTC), $0.00 left, and 1 call at an unknown price" in words
    assert "jobs wait for the next day." in words
    found = web.get("/fleet.json").json()["spending"]
    assert (found["spent_usd"], found["is_reached"], found["earlier"]) == (4.999, True, {"2020-01-01": 4.999})


def test_jobs_are_cancelled_and_retried():
    store = MemoryStore()
    filled(store)
    client = pages(store)
    assert client.post("/fleet/jobs/waiting/cancel", json={}).json() == {"message": "waiting is cancelled."}
    assert client.post("/fleet/jobs/running/cancel", json={}).json() == {
        "message": "running is being cancelled."
    }
    assert client.post("/fleet/jobs/failed/retry", json={}).json() == {"message": "failed is queued."}
    for verb in ("cancel", "retry"):
        assert client.post(f"/fleet/jobs/nothing/{verb}", json={}).status_code == 404


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.isprintable()])
async def test_hostile_texts_stay_texts(text):
    store = MemoryStore()
    queue = StoreQueue(store)
    await queue.register(WorkerCard(text, text, 1, text, (text,), 4))
    await queue.submit(FleetJob(text.replace("/", "|"), text, text))
    await queue.finish(await queue.claim(), "failed", text)
    seen = Seen(pages(store).get("/fleet").text)
    assert {"script", "img", "b"} & seen.tags <= {"script"}
    assert not [name for name, _ in seen.attributes if name.startswith("on")]


def test_a_fleet_that_can_not_run_here_is_explained(monkeypatch, tmp_path):
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path))
    monkeypatch.setenv("REDRAFT_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    page = pages(SqliteStore(tmp_path / "redraft.db")).get("/fleet")
    assert page.status_code == 200
    assert "A fleet on PostgreSQL needs a name for the project" in Seen(page.text).words
