"""Every block of docs/notes.md runs, one after the other as a reader would, in one project."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from support.commands import redraft

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "notes.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(match[1], match[2]) for match in FENCE.finditer(PAGE)]


def blocks(language):
    return [text for name, text in BLOCKS if name == language]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Run all Python of the page in a project; return what the first block prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    names, printed = {}, []
    for code in blocks("python"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "docs/notes.md", "exec"), names)  # noqa: S102 (our own documentation)
        printed.append(out.getvalue())
    return printed[0]


def test_the_python_runs_and_the_commands_say_what_the_page_says(read):
    [promised] = blocks("text")
    assert read.startswith(promised)
    shown = redraft("notes", "show", "order").stdout
    [block] = blocks("markdown")
    filled = "\n".join(line.removeprefix("  ") for line in shown.splitlines())
    assert block.strip() in filled.replace("{message}", "Two packs of tea, please.")
    [console] = blocks("console")
    head, row = console.splitlines()[1:]
    assert redraft("notes").stdout.splitlines()[0] == head
    assert row in redraft("notes").stdout.splitlines()
    for commands in blocks("sh"):
        for command in commands.splitlines():
            program, *words = shlex.split(command, comments=True)
            assert program == "redraft"
            result = redraft(*words)
            assert result.exit_code == 0, result.stderr
            assert result.stdout
