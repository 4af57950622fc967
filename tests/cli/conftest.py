import pytest

from cli_commands import THREE_A


@pytest.fixture
def project(monkeypatch, tmp_path):
    """A project that keeps its runs, with a criteria file and a draft in it."""
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redraft.toml").touch()
    (tmp_path / "c.yaml").write_text(THREE_A)
    (tmp_path / "d.txt").write_text("ab")
    return tmp_path


@pytest.fixture
def revised(project, monkeypatch):
    """Revise the draft of the project with these replies of a model, and return what the command gave."""
    from cli_commands import redraft, script

    def revised(*replies, words=()):
        script(monkeypatch, *replies)
        return redraft("revise", "d.txt", "-c", "c.yaml", "-m", "any:model", *words)

    return revised
