"""Claim: the right of one worker at a time to write into a run."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

from redraft.errors import ClaimLostError, DamagedRecordError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import FencedStore, Record

if TYPE_CHECKING:
    from redraft.stores.base import Store

CLAIM = "claim"
"""The kind of the record of a claim; its key is the run's id."""
_STEP = "step"  # as `loop.journal.STEP`, which builds on this module
OUTAGE_WAIT = 0.5
DEATHS_TOGETHER = 2
"""Deaths of its workers in a row, without a new step, after which a run is suspect."""
WRITES = 10
"""A record that was refused so often, while the store could be read in between, can't be stored."""
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

claim_under_way: ContextVar[Claim | None] = ContextVar("claim_under_way", default=None)
"""The claim of the worker that carries out the current run; None outside of a fleet."""


class Claim:
    """The right to write into a run, and into the runs inside it; made by `take`.

    Claims of a run are numbered. Whoever takes one with a higher number ends the earlier ones: what those
    still want to write is rejected with `ClaimLostError`, even if their process was stopped for hours in
    between.

    `deaths` counts the workers in a row that died while they held this run, without a new step in its
    journal. After two of them the run `is_suspect`: it may have killed them, or another run of theirs. The
    death of a worker in which a suspect only waits does not count. `run_alone` records that the worker begins
    the run and runs nothing else; if it dies then, the next claim `is_poison`.

    `renew` says that the claim is known to hold now. Before an effect that follows more than `valid_for`
    seconds later, `check` asks the store. While the store is away, both `check` and `write` wait for it: a
    worker pays for nothing that it can't record, and reports no result that is not stored.
    """

    def __init__(self, store: FencedStore, record: Record, valid_for: float) -> None:
        self.store = store
        self.run_id = record.key
        self.number: int = record.data["number"]
        self.deaths: int = record.data["deaths"]
        self.is_poison: bool = record.data["is_poison"]
        self._valid_for = valid_for
        self._is_waiting = False
        self._renewed = time.clock_gettime(_UPTIME)

    @classmethod
    async def take(
        cls, store: Store, run_id: str, number: int, worker: str = "", *, valid_for: float = 5.0
    ) -> Claim:
        """Take a claim; raises `ClaimLostError` if one with this number or a higher one was taken before."""
        if not isinstance(store, FencedStore):
            raise TypeError(f"{store!r} can't fence off a worker that was replaced: it is not a FencedStore.")
        while True:
            data = {
                "number": number,
                "worker": worker,
                "newest": "",
                "deaths": 0,
                "is_at_risk": True,
                "is_alone": False,
                "is_poison": False,
            }
            before, is_new = await store.put_if_absent(Record(CLAIM, run_id, data))
            if is_new:
                return cls(store, before, valid_for)
            if before.data["number"] >= number:
                raise _lost(run_id, number, before)
            data["newest"] = await _newest_step(store, run_id)
            if data["newest"] == before.data["newest"]:
                has_died = before.data.get("is_at_risk", True)
                data["deaths"] = before.data.get("deaths", 0) + has_died
                data["is_poison"] = has_died and before.data.get("is_alone", False)
                data["is_at_risk"] = data["deaths"] < DEATHS_TOGETHER
            if (stored := await store.replace(replace(before, data=data))) is not None:
                return cls(store, stored, valid_for)

    @property
    def is_suspect(self) -> bool:
        """Whether the run has to run by itself, since two workers in a row have died in it."""
        return self.deaths >= DEATHS_TOGETHER

    async def run_alone(self) -> None:
        """Record that the worker begins this run and runs nothing else; raises what `write` raises."""
        record = await self._stored()
        if record is None or record.data["number"] != self.number:
            raise _lost(self.run_id, self.number, record)
        await self.write(replace(record, data={**record.data, "is_at_risk": True, "is_alone": True}))

    def renew(self) -> None:
        """Note that the queue has just confirmed the claim."""
        self._renewed = time.clock_gettime(_UPTIME)

    async def check(self) -> None:
        """Raise `ClaimLostError` before an effect if another worker has taken over meanwhile."""
        if time.clock_gettime(_UPTIME) - self._renewed < self._valid_for:
            return
        record = await self._stored()
        if record is None or record.data["number"] != self.number:
            raise _lost(self.run_id, self.number, record)
        self.renew()

    async def write(self, record: Record) -> None:
        """Write a record if the claim still holds; raises `ClaimLostError` if not.

        Raises `StoreError` for a record that can't be stored.
        """
        held = {"number": self.number}
        for attempt in range(1, WRITES + 1):
            try:
                is_written = await self.store.put_all_if(CLAIM, self.run_id, held, [record])
            except StoreError:
                if attempt == WRITES:
                    raise
                await self._stored()  # which waits for the store
            else:
                if not is_written:
                    raise _lost(self.run_id, self.number, await self._stored())
                return

    async def _stored(self) -> Record | None:
        """Return the record of the claim, as soon as the store can be read."""
        while True:
            try:
                return await self.store.get(CLAIM, self.run_id)
            except StoreError as error:
                if isinstance(error, DamagedRecordError):
                    raise
                if not self._is_waiting:
                    logger.warning("The run %s waits for its store: %s", self.run_id, error)
                self._is_waiting = True
            await asyncio.sleep(OUTAGE_WAIT)

    async def release(self, *, acquit: bool = False) -> None:
        """Give the claim back, so that the next one does not count as a pick-up after a death.

        With `acquit`, earlier deaths no longer count either.
        """
        record = await self.store.get(CLAIM, self.run_id)
        if record is not None and record.data["number"] == self.number:
            data = {**record.data, "is_at_risk": False}
            await self.store.replace(replace(record, data=data | ({"deaths": 0} if acquit else {})))


def _lost(run_id: str, number: int, record: Record | None) -> ClaimLostError:
    if record is None:
        return ClaimLostError(f"The claim on the run {run_id!r} was deleted.")
    return ClaimLostError(
        f"The run {run_id!r} was taken over by {record.data['worker'] or 'another worker'} (claim "
        f"{record.data['number']}), so what claim {number} writes is rejected."
    )


async def _newest_step(store: Store, run_id: str) -> str:
    """Return what identifies the step that was recorded last for a run, or for a run inside it."""
    steps = [record for end in ("/", ".") for record in await store.find(_STEP, prefix=f"{run_id}{end}")]
    return max((f"{record.created_at} {record.key}" for record in steps), default="")
