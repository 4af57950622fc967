import asyncio
from weakref import WeakValueDictionary

import pytest

from redraft.cycles import storage as places
from redraft.stores import location


@pytest.fixture(params=["sqlite", "postgres"])
def project(request, tmp_path, monkeypatch):
    """A project with nothing in it, which stores its runs in SQLite or PostgreSQL."""
    (tmp_path / "redraft.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.setenv("REDRAFT_EMBEDDER", "none")  # a second for each test
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.with_name(f"{tmp_path.name}-cache")))
    if request.param == "postgres":
        monkeypatch.setenv("REDRAFT_DATABASE_URL", request.getfixturevalue("postgres").url)
        monkeypatch.setenv("REDRAFT_PROJECT", "shop")
    monkeypatch.setattr(places, "_in_process", WeakValueDictionary())
    monkeypatch.setattr(places, "_project_stores", {})
    monkeypatch.setattr(location, "_opened", {})
    yield tmp_path

    async def close():
        for store in [*location._opened.values(), *places._project_stores.values()]:
            await store.aclose()

    asyncio.run(close())
