"""Places: where agents keep what they keep, and where those that are there are found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary, WeakValueDictionary

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.cycles.long_term import LongTermStorage, storage_of
from redraft.cycles.memory import Memory
from redraft.stores.base import Record, Store
from redraft.stores.memory import MemoryStore
from redraft.stores.place import project_place, project_store

if TYPE_CHECKING:
    from redraft.stores.place import Place

AGENT = "agent"
"""The kind of the record that says what an agent is, and in the project's space of those that name them."""

Kind = Literal["process", "project", "network", "given"]


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """Hold the store of one agent, a space of its own, and what kind of place it is in.

    In the `process` it is gone with it; in the `project` it is where runs are kept; in the `network` all its
    agents share `storage`; a `given` one is somebody else's to close.
    """

    agent: str
    store: Store
    kind: Kind
    storage: LongTermStorage | None = None

    @property
    def lasts(self) -> bool:
        """Whether what is kept there outlives the process."""
        return self.kind != "process"


_here: WeakValueDictionary[tuple[str, str], Store] = WeakValueDictionary()
"""The stores of agents that others of this process find nowhere else, by network and name, while they are."""
_is_given: dict[tuple[str, str], bool] = {}
_opened: dict[tuple[Place, str], Store] = {}
_held: WeakKeyDictionary[Store, Memory] = WeakKeyDictionary()


def hold(store: Store, memory: Memory) -> None:
    """Let others see the memory of an agent in this process, which is written nowhere."""
    _held[store] = memory


def held(store: Store) -> Memory:
    """Return the memory of an agent in this process."""
    return _held.get(store, Memory())


def place_of(
    agent: str, storage: Literal["project"] | LongTermStorage | Store | None, network: str
) -> AgentPlace:
    """Return where an agent keeps what it keeps; raises `ConfigError` where that can't be.

    None is the long-term storage of the network, where there is one, else the process.
    """
    found = storage_of(network) if storage is None else storage
    _here.pop((network, agent), None)  # of two with one name, the one made last is meant
    if isinstance(found, LongTermStorage):
        return AgentPlace(agent, found.store_for(agent), "network", found)
    if isinstance(found, str):
        return AgentPlace(agent, _project_store_of(agent, found), "project")
    store = MemoryStore() if found is None else found
    _here[network, agent], _is_given[network, agent] = store, found is not None
    return AgentPlace(agent, store, "process" if found is None else "given")


def _project_store_of(agent: str, storage: str = "project") -> Store:
    place = project_place()
    if storage != "project":
        raise ConfigError(
            f"storage={storage!r}: give 'project', a LongTermStorage(dsn), a store, or nothing for what the "
            "network has."
        )
    if place is None:
        raise ConfigError(
            "The setting `home` (REDRAFT_HOME) is empty, so the project keeps nothing; set it, or give the "
            "agent another storage."
        )
    return _store_in(place, agent)


def _store_in(place: Place, agent: str) -> Store:
    if (place, agent) not in _opened:
        _opened[place, agent] = replace(place, space=f"{place.space}/agent:{agent}").open()
    return _opened[place, agent]


async def register(place: AgentPlace) -> None:
    """Have an agent found by others; one of the process or a network is found where it is."""
    if place.kind == "project" and (store := project_store()) is not None:
        await store.put_if_absent(Record(AGENT, place.agent, {}))


async def all_places(network: str = "default") -> list[AgentPlace]:
    """Return the places of all agents that can be seen from here, by name.

    They are those of this process, of the network's long-term storage, and of the project.
    """
    found = {
        name: AgentPlace(name, store, "given" if _is_given[of, name] else "process")
        for (of, name), store in _here.items()
        if of == network
    }
    if (storage := storage_of(network)) is not None:
        for name in await storage.agents():
            found.setdefault(name, AgentPlace(name, storage.store_for(name), "network", storage))
    if (place := project_place()) is not None and (store := project_store()) is not None:
        for record in await store.find(AGENT):
            name = record.key
            found.setdefault(name, AgentPlace(name, _store_in(place, name), "project"))
    return [found[name] for name in sorted(found)]


async def place_named(agent: str, network: str = "default") -> AgentPlace:
    """Return where an agent is that others know; raises `ConfigError` for a name that none has."""
    places = {place.agent: place for place in await all_places(network)}
    if agent not in places:
        said = nearest(agent, places) if places else "none has run here yet."
        raise ConfigError(f"There is no agent {agent!r} here; {said}")
    return places[agent]
