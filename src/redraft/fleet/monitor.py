"""Monitor: the HTTP endpoint of a worker, for supervisors and Prometheus."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redraft.errors import MissingExtraError

try:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
except ImportError as missing:
    raise MissingExtraError("The endpoint of a worker", "fleet") from missing

from redraft.telemetry import reporting_metrics
from redraft.web.guard import RefusedError, check_host
from redraft.web.server import parsed_address, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from redraft.fleet.worker import FleetWorker


class Monitor:
    """The HTTP endpoint of a worker.

    `GET /health` answers 200 as long as the worker is alive, even while the database is down: a restart would
    not help. `GET /ready` answers 200 if the worker claims jobs, and 503 if it is stopping or has no queue.
    `GET /metrics` serves the metrics of `redraft.telemetry`. Counters start at 0 with the endpoint; gauges of
    the queue are the same in all workers of a fleet, and are missing while it can't be reached.

    Requests for any other host than the address's are refused, so that no web page can read the answers.
    """

    def __init__(self, worker: FleetWorker, listen: str) -> None:
        self._worker = worker
        self._listen = f"127.0.0.1:{listen}" if listen.isdigit() else listen
        self._address = parsed_address(self._listen)
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
        self.meter_provider = MeterProvider([reader], shutdown_on_exit=False)
        self._pages = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/ready", self._ready),
                Route("/metrics", self._metrics),
            ]
        )

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Serve in the background and yield the URL; raises `ConfigError` if it can't listen."""
        async with serving(self.app, self._listen) as self._address:
            with reporting_metrics(self.meter_provider):
                yield self._address.url

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] == "http":
            try:
                check_host(Headers(scope=scope), self._address)
            except RefusedError as refused:
                await PlainTextResponse(f"{refused.detail}\n", refused.status_code)(scope, receive, send)
                return
        await self._pages(scope, receive, send)

    async def _health(self, _: Request) -> Response:
        card = self._worker.card
        return JSONResponse(
            {
                "ok": True,
                "worker": card.name,
                "version": card.version,
                "running": self._worker.running,
                "concurrency": card.concurrency,
                "done": self._worker.done,
            }
        )

    async def _ready(self, _: Request) -> Response:
        problem = self._worker.problem
        return JSONResponse({"ready": not problem, "problem": problem}, 503 if problem else 200)

    async def _metrics(self, _: Request) -> Response:
        await self._worker.measure()
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})
