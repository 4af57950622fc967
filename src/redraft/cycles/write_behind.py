"""Write behind: keep going while the database is slow or away."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._locks import flock
from redraft.cycles.mail import FEEDBACK, OUTBOX
from redraft.cycles.memory import Memory
from redraft.cycles.records import (
    CYCLE,
    MEMORY,
    PROVISIONAL,
    UNFINISHED,
    cycle_of,
    listed_cycle,
    memory_after,
    memory_of,
    memory_record,
    stored_cycle,
    stored_memory,
)
from redraft.errors import ConfigError, DamagedRecordError, LeaseError, StoreError
from redraft.redact.log import logger
from redraft.stores.base import NewRow, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from pathlib import Path

    from redraft.cycles.lease import Lease
    from redraft.cycles.memory import Item
    from redraft.cycles.records import CycleRecord
    from redraft.stores.base import Store

PATIENCE = 0.015
"""Seconds that a cycle waits for what it saves."""
SILENCE = 5.0
"""Seconds after which a database that does not answer is taken to be away; much may take its time."""
LAST_WAIT = 1.0
"""Seconds that the end waits for what is not written yet."""
FIRST_WAIT = 3.0
"""Seconds that the first cycle waits for its memory."""
SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two tries, at first and at most."""
LEFT = "its process ended, and the agent was started again while its database was away"
"""The error of a cycle that nobody could go on with."""
_NUMBERED = re.compile(r"([pv]?)(\d{1,10})(-\d+)")
"""The id of an action, a pattern or a violation: it begins with the number of its cycle."""


def joined(earlier: Memory, later: Memory) -> Memory:
    """Return a memory that goes on from an earlier one: its items, then those that are new."""
    items = dict(earlier.items)
    for key, found in later.items.items():
        new = {item["id"] for item in found}
        items[key] = [*(item for item in items.get(key, ()) if item["id"] not in new), *found]
    return Memory(items, max(earlier.cycle, later.cycle))


@dataclass(frozen=True, slots=True)
class Numbers:
    """Give cycles their place after those that are stored, where they were made without knowing these.

    Provisional numbers follow `last`; `moved` are others that another process has given, too. What has the
    number of a cycle in its id or under `cycle` follows it.
    """

    last: int
    moved: Mapping[int, int] = field(default_factory=dict[int, int])

    def of(self, number: int) -> int:
        """Return the number of a cycle in the store."""
        if number > PROVISIONAL:
            return number - PROVISIONAL + self.last
        return self.moved.get(number, number)

    def cycle(self, cycle: CycleRecord) -> CycleRecord:
        """Return a cycle under its number in the store."""
        changes = tuple(
            replace(one, id=self._id(one.id), before=self._item(one.before), after=self._item(one.after))
            for one in cycle.changes
        )
        return replace(cycle, number=self.of(cycle.number), changes=changes)

    def memory(self, memory: Memory) -> Memory:
        """Return a memory whose items name cycles by their numbers in the store."""
        items = {key: [self._item(item) or item for item in found] for key, found in memory.items.items()}
        return Memory(items, self.of(memory.cycle))

    def mail(self, record: Record) -> Record:
        """Return the record of feedback, or of what is to be sent, with the cycle's number in the store."""
        return replace(record, data=self._mailed(record.data))

    def _mailed(self, data: Mapping[str, Any]) -> dict[str, Any]:
        told = dict(data)
        if isinstance(cycle := data.get("cycle"), int):
            told["cycle"] = self.of(cycle)
        if isinstance(inner := data.get("data"), Mapping):
            told["data"] = self._mailed(cast("Mapping[str, Any]", inner))
        return told

    def _item(self, item: Item | None) -> Item | None:
        if item is None:
            return None
        known = {"id": self._id(item.get("id"))}
        if isinstance(cycle := item.get("cycle"), int):
            known["cycle"] = self.of(cycle)
        return {**item, **known}

    def _id(self, given: Any) -> Any:
        found = _NUMBERED.fullmatch(given) if isinstance(given, str) else None
        return given if found is None else f"{found[1]}{self.of(int(found[2]))}{found[3]}"


@dataclass(frozen=True, slots=True)
class Met:
    """Hold what an agent that began without its database finds there: its `memory`, if that was not known."""

    memory: Memory | None
    numbers: Numbers

    def goes_on(self, memory: Memory) -> Memory:
        """Return a memory of this process as it goes on from what was there."""
        renumbered = self.numbers.memory(memory)
        return renumbered if self.memory is None else joined(self.memory, renumbered)

    def record(self, record: Record) -> Record:
        """Return a record that was made without knowing what was there."""
        if (record.kind, record.key) == MEMORY:
            return memory_record(self.goes_on(memory_of(record)))
        if record.kind == CYCLE:
            return stored_cycle(self.numbers.cycle(cycle_of(record)))
        return self.numbers.mail(record) if record.kind in (FEEDBACK, OUTBOX) else record


class Keeper:
    """Write what an agent keeps, in order, each save as one; an outage of the database costs it nothing.

    `load` comes first. A `save` waits 15 ms at most, and goes on behind what it does not wait for. While the
    database is away all is held here, what a later save says again only once, and in the `spool` if there is
    one; when it is back the `lease` is renewed before anything is written. What began without knowing what
    is stored gets its place after it: see `met`. The log has one warning for each outage, and one line when
    it is over. For one event loop.
    """

    def __init__(
        self, store: Store, agent: str, spool: Spool | None = None, *, lease: Lease | None = None
    ) -> None:
        self.lease = lease
        self.silence: float | None = SILENCE
        self._store = store
        self._agent = agent
        self._spool = spool
        self._pending: Batch = {}
        self._writing: Batch = {}
        self._saved = self._written = 0
        self._is_away = self._is_partial = self._is_unmet = False
        self._met: Met | None = None
        self._is_told = True
        self._spooled: Batch = {}
        self._spooled_by = 0
        self._refused: LeaseError | None = None
        self._writer: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._hurry = asyncio.Event()

    @property
    def is_away(self) -> bool:
        """Whether the database is known to be out of reach."""
        return self._is_away

    async def load(self) -> Memory | None:
        """Take the lease, write what an earlier process could not, and return the memory.

        Where the database is away, it is what the spool says of the memory, else None: then there may be one
        that nobody can read now. Raises `LeaseError`, `ConfigError` for a database that does not exist or
        that the user has no rights to, and `StoreError` for a spool that can't be used.
        """
        if self._spool is not None:
            self._pending, self._is_partial, self._spooled_by = self._spool.read()
            self._spooled = dict(self._pending)
        self._is_unmet = bool(self._pending)
        try:
            return await asyncio.wait_for(self._read(), FIRST_WAIT)
        except (LeaseError, ConfigError, DamagedRecordError):
            await self._let_go()
            raise
        except TimeoutError:
            self.goes_away(f"it has not answered for {FIRST_WAIT:g} s")
        except StoreError as error:
            self.goes_away(str(error))
        whole = self._pending.get(MEMORY)
        self._is_partial, self._is_unmet = self._is_partial or whole is None, True
        self._begin()
        return None if whole is None else _gone_on(memory_of(whole), self._pending)

    @property
    def last_number(self) -> int:
        """The number after which those of this process come while the database is away from its start."""
        return max([PROVISIONAL, *(cycle_of(record).number for record in _cycles_in(self._pending))])

    async def save(self, records: Sequence[Record], /) -> None:
        """Write records as one, after all that came before; those that can't be written now are later.

        A record that no database can hold is left out, and the log says so. Raises `LeaseError` when another
        process has become the one that runs this agent.
        """
        self._check_lease()
        if self._met is not None:
            records = [self._met.record(record) for record in records]
        is_behind = bool(self._pending) or self._written < self._saved or self._is_away
        self._pending |= {(record.kind, record.key): record for record in records}
        if is_behind:
            self._hold_back(records)
        self._saved += 1
        number = self._saved
        self._begin()
        if self._is_away:
            return
        await self._until(lambda: self._written >= number or self._is_away or self._is_over(), PATIENCE)
        if self._written < number and not is_behind:
            self._hold_back(records)
        self._check_lease()

    def met(self) -> Met | None:
        """Return, once, what could not be read at the start and is known now.

        The agent goes on from there, in numbers and in memory; what was saved until now does already.
        """
        if self._met is None or self._is_told:
            return None
        self._is_told, found = True, self._met
        self._met = Met(None, Numbers(found.numbers.last))  # for what a cycle of before still saves
        return found

    def number_of(self, cycle: int) -> int:
        """Return the number under which a cycle is kept."""
        return cycle if self._met is None else self._met.numbers.of(cycle)

    async def settled(self) -> None:
        """Wait until all that was saved is written, or can't be."""
        await self._until(lambda: self._written >= self._saved or self._is_away or self._is_over(), None)

    async def aclose(self) -> None:
        """Write what can be written within a second, give the lease back, and let go of the spool."""
        if self._writer is not None and self._writer.cancelling():  # its event loop ends
            await asyncio.wait([self._writer])
            self._begin()
        self._hurry.set()
        await self._until(lambda: self._written >= self._saved or self._is_over(), LAST_WAIT)
        if (writer := self._writer) is not None:
            writer.cancel()
            await asyncio.wait([writer])
        if self._pending and self._refused is None:
            where = "is lost" if self._spool is None else f"is in {self._spool.path} for the next start"
            logger.warning(
                "The agent %r ends while its database is away: what is not written by now %s.",
                self._agent,
                where,
            )
        await self._let_go()

    async def _let_go(self) -> None:
        if self.lease is not None:
            await self.lease.give_back()
        if self._spool is not None:
            self._spool.close()

    async def _read(self) -> Memory | None:
        if self.lease is not None:
            await self.lease.take()
        if self._pending:
            spooled, is_partial = dict(self._pending), self._is_partial
            batch, self._pending = self._pending, {}
            try:
                await self._write(batch)
            except BaseException:  # what the spool says is still to be written, as it stands there
                self._pending, self._is_partial, self._is_unmet, self._met = spooled, is_partial, True, None
                raise
            self._met = None
            self._done(self._saved, wrote=True)
        return await stored_memory(self._store)

    def _begin(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_behind(), name=f"redraft-keeper-{self._agent}")

    async def _write_behind(self) -> None:
        """Write until nothing is left to be written, however long that takes."""
        wait = SHORTEST
        while self._pending or self._is_away:
            self._writing, self._pending, through = self._pending, {}, self._saved
            try:
                await self._watched(self._write(self._writing))
            except StoreError as error:
                self._take_back()
                if isinstance(error, LeaseError):
                    self._refused = error
                    break
                if self._left_out():
                    continue
                self.goes_away(str(error))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), wait)
                self._hurry.clear()
                wait = min(2 * wait, LONGEST)
            except BaseException:
                self._take_back()
                raise
            else:
                wait, wrote, self._writing = SHORTEST, bool(self._writing), {}
                self._done(through, wrote=wrote)
        self._tell()

    async def _write(self, batch: Batch) -> None:
        if self._is_away and self.lease is not None:
            await self.lease.take()
        if self._is_unmet:
            await self._meet(batch)
        if batch:
            await self._put(list(batch.values()))
        elif self._is_away:
            await self._store.get(*MEMORY)  # to see whether it answers

    async def _put(self, records: Sequence[Record]) -> None:
        if self.lease is not None:
            await self.lease.write(records)
        else:
            await self._store.put_all(records)

    async def _meet(self, batch: Batch) -> None:
        """Give what was made without knowing what is stored its place after it.

        That are the cycles of a process that began while the database was away, and those in the spool of
        one in whose place another has run the agent since.
        """
        stored = await stored_memory(self._store)
        newest = await self._store.find(CYCLE, newest_first=True, limit=1)
        last = max((listed_cycle(record).number for record in newest), default=0)
        spooled = [
            cycle for record in _cycles_in(self._spooled) if (cycle := cycle_of(record)).number <= PROVISIONAL
        ]
        moved: dict[int, int] = {}
        is_replaced = self.lease is not None and 0 < self._spooled_by != self.lease.generation - 1
        for cycle in spooled:
            if not is_replaced:
                last = max(last, cycle.number)
                continue
            there = await self._store.get(CYCLE, cycle.key)
            if there is not None and cycle_of(there).started_at == cycle.started_at:
                batch.pop((CYCLE, cycle.key), None)  # that one has it, and has gone on with it
                self._spooled.pop((CYCLE, cycle.key))
            else:
                moved[cycle.number] = last = last + 1
        numbers = Numbers(last, moved)
        earlier: Memory | None = None
        if stored is not None and (self._is_partial or is_replaced):
            earlier = memory_after(
                stored,
                [
                    cycle
                    for record in _cycles_in(self._spooled)
                    if (cycle := numbers.cycle(cycle_of(record))).number > stored.cycle
                ],
            )
        whole = batch.get(MEMORY)
        if (
            earlier is not None
            and is_replaced
            and whole is not None
            and memory_of(whole).cycle <= PROVISIONAL
        ):
            batch[MEMORY] = memory_record(
                Memory(cycle=memory_of(whole).cycle)
            )  # what it changed is in `earlier`
        went_on = batch is self._writing or any(
            cycle_of(one).number > PROVISIONAL for one in _cycles_in(batch)
        )
        for record in newest if went_on else ():
            cycle = cycle_of(record)
            if cycle.status in UNFINISHED and (CYCLE, record.key) not in batch:
                # Nobody goes on with it any more: the agent began with the next one.
                batch[CYCLE, record.key] = stored_cycle(replace(cycle, status="failed", error=LEFT))
        self._met, self._is_told = Met(earlier, numbers), False
        for held in (batch, self._pending):
            renumbered = [self._met.record(record) for record in held.values()]
            held.clear()
            held |= {(record.kind, record.key): record for record in renumbered}
        self._is_unmet = self._is_partial = False
        if self._spool is not None and batch is self._writing:
            self._spool.replace(
                (batch | self._pending).values(), is_partial=False, generation=self._generation
            )

    @property
    def _generation(self) -> int:
        """The generation of the lease in which what is held was made; 0 where nobody had it."""
        return self._spooled_by if self._is_unmet or self.lease is None else self.lease.generation

    async def _watched(self, writing: Coroutine[Any, Any, None]) -> None:
        """Wait for what is written, and notice when no answer comes; what was sent is not taken back."""
        loop, is_over = asyncio.get_running_loop(), False

        def look() -> None:
            if not is_over:
                self.goes_away(f"it has not answered for {self.silence:g} s")

        # Where this process itself stood still, an answer that has come goes first.
        silence = loop.call_later(SILENCE, loop.call_soon, look)
        try:
            await writing
        finally:
            is_over = True
            silence.cancel()

    def _left_out(self) -> bool:
        """Leave out what can't be stored, since what comes after would wait for it; say if there was any."""
        before = len(self._pending)
        for place, record in tuple(self._pending.items()):
            try:
                NewRow.of(record)
            except StoreError as error:
                del self._pending[place]
                logger.error("Something that the agent %r was to keep is left out: %s", self._agent, error)  # noqa: TRY400 (the message says all)
        return len(self._pending) < before

    def _take_back(self) -> None:
        self._writing, self._pending = {}, self._writing | self._pending

    def _done(self, through: int, *, wrote: bool) -> None:
        self._written = through
        if not self._pending and self._spool is not None:
            self._spool.clear()
        if self._is_away and (wrote or not self._pending):
            self._is_away = False
            logger.info("The database of the agent %r is back, and what was not written is.", self._agent)
        self._tell()

    def goes_away(self, why: str) -> None:
        """Take the database to be out of reach until it answers again; the log has a warning, once."""
        if not self._is_away:
            self._is_away = True
            logger.warning(
                "The agent %r goes on without its database, which gets all when it is back: %s",
                self._agent,
                why,
            )
            self._tell()
            self._begin()

    def _hold_back(self, records: Iterable[Record]) -> None:
        if self._spool is not None:
            self._spool.add(records, is_partial=self._is_partial, generation=self._generation)
            if self._spool.is_large():
                held = self._writing | self._pending
                self._spool.replace(held.values(), is_partial=self._is_partial, generation=self._generation)

    def _check_lease(self) -> None:
        refused = self._refused or (self.lease.lost if self.lease is not None else None)
        if refused is not None:
            raise LeaseError(*refused.args) from refused

    def _is_over(self) -> bool:
        return self._writer is None or self._writer.done()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for news in waiting:
            _wake(news)

    async def _until(self, holds: Callable[[], bool], within: float | None) -> None:
        """Wait until something holds, or so many seconds."""
        loop = asyncio.get_running_loop()
        end = None if within is None else loop.time() + within
        while not holds():
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                return
            news = loop.create_future()
            self._waiting.append(news)
            late = None if left is None else loop.call_later(left, _wake, news)
            try:
                await news
            finally:
                if late is not None:
                    late.cancel()


def _wake(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)


def _cycles_in(batch: Batch) -> list[Record]:
    """Return the records of cycles in a batch, in their order."""
    return [batch[place] for place in sorted(batch) if place[0] == CYCLE]


def _gone_on(memory: Memory, batch: Batch) -> Memory:
    """Return a memory as it is after the later cycles of a batch."""
    later = [cycle for record in _cycles_in(batch) if (cycle := cycle_of(record)).number > memory.cycle]
    return memory_after(memory, later)


Batch: TypeAlias = dict[tuple[str, str], Record]
"""Records by kind and key: of each, what is to be written last."""

LARGEST = 16_000_000
"""Bytes of the file beyond which it is written anew, without what later lines say again."""


class Spool:
    """Keep records in a file of mode 0600, one line for what was saved at once; for one process at a time.

    It is opened by `read` and outlives the process, not the machine: nothing waits for the disk. Raises
    `StoreError` where the file can't be used, and `LeaseError` where another process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._bound = LARGEST

    def read(self) -> tuple[Batch, bool, int]:
        """Return what is to be written, whether it is partial, and the generation that made it.

        It is partial where the memory in it was made without knowing the stored one; the generation is 0
        where nobody held the lease. A line that is torn, the last one of a process that was killed, is left
        out with a warning.
        """
        lines = self._open_and_read().split(b"\n")
        batch: Batch = {}
        is_partial, generation = False, 0
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                saved = json.loads(line)
                batch |= {(fields[0], fields[1]): Record(*fields) for fields in saved["records"]}
                is_partial = is_partial or saved["is_partial"]
                generation = max(generation, saved.get("generation", 0))  # none in one of an earlier version
            except (ValueError, TypeError, KeyError, IndexError):
                logger.warning(
                    "%s, line %d can't be read and is left out: it was torn when its process ended.",
                    self.path,
                    number,
                )
        return batch, is_partial, generation

    def add(self, records: Iterable[Record], *, is_partial: bool, generation: int = 0) -> None:
        """Write records down behind what is there."""
        if self._file is not None:
            with suppress(TypeError, ValueError):  # what has no JSON form the store refuses, too, and says so
                self._write(_line(records, is_partial, generation))

    def is_large(self) -> bool:
        """Say whether it is worth writing anew."""
        return self._file is not None and os.fstat(self._file).st_size > self._bound

    def replace(self, records: Iterable[Record], *, is_partial: bool, generation: int = 0) -> None:
        """Let the file hold these records and nothing else, whenever the process ends."""
        if self._file is None:
            return
        before, new = self._file, self.path.with_name(f"{self.path.name}.new")
        self._file = _locked(new)
        os.ftruncate(self._file, 0)
        self.add(records, is_partial=is_partial, generation=generation)
        new.replace(self.path)
        os.close(before)
        self._bound = max(LARGEST, 2 * os.fstat(self._file).st_size)

    def clear(self) -> None:
        """Forget all, for it has been written."""
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open_and_read(self) -> bytes:
        if self._file is None:
            try:
                self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
                self._file = _locked(self.path)
            except TimeoutError as error:
                raise LeaseError(
                    f"Another process on this machine runs the agent of the spool {self.path}: wait until it "
                    "ends, or end it."
                ) from error
            except OSError as error:
                raise StoreError(
                    f"The spool {self.path} can't be used ({error}): see who may write to its folder."
                ) from error
        size = os.fstat(self._file).st_size
        return os.pread(self._file, size, 0)

    def _write(self, line: bytes) -> None:
        if self._file is not None:
            try:
                os.write(self._file, line)
            except OSError as error:
                logger.warning("The spool %s can't be written: %s.", self.path, error)


def _locked(path: Path) -> int:
    """Open a file of this process alone; raises `TimeoutError` where it is another's."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
        flock(file, wait=0)
    except OSError:
        os.close(file)
        raise
    return file


def _line(records: Iterable[Record], is_partial: bool, generation: int) -> bytes:
    fields: list[list[Any]] = [
        [each.kind, each.key, dict(each.data), each.schema_version, each.vector] for each in records
    ]
    # The end of a line comes first, so that one which was torn takes no other with it.
    return (
        b"\n" + json.dumps({"is_partial": is_partial, "generation": generation, "records": fields}).encode()
    )
