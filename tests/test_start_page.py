"""docs/start.md and docs/runs.md, followed to the letter: their commands print what they show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import Page, steady


@pytest.mark.parametrize(("page", "least"), [("docs/start.md", 9), ("docs/runs.md", 2)])
def test_the_commands_of_a_page_print_what_it_shows(page, least, tmp_path):
    page = Page(page)
    for name, text in page.files("python").items():
        (tmp_path / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDRAFT_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    commands = page.sessions()
    assert len(commands) >= least
    for command, shown in commands:
        ran = subprocess.run(  # noqa: S602 (as a reader types it)
            command,
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert steady(ran.stdout) == steady(shown), f"{command}: {ran.stderr}"


def test_the_agent_of_the_start_page_can_be_built_with_a_key(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")
    page = Page("docs/start.md")
    files = page.files("python")
    (tmp_path / "offer.py").write_text(files["offer.py"])
    monkeypatch.syspath_prepend(tmp_path)
    names, _ = page.run(files["agent.py"], {"__name__": "agent"})
    assert names["agent"].pattern.budget_usd == 0.05
    sys.modules.pop("offer", None)
