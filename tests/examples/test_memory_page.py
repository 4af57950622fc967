"""Every block of docs/memory.md runs, one after the other as a reader would, in one project."""

import re
import shlex
from pathlib import Path

import pytest

from support.commands import redraft
from support.pages import Page

PAGE = Page("docs/memory.md")
CHANGES_DAILY = re.compile(r"^at: .*$|^source: .*$|^hash: .*$|\d{4}-\d\d-\d\d|run [0-9a-f-]+:", re.MULTILINE)


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """What each block of Python prints, run in order in a project without extras."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    monkeypatch.setenv("REDRAFT_EMBEDDER", "none")
    names = {}
    return [PAGE.run(code, names)[1] for code in PAGE.blocks("python")]


def test_the_python_prints_what_the_page_shows(printed):
    assert printed == PAGE.blocks("text")
    note, fact = PAGE.blocks("markdown")
    output = redraft("notes", "show", "convert").stdout
    filled = "\n".join(line.removeprefix("  ") for line in output.splitlines())
    assert note.strip() in filled.replace("{price}", "3.99")
    [file] = Path("memory/reflections/reader").glob("*-ln.md")
    assert CHANGES_DAILY.sub("", file.read_text("utf-8")) == CHANGES_DAILY.sub("", fact)
    pays, *table = PAGE.blocks("console")[0].splitlines()[1:]
    listed = redraft("notes")
    assert (listed.stderr.splitlines(), listed.stdout.splitlines()) == ([pays], table)


@pytest.mark.usefixtures("printed")
def test_the_commands_run():
    [failure] = Path("memory/reflections/reader").glob("*-short-names-of-tables.md")
    Path("AGENTS.md").write_text("# Conventions\n\n## Paging\n\nPass the cursor of each reply on.\n", "utf-8")
    for line in PAGE.commands():
        program, *words = shlex.split(line, comments=True)
        assert program == "redraft"
        words = [failure.stem if word == "short-names-of-tables" else word for word in words]
        result = redraft(*words)
        assert result.exit_code == 0, (line, result.stderr)
        assert result.stdout or result.stderr
