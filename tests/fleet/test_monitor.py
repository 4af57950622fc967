"""What a worker answers over HTTP: health, readiness and metrics."""

import asyncio
import re
import socket
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace
from unittest.mock import AsyncMock

import httpx2 as httpx
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from redraft import (
    Agent,
    MemoryStore,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    _telemetry,
)
from redraft._steps import OutgoingCall
from redraft.errors import ConfigError, StoreError
from redraft.fleet import Fleet, FleetWorker, Limit, StoreQueue
from redraft.fleet.gate import KEY, SPENDING, DailyBudget, FleetGate
from redraft.fleet.queue import FleetJob, WorkerCard
from redraft.stores.base import Record
from redraft.telemetry import METRICS, instrument, reporting_metrics, uninstrument
from redraft.types import TokenUsage
from redraft.web.server import serving
from support.pages import Page

PATTERN = ReflectionPattern(
    max_iterations=1,
    quality_criteria=[QualityCriterion("long", evaluator="words", evaluator_config={"at_least": 3})],
)


def fleet_of(store, answer, queue=None, **options):
    clerk = Agent(ScriptedModel(answer), pattern=PATTERN, keep=store, name="clerk")
    return Fleet([clerk], store=store, queue=queue or StoreQueue(store), **options)


@asynccontextmanager
async def asking(worker, host=None):
    """Yield a client for the pages of a worker, as `host`; by default as the one that it listens on."""
    monitor = worker._monitor

    async def name(request):
        request.headers["host"] = host or f"127.0.0.1:{monitor._address.port}"

    server, client = serving(monitor.app, "127.0.0.1:0"), httpx.AsyncClient()
    async with server as address, client:
        client.base_url = address.url
        client.event_hooks = {"request": [name]}
        with reporting_metrics(monitor.meter_provider):
            yield client


def values(text):
    """The samples of an answer, as Prometheus parses it, by name and values of sorted labels."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_runs_calls_and_waits_are_counted():
    answers = iter(["one two three", "one", "one two", ModelError("no", status=400)])

    async def answer(_request):
        given = next(answers)
        if isinstance(given, Exception):
            raise given
        return given

    store = MemoryStore()
    fleet = fleet_of(store, answer, limits=[Limit("ScriptedModel", requests_per_minute=6000)])
    for one in ("a", "b", "c"):
        await fleet.submit("clerk", "Write.", run_id=one)
    worker = FleetWorker(fleet, concurrency=1, listen="0")
    await worker.run(until_idle=True)
    async with asking(worker) as client:
        found, health = values((await client.get("/metrics")).text), (await client.get("/health")).json()
    assert found["redraft_ended_jobs_total", "clerk", "quality_met", "finished"] == 1
    assert found["redraft_ended_jobs_total", "clerk", "max_iterations", "finished"] == 1
    assert found["redraft_ended_jobs_total", "clerk", "", "failed"] == 1
    assert found["redraft_runs_total", "clerk", "quality_met"] == 1
    assert found["redraft_run_versions_sum", "clerk", "max_iterations"] == 2
    assert found["redraft_run_seconds_count", "clerk"] == 3
    assert found["redraft_model_calls_total", "ScriptedModel", "answered"] == 3
    assert found["redraft_model_calls_total", "ScriptedModel", "failed"] == 1
    assert found["redraft_tokens_total", "output", "ScriptedModel"] > 0
    assert found["redraft_limit_wait_seconds_count", "ScriptedModel"] == 4
    assert found["redraft_limit_next_call_seconds", "ScriptedModel"] >= 0
    assert found["redraft_queue_up",] == 1
    assert found["redraft_worker_concurrency",] == 1
    assert (health["ok"], health["done"], health["running"]) == (True, 3, 0)


@pytest.mark.parametrize(("cost", "priced", "unpriced"), [(0.25, 0.25, 0), (None, 0, 1)])
async def test_an_unknown_cost_is_counted_separately(cost, priced, unpriced):
    async def refuse(_limit):
        raise ModelError("slow down", status=429)

    worker = FleetWorker(fleet_of(MemoryStore(), []), listen="9464")
    gate = FleetGate([], None, MemoryStore(), "w")
    call = OutgoingCall(SimpleNamespace(name="m"), 5)

    async def send(_limit):
        return TokenUsage(7, 3, requests=1, cost_usd=cost)

    async with asking(worker) as client:
        await gate(call, send, lambda reply: reply)
        with pytest.raises(ModelError):
            await gate(call, refuse, lambda reply: reply)
        found = values((await client.get("/metrics")).text)
    assert found.get(("redraft_cost_usd_total", "m"), 0) == priced
    assert found.get(("redraft_unpriced_calls_total", "m"), 0) == unpriced
    assert [found["redraft_tokens_total", kind, "m"] for kind in ("input", "output")] == [7, 3]
    assert found["redraft_model_calls_total", "m", "rate_limited"] == 1


async def test_the_queue_is_measured():
    store = MemoryStore()
    queue = StoreQueue(store)
    await queue.register(WorkerCard("old", "here", 1, "before", ("clerk",), 1))
    await queue.submit(FleetJob("begun", "clerk", "x"))
    await queue.hand_back(await queue.claim())
    await queue.leave()
    fleet = fleet_of(store, [])
    await fleet.submit("clerk", "Write.")
    await asyncio.sleep(0.05)
    worker = FleetWorker(fleet, listen="9464")
    await fleet.queue.register(worker.card)
    async with asking(worker) as client:
        found = values((await client.get("/metrics")).text)
    assert (found["redraft_jobs", "queued"], found["redraft_jobs", "running"]) == (2, 0)
    assert found["redraft_stranded_jobs",] == 1
    assert found["redraft_oldest_job_seconds",] >= 0.05
    assert found["redraft_workers",] == 1


async def test_the_budget_is_measured_from_before_the_first_call_on():
    store = MemoryStore()
    worker = FleetWorker(fleet_of(store, [], budget_usd_per_day=5), listen="9464")
    found = []
    async with asking(worker) as client:
        for state in (None, {"spent": 1.5, "reserved": {"w": (1.0, time.time() + 60)}}, {"spent": 6.0}):
            if state is not None:
                day = DailyBudget(5).day(time.time())
                await store.put(Record(SPENDING, KEY, {"day": day, "budget": 5.0, **state}))
            metrics = values((await client.get("/metrics")).text)
            found.append([metrics[f"redraft_budget_{one}usd",] for one in ("", "spent_", "left_")])
    assert found == [[5, 0, 5], [5, 1.5, 2.5], [5, 6, 0]]


class AwayQueue(StoreQueue):
    """A queue whose database is away."""

    async def depth(self, *_states):
        raise StoreError("away")


async def test_a_queue_that_is_away_has_no_depth_rather_than_none():
    store = MemoryStore()
    worker = FleetWorker(fleet_of(store, [], AwayQueue(store)), listen="9464")
    async with asking(worker) as client:
        found = values((await client.get("/metrics")).text)
    assert found["redraft_queue_up",] == 0
    assert not [key for key in found if key[0] in ("redraft_jobs", "redraft_workers")]


async def test_a_worker_answers_to_its_own_hosts_only(monkeypatch):
    monkeypatch.setenv("REDRAFT_DASHBOARD_URL", "https://redraft.example.org")
    statuses = []
    for listen, host in [
        ("9464", "127.0.0.1:9464"),
        ("9464", "localhost:9464"),
        ("127.0.0.1:9464", "evil.example:9464"),
        ("0.0.0.0:9464", "10.1.2.3:9464"),
        ("0.0.0.0:9464", "evil.example:9464"),
        ("0.0.0.0:9464", "redraft.example.org"),
        ("worker:9464", "worker:9464"),
    ]:
        worker = FleetWorker(fleet_of(MemoryStore(), []), listen=listen)
        async with asking(worker, host) as client:
            paths = ("/metrics", "/health")
            statuses.append({(await client.get(path)).status_code for path in paths})
    assert statuses == [{200}, {200}, {421}, {200}, {421}, {200}, {200}]


@pytest.mark.parametrize("listen", ["", "localhost", "host:x", "127.0.0.1:70000"])
def test_bad_addresses_are_refused_before_the_worker_begins(listen):
    with pytest.raises(ConfigError, match=r"Expected an address such as '127.0.0.1:8080'"):
        FleetWorker(fleet_of(MemoryStore(), []), listen=listen)


async def test_an_address_in_use_is_refused_before_anything_is_claimed():
    store = MemoryStore()
    fleet = fleet_of(store, ["one two three"])
    await fleet.submit("clerk", "Write.", run_id="a")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        worker = FleetWorker(fleet, listen=str(taken.getsockname()[1]))
        with pytest.raises(ConfigError, match="Can't listen"):
            await worker.run(until_idle=True)
    assert (await fleet.handle("a").job()).claim == 0


def test_the_page_explains_each_metric(monkeypatch):
    gauges = {name: [(1, {})] for name, metric in METRICS.items() if metric.kind == "gauge"}

    async def main():
        worker = FleetWorker(fleet_of(MemoryStore(), []), listen="9464")
        async with asking(worker) as client:
            for name in METRICS.keys() - gauges.keys():
                _telemetry.count(name)
            monkeypatch.setattr(_telemetry, "gauges", gauges)
            monkeypatch.setattr(worker._monitor._worker, "measure", AsyncMock())
            return (await client.get("/metrics")).text

    shown = re.findall(r"^# TYPE (redraft_\w+) ", asyncio.run(main()), re.MULTILINE)
    rows = [line for line in Page("docs/fleet.md").text.splitlines() if line.startswith("| `redraft_")]
    explained = [name for row in rows for name in re.findall(r"`(redraft_\w+)`", row.split("|")[1])]
    assert sorted(explained) == sorted(shown)


@pytest.mark.parametrize("listen", [None, "0"])
def test_a_worker_reports_to_the_meter_provider_of_the_program(listen):
    reader, during = InMemoryMetricReader(), []

    def reported():
        return {
            metric.name: [getattr(point, "value", None) for point in metric.data.data_points]
            for resource in reader.get_metrics_data().resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    async def answer(_request):
        async with asyncio.timeout(60):
            while "redraft.jobs" not in (found := reported()):  # noqa: ASYNC110 (a reader has no event)
                await asyncio.sleep(0.01)
        during.append(found)
        return "one two three"

    async def main():
        fleet = fleet_of(MemoryStore(), answer, limits=[Limit("ScriptedModel", concurrency=4)])
        await fleet.submit("clerk", "Write.", run_id="a")
        instrument(meter_provider=MeterProvider([reader]))
        try:
            await FleetWorker(fleet, listen=listen).run(until_idle=True)
        finally:
            uninstrument()

    asyncio.run(main())
    [found], after = during, reported()
    assert sum(found["redraft.jobs"]) == 1  # queued, or running: it may be measured before the claim
    assert found["redraft.workers"] == [1]
    assert after["redraft.ended_jobs"] == after["redraft.runs"] == after["redraft.model_calls"] == [1]
    assert "redraft.limit_wait_seconds" in after
    assert "redraft.jobs" not in after  # the worker is gone


class SwitchedQueue(StoreQueue):
    """A queue whose database is away while somebody says so."""

    is_away = False

    async def heartbeat(self):
        if self.is_away:
            raise StoreError("away")
        return await super().heartbeat()

    async def claim(self, **options):
        if self.is_away:
            raise StoreError("away")
        return await super().claim(**options)


async def test_a_worker_lives_while_its_queue_is_away_and_is_ready_when_it_is_back():
    store = MemoryStore()
    queue = SwitchedQueue(store)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_request):
        begun.set()
        await go_on.wait()
        return "one two three"

    fleet = fleet_of(store, answer, queue, pick_up_after=1)
    worker = FleetWorker(fleet, listen="0")
    async with asking(worker) as client:

        async def ready(status):
            async with asyncio.timeout(60):
                while (found := await client.get("/ready")).status_code != status:  # noqa: ASYNC110 (polled)
                    await asyncio.sleep(0.02)
            assert (await client.get("/health")).status_code == 200
            return found.json()["problem"]

        assert await ready(503) == "The worker has not reached the queue yet."
        running = asyncio.create_task(worker.run())
        assert await ready(200) == ""
        queue.is_away = True
        assert await ready(503) == "The queue can't be reached."
        queue.is_away = False
        assert await ready(200) == ""
        await fleet.submit("clerk", "Write.", run_id="a")
        await begun.wait()
        assert (await client.get("/health")).json()["running"] == 1
        worker.stop()
        assert await ready(503) == "The worker is stopping."
        go_on.set()
        assert await running == 1
