"""Server: a dashboard that listens until it is interrupted."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import uvicorn

from redraft.errors import ConfigError
from redraft.web.guard import TOKEN, Door, Guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from redraft.web.guard import Keys
    from redraft.web.project import Project

GRACE = 2
"""Seconds that answers under way have when the dashboard shuts down."""


def serve(
    app: ASGIApp,
    project: Project,
    keys: Keys,
    door: Door,
    began: Callable[[Door], None],
) -> None:
    """Serve a guarded app until it is interrupted; `began` is called with the door, its port filled in.

    Port 0 takes a free one. Raises `ConfigError` if it can't listen there.
    """
    with _listening(door) as listener:
        door = Door(door.host, listener.getsockname()[1])
        began(door)
        # Once all is closed, uvicorn raises the interrupt again: here, that is the normal end.
        with suppress(KeyboardInterrupt):
            asyncio.run(_serve(Guard(app, keys, door), project, listener))


async def _serve(app: ASGIApp, project: Project, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=GRACE,
    )
    try:
        await _Server(config, project).serve(sockets=[listener])
    finally:
        await project.store.aclose()


class _Server(uvicorn.Server):
    """End what streams before waiting for answers under way."""

    def __init__(self, config: uvicorn.Config, project: Project) -> None:
        super().__init__(config)
        self._project = project

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._project.closing.set()
        await super().shutdown(sockets)


def _listening(door: Door) -> socket.socket:
    host = door.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, door.port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"Can't listen on {door.host!r}, port {door.port}: {error.strerror or error}. "
            "Choose another port with --port (0 takes any that is free)."
        ) from error
    return listener


def address(keys: Keys, door: Door) -> str:
    """Return an address that lets one browser in, once."""
    return f"{door.url}?{TOKEN}={keys.ticket()}"
