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

from redraft._clock import is_future, uptime
from redraft._tasks import end_tasks
from redraft._validation import named_error
from redraft.errors import DamagedRecordError, LeaseError, StoreError
from redraft.loop.record import Process
from redraft.stores.base import FencedStore, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.stores.base import Store

LEASE = "lease"
"""The kind and key of the record."""
DURATION = 30.0
"""Seconds for which a lease is valid; it is renewed after a third of that time."""
MAX_DURATION = timedelta(hours=1)
"""No lease is valid for longer."""
RELEASE_TIMEOUT = 3.0
"""The time limit for releasing a lease in the store, in seconds; after that, it expires there."""
CHECK_TIMEOUT = 3.0
"""Seconds that an effect waits for the store to confirm the lease."""


_released: set[str] = set()
"""The ids of leases that this process has released, but could not release in the store."""


class _Moment(NamedTuple):
    """A moment by two clocks."""

    wall: float
    uptime: float

    @classmethod
    def now(cls) -> _Moment:
        return cls(time.time(), uptime())

    def is_within(self, seconds: float) -> bool:
        """Whether fewer seconds have passed, by both clocks."""
        now = _Moment.now()
        return now.wall - self.wall < seconds and now.uptime - self.uptime < seconds


class Lease:
    """The right to run an agent: `acquire` it before the first cycle, `release` it at the end.

    It is valid for `duration` seconds, and renewed in the background after a third of that time. If its
    process ends, other processes of the same machine can acquire it immediately. Processes of other machines
    can acquire it once it expires, by their clocks, which must agree to a few seconds. An outage of the store
    does not change the holder.

    Each holder has a `generation`, which is 1 higher than that of the previous holder (0: not acquired). A
    process may be paused for longer than the lease is valid, while another process takes over and perhaps
    even ends. So `check` precedes each effect, and `write` writes only while the stored generation is this
    one. A lease that is released or `lost` is never acquired again, since the data of its process is stale:
    make another, and read everything again.
    """

    def __init__(self, store: Store, agent: str, *, duration: float | None = None) -> None:
        self.lost: LeaseError | None = None
        self.generation: int = 0
        self.follows_death = False
        """Whether the previous holder did not release it, since its process died."""
        self._store = store
        self._agent = agent
        self._duration = DURATION if duration is None else duration
        self._id = uuid4().hex
        self._since = _now().isoformat()
        self._lock = asyncio.Lock()
        self._stored: Record | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewed_at: _Moment | None = None
        self._tried_at: _Moment | None = None

    async def acquire(self) -> None:
        """Acquire the lease, or renew it.

        Raises `LeaseError` with the name of the process that holds it, and `StoreError` if the store can't be
        reached.
        """
        async with self._lock:
            if self._renewed_at is not None:
                self.raise_if_lost()
            self._tried_at = began_at = _Moment.now()
            try:
                await self._acquire()
            except LeaseError as error:
                self.lost, self._stored = error, None
                raise
            self.lost, self._renewed_at = None, began_at
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name=f"redraft-lease-{self._agent}")

    async def check(self) -> None:
        """Raise `LeaseError` before an effect if another process has acquired the lease.

        Does not ask the store if the lease was renewed in time: no other process can have acquired it. If the
        store does not answer, the agent continues, so that an outage costs no cycle.
        """
        self.raise_if_lost()
        if self._renewed_at is not None and self._renewed_at.is_within(self._duration * 2 / 3):
            return
        # In an outage, the last attempt is recent; otherwise this process was paused. An attempt that is
        # still under way, as after a pause, has no result yet.
        if (tried_at := self._tried_at) is not None:
            is_under_way = self._lock.locked() and tried_at.is_within(CHECK_TIMEOUT)
            if not is_under_way and tried_at.is_within(self._duration * 2 / 3):
                return
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await self.acquire()
        except LeaseError:
            raise
        except (StoreError, TimeoutError):
            self._tried_at = _Moment.now()

    def raise_if_lost(self) -> None:
        """Raise `LeaseError` if this process has detected that another one acquired the lease."""
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
        """Let another process acquire it immediately, or when it expires if the store is out of reach."""
        renewing, self._renewing = self._renewing, None
        try:
            # A renewal under way ends first: it would be written even if it were cancelled.
            async with asyncio.timeout(RELEASE_TIMEOUT), self._lock:
                record, self._stored = self._stored, None
                if record is not None:
                    self.generation = 0
                    await self._free(record)
        except (StoreError, TimeoutError):  # it expires; for this process, it is free immediately
            self.generation, self._stored = 0, None
            _released.add(self._id)
        finally:
            # A cycle that ignores its cancellation may still go on.
            self.lost = self.lost or LeaseError(f"The agent {self._agent!r} has been closed.")
            await end_tasks([renewing])

    async def _free(self, record: Record) -> None:
        """Store that the lease is free, unless another process has it."""
        stored: Record | None = record
        while stored is not None and stored.data.get("id") == self._id:
            if await self._store.replace(replace(stored, data={**stored.data, "is_free": True})) is not None:
                return
            stored = await self._store.get(LEASE, LEASE)  # a renewal was written, but not confirmed

    async def _acquire(self) -> None:
        """Store that this process holds the lease, unless another process holds it or has held it since."""
        while True:
            new = Record(LEASE, LEASE, self._data(self.generation or 1))
            stored, is_new = (self._stored, False) if self._stored else await self._store.put_if_absent(new)
            if not is_new:
                if stored.data.get("id") != self._id:
                    self._refuse(stored)
                if not (generation := self.generation):  # the same if this process holds it already
                    is_own = stored.data.get("id") == self._id and not stored.data.get("is_free")
                    generation = stored.data["generation"] + (not is_own)
                    self.follows_death |= not (is_own or stored.data["is_free"])
                stored = await self._store.replace(replace(stored, data=self._data(generation)))
            self._stored = stored
            if stored is not None:
                self.generation = stored.data["generation"]
                return
            # Another process has changed it meanwhile, or an unconfirmed write of this process has.

    def _refuse(self, stored: Record) -> None:
        """Raise `LeaseError` if another process holds the lease, or has held it after this process."""
        if holder := live_holder(stored.data):
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
        expected = {"id": self._id, "generation": self.generation}
        if isinstance(store, FencedStore):
            return await store.put_all_if(LEASE, LEASE, expected, records) is not None
        stored = await store.get(LEASE, LEASE)
        if stored is None or any(stored.data.get(name) != value for name, value in expected.items()):
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
    """The process that holds a lease, for messages; empty if no process holds it any more.

    Raises `LeaseError` for a record in another format.
    """
    try:
        process = Process(data["host"], data["pid"], data["started"])
        is_this_machine = data["machine"] == _machine()
        now, until = _now(), datetime.fromisoformat(data["until"])
        # No lease is valid for longer than MAX_DURATION, so the clock of its holder was wrong.
        is_over = now >= until or is_future(until, now + MAX_DURATION)
        _ = data["generation"]
        is_free = data["is_free"] or data.get("id") in _released
    except (DamagedRecordError, KeyError, TypeError, ValueError) as error:
        raise LeaseError(
            f"The record {LEASE!r} {LEASE!r} of an agent is in a format that this version of Redraft can't "
            f"read ({named_error(error)}), so it can't tell whether a process runs the agent. "
            "Upgrade redraft if a newer version wrote it, or give the agent another name."
        ) from error
    if is_free or is_over or (is_this_machine and process.has_exited()):
        return ""
    is_this_process = is_this_machine and process == Process.this()
    where = f"{'this process' if is_this_process else 'process'} ({process.pid} on {process.host})"
    return f"{where} since {data['since'][:19].replace('T', ' ')} UTC"


def _machine() -> str:
    """The id of the machine and container in which a process id is valid."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 (the link target is not a path)
    except OSError:  # not Linux
        return socket.gethostname()


def _now() -> datetime:
    return datetime.now(UTC)
