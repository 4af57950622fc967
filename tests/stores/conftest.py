"""The stores that every test of the protocol runs on."""

import asyncio

import pytest

from redraft.stores.postgres import PostgresStore
from redraft.stores.sqlite import MemoryStore, SqliteStore
from support.postgres_server import Place


def memory(_request):
    spaces = {}
    return lambda space="": spaces.setdefault(space, MemoryStore())


def sqlite(request):
    folder = request.getfixturevalue("tmp_path")
    return lambda space="": SqliteStore(folder / "kept" / "redraft.db", space)


def postgres(request):
    place = request.getfixturevalue("emptied_place")
    return lambda space="": PostgresStore(place.url, space)


def isolated(request):
    place = request.getfixturevalue("emptied_place")
    return lambda space="": PostgresStore(place.url, space, isolated=True)


@pytest.fixture(scope="session")
def tables(postgres_server):
    """A place whose tables are made once: PostgreSQL takes longer for them than for a test."""
    place = Place(postgres_server)
    asyncio.run(_make_tables(place.url))
    yield place
    place.drop()


async def _make_tables(url):
    store = PostgresStore(url)
    await store.get("run", "none")
    await store.aclose()


@pytest.fixture
def emptied_place(tables):
    """A place with the tables of a store, and no row in them."""
    yield tables
    tables.empty()


class PlainStore:
    """A store as users may write one: without tables for the columns of runs."""

    def __init__(self):
        self._store = MemoryStore()

    def __getattr__(self, name):
        if name == "run_index":
            raise AttributeError(name)
        return getattr(self._store, name)


def plain(_request):
    spaces = {}
    return lambda space="": spaces.setdefault(space, PlainStore())


BACKENDS = {"memory": memory, "sqlite": sqlite, "postgres": postgres, "isolated": isolated}
"""Each returns, for a test, a function that opens the store of a space; opened twice, it is the same."""


def pytest_collection_modifyitems(items):
    """Try one row of each table on the isolated store: its statements are those of the other one."""
    tried, chosen = set(), []
    for item in items:
        backend = getattr(item, "callspec", None) and item.callspec.params.get("backend")
        if backend != "isolated" or item.function not in tried:
            chosen.append(item)
        if backend == "isolated":
            tried.add(item.function)
    items[:] = chosen


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def open_store(backend, request):
    """Open the store of a space, and close it in the end."""
    opened = []
    make = {"plain": plain, **BACKENDS}[backend](request)

    def open_one(space=""):
        opened.append(make(space))
        return opened[-1]

    yield open_one
    for store in opened:
        asyncio.run(store.aclose())


@pytest.fixture
def store(open_store):
    return open_store()
