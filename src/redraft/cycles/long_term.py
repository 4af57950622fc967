"""LongTermStorage: the PostgreSQL database in which all agents of a network keep their memory."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from redraft.core.errors import ConfigError
from redraft.core.settings import load_settings, without_password
from redraft.cycles.keeper import Keeper
from redraft.cycles.lease import Lease
from redraft.cycles.spool import Spool
from redraft.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from psycopg import AsyncConnection

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
