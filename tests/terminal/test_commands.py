"""What commands are declared with: a default, errors as exit codes, a question before a write."""

import io
import subprocess
import sys
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from redraft.errors import ConfigError, ModelError
from redraft.terminal.commands import command_group, confirm, handles_errors, own_command
from redraft.terminal.exits import report_error

group = command_group(default="list", help="Count things.")


@group.command("list")
@handles_errors
def list_things(kind: str = "any") -> None:
    """List things (the default)."""
    typer.echo(f"all of {kind}")


@group.command()
@handles_errors
async def fail(model: bool = False) -> None:
    """Fail, in a coroutine."""
    raise (ModelError("away") if model else ConfigError("no such thing"))


def called(*words):
    return CliRunner().invoke(group, list(words))


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 0, "all of any"),
        (("--kind", "x"), 0, "all of x"),
        (("list", "--kind", "x"), 0, "all of x"),
        (("fail",), 2, "Error: no such thing\n"),
        (("fail", "--model"), 4, "Error: away\n"),
        (("fail", "--debug"), 2, "Traceback"),
        (("fial",), 2, "No such command 'fial'"),
        (("--kind", "x", "fail"), 2, "unexpected extra argument"),
    ],
)
def test_a_group_runs_its_default_command(words, code, says):
    result = called(*words)
    assert result.exit_code == code
    assert says in result.output


@pytest.mark.parametrize("asked", ["-h", "--help"])
def test_help_of_the_default_command_is_that_of_the_group(asked):
    told = called(asked).output
    assert "Count things." in told
    assert "fail" in told
    assert "--install-completion" not in told
    assert "--debug" in called("fail", asked).output
    assert "`root list --help` lists them." in " ".join(told.split()), "the group says where they are"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_an_error_is_broken_between_words_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    long = (
        "The file 'a/rather/long/path/of/a/file.yaml' can't be read:\n  it is one of those that nobody reads."
    )
    shown = {}
    for debug, stream in ((False, Terminal()), (True, Terminal()), (False, io.StringIO())):
        monkeypatch.setattr("sys.stderr", stream)
        assert report_error(ConfigError(long), debug=debug) == 2
        shown[debug, stream.isatty()] = stream.getvalue()
    assert shown[False, True].splitlines() == [
        "Error: The file",
        "'a/rather/long/path/of/a/file.yaml'",
        "can't be read:",
        "  it is one of those that",
        "  nobody reads.",
    ]
    assert shown[False, False] == f"Error: {long}\n"
    assert long in shown[True, True]


@pytest.mark.parametrize(("answer", "agreed"), [("y", True), ("YES", True), ("n", False), ("", False)])
def test_a_person_is_asked_to_confirm(monkeypatch, capsys, answer, agreed):
    monkeypatch.setattr("redraft.terminal.commands.sys", SimpleNamespace(stdin=Terminal(f"{answer}\n")))
    assert confirm("Write it?") is agreed
    assert capsys.readouterr().err == "Write it? [y/N] "


def test_without_a_terminal_it_asks_for_a_flag(monkeypatch):
    monkeypatch.setattr("redraft.terminal.commands.sys", SimpleNamespace(stdin=io.StringIO("y\n")))
    with pytest.raises(ConfigError, match="Pass --yes to write"):
        confirm("Write it?")


@pytest.mark.parametrize(
    ("started", "on_path", "typed"),
    [
        (".venv/bin/redraft", False, ".venv/bin/redraft"),
        ("my tools/bin/redraft", False, "'my tools/bin/redraft'"),
        ("../elsewhere/redraft", False, "{outside}"),
        (".venv/bin/redraft", True, "redraft"),
        ("pytest", False, "redraft"),
    ],
)
def test_a_hint_names_the_command_as_it_can_be_typed_here(started, on_path, typed, tmp_path, monkeypatch):
    here = tmp_path / "project"
    script = here / started
    here.mkdir()
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("#!/bin/sh\necho ran $1\n")
    script.chmod(0o755)
    monkeypatch.chdir(here)
    monkeypatch.setattr("sys.argv", [str(script), "demo"])
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin" if on_path else "/usr/bin:/bin")
    assert own_command() == typed.format(outside=tmp_path / "elsewhere/redraft")
    if "redraft" in started:
        ran = subprocess.run(f"{own_command()} why", shell=True, check=True, capture_output=True, text=True)  # noqa: S602 (as a person would type it)
        assert ran.stdout == "ran why\n"


def test_a_hint_of_the_module_names_the_interpreter(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/redraft/__main__.py"])
    assert own_command() == f"{sys.executable} -m redraft"
