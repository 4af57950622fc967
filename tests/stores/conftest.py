"""The stores that every test of the protocol runs on."""

import asyncio

import pytest

from redraft.stores.memory import MemoryStore
from redraft.stores.postgres import PostgresStore
from redraft.stores.sqlite import SqliteStore


def memory(_request):
    spaces = {}
    return lambda space="": spaces.setdefault(space, MemoryStore())


def sqlite(request):
    folder = request.getfixturevalue("tmp_path")
    return lambda space="": SqliteStore(folder / "kept" / "redraft.db", space)


def postgres(request):
    place = request.getfixturevalue("postgres")
    return lambda space="": PostgresStore(place.url, space)


def isolated(request):
    place = request.getfixturevalue("postgres")
    return lambda space="": PostgresStore(place.url, space, isolated=True)


BACKENDS = {"memory": memory, "sqlite": sqlite, "postgres": postgres, "isolated": isolated}
"""Each returns, for a test, a function that opens the store of a space; opened twice, it is the same."""


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def open_store(backend, request):
    """Open the store of a space, and close it in the end."""
    opened = []
    make = BACKENDS[backend](request)

    def open_one(space=""):
        opened.append(make(space))
        return opened[-1]

    yield open_one
    for store in opened:
        asyncio.run(store.aclose())


@pytest.fixture
def store(open_store):
    return open_store()
