"""Monitor: what a worker answers over HTTP: whether it lives and is ready, and metrics for Prometheus."""

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

    `GET /health` answers 200 as long as the worker is alive, also while the database is away: restarting it
    would not help. `GET /ready` answers 200 if it claims jobs, and 503 if it is stopping or has no queue.
    `GET /metrics` shows the metrics of `redraft.telemetry` to Prometheus. Counters begin with the endpoint;
    gauges of the queue are the same in all workers of a fleet, and are left out while it is away.

    Only requests for a host that the address admits are answered, so that no web page can read it.
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
        """Answer requests meanwhile; yield the URL. Raises `ConfigError` if it can't listen."""
        async with serving(self.app, self._listen) as self._address:
            with reporting_metrics(self.meter_provider):
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
