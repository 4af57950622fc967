"""What the tests of lessons share."""

import pytest


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """The folder of all agents' lessons, in a project of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redraft.toml").touch()
    return tmp_path / "memory"
