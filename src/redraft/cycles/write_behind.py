"""Write-behind: store an agent's records in order, through slow writes and outages of the store."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._locks import check_regular, flock
from redraft._tasks import end_tasks
from redraft.cycles.mail import FEEDBACK, NOTICE, OUTBOX
from redraft.cycles.memory import Memory
from redraft.cycles.records import (
    MEMORY,
    PROVISIONAL,
    UNFINISHED,
    cycle_from,
    listed_cycle,
    memory_from,
    memory_record,
    stored_cycle,
    stored_memory,
)
from redraft.cycles.trace import TRACE, renumbered
from redraft.errors import ConfigError, DamagedRecordError, LeaseError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import NewRow, Record
from redraft.stores.run_index import CYCLE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from pathlib import Path

    from redraft.cycles.lease import Lease
    from redraft.cycles.memory import Item
    from redraft.cycles.records import CycleRecord
    from redraft.stores.base import Store

PATIENCE = 0.015
"""Seconds that a cycle waits for its write to a database."""
SILENCE = 5.0
"""Seconds after which a database that does not answer counts as away; a large write takes its time."""
OPEN_TIMEOUT = 3.0
"""Seconds that the first cycle waits for its memory."""
CLOSE_TIMEOUT = 1.0
"""Seconds that closing waits for what is not written yet."""
MIN_RETRY, MAX_RETRY = 0.05, 1.0
"""Seconds between two attempts, at first and at most."""
ORPHANED = "its process ended, and the agent was restarted while its database was unreachable"
"""The error of a cycle that nobody could resume."""

Batch: TypeAlias = dict[tuple[str, str], Record]
"""Records to be written, the latest for each kind and key."""


class WriteBehind:
    """Writes an agent's records in order, each `save` atomically; an outage of the store loses nothing.

    Call `load` first. While the store is away, records are held here, and in the `spool` if there is one;
    once it is back, the `lease` is renewed and they are written. An outage logs one warning when it begins
    and one line when it is over. A record that no store can hold is dropped with an error in the log.

    With a `remote` store, `save` waits 15 ms at most, and an agent may start during an outage. It then knows
    neither its last cycle nor its memory: its cycles get provisional numbers, and once the store is back,
    everything is merged with what is stored; see `reconciliation`. With a local store, `save` waits for each
    write, and a store that can't be read at the start is an error.

    For one event loop.
    """

    def __init__(
        self,
        store: Store,
        agent: str,
        spool: Spool | None = None,
        *,
        lease: Lease | None = None,
        remote: bool = True,
    ) -> None:
        self.lease = lease
        self.silence = SILENCE if remote else None
        self._remote = remote
        self._store = store
        self._agent = agent
        self._spool = spool
        self._pending: Batch = {}
        self._writing: Batch = {}
        self._saved = self._written = 0
        self._is_away = False
        self._is_unreconciled = False
        """Whether `_pending` may have been made without knowing what is stored."""
        self._is_partial = False
        """Whether the memory in `_pending` does not continue the stored one."""
        self._reconciliation: Reconciliation | None = None
        self._untaken_reconciliation: Reconciliation | None = None
        self._spooled: Batch = {}
        self._spool_generation = 0
        self._refused: LeaseError | None = None
        self._writer: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._retry_now = asyncio.Event()

    @property
    def is_away(self) -> bool:
        """Whether the store is known to be out of reach."""
        return self._is_away

    @property
    def last_provisional_number(self) -> int:
        """The number of the last cycle if the store has been away since the start."""
        return max([PROVISIONAL, *(cycle.number for cycle in _cycles_in(self._pending))])

    async def load(self) -> Memory | None:
        """Acquire the lease, write what an earlier process could not, and return the stored memory.

        While a remote store is away, returns the memory in the spool, if any; None does not mean that none is
        stored. Raises `LeaseError`, `ConfigError` for a database that does not exist or refuses the user,
        and `StoreError` for an unusable spool and for a local store that can't be read.
        """
        if self._spool is not None:
            self._pending, self._is_partial, self._spool_generation = self._spool.read()
            self._spooled = dict(self._pending)
        self._is_unreconciled = bool(self._pending)
        try:
            async with asyncio.timeout(OPEN_TIMEOUT if self._remote else None):
                return await self._load()
        except (LeaseError, ConfigError, DamagedRecordError):
            await self._release()
            raise
        except TimeoutError:
            self.mark_away(f"it has not answered for {OPEN_TIMEOUT:g} s")
        except StoreError as error:
            if not self._remote:
                await self._release()
                raise
            self.mark_away(str(error))
        memory = self._pending.get(MEMORY)
        self._is_partial, self._is_unreconciled = self._is_partial or memory is None, True
        return None if memory is None else memory_from(memory)

    async def save(self, records: Sequence[Record], /) -> None:
        """Write records atomically, after everything saved before; later if that is not possible now.

        Raises `LeaseError` once another process runs this agent.
        """
        self.raise_if_lost()
        if self._reconciliation is not None:
            records = [self._reconciliation.apply(record) for record in records]
        is_behind = bool(self._pending) or self._written < self._saved or self._is_away
        self._pending |= {(record.kind, record.key): record for record in records}
        if is_behind:
            self._spool_records(records)
        self._saved += 1
        number = self._saved
        self._start_writer()
        if self._is_away:
            return
        await self._wait_until(
            lambda: self._written >= number or self._is_away or self._is_idle(),
            PATIENCE if self._remote else None,
        )
        if self._written < number and not is_behind:
            self._spool_records(records)
        self.raise_if_lost()

    async def write_now(self, records: Sequence[Record], store: Store | None = None) -> None:
        """Write records atomically, not after those saved; `store` is another store of the same records.

        Raises `LeaseError` if another process runs this agent, and `StoreError` in an outage.
        """
        if self.lease is not None:
            await self.lease.write(records, store)
        else:
            await (store or self._store).put_all(records)

    async def flush(self) -> None:
        """Wait until everything saved is written, or the store is away."""
        await self._wait_until(lambda: self._written >= self._saved or self._is_away or self._is_idle(), None)

    async def check_lease(self) -> None:
        """Raise `LeaseError` before an effect if another process runs the agent now."""
        if self.lease is not None:
            await self.lease.check()

    def raise_if_lost(self) -> None:
        """Raise `LeaseError` if another process is known to have run the agent since."""
        if self._refused is not None:
            raise LeaseError(*self._refused.args) from self._refused
        if self.lease is not None:
            self.lease.raise_if_lost()

    def mark_away(self, reason: str) -> None:
        """Treat the store as out of reach until it answers again, and log one warning."""
        if not self._is_away:
            self._is_away = True
            logger.warning(
                "The agent %r continues without its store; records are written once it is reachable again: "
                "%s",
                self._agent,
                reason,
            )
            self._tell_waiting()
            self._start_writer()

    def reconciliation(self) -> Reconciliation | None:
        """Return, once, how an agent that started during an outage continues after it.

        The agent takes its numbers and memory from there; what it has saved is adjusted already.
        """
        found, self._untaken_reconciliation = self._untaken_reconciliation, None
        if found is not None:
            # A cycle that began before may still save something under its provisional number.
            self._reconciliation = Reconciliation(found.last)
        return found

    def stored_number(self, cycle: int) -> int:
        """Return the number under which a cycle is stored."""
        return cycle if self._reconciliation is None else self._reconciliation.number(cycle)

    async def aclose(self) -> None:
        """Write what can be written within a second, release the lease, and close the spool."""
        if self._writer is not None and self._writer.cancelling():  # its event loop ends
            await asyncio.wait([self._writer])
            self._start_writer()
        self._retry_now.set()
        await self._wait_until(lambda: self._written >= self._saved or self._is_idle(), CLOSE_TIMEOUT)
        await end_tasks([self._writer])
        if self._pending and self._refused is None:
            where = "are lost" if self._spool is None else f"are in {self._spool.path} for the next start"
            logger.warning(
                "The agent %r is shutting down while its store is unreachable; its unsaved records %s.",
                self._agent,
                where,
            )
        await self._release()

    async def _release(self) -> None:
        if self.lease is not None:
            await self.lease.release()
        if self._spool is not None:
            self._spool.close()

    async def _load(self) -> Memory | None:
        if self.lease is not None:
            await self.lease.acquire()
        if self._pending:
            before, is_partial = dict(self._pending), self._is_partial
            batch, self._pending = self._pending, {}
            try:
                await self._write(batch)
            except BaseException:  # everything in the spool still has to be written
                self._pending, self._is_partial, self._is_unreconciled = before, is_partial, True
                raise
            finally:
                self._reconciliation = self._untaken_reconciliation = None
            self._mark_written(self._saved, wrote=True)
        return await stored_memory(self._store)

    # The writer: a background task while there is something to write

    def _start_writer(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(
                self._write_pending(), name=f"redraft-write-behind-{self._agent}"
            )

    async def _write_pending(self) -> None:
        """Write until nothing is pending, however long that takes."""
        wait = MIN_RETRY
        while self._pending or self._is_away:
            self._writing, self._pending, through = self._pending, {}, self._saved
            try:
                await self._noticing_silence(self._write(self._writing))
            except StoreError as error:
                self._return_batch()
                if isinstance(error, LeaseError):
                    self._refused = error
                    break
                if self._drop_unstorable():
                    continue
                self.mark_away(str(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._retry_now.wait()
                self._retry_now.clear()
                wait = min(2 * wait, MAX_RETRY)
            except BaseException:
                self._return_batch()
                raise
            else:
                wait, wrote, self._writing = MIN_RETRY, bool(self._writing), {}
                self._mark_written(through, wrote=wrote)
        self._tell_waiting()

    async def _write(self, batch: Batch) -> None:
        if self._is_away and self.lease is not None:
            await self.lease.acquire()
        if self._is_unreconciled:
            await self._reconcile(batch)
        if not batch:
            if self._is_away:
                await self._store.get(*MEMORY)  # to see whether it answers
        else:
            await self.write_now(list(batch.values()))

    async def _noticing_silence(self, write: Coroutine[Any, Any, None]) -> None:
        """Await a write; mark the store as away if it does not answer meanwhile, but let the write finish."""
        if self.silence is None:
            await write
            return
        loop, is_over = asyncio.get_running_loop(), False

        def check() -> None:
            if not is_over:
                self.mark_away(f"it has not answered for {SILENCE:g} s")

        # Once more through the loop: after a pause of this process, an answer that has arrived comes first.
        timer = loop.call_later(SILENCE, loop.call_soon, check)
        try:
            await write
        finally:
            is_over = True
            timer.cancel()

    def _return_batch(self) -> None:
        self._writing, self._pending = {}, self._writing | self._pending

    def _drop_unstorable(self) -> bool:
        """Drop records that can't be stored and would block all others; return whether there were any."""
        before = len(self._pending)
        for key, record in tuple(self._pending.items()):
            try:
                NewRow.of(record)
            except StoreError as error:
                del self._pending[key]
                logger.error("Dropped a record of the agent %r that can't be stored: %s", self._agent, error)  # noqa: TRY400 (the message says all)
        return len(self._pending) < before

    def _mark_written(self, through: int, *, wrote: bool) -> None:
        self._written = through
        if not self._pending and self._spool is not None:
            self._spool.clear()
        if self._is_away and (wrote or not self._pending):
            self._is_away = False
            logger.info(
                "The store of the agent %r is reachable again; all records were written.", self._agent
            )
        self._tell_waiting()

    def _spool_records(self, records: Iterable[Record]) -> None:
        if self._spool is not None:
            self._spool.add(records, is_partial=self._is_partial, generation=self._generation)
            if self._spool.is_large():
                held = self._writing | self._pending
                self._spool.replace(held.values(), is_partial=self._is_partial, generation=self._generation)

    @property
    def _generation(self) -> int:
        """The generation of the lease under which pending records were made; 0 if there was none."""
        return (
            self._spool_generation if self._is_unreconciled or self.lease is None else self.lease.generation
        )

    def _is_idle(self) -> bool:
        return self._writer is None or self._writer.done()

    async def _wait_until(self, condition: Callable[[], bool], seconds: float | None) -> None:
        """Wait until a condition holds, or `seconds` are over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    await self._news.wait()

    def _tell_waiting(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # After an outage during which the agent started

    async def _reconcile(self, batch: Batch) -> None:
        """Merge a batch with what is stored, which was not known when the batch was made.

        The batch comes from a process that started during an outage, or from the spool of a process whose
        agent another process has run since.
        """
        stored = await stored_memory(self._store)
        newest = await self._store.find(CYCLE, newest_first=True, limit=1)
        last = max((listed_cycle(record).number for record in newest), default=0)
        is_replaced = self.lease is not None and 0 < self._spool_generation != self.lease.generation - 1
        moved: dict[int, int] = {}
        for cycle in _cycles_in(self._spooled):
            if cycle.number > PROVISIONAL:
                continue
            if not is_replaced:
                last = max(last, cycle.number)
            elif await self._is_stored(cycle):  # the other process has resumed it
                batch.pop((CYCLE, cycle.key), None)
                self._spooled.pop((CYCLE, cycle.key))
            else:
                moved[cycle.number] = last = last + 1
        if batch is self._writing or any(cycle.number > PROVISIONAL for cycle in _cycles_in(batch)):
            for record in newest:
                cycle = cycle_from(record)
                if cycle.status in UNFINISHED and (CYCLE, record.key) not in batch:
                    batch[CYCLE, record.key] = stored_cycle(replace(cycle, status="failed", error=ORPHANED))
        earlier = stored if self._is_partial or is_replaced else None
        self._reconciliation = self._untaken_reconciliation = Reconciliation(last, moved, earlier)
        for held in (batch, self._pending):
            records = [self._reconciliation.apply(record) for record in held.values()]
            held.clear()
            held |= {(record.kind, record.key): record for record in records}
        self._is_unreconciled = self._is_partial = False
        if self._spool is not None and batch is self._writing:
            self._spool.replace(
                (batch | self._pending).values(), is_partial=False, generation=self._generation
            )

    async def _is_stored(self, cycle: CycleRecord) -> bool:
        there = await self._store.get(CYCLE, cycle.key)
        return there is not None and cycle_from(there).started_at == cycle.started_at


def _cycles_in(batch: Batch) -> list[CycleRecord]:
    """Return the cycles in a batch, in order."""
    return [cycle_from(batch[key]) for key in sorted(batch) if key[0] == CYCLE]


_NUMBERED_ID = re.compile(r"([pv]?)(\d{1,10})(-\d+)")
"""The id of an action, a pattern or a violation, which has the number of its cycle."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """How records made without knowing the store continue what is stored.

    Provisional numbers follow `last`, the number of the last stored cycle; `moved` maps other numbers that
    another process has used, too. Whatever names a cycle, in its id or under `cycle`, is renumbered. `memory`
    is the stored memory if this process did not know it.
    """

    last: int
    moved: Mapping[int, int] = field(default_factory=dict[int, int])
    memory: Memory | None = None

    def number(self, number: int) -> int:
        """Return the final number of a cycle."""
        if number > PROVISIONAL:
            return number - PROVISIONAL + self.last
        return self.moved.get(number, number)

    def cycle(self, cycle: CycleRecord) -> CycleRecord:
        """Return a cycle under its final number."""
        changes = tuple(
            replace(
                change,
                id=self._id(change.id),
                before=change.before and self._item(change.before),
                after=change.after and self._item(change.after),
            )
            for change in cycle.changes
        )
        return replace(cycle, number=self.number(cycle.number), changes=changes)

    def merge(self, memory: Memory) -> Memory:
        """Return a memory of this process as it continues the stored one."""
        items = {key: [self._item(item) for item in found] for key, found in memory.items.items()}
        renumbered = Memory(items, self.number(memory.cycle))
        return renumbered if self.memory is None else merged(self.memory, renumbered)

    def apply(self, record: Record) -> Record:
        """Return a record as it continues what is stored."""
        if (record.kind, record.key) == MEMORY:
            return memory_record(self.merge(memory_from(record)))
        if record.kind == CYCLE:
            return stored_cycle(self.cycle(cycle_from(record)))
        if record.kind == TRACE:
            return renumbered(record, self.number(record.data["cycle"]))
        if record.kind in (FEEDBACK, NOTICE, OUTBOX):
            return replace(record, data=self._mail(record.data))
        return record

    def _mail(self, data: Mapping[str, Any]) -> dict[str, Any]:
        renumbered = dict(data)
        if isinstance(cycle := data.get("cycle"), int):
            renumbered["cycle"] = self.number(cycle)
        if isinstance(inner := data.get("data"), Mapping):
            renumbered["data"] = self._mail(cast("Mapping[str, Any]", inner))
        return renumbered

    def _item(self, item: Item) -> Item:
        renumbered = {**item, "id": self._id(item.get("id"))}
        if isinstance(cycle := item.get("cycle"), int):
            renumbered["cycle"] = self.number(cycle)
        return renumbered

    def _id(self, id_: Any) -> Any:
        found = _NUMBERED_ID.fullmatch(id_) if isinstance(id_, str) else None
        return id_ if found is None else f"{found[1]}{self.number(int(found[2]))}{found[3]}"


def merged(earlier: Memory, later: Memory) -> Memory:
    """Return a memory with the items of the earlier one, then those of the later, each id once."""
    items = dict(earlier.items)
    for key, found in later.items.items():
        new = {item["id"] for item in found}
        items[key] = [*(item for item in items.get(key, ()) if item["id"] not in new), *found]
    return Memory(items, max(earlier.cycle, later.cycle))


MAX_SPOOL = 16_000_000
"""Bytes beyond which the file is rewritten without what later lines repeat."""


class Spool:
    """Unwritten records in a file of mode 0600, one line for each save; for one process at a time.

    It survives the end of the process but not that of the machine, since nothing waits for the disk. `read`
    opens it, and raises `StoreError` if the file can't be used and `LeaseError` if another process has it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._limit = MAX_SPOOL

    def read(self) -> tuple[Batch, bool, int]:
        """Return the unwritten records, whether their memory is partial, and the generation of their lease.

        A partial memory was made without knowing the stored one; the generation is 0 without a lease. A torn
        line, the last one of a process that was killed, is dropped with a warning.
        """
        batch: Batch = {}
        is_partial, generation = False, 0
        for number, line in enumerate(self._open_and_read().split(b"\n"), 1):
            if not line:
                continue
            try:
                saved = json.loads(line)
                batch |= {(fields[0], fields[1]): Record(*fields[:4]) for fields in saved["records"]}
                is_partial = is_partial or saved["is_partial"]
                generation = max(generation, saved["generation"])
            except (ValueError, TypeError, KeyError, IndexError):
                logger.warning(
                    "%s, line %d can't be read and was dropped: the line was cut off when its process ended.",
                    self.path,
                    number,
                )
        return batch, is_partial, generation

    def add(self, records: Iterable[Record], *, is_partial: bool, generation: int = 0) -> None:
        """Append records."""
        if self._file is None:
            return
        fields: list[list[Any]] = [
            [each.kind, each.key, dict(each.data), each.schema_version] for each in records
        ]
        saved = {"is_partial": is_partial, "generation": generation, "records": fields}
        try:
            # The line break comes first, so that a torn line does not swallow the next one.
            os.write(self._file, b"\n" + json.dumps(saved).encode())
        except (TypeError, ValueError):  # not JSON; the store refuses it, too, and says so
            return
        except OSError as error:
            logger.warning("The spool %s can't be written: %s.", self.path, error)

    def is_large(self) -> bool:
        """Return whether the file has grown enough to be worth rewriting."""
        return self._file is not None and os.fstat(self._file).st_size > self._limit

    def replace(self, records: Iterable[Record], *, is_partial: bool, generation: int = 0) -> None:
        """Replace the whole file by these records, atomically."""
        if self._file is None:
            return
        before, new = self._file, self.path.with_name(f"{self.path.name}.new")
        self._file = _open_locked(new)
        os.ftruncate(self._file, 0)
        self.add(records, is_partial=is_partial, generation=generation)
        new.replace(self.path)
        os.close(before)
        self._limit = max(MAX_SPOOL, 2 * os.fstat(self._file).st_size)

    def clear(self) -> None:
        """Remove all records, which have been written."""
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Close the file, and give up the lock on it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open_and_read(self) -> bytes:
        if self._file is None:
            try:
                self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
                self._file = _open_locked(self.path)
            except TimeoutError as error:
                raise LeaseError(
                    f"Another process on this machine runs the agent of the spool {self.path}. Wait until it "
                    "ends, or end it."
                ) from error
            except OSError as error:
                raise StoreError(
                    f"The spool {self.path} can't be used ({error}): check the permissions of its folder."
                ) from error
        return os.pread(self._file, os.fstat(self._file).st_size, 0)


def _open_locked(path: Path) -> int:
    """Open and lock a file; raises `TimeoutError` if another process has locked it."""
    check_regular(path)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
        flock(file, wait=0)
    except OSError:  # also a TimeoutError
        os.close(file)
        raise
    return file
