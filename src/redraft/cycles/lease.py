"""Lease: the right to run an agent, which one live process has."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from redraft.core.errors import LeaseError, StoreError
from redraft.loop.record import Process
from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.stores.base import Store

LEASE = "lease"
"""The kind of the record, and its key."""
LASTS = 30.0
"""Seconds for which a lease is given; it is renewed three times in them."""
PATIENCE = 1.0
"""Seconds in which it is given back, or else expires."""


class Lease:
    """Hold the right to run an agent in its store: `take` it before the first cycle, `give_back` in the end.

    It is renewed in the background, every third of `lasts` seconds. A process of this machine that is gone
    loses it at once, another one when it was not renewed in time, by the clocks of the machines, which must
    agree to a few seconds. Where the store is out of reach it stays what it was, until it is asked again.
    """

    def __init__(self, store: Store, agent: str, *, lasts: float = LASTS) -> None:
        self.lost: LeaseError | None = None
        self._store = store
        self._agent = agent
        self._lasts = lasts
        self._id = uuid4().hex
        self._since = _now().isoformat()
        self._turn = asyncio.Lock()
        self._held: Record | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Take the lease, or renew it.

        Raises `LeaseError` that names the process which has it, and `StoreError` where nobody can know.
        """
        async with self._turn:
            try:
                await self._take()
            except LeaseError as error:
                self.lost, self._held = error, None
                raise
            self.lost = None
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name=f"redraft-lease-{self._agent}")

    async def give_back(self) -> None:
        """Let the next process have it at once; where the store is out of reach, when it has expired."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait([renewing])
        async with self._turn:
            held, self._held = self._held, None
            if held is not None:
                given_back = self._store.replace(replace(held, data={**held.data, "is_free": True}))
                with suppress(StoreError, TimeoutError):  # it expires
                    await asyncio.wait_for(given_back, PATIENCE)

    async def _take(self) -> None:
        """Write that this process has the lease, unless another one has."""
        while True:
            wanted = Record(LEASE, LEASE, self._data())
            there, is_new = (self._held, False) if self._held else await self._store.put_if_absent(wanted)
            if not is_new and there.data.get("id") != self._id and (holder := live_holder(there.data)):
                raise LeaseError(
                    f"The agent {self._agent!r} is run by {holder}: no second process may run it. Wait until "
                    "that one ends, or end it."
                )
            self._held = there if is_new else await self._store.replace(replace(there, data=wanted.data))
            if self._held is not None:
                return
            # Another process has changed it meanwhile, or what this one wrote is not what it knows of.

    def _data(self) -> dict[str, Any]:
        process = Process.this()
        return {
            "agent": self._agent,
            "id": self._id,
            "machine": _machine(),
            "host": process.host,
            "pid": process.pid,
            "started": process.started,
            "since": self._since,
            "until": (_now() + timedelta(seconds=self._lasts)).isoformat(),
            "is_free": False,
        }

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lasts / 3)
            try:
                await self.take()
            except LeaseError:  # `lost` says so
                return
            except StoreError:  # an outage; others can't take it either
                continue


def live_holder(data: Mapping[str, Any]) -> str:
    """Return who has a lease, for people; empty if nobody has it any more.

    Raises `LeaseError` for one of another form: nobody can know whether the agent is run.
    """
    try:
        process = Process(data["host"], data["pid"], data["started"])
        is_here = data["machine"] == _machine()
        is_over = _now() >= datetime.fromisoformat(data["until"])
        is_free = data["is_free"]
    except (KeyError, TypeError, ValueError) as error:
        raise LeaseError(
            f"The record {LEASE!r} {LEASE!r} of an agent has a form that this Redraft can't read "
            f"({type(error).__name__}: {error}), so it can't know whether a process runs the agent. Upgrade "
            "redraft if a newer one wrote it, or give the agent another name."
        ) from error
    if is_free or is_over or (is_here and process.is_gone()):
        return ""
    is_this = is_here and process == Process.this()
    where = f"{'this process' if is_this else 'process'} ({process.pid} on {process.host})"
    return f"{where} since {data['since'][:19].replace('T', ' ')} UTC"


def _machine() -> str:
    """Return what tells machines and containers apart: process numbers of one mean nothing in another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 (it links to no path)
    except OSError:  # no Linux
        return socket.gethostname()


def _now() -> datetime:
    return datetime.now(UTC)
