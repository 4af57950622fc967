"""docs/start.md, followed to the letter: its files are written, and its commands print what it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support.pages import Page, steady

CONSOLE = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_the_start_page_works_as_printed(tmp_path):
    page = Page("docs/start.md")
    for name, text in page.files("python").items():
        (tmp_path / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDRAFT_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    commands = [found for block in page.blocks("console") for found in CONSOLE.findall(block)]
    assert len(commands) > 8
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


def test_its_agent_can_be_built_with_a_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")
    page = Page("docs/start.md")
    names, _ = page.run(page.files("python")["agent.py"], {"__name__": "agent"})
    assert names["agent"].pattern.budget_usd == 0.05
