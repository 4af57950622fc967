"""Lease: the right to run an agent, which one live process holds."""

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

from redraft.errors import LeaseError, StoreError
from redraft.loop.record import Process
from redraft.stores.base import FencedStore, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.stores.base import Store

LEASE = "lease"
"""The kind of the record, and its key."""
LASTS = 30.0
"""Seconds for which a lease is given; it is renewed three times in them."""
PATIENCE = 1.0
"""Seconds in which it is given back, or else expires."""
_RUNNING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
LONGEST_CHECK = 3.0
"""Seconds that an effect waits for a store that does not say whose it is."""


_let_go: set[str] = set()
"""The ids of leases that this process has let go of, when it could not tell the store so."""


class _Moment(NamedTuple):
    """A moment by the clock of the calendar and by one that also counts while the machine sleeps."""

    calendar: float
    running: float

    @classmethod
    def now(cls) -> _Moment:
        return cls(time.time(), time.clock_gettime(_RUNNING))

    def is_within(self, seconds: float) -> bool:
        """Say whether no more than so many seconds have passed, by either clock."""
        now = _Moment.now()
        return now.calendar - self.calendar < seconds and now.running - self.running < seconds


class Lease:
    """Hold the right to run an agent in its store: `take` it before the first cycle, `give_back` in the end.

    It is renewed in the background, every third of `lasts` seconds. A process of this machine that is gone
    loses it at once, another one when it was not renewed in time, by the clocks of the machines, which must
    agree to a few seconds. Where the store is out of reach it stays what it was, until it is asked again.

    Each holder has a `generation`, one more than the holder before (from 1; 0: not taken). A process may
    stand still for longer than the lease lasts, and another one take over and end meanwhile. So `check`
    comes before each effect, and `write` writes only while the generation is still the stored one. Who has
    lost it (`lost`) never gets it back: what it knows is old. Make another lease, and read anew.
    """

    def __init__(self, store: Store, agent: str, *, lasts: float | None = None) -> None:
        self.lost: LeaseError | None = None
        self.generation = 0
        self._store = store
        self._agent = agent
        self._lasts = LASTS if lasts is None else lasts
        self._id = uuid4().hex
        self._since = _now().isoformat()
        self._turn = asyncio.Lock()
        self._held: Record | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewed: _Moment | None = None
        self._tried: _Moment | None = None

    async def take(self) -> None:
        """Take the lease, or renew it.

        Raises `LeaseError` that names the process which has it, and `StoreError` where nobody can know.
        """
        async with self._turn:
            if self.lost is not None and self.generation:
                raise LeaseError(*self.lost.args) from self.lost
            self._tried = began = _Moment.now()
            try:
                await self._take()
            except LeaseError as error:
                self.lost, self._held = error, None
                raise
            self.lost, self._renewed = None, began
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name=f"redraft-lease-{self._agent}")

    async def check(self) -> None:
        """Make sure, before an effect, that no other process has come to run the agent; raises `LeaseError`.

        As long as it was renewed in time nobody can have taken it, and nothing is asked of the store. Where
        the store does not answer, the agent goes on: an outage costs no cycle.
        """
        if self.lost is not None:
            raise LeaseError(*self.lost.args) from self.lost
        is_sure = self._renewed is not None and self._renewed.is_within(self._lasts * 2 / 3)
        # In an outage it was tried lately; else this process has stood still.
        if is_sure or (self._tried is not None and self._tried.is_within(self._lasts * 2 / 3)):
            return
        try:
            await asyncio.wait_for(self.take(), LONGEST_CHECK)
        except LeaseError:
            raise
        except (StoreError, TimeoutError):
            self._tried = _Moment.now()

    async def write(self, records: Sequence[Record], store: Store | None = None) -> None:
        """Write records as one while this process has the lease; else raise `LeaseError`, and write none.

        `store` is another way to the same records.
        """
        store = store or self._store
        for _ in range(2):
            if await self._written(records, store):
                return
            await self.take()  # says who has it; a record that somebody has deleted is made anew
        raise LeaseError(
            f"The lease of the agent {self._agent!r} changes under every write: see who writes it."
        )

    async def give_back(self) -> None:
        """Let the next process have it at once; where the store is out of reach, when it has expired."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait([renewing])
        async with self._turn:
            held, self._held = self._held, None
            if held is not None:
                self.generation = 0
                given_back = self._store.replace(replace(held, data={**held.data, "is_free": True}))
                try:
                    await asyncio.wait_for(given_back, PATIENCE)
                except (StoreError, TimeoutError):  # it expires; in this process it holds no longer
                    _let_go.add(self._id)

    async def _take(self) -> None:
        """Write that this process has the lease, unless another one has, or had it since."""
        while True:
            wanted = Record(LEASE, LEASE, self._data(self.generation or 1))
            there, is_new = (self._held, False) if self._held else await self._store.put_if_absent(wanted)
            if not is_new:
                if there.data.get("id") != self._id:
                    self._refuse(there)
                generation = self.generation or self._next_after(there)
                there = await self._store.replace(replace(there, data=self._data(generation)))
            self._held = there
            if there is not None:
                self.generation = there.data["generation"]
                return
            # Another process has changed it meanwhile, or what this one wrote is not what it knows of.

    def _next_after(self, there: Record) -> int:
        """Return the generation of who takes a lease: the same for one that is this one's already."""
        last: int = there.data.get("generation", 0)  # none in one of an earlier version
        is_own = there.data.get("id") == self._id and not there.data.get("is_free")
        return last if is_own else last + 1

    def _refuse(self, there: Record) -> None:
        """Raise `LeaseError` for the lease of another process, if it holds or came after this one's."""
        if holder := live_holder(there.data):
            raise LeaseError(
                f"The agent {self._agent!r} is run by {holder}: no second process may run it. Wait until "
                "that one ends, or end it."
            )
        if self.generation:
            raise LeaseError(
                f"The agent {self._agent!r} was run by another process while this one did not renew its "
                "lease, so what this one knows is old, and it does nothing more. Its next cycle, or a new "
                "start, reads the memory anew."
            )

    async def _written(self, records: Sequence[Record], store: Store) -> bool:
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
        is_free = data["is_free"] or data.get("id") in _let_go
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
