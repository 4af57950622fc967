"""Every block of docs/lessons.md runs, one after the other as a reader would, in one project."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from support.commands import redraft

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lessons.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(match[1], match[2]) for match in FENCE.finditer(PAGE)]
OF_THE_DAY = re.compile(r"^source: .*$|^hash: .*$|\d{4}-\d\d-\d\d", re.MULTILINE)


def blocks(language):
    return [text for name, text in BLOCKS if name == language]


@pytest.fixture
def printed(tmp_path, monkeypatch):
    """Run all Python of the page in a project; return what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRAFT_HOME")
    monkeypatch.setenv("REDRAFT_EMBEDDER", "none")  # the page is of an installation without extras
    names, out = {}, io.StringIO()
    with contextlib.redirect_stdout(out):
        for code in blocks("python"):
            exec(compile(code, "docs/lessons.md", "exec"), names)  # noqa: S102 (our own documentation)
    return out.getvalue()


def test_the_python_runs_and_the_commands_say_what_the_page_says(printed):
    [promised] = blocks("text")
    assert printed == promised
    [file] = Path("memory/reflections/clerk").glob("*-write-down-the-order-two.md")
    [block] = blocks("markdown")
    assert OF_THE_DAY.sub("", file.read_text("utf-8")) == OF_THE_DAY.sub("", block)
    for commands in blocks("sh"):
        for command in commands.splitlines():
            program, *words = shlex.split(command, comments=True)
            assert program == "redraft"
            if "write-down-the-order-two" in words:
                words[words.index("write-down-the-order-two")] = file.stem
            result = redraft(*words)
            assert result.exit_code == 0, (command, result.stderr)
            assert result.stdout or result.stderr
