"""Fixtures for the tests of lessons."""

import asyncio

import pytest

from redraft.stores.location import project_store
from support.lessons import count_flight, file_seven


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """An empty project; returns its folder for lessons."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redraft.toml").touch()
    return tmp_path / "memory"


@pytest.fixture
def seven(project, monkeypatch):
    """Seven lessons of three agents, one of which helped twice; returns their folder."""
    monkeypatch.setenv("REDRAFT_EMBEDDER", "none")  # the offline one takes a while
    file_seven()

    async def count():
        store = project_store()
        await count_flight(store)
        await store.aclose()

    asyncio.run(count())
    return project / "memory" / "reflections"
