"""Storage: the places for the memory and cycles of agents: this process, the project, or PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from redraft._hints import keyword_hints
from redraft._validation import check_kind, check_name
from redraft.cycles.egress import EGRESS
from redraft.cycles.journal import JOURNAL, TRACE
from redraft.cycles.lease import LEASE, Lease, live_holder
from redraft.cycles.mail import FEEDBACK, MESSAGE, TAKEN, drop_excess_mail
from redraft.cycles.memory import Memory
from redraft.cycles.records import CARD, MEMORY, cycle_prefix, listed_cycle, memory_from, memory_record
from redraft.cycles.write_behind import WriteBehind
from redraft.errors import ConfigError
from redraft.settings import load_settings, without_password
from redraft.stores.base import ManagedStore, Record, Store, intact
from redraft.stores.location import project_place, project_store
from redraft.stores.postgres import PostgresStore
from redraft.stores.run_index import CYCLE
from redraft.stores.sqlite import MemoryStore
from redraft.text.search import has_text, without_texts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from psycopg import AsyncConnection

    from redraft.stores.location import Place
    from redraft.text.search import TextPredicate

DIRECTORY = "agents"
"""The space whose sessions see only the cards of all agents."""
MAX_NAME = 100
"""The maximum length of a quoted name in the name of a space; longer names are hashed."""
_CARDS = "SELECT data FROM redraft_agent_records WHERE kind = 'agent' AND starts_with(space, %s)"

_SPACES = "SELECT space FROM redraft_agent_records WHERE kind = 'agent' AND starts_with(space, 'agent:')"

_storages: dict[str, LongTermStorage] = {}
"""The long-term storages, by network."""


@keyword_hints()
class LongTermStorage:
    """The memory of a network's agents in PostgreSQL; each agent sees only its own.

    Creating a storage registers it: from then on, all agents of the `network` store their memory there. `dsn`
    is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`; tables are created on first use.

    Raises `ConfigError` if the network already has a storage, and for an invalid database URL. Needs
    `redraft[postgres]`.
    """

    def __init__(self, dsn: str, *, network: str = "default") -> None:
        check_name("network", network)
        self.network = network
        self.is_of_settings = False
        """Whether it was made from the setting `long_term_storage`, and may be replaced if that changes."""
        self._dsn = dsn
        if network in _storages:
            raise ConfigError(
                f"The network {network!r} already has a long-term storage, {_storages[network]}, which all "
                "its agents share. Close that storage first (aclose), or use another network."
            )
        # The stores of all agents share its connections.
        self._directory = PostgresStore(dsn, DIRECTORY, isolated=True)
        self._stores: dict[str, PostgresStore] = {}
        _storages[network] = self

    def __str__(self) -> str:
        return without_password(self._dsn)

    def __repr__(self) -> str:
        return f"LongTermStorage({str(self)!r}, network={self.network!r})"

    @property
    def dsn(self) -> str:
        """The URL of the database, with the password."""
        return self._dsn

    def store_for(self, agent: str) -> PostgresStore:
        """The store of an agent's own space; the same object each time."""
        if agent not in self._stores:
            space = f"agent:{_safe_name(self.network)}:{_safe_name(agent)}"
            self._stores[agent] = PostgresStore(self._dsn, space, isolated=True)
        return self._stores[agent]

    def location_of(self, agent: str) -> AgentLocation:
        """The location of an agent of the network."""
        return AgentLocation(agent, self.store_for(agent), "network", self)

    async def agents(self) -> list[str]:
        """The names of the agents that have run in this network, sorted."""
        async with await self._directory.session() as session:
            rows = await session.execute(_CARDS, (f"agent:{_safe_name(self.network)}:",))
            return sorted(json.loads(data)["name"] for (data,) in await rows.fetchall())

    async def networks(self) -> list[str]:
        """The networks with agents in this database, except networks with hashed names."""
        async with await self._directory.session() as session:
            rows = await session.execute(_SPACES)
            names = {space.split(":")[1] for (space,) in await rows.fetchall()}
            return sorted(unquote(name) for name in names if not name.startswith("#"))

    @asynccontextmanager
    async def connection(self, agent: str) -> AsyncGenerator[AsyncConnection[tuple[Any, ...]]]:
        """Open a connection in autocommit mode that sees only this agent's rows.

        The table is `redraft_agent_records`. Its row policies depend on the setting `redraft.space`, so do
        not change that.
        """
        async with await self.store_for(agent).session() as session:
            yield session

    async def aclose(self) -> None:
        """Close the connections; the network may then have another storage."""
        if _storages.get(self.network) is self:
            del _storages[self.network]
        await self._directory.aclose()


def storage_of(network: str = "default") -> LongTermStorage | None:
    """The long-term storage of a network: the registered storage, else the storage in the settings, if any.

    Raises `ConfigError` if the setting `long_term_storage` is not a database URL.
    """
    storage = _storages.get(network)
    if storage is not None and not storage.is_of_settings:
        return storage
    url = load_settings().long_term_storage
    if storage is not None and storage.dsn == url:
        return storage
    if storage is not None:  # the setting has changed
        del _storages[network]
    if url is None:
        return None
    try:
        storage = LongTermStorage(url, network=network)
    except ConfigError as error:
        error.args = (f"The setting `long_term_storage` (REDRAFT_LONG_TERM_STORAGE): {error}",)
        raise
    storage.is_of_settings = True
    return storage


def _safe_name(name: str) -> str:
    """A unique form of a name that can be a part of the name of a space."""
    quoted = quote(name, safe="")
    return quoted if len(quoted) <= MAX_NAME else f"#{sha256(name.encode()).hexdigest()}"


AGENT = "agent"
"""The kind of the records that name the agents of a project, in the project's own space."""

LocationKind = Literal["process", "project", "network", "given"]


@dataclass(slots=True, weakref_slot=True, eq=False)
class AgentLocation:
    """The place where an agent is stored."""

    agent: str
    store: Store
    """The agent's own store."""
    kind: LocationKind
    """`process`: lost when the process ends; `project`: stored with the project's runs; `network`: in the
    `storage` of all agents of the network; `given`: in a store that the program owns and closes."""
    storage: LongTermStorage | None = None
    memory: Memory = Memory()  # noqa: RUF009 (frozen, so sharing it is safe)
    """The memory of an agent that is stored in the `process`."""

    @property
    def is_durable(self) -> bool:
        """Whether the agent's data outlives the process."""
        return self.kind != "process"

    def write_behind(self) -> WriteBehind:
        """The writer of the agent's records; its `load` acquires the lease."""
        lease = Lease(self.store, self.agent) if self.is_durable else None
        return WriteBehind(self.store, self.agent, lease=lease, remote=self.storage is not None)


_in_process: WeakValueDictionary[tuple[str, str], AgentLocation] = WeakValueDictionary()
"""The agents that no storage lists, by network and name, while they exist."""
_project_stores: dict[tuple[Place, str], Store] = {}


def locate(
    agent: str, storage: Literal["project"] | LongTermStorage | Store | None, network: str
) -> AgentLocation:
    """The location of an agent. Raises `ConfigError` for a storage that can't be used.

    `storage` None: the long-term storage of the network if there is one, else this process.
    """
    storage = storage_of(network) if storage is None else storage
    _in_process.pop((network, agent), None)  # the latest agent of a name replaces earlier ones
    if isinstance(storage, LongTermStorage):
        return storage.location_of(agent)
    if isinstance(storage, str):
        if storage != "project":
            raise ConfigError(
                f"Unknown storage {storage!r}; expected 'project', a LongTermStorage, a store, or None for "
                "the long-term storage of the network."
            )
        if (place := project_place()) is None:
            raise ConfigError(
                "The setting `home` (REDRAFT_HOME) is empty, so the project stores nothing. Set it, or give "
                "the agent another storage."
            )
        return _project_location(place, agent)
    if storage is None:
        location = AgentLocation(agent, MemoryStore(), "process")
    else:
        check_kind("storage", storage, Store, "'project', a LongTermStorage, a Store or None")
        location = AgentLocation(agent, storage, "given")
    _in_process[network, agent] = location
    return location


async def register(location: AgentLocation) -> None:
    """Register an agent in the project, for other processes; other storages list their agents."""
    if location.kind == "project" and (store := project_store()) is not None:
        await store.put_if_absent(Record(AGENT, location.agent, {}))


async def known_locations(network: str = "default") -> list[AgentLocation]:
    """The agents of this process, of the network's long-term storage and of the project, sorted by name."""
    # Other threads may make agents meanwhile; the list of references is a copy.
    references = [reference for reference in _in_process.valuerefs() if reference.key[0] == network]
    locations = {location.agent: location for reference in references if (location := reference())}
    if (storage := storage_of(network)) is not None:
        for name in await storage.agents():
            locations.setdefault(name, storage.location_of(name))
    if (place := project_place()) is not None and (store := project_store()) is not None:
        for record in await store.find(AGENT):
            locations.setdefault(record.key, _project_location(place, record.key))
    return [locations[name] for name in sorted(locations)]


async def known_networks() -> list[str]:
    """The networks that may have agents: `default`, and the networks in the long-term storage."""
    storage = storage_of("default")
    return sorted({"default", *([] if storage is None else await storage.networks())})


def _project_location(place: Place, agent: str) -> AgentLocation:
    if (place, agent) not in _project_stores:
        _project_stores[place, agent] = replace(place, space=f"{place.space}/agent:{agent}").open()
    return AgentLocation(agent, _project_stores[place, agent], "project")


BATCH = 100
"""The number of records to delete in parallel."""


async def prune(location: AgentLocation, cycles: int) -> dict[str, int]:
    """Delete all but the newest `cycles` cycles, mail that cycles have taken, and excess mail.

    Returns the numbers of deleted `cycles` and `mail`.
    """
    store, counts = location.store, {"cycles": 0, "mail": 0}
    newest = await store.find(CYCLE, newest_first=True, limit=1)
    first = cycle_prefix(listed_cycle(newest[0]).number - cycles + 1) if newest else ""
    while (oldest := await store.find(CYCLE, limit=1)) and oldest[0].key < first:
        old = [record for record in await store.find(CYCLE, limit=BATCH) if record.key < first]
        counts["cycles"] += len(old)
        await asyncio.gather(*(store.delete(CYCLE, record.key) for record in old))
    for kind in (FEEDBACK, MESSAGE):
        while taken := intact(await store.find(kind, where={"status": TAKEN}, limit=BATCH)):
            counts["mail"] += len(taken)
            await asyncio.gather(*(store.delete(kind, record.key) for record in taken))
    counts["mail"] += await drop_excess_mail(store)
    return counts


ERASED = "[erased]"
"""Replaces an erased text."""
MASKED_KINDS = (CYCLE, JOURNAL, EGRESS, CARD, LEASE)
"""The kinds whose records stay, since the next cycle needs them; erased texts in them are replaced."""


async def erase(
    location: AgentLocation,
    is_match: TextPredicate,
    *,
    on_damaged: Callable[[Record], None],
    check: bool = False,
) -> dict[str, int]:
    """Erase texts from all data of an agent; return the number of affected records and items, by kind.

    Deletes memory items, mail and model calls that contain a matching text. Cycles stay, with `ERASED` in
    place of the text. With `check`, nothing is changed. `on_damaged` is called with each record that can't be
    read; it is skipped. Raises `ConfigError` if a process that would write the memory again runs the agent.
    """
    store, counts = location.store, Counter[str]()
    is_managed = isinstance(store, ManagedStore)
    for kind in await store.kinds() if is_managed else (MEMORY[0], *MASKED_KINDS, TRACE, FEEDBACK, MESSAGE):
        last: Record | None = None
        while page := await store.find(kind, after=last, limit=BATCH):
            last = page[-1]
            for record in page:
                if record.damage:
                    on_damaged(record)
                    continue
                if not has_text(record.data, is_match):
                    continue
                counts["memory item" if kind == MEMORY[0] else kind] += _affected_parts(record, is_match)
                await _check_unused(location)
                if not check:
                    await _erase_in(store, record, is_match)
    return dict(counts)


def _affected_parts(record: Record, is_match: TextPredicate) -> int:
    """The number of affected memory items; 1 for any other record."""
    if record.kind != MEMORY[0]:
        return 1
    items = [item for items in memory_from(record).items.values() for item in items]
    return max(1, sum(has_text(item, is_match) for item in items))


async def _erase_in(store: Store, record: Record, is_match: TextPredicate) -> None:
    if record.kind == MEMORY[0]:
        memory = memory_from(record)
        remaining = {
            ERASED if is_match(key) else key: [item for item in items if not has_text(item, is_match)]
            for key, items in memory.items.items()
        }
        await store.put(memory_record(replace(memory, items=remaining)))
    elif record.kind in MASKED_KINDS:
        await store.put(replace(record, data=without_texts(record.data, is_match, ERASED)))
    else:
        await store.delete(record.kind, record.key)


async def _check_unused(location: AgentLocation) -> None:
    lease = await location.store.get(LEASE, LEASE)
    if lease is not None and (holder := live_holder(lease.data)):
        raise ConfigError(f"The agent {location.agent!r} is run by {holder}: stop it, then erase again.")
