"""Server: a dashboard that listens, until a person ends it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import uvicorn

from redraft.errors import ConfigError, StoreError
from redraft.web.app import dashboard
from redraft.web.guard import TOKEN, Door

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.web.keys import Keys
    from redraft.web.project import Project

PAUSE = 0.1
"""Seconds between two portions of what is read ahead, in which pages are served."""
GRACE = 2
"""Seconds that answers under way have when the dashboard ends."""


def serve(project: Project, keys: Keys, door: Door, began: Callable[[Door], None]) -> None:
    """Serve the dashboard until it is interrupted; `began` is told the door with the port that it has.

    A port of 0 takes a free one. Raises `ConfigError` where nothing can listen there.
    """
    with _listening(door) as listener:
        door = Door(door.host, listener.getsockname()[1])
        began(door)
        # What uvicorn was interrupted by it raises again when all is closed: here that is how one ends it.
        with suppress(KeyboardInterrupt):
            asyncio.run(_serve(project, keys, door, listener))


async def _serve(project: Project, keys: Keys, door: Door, listener: socket.socket) -> None:
    config = uvicorn.Config(
        dashboard(project, keys, door),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=GRACE,
    )
    reading = asyncio.create_task(_read_ahead(project))
    try:
        await _Server(config, project).serve(sockets=[listener])
    finally:
        reading.cancel()
        await project.store.aclose()


async def _read_ahead(project: Project) -> None:
    """Read what questions about all runs need before one is asked."""
    with suppress(StoreError):  # the pages tell of a store that can't be read
        while not project.ledger.is_whole:
            await project.ledger.entries()
            await asyncio.sleep(PAUSE)
        for uses in (project.note_uses, project.lesson_uses):
            while not uses.chronicle.is_whole:
                await uses.chronicle.read()
                await asyncio.sleep(PAUSE)


class _Server(uvicorn.Server):
    """A server that ends what streams before it waits for answers under way."""

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
            f"Nothing can listen on {door.host!r}, port {door.port}: {error.strerror or error}. "
            "Give another with --port (0 takes any that is free)."
        ) from error
    return listener


def address(keys: Keys, door: Door) -> str:
    """Return an address that lets one browser in, once."""
    return f"{door.url}?{TOKEN}={keys.ticket()}"
