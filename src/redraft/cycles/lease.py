"""Lease: the right of one process at a time to run an agent."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from redraft._clock import is_future
from redraft._tasks import end_tasks
from redraft.errors import DamagedRecordError, LeaseError, StoreError
from redraft.loop.record import Process
from redraft.stores.base import FencedStore, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.stores.base import Store

LEASE = "lease"
"""The kind and key of the record."""
DURATION = 30.0
"""Seconds for which a lease is valid; it is renewed three times as often."""
MAX_DURATION = timedelta(hours=1)
"""No lease is valid for longer."""
RELEASE_TIMEOUT = 3.0
"""Seconds to tell the store that the lease is free; otherwise it expires."""
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
CHECK_TIMEOUT = 3.0
"""Seconds that an effect waits for a store to say who holds the lease."""


_released: set[str] = set()
"""The ids of leases that this process has released without being able to tell the store."""


class _Moment(NamedTuple):
    """A moment by the wall clock, and by a clock that also counts while the machine sleeps."""

    wall: float
    uptime: float

    @classmethod
    def now(cls) -> _Moment:
        return cls(time.time(), time.clock_gettime(_UPTIME))

    def is_within(self, seconds: float) -> bool:
        """Return whether fewer seconds have passed, by either clock."""
        now = _Moment.now()
        return now.wall - self.wall < seconds and now.uptime - self.uptime < seconds


class Lease:
    """The right to run an agent: `acquire` it before the first cycle, `release` it at the end.

    It is valid for `duration` seconds, and renewed in the background three times as often. A process of this
    machine loses it at once when it ends; any other process loses it by not renewing it in time, by the
    clocks of the machines, which must agree to a few seconds. An outage of the store does not change who
    holds it.

    Each holder has a `generation`, one more than the previous holder (from 1; 0: not acquired). A process may
    be paused for longer than the lease is valid, while another one takes over and perhaps even ends. So
    `check` precedes each effect, and `write` writes only while the stored generation is this one. A lease
    that is `lost` is never acquired again, since what its process knows is stale: make another, and read
    everything anew.
    """

    def __init__(self, store: Store, agent: str, *, duration: float | None = None) -> None:
        self.lost: LeaseError | None = None
        self.generation = 0
        self._store = store
        self._agent = agent
        self._duration = DURATION if duration is None else duration
        self._id = uuid4().hex
        self._since = _now().isoformat()
        self._lock = asyncio.Lock()
        self._held: Record | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewed: _Moment | None = None
        self._tried: _Moment | None = None

    async def acquire(self) -> None:
        """Acquire the lease, or renew it.

        Raises `LeaseError` with the name of the process that holds it, and `StoreError` if the store does
        not tell.
        """
        async with self._lock:
            if self.generation:
                self.raise_if_lost()
            self._tried = began = _Moment.now()
            try:
                await self._acquire()
            except LeaseError as error:
                self.lost, self._held = error, None
                raise
            self.lost, self._renewed = None, began
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name=f"redraft-lease-{self._agent}")

    async def check(self) -> None:
        """Raise `LeaseError` before an effect if another process has acquired the lease.

        A lease that was renewed in time can't have been acquired by another process, so the store is not
        asked. If the store does not answer, the agent continues: an outage costs no cycle.
        """
        self.raise_if_lost()
        if self._renewed is not None and self._renewed.is_within(self._duration * 2 / 3):
            return
        # In an outage the last attempt is recent; otherwise this process was paused. An attempt that is still
        # under way, as after a pause, says nothing yet.
        is_under_way = (
            self._lock.locked() and self._tried is not None and self._tried.is_within(CHECK_TIMEOUT)
        )
        if not is_under_way and self._tried is not None and self._tried.is_within(self._duration * 2 / 3):
            return
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await self.acquire()
        except LeaseError:
            raise
        except (StoreError, TimeoutError):
            self._tried = _Moment.now()

    def raise_if_lost(self) -> None:
        """Raise `LeaseError` if another process is known to have acquired the lease."""
        if self.lost is not None:
            raise LeaseError(*self.lost.args) from self.lost

    async def write(self, records: Sequence[Record], store: Store | None = None) -> None:
        """Write records atomically if this process holds the lease; otherwise raise `LeaseError`.

        `store` is another store of the same records.
        """
        store = store or self._store
        for _ in range(2):
            if await self._write_fenced(records, store):
                return
            await self.acquire()  # raises with the holder's name, or recreates a record that was deleted
        raise LeaseError(
            f"The lease of the agent {self._agent!r} changes during every write, so something else is "
            "writing it."
        )

    async def release(self) -> None:
        """Let another process acquire it at once, or when it expires if the store is out of reach."""
        renewing, self._renewing = self._renewing, None
        try:
            # A renewal under way ends first: it would be written even if it were cancelled.
            async with asyncio.timeout(RELEASE_TIMEOUT), self._lock:
                held, self._held = self._held, None
                if held is not None:
                    self.generation = 0
                    await self._free(held)
        except (StoreError, TimeoutError):  # it expires; in this process it is free at once
            self.generation, self._held = 0, None
            _released.add(self._id)
        finally:
            await end_tasks([renewing])

    async def _free(self, held: Record) -> None:
        """Store that the lease is free, unless another process has it."""
        there: Record | None = held
        while there is not None and there.data.get("id") == self._id:
            if await self._store.replace(replace(there, data={**there.data, "is_free": True})) is not None:
                return
            there = await self._store.get(LEASE, LEASE)  # a renewal was written, but not confirmed

    async def _acquire(self) -> None:
        """Store that this process holds the lease, unless another one holds it, or has held it since."""
        while True:
            wanted = Record(LEASE, LEASE, self._data(self.generation or 1))
            there, is_new = (self._held, False) if self._held else await self._store.put_if_absent(wanted)
            if not is_new:
                if there.data.get("id") != self._id:
                    self._refuse(there)
                if not (generation := self.generation):  # the same if this process holds it already
                    is_own = there.data.get("id") == self._id and not there.data.get("is_free")
                    generation = there.data["generation"] + (not is_own)
                there = await self._store.replace(replace(there, data=self._data(generation)))
            self._held = there
            if there is not None:
                self.generation = there.data["generation"]
                return
            # Another process has changed it meanwhile, or a write of this one was not confirmed.

    def _refuse(self, there: Record) -> None:
        """Raise `LeaseError` if another process holds the lease, or has held it after this one."""
        if holder := live_holder(there.data):
            raise LeaseError(
                f"The agent {self._agent!r} is run by {holder}; only one process at a time may run it. Wait "
                "until that process ends, or end it."
            )
        if self.generation:
            raise LeaseError(
                f"The agent {self._agent!r} was run by another process while this one did not renew its "
                "lease. Its state is out of date, so it stopped. Its next cycle, or a restart, reads the "
                "memory again."
            )

    async def _write_fenced(self, records: Sequence[Record], store: Store) -> bool:
        held = {"id": self._id, "generation": self.generation}
        if isinstance(store, FencedStore):
            return await store.put_all_if(LEASE, LEASE, held, records) is not None
        there = await store.get(LEASE, LEASE)
        if there is None or any(there.data.get(name) != value for name, value in held.items()):
            return False
        await store.put_all(records)
        return True

    def _data(self, generation: int) -> dict[str, Any]:
        process = Process.this()
        return {
            "agent": self._agent,
            "id": self._id,
            "generation": generation,
            "machine": _machine(),
            "host": process.host,
            "pid": process.pid,
            "started": process.started,
            "since": self._since,
            "until": (_now() + timedelta(seconds=self._duration)).isoformat(),
            "is_free": False,
        }

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._duration / 3)
            try:
                await self.acquire()
            except LeaseError:  # recorded in `lost`
                return
            except StoreError:  # an outage, in which others can't take it either
                continue


def live_holder(data: Mapping[str, Any]) -> str:
    """Return a description of the process that holds a lease; empty if none does any more.

    Raises `LeaseError` for a record in another format.
    """
    try:
        process = Process(data["host"], data["pid"], data["started"])
        is_here = data["machine"] == _machine()
        now, until = _now(), datetime.fromisoformat(data["until"])
        # No lease is valid for that long, so the clock of its holder was wrong.
        is_over = now >= until or is_future(until, now + MAX_DURATION)
        _ = data["generation"]
        is_free = data["is_free"] or data.get("id") in _released
    except (DamagedRecordError, KeyError, TypeError, ValueError) as error:
        raise LeaseError(
            f"The record {LEASE!r} {LEASE!r} of an agent is in a format that this version of Redraft can't "
            f"read ({type(error).__name__}: {error}), so it can't tell whether a process runs the agent. "
            "Upgrade redraft if a newer version wrote it, or give the agent another name."
        ) from error
    if is_free or is_over or (is_here and process.is_gone()):
        return ""
    is_this = is_here and process == Process.this()
    where = f"{'this process' if is_this else 'process'} ({process.pid} on {process.host})"
    return f"{where} since {data['since'][:19].replace('T', ' ')} UTC"


def _machine() -> str:
    """Return an id of the machine and container, outside of which a process id means nothing."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 (it links to no path)
    except OSError:  # not Linux
        return socket.gethostname()


def _now() -> datetime:
    return datetime.now(UTC)
