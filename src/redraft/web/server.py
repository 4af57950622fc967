"""Server: run the dashboard until it is interrupted, and endpoints inside other programs."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from redraft.errors import ConfigError
from redraft.settings import load_settings
from redraft.web.guard import TOKEN, Address, Guard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from starlette.types import ASGIApp

    from redraft.web.guard import Keys
    from redraft.web.project import Project

REQUEST_TIMEOUT = 10.0
"""Seconds within which a connection must send the head of a request."""
MAX_CONNECTIONS = 500
"""Most open connections; a further connection closes the idle connection that has waited longest."""
GRACE = 2
"""Seconds for responses under way when a server shuts down."""


def serve(
    app: ASGIApp,
    project: Project,
    keys: Keys,
    address: Address,
    started: Callable[[Address], None],
) -> None:
    """Serve a guarded app until it is interrupted.

    Port 0 takes a free port; `started` is called with the address of the server. Raises `ConfigError` if it
    can't listen there.
    """
    with listening_socket(address) as listener:
        address = replace(address, port=listener.getsockname()[1])
        started(address)
        # uvicorn raises the interrupt again once everything is closed: the normal end of a dashboard.
        with suppress(KeyboardInterrupt):
            asyncio.run(_serve(Guard(app, keys, address), project, listener))


async def _serve(app: ASGIApp, project: Project, listener: socket.socket) -> None:
    try:
        await _Dashboard(server_config(app), project).serve(sockets=[listener])
    finally:
        await project.store.aclose()


class _Dashboard(uvicorn.Server):
    """A server that ends event streams before it waits for responses under way."""

    def __init__(self, config: uvicorn.Config, project: Project) -> None:
        super().__init__(config)
        self._project = project

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._project.closing.set()
        await super().shutdown(sockets)


@asynccontextmanager
async def serving(app: ASGIApp, listen: str) -> AsyncGenerator[Address]:
    """Serve an application at `HOST:PORT` in the background; yield its address. Raises `ConfigError`."""
    address = parsed_address(listen)
    with listening_socket(address) as listener:
        address = replace(address, port=listener.getsockname()[1])
        server = _Endpoint(server_config(app))
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            yield address
        finally:
            server.should_exit = True
            await task


class _Endpoint(uvicorn.Server):
    """A server that leaves signals to the program, which finishes its work first."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle no signals."""
        yield


def parsed_address(text: str) -> Address:
    """Parse `HOST:PORT`; the address also admits the host of the setting `dashboard_url`.

    Raises `ConfigError`.
    """
    host, separator, port = text.rpartition(":")
    if not (separator and host and port.isascii() and port.isdigit() and int(port) <= 65_535):  # noqa: PLR2004 (ports have 16 bits)
        raise ConfigError(f"Expected an address such as '127.0.0.1:8080' to listen on, got {text!r}.")
    return Address(host.strip("[]"), int(port), load_settings().dashboard_url or "")


class HttpConnection(H11Protocol):
    """A connection that is closed if no request arrives in time, or if there are too many connections.

    Otherwise, a client could lock out all others by opening connections and sending nothing.
    """

    waits_since: float
    """When the connection became idle, by the clock of its loop."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] (as uvicorn has it)
        """Wait for the first request; make room if there are too many connections."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MAX_CONNECTIONS:
            connections = cast("set[HttpConnection]", self.connections)
            idle = (connection for connection in connections if connection.is_waiting)
            oldest = min(idle, key=attrgetter("waits_since"))
            oldest.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._end.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._end.cancel()
        self._wait()
        super().on_response_complete()

    @property
    def is_waiting(self) -> bool:
        """Whether the connection is idle."""
        return not self.transport.is_closing() and (not self.cycle or bool(self.cycle.response_complete))

    def _wait(self) -> None:
        self.waits_since = self.loop.time()
        self._end = self.loop.call_later(REQUEST_TIMEOUT, self._end_wait)

    def _end_wait(self) -> None:
        if self.is_waiting:
            self.transport.close()


def server_config(app: ASGIApp) -> uvicorn.Config:
    """The settings of a server that logs only warnings and closes idle connections."""
    return uvicorn.Config(
        app,
        interface="asgi3",  # detected for functions and classes only, not for methods
        http=HttpConnection,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=GRACE,
    )


def listening_socket(address: Address) -> socket.socket:
    """Open a socket that listens at an address; raises `ConfigError` if it can't."""
    host = address.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, address.port))
        listener.listen()
    except OSError as error:
        listener.close()
        is_for_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        advice = "Choose another port (0 takes any that is free)." if is_for_port else "Choose another host."
        raise ConfigError(
            f"Can't listen on {address.host!r}, port {address.port}: {error.strerror or error}. {advice}"
        ) from error
    return listener


def login_url(keys: Keys, url: str) -> str:
    """The URL of a dashboard with a ticket, which lets a single browser in, once."""
    return f"{url.rstrip('/')}/?{TOKEN}={keys.ticket()}"
