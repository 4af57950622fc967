"""What people type into a command, and when they stop it."""

import asyncio
import io
import os
import signal
import sys
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
