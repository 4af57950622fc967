"""Monitor: what a worker answers over HTTP: whether it lives and is ready, and metrics for Prometheus."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from redraft._steps import RATE_LIMIT, BlockedError, CallGate, OutgoingCall
from redraft.errors import MissingExtraError, ModelError, StoreError
from redraft.fleet.overview import limit_document, stranded_jobs
from redraft.fleet.queue import LIVE
from redraft.fleet.spending import SpendingState, spending_state

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
except ImportError as missing:
    raise MissingExtraError("The endpoint of a worker", "fleet") from missing

from redraft.fleet.limits import limit_states
from redraft.web.guard import RefusedError, check_host
from redraft.web.server import parsed_address, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from prometheus_client.metrics_core import Metric
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from redraft.fleet.fleet import Fleet
    from redraft.fleet.queue import FleetJob, JobState, WorkerCard
    from redraft.types import TokenUsage

R = TypeVar("R")

RUN_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
WAIT_SECONDS = (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Upper bounds of the buckets of the histograms."""


class Watched(Protocol):
    """The worker that a monitor speaks for."""

    fleet: Fleet
    card: WorkerCard
    done: int

    @property
    def running(self) -> int:
        """How many jobs are under way."""
        ...

    @property
    def problem(self) -> str:
        """Why the worker claims no jobs; empty if it does."""
        ...


class Monitor:
    """The metrics of a worker, and the HTTP endpoint that shows them.

    `GET /health` answers 200 as long as the worker is alive, also while the database is away: restarting it
    would not help. `GET /ready` answers 200 if it claims jobs, and 503 if it is stopping or has no queue.
    `GET /metrics` is for Prometheus: counters are of this worker and begin with it, gauges of the queue are
    the same in all workers of a fleet, and are left out while it is away.

    Only requests for a host that the address admits are answered, so that no web page can read it.
    """

    def __init__(self, worker: Watched, listen: str) -> None:
        self._worker = worker
        self._listen = f"127.0.0.1:{listen}" if listen.isdigit() else listen
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._runs = Counter(
            "redraft_runs",
            "Runs that ended in this worker, by program, state and the reason why they stopped.",
            ("program", "state", "reason"),
            registry=registry,
        )
        self._run_seconds = Histogram(
            "redraft_run_seconds",
            "Seconds from the claim of a job to its end.",
            ("program",),
            buckets=RUN_SECONDS,
            registry=registry,
        )
        self._retries = Counter(
            "redraft_retries", "Jobs handed back to be tried again.", ("program",), registry=registry
        )
        self._pickups = Counter(
            "redraft_pickups", "Jobs of dead workers that this one made available again.", registry=registry
        )
        self._calls = Counter(
            "redraft_model_calls",
            "Model calls: answered, rate_limited or failed.",
            ("model", "outcome"),
            registry=registry,
        )
        self._tokens = Counter(
            "redraft_tokens", "Tokens of model calls: input or output.", ("model", "kind"), registry=registry
        )
        self._cost = Counter(
            "redraft_cost_usd", "US dollars of model calls that have a price.", ("model",), registry=registry
        )
        self._unpriced = Counter(
            "redraft_unpriced_calls", "Answered calls whose cost is unknown.", ("model",), registry=registry
        )
        self._limit_waits = Histogram(
            "redraft_limit_wait_seconds",
            "Seconds that calls waited for a limit of the fleet.",
            ("limit",),
            buckets=WAIT_SECONDS,
            registry=registry,
        )
        self._address = parsed_address(self._listen)
        self._pages = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/ready", self._ready),
                Route("/metrics", self._metrics),
            ]
        )

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Answer requests meanwhile; yield the URL. Raises `ConfigError` if it can't listen."""
        async with serving(self.app, self._listen) as self._address:
            yield self._address.url

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI application, if it is for a host that the address admits."""
        if scope["type"] == "http":
            try:
                check_host(Headers(scope=scope), self._address)
            except RefusedError as refused:
                await PlainTextResponse(f"{refused.detail}\n", refused.status_code)(scope, receive, send)
                return
        await self._pages(scope, receive, send)

    def ended(self, job: FleetJob, state: JobState, reason: str, seconds: float) -> None:
        """Count the run of a job that has ended, `seconds` after its claim."""
        self._runs.labels(job.program, state, reason).inc()
        self._run_seconds.labels(job.program).observe(seconds)

    def retried(self, job: FleetJob) -> None:
        """Count a job that will be tried again."""
        self._retries.labels(job.program).inc()

    def picked_up(self, number: int) -> None:
        """Count jobs of dead workers."""
        self._pickups.inc(number)

    def waited(self, limit: str, seconds: float) -> None:
        """Count the wait of a call for a limit."""
        self._limit_waits.labels(limit).observe(seconds)

    def counted(self, inner: CallGate | None) -> CallGate:
        """Return a gate that counts the calls that pass another one, or pass freely."""

        async def gate(
            call: OutgoingCall,
            send: Callable[[int | None], Awaitable[R]],
            usage: Callable[[R], TokenUsage],
            /,
        ) -> R:
            model = call.name
            try:
                passed = send(call.max_tokens) if inner is None else inner(call, send, usage)
                reply = await passed
            except BlockedError:  # it was not sent
                raise
            except ModelError as error:
                is_limited = error.status == RATE_LIMIT
                self._calls.labels(model, "rate_limited" if is_limited else "failed").inc()
                raise
            used = usage(reply)
            self._calls.labels(model, "answered").inc()
            self._tokens.labels(model, "input").inc(used.input_tokens)
            self._tokens.labels(model, "output").inc(used.output_tokens)
            if used.cost_usd is None:
                self._unpriced.labels(model).inc()
            else:
                self._cost.labels(model).inc(used.cost_usd)
            return reply

        return gate

    async def _health(self, _: Request) -> Response:
        card = self._worker.card
        return JSONResponse(
            {
                "ok": True,
                "worker": card.name,
                "version": card.version,
                "running": self._worker.running,
                "at_once": card.at_once,
                "done": self._worker.done,
            }
        )

    async def _ready(self, _: Request) -> Response:
        problem = self._worker.problem
        return JSONResponse({"ready": not problem, "problem": problem}, 503 if problem else 200)

    async def _metrics(self, _: Request) -> Response:
        gauges = [
            _gauge("redraft_worker_running", "Jobs under way in this worker.", self._worker.running),
            _gauge(
                "redraft_worker_at_once",
                "Most jobs that this worker runs at once.",
                self._worker.card.at_once,
            ),
        ]
        try:
            gauges += [*await self._of_queue(), _gauge("redraft_queue_up", "Whether the queue answers.", 1)]
        except StoreError:
            gauges.append(_gauge("redraft_queue_up", "Whether the queue answers.", 0))
        shown = CollectorRegistry()
        shown.register(_Found(gauges))
        text = generate_latest(self._registry) + generate_latest(shown)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    async def _of_queue(self) -> list[Metric]:
        queue = self._worker.fleet.queue
        depth = await queue.depth(LIVE)  # ended jobs, of which there are many, are not counted each time
        workers = [one.card for one in await queue.workers() if not one.is_gone]
        stranded = stranded_jobs(depth, {card.version for card in workers})
        jobs = GaugeMetricFamily("redraft_jobs", "Jobs in the queue, by state.", labels=("state",))
        for state in LIVE:
            jobs.add_metric((state,), depth.jobs[state])
        following = GaugeMetricFamily(
            "redraft_limit_next_call_seconds", "Seconds until a limit lets a call begin.", labels=("limit",)
        )
        blocked = GaugeMetricFamily(
            "redraft_limit_blocked_seconds",
            "Seconds that a provider's Retry-After still blocks calls.",
            labels=("limit",),
        )
        for models, state in (await limit_states(self._worker.fleet.store)).items():
            document = limit_document(state)
            following.add_metric((models,), document["wait_seconds"])
            blocked.add_metric((models,), document["blocked_seconds"])
        return [
            *await self._of_budget(),
            jobs,
            _gauge(
                "redraft_oldest_job_seconds",
                "Seconds that the oldest due job has waited; 0 if none is due.",
                depth.oldest_seconds or 0.0,
            ),
            _gauge(
                "redraft_stranded_jobs",
                "Jobs that wait for a version that no worker has.",
                sum(stranded.values()),
            ),
            _gauge("redraft_workers", "Workers heard from recently.", len(workers)),
            following,
            blocked,
        ]

    async def _of_budget(self) -> list[Metric]:
        fleet = self._worker.fleet
        if fleet.budget is None:
            return []
        state = await spending_state(fleet.store) or SpendingState()
        state = state.on(fleet.budget, time.time())
        return [
            _gauge("redraft_budget_usd", "The daily budget in US dollars.", state.budget),
            _gauge("redraft_budget_spent_usd", "US dollars spent today.", state.spent),
            _gauge("redraft_budget_left_usd", "US dollars that new calls may still cost today.", state.left),
        ]


class _Found:
    """Collect what was found for one answer."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self._metrics


def _gauge(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(name, description, value=value)
