"""What people type into a command, and when they stop it."""

import asyncio
import io
import os
import signal
import sys
import tempfile
from threading import Event, Thread, main_thread
from types import SimpleNamespace

import pytest

from redraft.errors import ConfigError
from redraft.terminal.commands import run_async
from redraft.terminal.input import answer, confirm, edited


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("line", "agreed"), [("y", True), ("YES", True), ("n", False), ("", False)])
def test_a_person_is_asked_to_confirm(monkeypatch, capsys, line, agreed):
    monkeypatch.setattr("redraft.terminal.input.sys", SimpleNamespace(stdin=Terminal(f"{line}\n")))
    assert confirm("Write it?") is agreed
    assert capsys.readouterr().err == "Write it? [y/N] "


def test_without_a_terminal_it_asks_for_a_flag(monkeypatch):
    monkeypatch.setattr("redraft.terminal.input.sys", SimpleNamespace(stdin=io.StringIO("y\n")))
    with pytest.raises(ConfigError, match="Pass --yes to write"):
        confirm("Write it?")


def test_ctrl_c_ends_a_question_of_an_async_command(monkeypatch):
    """And not only the line that is typed next."""
    reading, writing = os.pipe()
    asked, answers = Event(), []
    monkeypatch.setattr("typer.echo", lambda *_, **_options: asked.set())

    def press():
        asked.wait(60)
        signal.pthread_kill(main_thread().ident, signal.SIGINT)
        os.close(writing)

    async def command():
        answers.append(answer("Write it?"))

    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("redraft.terminal.input.sys", SimpleNamespace(stdin=stdin))
        pressing = Thread(target=press)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            run_async(command())
        pressing.join(60)
    assert answers == []


def test_ctrl_c_in_the_editor_loses_no_text(tmp_path, monkeypatch):
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import os, signal, sys\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "open(sys.argv[1], 'a').write(' and more')\n"
    )
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")

    async def command():
        text = edited("this", "note.md")
        await asyncio.sleep(0)
        return text

    assert run_async(command()) == "this and more"


@pytest.mark.parametrize(
    ("saved", "code", "problem"),
    [
        (b"caf\xe9", 0, "is not UTF-8"),
        (b"caf\xc3\xa9", 3, "code 3"),
        (b"\xff\xfea\x00", 1, "code"),
    ],
)
def test_an_edited_text_that_cannot_be_used_stays_in_a_file(tmp_path, monkeypatch, saved, code, problem):
    editor = tmp_path / "editor.py"
    editor.write_text(f"import sys\nopen(sys.argv[1], 'wb').write({saved!r})\nsys.exit({code})\n")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=problem) as refused:
        edited("this", "note.md")
    (file,) = tmp_path.glob("redraft-*/note.md")
    assert repr(str(file)) in str(refused.value)
    assert (file.read_bytes(), file.parent.stat().st_mode & 0o077) == (saved, 0)


def test_an_editor_that_fails_without_a_change_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=r"nothing was changed\.$"):
        edited("this", "note.md")
    assert list(tmp_path.iterdir()) == []
