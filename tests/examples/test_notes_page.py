"""Every block of docs/notes.md runs, one after the other as a reader would, in one project."""

import shlex

import pytest

from support.commands import redraft
from support.pages import Page

PAGE = Page("docs/notes.md")


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """Run all Python of the page in a project; return what the first block prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    names = {}
    first, *_ = [PAGE.run(code, names)[1] for code in PAGE.blocks("python")]
    return first


def test_the_python_and_the_commands_run_in_order(printed):
    [promised] = PAGE.blocks("text")
    assert printed.startswith(promised)
    shown = redraft("notes", "show", "convert").stdout
    [block] = PAGE.blocks("markdown")
    filled = "\n".join(line.removeprefix("  ") for line in shown.splitlines())
    assert block.strip() in filled.replace("{price}", "3.99")
    [console] = PAGE.blocks("console")
    pays, head, row = console.splitlines()[1:]
    listed = redraft("notes")
    assert listed.stderr.splitlines() == [pays]
    assert listed.stdout.splitlines()[0] == head
    assert row in listed.stdout.splitlines()
    for commands in PAGE.blocks("sh"):
        for command in commands.splitlines():
            program, *words = shlex.split(command, comments=True)
            assert program == "redraft"
            result = redraft(*words)
            assert result.exit_code == 0, result.stderr
            assert result.stdout
