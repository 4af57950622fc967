"""Every block of docs/lessons.md runs, one after the other as a reader would, in one project."""

import re
import shlex
from pathlib import Path

import pytest

from support.commands import redraft
from support.pages import Page

PAGE = Page("docs/lessons.md")
CHANGES_DAILY = re.compile(r"^at: .*$|^source: .*$|^hash: .*$|\d{4}-\d\d-\d\d", re.MULTILINE)


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """Run all Python of the page in a project; return what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    monkeypatch.setenv("REDRAFT_EMBEDDER", "none")  # the page describes an installation without extras
    names = {}
    return "".join(PAGE.run(code, names)[1] for code in PAGE.blocks("python"))


def test_the_python_and_the_commands_run_in_order(printed):
    [promised, _] = PAGE.blocks("text")  # the other is a part of a prompt
    assert printed == promised
    [file] = Path("memory/reflections/clerk").glob("*-quantities-in-digits.md")
    [block] = PAGE.blocks("markdown")
    assert CHANGES_DAILY.sub("", file.read_text("utf-8")) == CHANGES_DAILY.sub("", block)
    conventions = "# Conventions\n\n## Paging\n\nPass the cursor of each reply on.\n"
    Path("CONVENTIONS.md").write_text(conventions, "utf-8")
    Path("docs").mkdir()
    Path("docs/retries.md").write_text("# Retries\n\nWait a second before each.\n", "utf-8")
    for commands in PAGE.blocks("sh"):
        for command in commands.splitlines():
            program, *words = shlex.split(command, comments=True)
            assert program == "redraft"
            if "quantities-in-digits" in words:
                words[words.index("quantities-in-digits")] = file.stem
            result = redraft(*words)
            assert result.exit_code == 0, (command, result.stderr)
            assert result.stdout or result.stderr
