"""Every block of docs/cycles.md runs."""

import re
import shlex
from pathlib import Path

import pytest

from redraft.cycles import LongTermStorage
from support.commands import redraft

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "cycles.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = {text.splitlines()[0].removeprefix("# "): text for _, text in BLOCKS if text.startswith("# ")}
PYTHON = [text for language, text in BLOCKS if language == "python" and not text.startswith("# ")]
COMMANDS = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines() if line]


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    [readings] = [text for language, text in BLOCKS if language == "csv"]
    Path("readings.csv").write_text(readings)
    Path("redraft.toml").touch()


def run(code):
    names = {}
    exec(compile(code, "cycles.md", "exec"), names)  # noqa: S102 (our own documentation)
    return names


def test_the_commands_run_one_after_the_other():
    assert len(COMMANDS) == 7
    for command in COMMANDS:
        ran = redraft(*shlex.split(command, comments=True)[1:])
        assert ran.exit_code == 0, (command, ran.stderr)
    assert "20 degrees are enough" not in redraft("cycle", "memory", "thermostat").stdout
    assert "1 new" in redraft("cycle", "status").stdout


def test_an_agent_runs_from_python():
    names = run(PYTHON[0])
    assert names["result"].success
    assert [one["action"] for one in names["memory"].of("recentActions")] == ["heat"] * 3
    assert [one["message"] for one in names["memory"].of("feedbackHistory")] == ["that was right"]


def test_people_reach_it_from_another_process():
    assert redraft("cycle", "run", "thermostat.yaml", "--cycles", "1").exit_code == 0
    names = run(PYTHON[1])
    assert [agent.name for agent in names["agents"]] == ["thermostat"]
    assert names["agents"][0].pending == 1
    assert [cycle.number for cycle in names["latest"]] == [1]


def test_a_storage_registers_itself():
    import asyncio

    names = run(PYTHON[2])
    try:
        assert isinstance(names["storage"], LongTermStorage)
        assert names["agent"]._location.storage is names["storage"]
    finally:
        asyncio.run(names["storage"].aclose())


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
