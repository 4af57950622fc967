"""Where agents keep their memory and cycles."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import quote
from weakref import WeakValueDictionary

from redraft._codec import from_record
from redraft.cycles.journal import CycleSteps, check_lease, unjournalled
from redraft.cycles.lease import Lease
from redraft.cycles.mail import (
    EVERY,
    FEEDBACK,
    MESSAGE,
    OUTBOX,
    PENDING,
    TAKEN,
    AgentMessage,
    Feedback,
    Post,
    card_of,
    heard,
    mail_id,
    mail_record,
    pending,
    ring,
    rung,
    thin_out,
)
from redraft.cycles.memory import Memory
from redraft.cycles.records import (
    CYCLE,
    EACH,
    UNFINISHED,
    cycle_key,
    fit_to_keep,
    listed_cycle,
    make_whole,
    memory_record,
    stored_cycle,
    stored_memory,
)
from redraft.cycles.write_behind import Keeper, Spool
from redraft.errors import ConfigError, LeaseError, StoreError
from redraft.redact.log import logger
from redraft.settings import load_settings, without_password
from redraft.stores.base import Record, Store, intact
from redraft.stores.location import project_place, project_store
from redraft.stores.memory import MemoryStore
from redraft.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence

    from psycopg import AsyncConnection

    from redraft.cycles.mail import AgentCard
    from redraft.cycles.records import CycleRecord
    from redraft.cycles.state import Cycle
    from redraft.cycles.write_behind import Met
    from redraft.protocols import Step
    from redraft.stores.base import Where
    from redraft.stores.location import Place

DIRECTORY = "agents"
"""The space in which a session sees what all agents say of themselves, and nothing else."""
_LONGEST = 100
"""Characters that a name has in the name of a space or file; of longer ones there is a digest."""
_AGENTS = "SELECT data FROM redraft_agent_records WHERE kind = 'agent' AND starts_with(space, %s)"

_registered: dict[str, LongTermStorage] = {}
_of_settings: dict[str, LongTermStorage] = {}


class LongTermStorage:
    """Keep the memory of a network's agents in PostgreSQL, each agent's where no other sees it.

    To make one is to register it: every agent of the `network` keeps its memory there from then on. `dsn` is
    `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`; the tables are made on first use. `spool` is a folder for
    what can't be written while the database is away, so that it is not lost if the process ends meanwhile.

    Raises `ConfigError` for a network that has one already, and for what is no URL of a database. Needs
    `redraft[postgres]`. Specification 004, Persistent Memory Across Restarts.
    """

    def __init__(self, dsn: str, *, network: str = "default", spool: str | Path | None = None) -> None:
        self.network = network
        self._dsn = dsn
        if (there := _registered.get(network)) is not None:
            raise ConfigError(
                f"The network {network!r} has a long-term storage already, {there}; its agents share one. "
                "Close that one first (aclose), or give this one another network."
            )
        self._spool = None if spool is None else Path(spool)
        # It holds the connections that all others share.
        self._directory = PostgresStore(dsn, DIRECTORY, isolated=True)
        self._stores: dict[str, PostgresStore] = {}
        _registered[network] = self

    def __str__(self) -> str:
        return without_password(self._dsn)

    def __repr__(self) -> str:
        return f"LongTermStorage({str(self)!r}, network={self.network!r})"

    @property
    def dsn(self) -> str:
        """The URL of the database, with the password."""
        return self._dsn

    def store_for(self, agent: str) -> PostgresStore:
        """Return the store of an agent's own space; for one agent it is the same object each time."""
        if agent not in self._stores:
            space = f"agent:{_named(self.network)}:{_named(agent)}"
            self._stores[agent] = PostgresStore(self._dsn, space, isolated=True)
        return self._stores[agent]

    def keeper_for(self, agent: str) -> Keeper:
        """Return what writes the memory of an agent, with the lease that it takes when it loads."""
        store = self.store_for(agent)
        spool = None
        if self._spool is not None:
            spool = Spool(self._spool / f"{_named(self.network)}.{_named(agent)}.jsonl")
        return Keeper(store, agent, spool, lease=Lease(store, agent))

    async def agents(self) -> list[str]:
        """Return the names of the agents that have run in this network, in their order."""
        async with await self._directory.session() as session:
            found = await session.execute(_AGENTS, (f"agent:{_named(self.network)}:",))
            return sorted(json.loads(data)["name"] for (data,) in await found.fetchall())

    @asynccontextmanager
    async def connection(self, agent: str) -> AsyncGenerator[AsyncConnection[tuple[Any, ...]]]:
        """Open a connection, in autocommit mode, that sees what this agent keeps and no other's.

        The table is `redraft_agent_records`; its policies hold as long as the setting `redraft.space` is not
        changed.
        """
        async with await self.store_for(agent).session() as session:
            yield session

    async def aclose(self) -> None:
        """Let go of the connections, and make way for another storage of the network."""
        if _registered.get(self.network) is self:
            del _registered[self.network]
        if _of_settings.get(self.network) is self:
            del _of_settings[self.network]
        await self._directory.aclose()


def storage_of(network: str = "default") -> LongTermStorage | None:
    """Return the long-term storage of a network: the registered one, else that of the settings, if any.

    Raises `ConfigError` where the setting `long_term_storage` is no URL of a database.
    """
    registered, made = _registered.get(network), _of_settings.get(network)
    if registered is not None and registered is not made:
        return registered
    url = load_settings().long_term_storage
    if made is not None and made.dsn == url:
        return made
    if made is not None:  # the settings say something else now
        del _registered[network], _of_settings[network]
    if url is None:
        return None
    try:
        _of_settings[network] = LongTermStorage(url, network=network)
    except ConfigError as error:
        error.args = (f"The setting `long_term_storage` (REDRAFT_LONG_TERM_STORAGE): {error}",)
        raise
    return _of_settings[network]


def _named(name: str) -> str:
    """Return a name as a part of the name of a space or file: two names never have the same."""
    quoted = quote(name, safe="")
    return quoted if len(quoted) <= _LONGEST else f"#{sha256(name.encode()).hexdigest()}"


AGENT = "agent"
"""The kind of the records that name the agents of a project, in the project's own space."""

LocationKind = Literal["process", "project", "network", "given"]


@dataclass(slots=True, weakref_slot=True, eq=False)
class AgentLocation:
    """Where one agent is kept: a store of its own, and what kind of location that is.

    In the `process` it is gone when the process ends, and `memory` is what the agent remembers; in the
    `project` it is kept where runs are; in the `network` all agents share `storage`; a `given` store belongs
    to the program, which closes it.
    """

    agent: str
    store: Store
    kind: LocationKind
    storage: LongTermStorage | None = None
    memory: Memory = Memory()  # noqa: RUF009 (frozen, so sharing it is safe)

    @property
    def is_durable(self) -> bool:
        """Whether what is kept here outlives the process."""
        return self.kind != "process"


_in_process: WeakValueDictionary[tuple[str, str], AgentLocation] = WeakValueDictionary()
"""The agents that nobody finds by their storage, by network and name, for as long as they exist."""
_project_stores: dict[tuple[Place, str], Store] = {}


def locate(
    agent: str, storage: Literal["project"] | LongTermStorage | Store | None, network: str
) -> AgentLocation:
    """Return the location that an agent is given; raises `ConfigError` for a storage that can't be used.

    None is the long-term storage of the network if there is one, else this process.
    """
    found = storage_of(network) if storage is None else storage
    _in_process.pop((network, agent), None)  # of two agents with one name, the later one counts
    if isinstance(found, LongTermStorage):
        return AgentLocation(agent, found.store_for(agent), "network", found)
    if isinstance(found, str):
        return AgentLocation(agent, _project_store_for(agent, found), "project")
    if found is None:
        location = AgentLocation(agent, MemoryStore(), "process")
    else:
        location = AgentLocation(agent, found, "given")
    _in_process[network, agent] = location
    return location


async def register(location: AgentLocation) -> None:
    """Let other processes find an agent of the project; all others are found by their storage."""
    if location.kind == "project" and (store := project_store()) is not None:
        await store.put_if_absent(Record(AGENT, location.agent, {}))


async def known_locations(network: str = "default") -> list[AgentLocation]:
    """Return the agents of this process, of the network's long-term storage and of the project, by name."""
    found = {name: location for (of, name), location in _in_process.items() if of == network}
    if (storage := storage_of(network)) is not None:
        for name in await storage.agents():
            found.setdefault(name, AgentLocation(name, storage.store_for(name), "network", storage))
    if (place := project_place()) is not None and (store := project_store()) is not None:
        for record in await store.find(AGENT):
            name = record.key
            found.setdefault(name, AgentLocation(name, _store_in(place, name), "project"))
    return [found[name] for name in sorted(found)]


def _project_store_for(agent: str, storage: str = "project") -> Store:
    place = project_place()
    if storage != "project":
        raise ConfigError(
            f"Unknown storage {storage!r}; expected 'project', a LongTermStorage, a store, or None for the "
            "long-term storage of the network."
        )
    if place is None:
        raise ConfigError(
            "The setting `home` (REDRAFT_HOME) is empty, so the project keeps nothing. Set it, or give the "
            "agent another storage."
        )
    return _store_in(place, agent)


def _store_in(place: Place, agent: str) -> Store:
    if (place, agent) not in _project_stores:
        _project_stores[place, agent] = replace(place, space=f"{place.space}/agent:{agent}").open()
    return _project_stores[place, agent]


AT_ONCE = 100


class AgentHome:
    """Hold an agent's memory and keep it: `location` is where, and `keeping` how it is written there.

    `withheld` gives plain data without the secrets in it.
    """

    def __init__(
        self,
        location: AgentLocation,
        keeping: Keeping,
        card: AgentCard,
        *,
        cycles: int,
        withheld: Callable[[Any], Any],
    ) -> None:
        self.location = location
        self.keeping = keeping
        self.memory = Memory()
        self.number = 0
        self.unfinished: CycleRecord | None = None
        self.card = card
        self._cycles = cycles
        self._withheld = withheld
        self._journal: CycleSteps | None = None
        self._is_new = True
        self._is_introduced = False
        self._whole_at: int | None = None
        self._to_delete: list[tuple[str, str]] = []
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take the lease, and read what there is: the memory, and the last cycle.

        Raises `LeaseError` where another process runs the agent, `ConfigError` for a database that can't be
        used as it is, and `StoreError` where nothing can be read for another reason than an outage.
        """
        store = self.location.store
        memory = await self.keeping.load()
        self.memory = self.location.memory if memory is None else memory
        if self.keeping.is_away:
            self.number = self.keeping.last_number
            return
        newest = await store.find(CYCLE, newest_first=True, limit=1)
        if newest:
            last = listed_cycle(newest[0])
            self.unfinished = last if self.location.is_durable and last.status in UNFINISHED else None
            self.number = last.number - (self.unfinished is not None)
        await self._introduce()
        if self.location.is_durable:
            await prune(self.location, self._cycles)

    async def begin(self) -> None:
        """Get ready for a cycle: go on from what an outage has hidden until now."""
        if (met := self.keeping.met()) is not None:
            self.memory, self._whole_at = met.goes_on(self.memory), None
            self.number = met.numbers.of(self.number)
            if self.unfinished is not None:
                self.unfinished = met.numbers.cycle(self.unfinished)
        if not self._is_introduced and not self.keeping.is_away:
            try:
                await self._introduce()
            except LeaseError:
                raise
            except StoreError as error:
                logger.info("What %r is can't be written down yet: %s", self.location.agent, error)

    async def _introduce(self) -> None:
        """Leave the card of the agent, and have it found by others."""
        before = await card_of(self.location.store)
        self.card = replace(self.card, id=before.id or self.card.id)
        if (lease := self.keeping.lease) is not None:
            await lease.write([self.card.record])
        else:
            await self.location.store.put(self.card.record)
        await register(self.location)
        self._is_introduced = True

    async def is_lost(self) -> bool:
        """Say whether another process has come to run the agent, so that what is known here is old."""
        try:
            await check_lease(self.keeping)
        except LeaseError:
            return True
        return False

    def raise_if_lost(self) -> None:
        """Raise `LeaseError` where it is known that another process has come to run the agent."""
        lease = self.keeping.lease
        if lease is not None and lease.lost is not None:
            raise LeaseError(*lease.lost.args) from lease.lost

    def step(self, number: int) -> Step:
        """Return what carries out the effects of a cycle: a journal, where it would outlive the process."""
        if not self.location.is_durable or self.keeping.is_away:
            self._journal = None
            return unjournalled(self.keeping)
        self._journal = CycleSteps(self.location.store, number, self.keeping)
        # Only what an earlier process left can be there already.
        resumes, self._is_new = self._is_new, False
        return self._journal.journal(resumes=resumes)

    async def settled(self) -> None:
        """Wait until what a cycle has done and must not do again is written."""
        if self._journal is not None:
            await self._journal.settled()

    async def note(self, record: CycleRecord) -> None:
        """Write down how a cycle stands that has not ended: a person who decides wants to see on what."""
        if self.location.is_durable or record.status == "waiting":
            kept = fit_to_keep(record, self._withheld) if self.location.is_durable else record
            await self.keeping.save([stored_cycle(kept)])

    async def end(self, cycle: Cycle, record: CycleRecord) -> None:
        """Write down a cycle that has ended: its record, the memory, and what it took, as one."""
        kept = fit_to_keep(record, self._withheld) if self.location.is_durable else record
        taken: list[Record] = [mail_record(one, TAKEN) for one in cycle.taken]
        if cycle.next_memory is not None:
            self.memory = cycle.next_memory
            taken += [mail_record(one, TAKEN) for one in cycle.pending]
        if not self.location.is_durable:
            self.location.memory = self.memory
        await self._ended(kept, taken)

    async def give_up(self, record: CycleRecord) -> None:
        """Write down a cycle that nobody will go on with."""
        await self._ended(record, [])

    async def abandon(self, record: CycleRecord) -> None:
        """Write down a cycle that is to go on as the next one, now or at the next start, with all its steps.

        In the process no step is kept, and the next cycle is another one.
        """
        if not self.location.is_durable:
            await self.give_up(record)
            return
        if self._journal is not None:
            await self._journal.written()
        self.unfinished, self._is_new = record, True
        await self.note(record)

    async def aclose(self) -> None:
        """Write what is to be written, and let go of the store if it is the agent's own."""
        if self._journal is not None:
            self._journal.close()
        await self._sweep()
        await self.keeping.aclose()
        if self.location.kind == "project":
            await self.location.store.aclose()

    async def _ended(self, record: CycleRecord, taken: list[Record]) -> None:
        self.number, self.unfinished = record.number, None
        await self.keeping.save([*self._whole(), stored_cycle(record), *taken])
        self._gone(record.number, taken)

    def _whole(self) -> list[Record]:
        """Return the memory as a whole where that is to be written; else what each cycle changes is enough.

        It is at the first cycle of a process and after so many, before the oldest of their changes is gone;
        and while the store is away, so that the spool knows it without the store.
        """
        each = min(EACH, self._cycles)
        is_due = self._whole_at is None or self.number - self._whole_at >= each or self.keeping.is_away
        if not self.location.is_durable or not is_due:
            return []
        self._whole_at = self.number
        return [memory_record(self.memory)]

    def _gone(self, number: int, taken: list[Record]) -> None:
        """Note what nobody needs any more of a cycle, and begin to delete it when it has become much."""
        journal, self._journal = self._journal, None
        self._to_delete += [(record.kind, record.key) for record in taken]
        if number > self._cycles:
            self._to_delete.append((CYCLE, cycle_key(number - self._cycles)))
        if journal is not None:
            journal.close()
        is_much = len(self._to_delete) >= (AT_ONCE if self.location.is_durable else 1)
        is_time = number % AT_ONCE == 0
        if (is_much or is_time) and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.ensure_future(self._deleted(mail=is_time))

    async def _sweep(self) -> None:
        """Delete what is left to be deleted."""
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])
        await self._deleted()

    async def _deleted(self, *, mail: bool = False) -> None:
        await self.keeping.settled()  # what is taken must have been written as taken first
        if self.keeping.is_away or await self.is_lost():
            return
        gone, self._to_delete = self._to_delete, []
        try:
            await asyncio.gather(*(self.location.store.delete(kind, key) for kind, key in gone))
            if mail:
                await thin_out(self.location.store)
        except StoreError as error:  # the next start finds it, too
            logger.info("What %r has no more use for is not deleted yet: %s", self.location.agent, error)


async def prune(location: AgentLocation, cycles: int) -> dict[str, int]:
    """Delete what is beyond the bounds: of cycles, and mail that was taken or that too much waits before.

    Return how many records of each kind there were.
    """
    store, counts = location.store, {"cycles": 0, "mail": 0}
    last_kept = await _last_kept(store, cycles)
    if last_kept is not None:
        older = await store.find(CYCLE, newest_first=True, after=last_kept, limit=1)
        await make_whole(store, listed_cycle(older[0]).number if older else 0)
        while old := await store.find(CYCLE, newest_first=True, after=last_kept, limit=AT_ONCE):
            counts["cycles"] += len(old)
            await asyncio.gather(*(store.delete(CYCLE, record.key) for record in old))
    for kind in (FEEDBACK, MESSAGE):
        while found := intact(await store.find(kind, where={"status": TAKEN}, limit=AT_ONCE)):
            counts["mail"] += len(found)
            await asyncio.gather(*(store.delete(kind, record.key) for record in found))
    counts["mail"] += await thin_out(store)
    return counts


async def _last_kept(store: Store, cycles: int) -> Record | None:
    """Return the oldest record of the newest so many cycles; None if there are no more than these."""
    newest = await store.find(CYCLE, newest_first=True, limit=1)
    oldest = await store.find(CYCLE, limit=1)
    if not newest or listed_cycle(newest[0]).number - listed_cycle(oldest[0]).number < cycles:
        return None  # the numbers leave no room for more
    left, last = cycles, None
    while left:
        page = await store.find(CYCLE, newest_first=True, after=last, limit=min(left, AT_ONCE))
        if not page:
            return None
        left, last = left - len(page), page[-1]
    return last


class Keeping(Protocol):
    """Write the records of an agent that has the `lease`; a store out of reach costs no cycle."""

    lease: Lease | None
    silence: float | None
    """Seconds after which a store that does not answer is taken to be away; None: as long as it takes."""

    async def load(self) -> Memory | None:
        """Take the lease, and return the memory, if there is one; raises `LeaseError`."""
        ...

    @property
    def last_number(self) -> int:
        """The number after which the cycles of this process come while nobody can read the last one."""
        ...

    def met(self) -> Met | None:
        """Return, once, what could not be read at the start and is known now."""
        ...

    def number_of(self, cycle: int, /) -> int:
        """Return the number under which a cycle is kept."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether the store is known to be out of reach."""
        ...

    def goes_away(self, why: str, /) -> None:
        """Take the store to be out of reach until it answers again, and warn."""
        ...

    async def save(self, records: Sequence[Record], /) -> None:
        """Write records as one, after all that came before; those that can't be written now are later."""
        ...

    async def settled(self) -> None:
        """Wait until all that was saved is written, or can't be."""
        ...

    async def aclose(self) -> None:
        """Write what can be written, and let go of what it holds."""
        ...


class DirectKeeping:
    """Write at once, in the process or a file: a `Keeping`. What could not be written is with the next."""

    def __init__(self, store: Store, agent: str, lease: Lease | None = None) -> None:
        self.lease = lease
        self.silence: float | None = None
        self._store = store
        self._agent = agent
        self._waiting: list[Sequence[Record]] = []
        self._turn = asyncio.Lock()
        self._is_away = False

    async def load(self) -> Memory | None:
        """Take the lease, and return the memory; raises `StoreError` where it can't be read."""
        if self.lease is not None:
            await self.lease.take()
        return await stored_memory(self._store)

    @property
    def last_number(self) -> int:
        """The number before the first one: what can't be read at the start raises."""
        return 0

    def met(self) -> Met | None:
        """Return None: what can't be read at the start raises."""
        return None

    def number_of(self, cycle: int, /) -> int:
        """Return the number of a cycle as it is."""
        return cycle

    def goes_away(self, why: str, /) -> None:
        """Warn that nothing is kept; what comes next tries again."""
        if not self._is_away:
            self._is_away = True
            logger.warning("The agent %r goes on, but nothing of it is kept: %s", self._agent, why)

    @property
    def is_away(self) -> bool:
        """Whether the last write failed; one that is under way says nothing yet."""
        return self._is_away

    async def save(self, records: Sequence[Record], /) -> None:
        """Write records as one, after all that came before; logs a warning where that can't be."""
        async with self._turn:
            self._waiting.append(records)
            was_away = self._is_away
            try:
                await self._write()
            except LeaseError:
                self._waiting.clear()
                raise
            except StoreError as error:
                self.goes_away(str(error))
            else:
                if was_away:
                    logger.info("What the agent %r did meanwhile is kept now.", self._agent)

    async def settled(self) -> None:
        """Try once more what could not be written."""
        async with self._turn:
            with suppress(StoreError):  # it was said when it began
                await self._write()

    async def aclose(self) -> None:
        """Try once more what could not be written, and give the lease back."""
        await self.settled()
        if self.lease is not None:
            await self.lease.give_back()

    async def _write(self) -> None:
        while self._waiting:
            if self.lease is not None:
                await self.lease.write(self._waiting[0])
            else:
                await self._store.put_all(self._waiting[0])
            self._waiting.pop(0)
        self._is_away = False


class Waiting(Protocol):
    """Hear that a cycle waits for a person, within so many seconds; and that it does no more."""

    async def __call__(self, cycle: int, within: float | None, /, *, is_waiting: bool) -> None:
        """Hear which cycle it is."""
        ...


MOST = 1_000
"""How much feedback one cycle takes at most."""

SENDS_AGAIN, LONGEST_WAIT = 0.5, 30.0
"""Seconds between two tries to send what could not be sent, at first and at most."""

LOOKED_FOR = 5.0
"""Seconds after which it is looked again which other agents there are."""


class AgentBus:
    """Carry mail to one agent and from it: a `Bus`.

    What this process sends is seen at once, what another one sends within 0.2 seconds. While the store is
    known to be out of reach (`keeping` says so) nothing is asked of it; what was to be sent is kept with the
    agent's own records, and sent when the store is back. `patience` is how many seconds a look for feedback
    may take before the cycle goes on without (None: as long as it takes); what it finds counts for the next.
    `waiting` is told that a cycle waits for a person, and that it does no more.
    """

    def __init__(
        self,
        location: AgentLocation,
        network: str,
        post: Post,
        keeping: Keeping,
        *,
        waiting: Waiting,
        patience: float | None = None,
    ) -> None:
        self._location = location
        self._network = network
        self._post = post
        self._keeping = keeping
        self._waiting = waiting
        self._patience = patience
        self._feedback: list[Feedback] = []
        self._own: list[Feedback] = []
        self._sending: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[list[Feedback]] | None = None
        self._seen = -1
        self._looked = 0.0
        self._others: list[tuple[AgentLocation, AgentCard]] = []
        self._asked = -LOOKED_FOR

    async def open(self) -> None:
        """Begin to send what an earlier process could not."""
        if not self._keeping.is_away:
            try:
                waits = await self._location.store.find(OUTBOX, limit=1)
            except StoreError as error:
                logger.info("What the agent %r is to send can't be read now: %s", self._location.agent, error)
            else:
                if waits:
                    self._send_later()

    def sent(self, feedback: Feedback) -> None:
        """Hear of feedback that this process was given: cycles see it before the store does."""
        self._own = [*self._own, feedback][-MOST:]

    async def feedback(self) -> tuple[Feedback, ...]:
        """Return all feedback that no cycle has taken yet, oldest first."""
        agent = self._location.agent
        is_news = rung(agent) != self._seen or monotonic() - self._looked >= EVERY
        if is_news and not self._keeping.is_away:
            self._seen, self._looked = rung(agent), monotonic()
            found = await self._look()
            self._feedback = self._feedback if found is None else found
        there = {one.id for one in self._feedback}
        own = [one for one in self._own if one.id not in there]
        return tuple(sorted([*self._feedback, *own], key=attrgetter("id")))

    def took(self, feedback: tuple[Feedback, ...]) -> None:
        """Hear that a cycle took this."""
        taken = {one.id for one in feedback}
        self._feedback = [one for one in self._feedback if one.id not in taken]
        self._own = [one for one in self._own if one.id not in taken]
        if self._looking is not None:  # what it finds may be older than this
            self._looking.cancel()
            self._looking = None

    async def messages(self, topic: str | None, most: int, /) -> list[AgentMessage]:
        """Return the newest messages that no cycle has taken yet, oldest first.

        Those that can't be read now are there for the next cycle.
        """
        if self._keeping.is_away:
            return []
        try:
            async with asyncio.timeout(self._keeping.silence):
                return await pending(self._location.store, AgentMessage, most, topic=topic)
        except (StoreError, TimeoutError) as error:
            logger.info("Messages for the agent %r can't be read now: %s", self._location.agent, error)
            return []

    async def newest_message(self, topic: str | None) -> str | None:
        """Return the id of the newest message that no cycle has taken yet, if there is one."""
        return next((message.id for message in await self.messages(topic, 1)), None)

    async def publish(self, topic: str, data: Any, key: str, /) -> bool:
        """Send something to all agents that listen to its topic, once for each `key`; say if it is sent.

        While the database is away it is kept, and sent when that is back, also by a later process.
        """
        if not self._keeping.is_away:
            try:
                async with asyncio.timeout(self._keeping.silence):
                    await self._send(topic, data, key)
            except (StoreError, TimeoutError) as error:
                logger.info("The agent %r sends later what it can't now: %s", self._location.agent, error)
            else:
                return True
        waits = Record(OUTBOX, mail_id(self._post.clock()), {"topic": topic, "data": data, "key": key})
        await self._keeping.save([waits])
        self._send_later()
        return False

    async def _send(self, topic: str, data: Any, key: str) -> None:
        sender = self._location.agent
        name = sha256(f"{sender}/{key}".encode()).hexdigest()[:32]
        for place, card in await self._others_now():
            if card.listens_to(topic):
                post = Post(place.store, self._post.withheld, self._post.clock)
                await post.message(topic, data, sender=sender, key=name)
                ring(place.agent)

    def _send_later(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(
                self._sent_when_back(), name=f"redraft-outbox-{self._location.agent}"
            )

    async def _sent_when_back(self) -> None:
        """Send what is kept to be sent, as soon as that is possible."""
        store, wait = self._location.store, SENDS_AGAIN
        while True:
            await self._keeping.settled()
            if not self._keeping.is_away:
                try:
                    if not (found := intact(await store.find(OUTBOX, limit=MOST))):
                        return
                    for record in found:
                        await check_lease(self._keeping)
                        await self._send(record.data["topic"], record.data["data"], record.data["key"])
                        await store.delete(OUTBOX, record.key)
                except LeaseError:  # who runs the agent now sends it
                    return
                except StoreError as error:
                    logger.info("The agent %r can't send yet what waits: %s", self._location.agent, error)
                    wait = min(2 * wait, LONGEST_WAIT)
            await asyncio.sleep(wait)

    async def _others_now(self) -> list[tuple[AgentLocation, AgentCard]]:
        """Return the other agents of the network, with what each listens to; looked for now and then."""
        if monotonic() - self._asked >= LOOKED_FOR:
            self._asked = monotonic()
            places = [
                one for one in await known_locations(self._network) if one.agent != self._location.agent
            ]
            self._others = [(place, await card_of(place.store)) for place in places]
        return self._others

    async def verdict(
        self, cycle: int, within: float | None, known: Collection[str] = (), /
    ) -> Feedback | None:
        """Wait for what a person says about the plan of a cycle; None when `within` seconds are over.

        `known` are the ids of what was said before.
        """
        await self._waiting(cycle, within, is_waiting=True)
        found = await self._next_said_of(cycle, within, known)
        await self._waiting(cycle, within, is_waiting=False)  # not if it is cancelled: then it goes on later
        return found

    async def _next_said_of(
        self, cycle: int, within: float | None, known: Collection[str]
    ) -> Feedback | None:
        ends = None if within is None else monotonic() + within
        while True:
            seen = rung(self._location.agent)
            if (found := await self._said_of(cycle, known)) is not None:
                return found
            left = EVERY if ends is None else min(EVERY, ends - monotonic())
            if left <= 0:
                return None
            await heard(self._location.agent, seen, left)

    async def _said_of(self, cycle: int, known: Collection[str]) -> Feedback | None:
        for one in self._own:
            if one.cycle == cycle and one.id not in known:
                return one
        try:
            where: Where = {"status": PENDING, "cycle": (cycle, self._keeping.number_of(cycle))}
            found = intact(await self._location.store.find(FEEDBACK, where=where))
        except StoreError:  # away: whoever would decide can't reach us either, and it may come back in time
            return None
        new = (record for record in found if record.key not in known)
        return next((from_record(Feedback, record.data) for record in new), None)

    async def _look(self) -> list[Feedback] | None:
        """Return what is pending; None where that takes too long, or can't be seen."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(pending(self._location.store, Feedback, MOST))
        done, _ = await asyncio.wait([self._looking], timeout=self._patience)
        if not done:
            return None
        looked, self._looking = self._looking, None
        try:
            return looked.result()
        except StoreError as error:
            if not self._keeping.is_away:
                logger.info("Feedback for the agent %r can't be read now: %s", self._location.agent, error)
            return None

    async def aclose(self) -> None:
        """Stop looking, and let go of the stores of others; what is not sent yet, the next process sends."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        for place, _ in self._others:
            if place.kind == "project":
                await place.store.aclose()
        self._others, self._asked = [], -LOOKED_FOR
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
            self._looking = None
