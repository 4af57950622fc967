"""What commands are declared with: a default, errors as exit codes, the options that several have."""

import io
import subprocess
import sys
from threading import enumerate as enumerate_threads

import pytest
import typer
from typer.testing import CliRunner

from redraft.errors import ConfigError, ModelError
from redraft.stores.location import project_place, project_store
from redraft.terminal.commands import at_database, command_group, handles_errors, own_command
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


@group.command()
@at_database
async def where(debug: bool = False) -> None:
    """Say where runs are stored; the store is closed in that place, too."""
    assert await project_store().get("run", "none") is None
    typer.echo(f"{project_place()} {debug}")


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


def test_a_command_can_have_another_database(project, tmp_path):
    place, before = tmp_path / "other.db", set(enumerate_threads())  # other tests leave some
    assert called("where", "--database", str(place)).exit_code == 2
    assert f"There is no database '{place}'" in called("where", "--database", str(place)).output
    place.touch()
    assert called("where", "--database", str(place), "--debug").output == f"{place} True\n"
    assert called("where").output == f"{project}/.redraft/redraft.db False\n"
    for thread in set(enumerate_threads()) - before:
        if thread.name.startswith("redraft-"):
            thread.join(60)  # it may still be ending
            assert not thread.is_alive(), thread.name


@pytest.mark.parametrize("asked", ["-h", "--help"])
def test_the_default_command_has_the_help_of_the_group(asked):
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
