"""The command as a process: streams, signals, pipes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest
from typer import Typer
from typer.testing import CliRunner

from redraft.main import COMMANDS, FIRST, app
from support.commands import THREE_A, document, redraft
from support.openai_server import completion, serving
from support.processes import TESTS

REDRAFT = (sys.executable, "-m", "redraft")
SCRIPTED = (sys.executable, "-m", "support.scripted_command")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "c.yaml").write_text(THREE_A)
    (tmp_path / "d.txt").write_text("ab")
    return tmp_path


def environment(**more):
    return {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")
    } | more


def run(folder, *words, **options):
    return subprocess.run(
        [*REDRAFT, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False, **options
    )


def begun(folder, *words, replies):
    """Start a command with a scripted model; see `support.scripted_command`."""
    return subprocess.Popen(
        [*SCRIPTED, *words],
        cwd=folder, env=environment(PYTHONPATH=str(TESTS), REPLIES=json.dumps(replies)), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def interrupt_when_asked(process, folder):
    while not (folder / "asked").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)


def test_the_version_is_printed():
    assert told_by("--version").stdout.startswith("redraft 0.")


@pytest.mark.parametrize(("columns", "most"), [(80, 22), (60, 23)])
def test_the_help_is_one_screen_and_names_every_command(columns, most, folder):
    helped = run(folder, "--help", env=environment(COLUMNS=str(columns)))
    assert helped.returncode == 0
    assert helped.stdout.startswith("Judge a draft,")
    lines = helped.stdout.splitlines()
    assert len(lines) <= most
    assert max(map(len, lines)) <= columns
    assert [name for name in COMMANDS if not re.search(rf"\b{name}\b", helped.stdout)] == []


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (("help",), ("--help",)),
        (("-help",), ("--help",)),
        (("help", "revise"), ("revise", "--help")),
        (("help", "lessons", "add"), ("lessons", "add", "--help")),
        (("help", "rnus"), ("rnus",)),
    ],
)
def test_help_is_a_command_too(words, same):
    helped, expected = told_by(*words), told_by(*same)
    assert (helped.exit_code, helped.output) == (expected.exit_code, expected.output)


def test_without_a_command_the_help_is_printed():
    assert told_by().stderr == told_by("--help").stdout


@pytest.mark.parametrize("name", FIRST)
def test_the_help_has_the_first_line_of_each_command(name):
    module, line = FIRST[name]
    found = getattr(import_module(module), name)
    if isinstance(found, Typer):
        about = (
            found.info.help
            if found.registered_callback is None
            else found.registered_callback.callback.__doc__
        )
    else:
        about = found.__doc__
    assert " ".join(about.split()).startswith(line.removesuffix("."))


def told_by(*words):
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "schema"])
def test_the_help_cuts_off_no_line_and_doubles_no_brackets(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    output = told_by(name, "--help").stdout
    commands = output.partition("\nCommands:\n")[2]
    assert "..." not in commands
    assert max(map(len, output.splitlines())) <= 80
    assert not any(mark in output for mark in ("[[", "]]", "...}", "...]"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("rnus",), "No such command 'rnus'. Did you mean 'runs'?"),
        (("hlep",), "No such command 'hlep'. Did you mean 'help'?"),
        (("xyz",), "No such command 'xyz'.\n"),
        (("lessons", "approev", "x"), "No such command 'approev'. Did you mean 'approve'?"),
        (("--verison",), "No such option: --verison (Possible options: --version)"),
        (
            ("revise", "d.txt", "--buget-usd", "1"),
            "No such option: --buget-usd (Possible options: --budget-",
        ),
        (("fleet", "--jsn"), "No such option: --jsn (Possible options: --json)"),
        (
            ("revise", "d.txt", "-c", "c.yaml", "--strategy", "hybird"),
            "--strategy: unknown value 'hybird'; did you mean 'hybrid'?",
        ),
        (("optimize", "cases.yaml"), "There is no `redraft optimize`: tune texts with GEPA"),
        (("eval", "export", "--pairs"), "There is no `redraft eval export`: write the rows"),
        (("eval", "c.yaml", "--fleet=app:fleet"), "There is no `redraft eval --fleet`: "),
        (("lessons", "export", "--force"), "There is no `redraft lessons export --force`: leave it out"),
        (("demo", "--memory"), "There is no `redraft demo --memory`: leave it out: docs/start.md shows"),
        (("restore", "b.backup", "--max-size=3GB"), "There is no `redraft restore --max-size`: leave it out"),
        (("lessons", "sync", "--watch"), "There is no `redraft lessons sync`: a project on PostgreSQL keeps"),
        (("calibrate", "stability", "--wording", "c.yaml"), "There is no `redraft calibrate --wording`: "),
        (("approve", "--reject"), "Say which question to answer"),
    ],
)
def test_misspelled_and_missing_arguments_are_named_as_written(words, says):
    told = told_by(*words)
    assert (told.exit_code, says in told.stderr) == (2, True), told.stderr


def test_help_imports_nothing_heavy():
    code = "import sys, redraft.main; print({'rich', 'pydantic_core', 'redraft.types'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_errors_are_one_line_on_stderr(folder):
    done = run(folder, "check", "d.txt", "-c", "no.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: The criteria file 'no.yaml' cannot be read: No such file or directory.\n"


def test_there_are_no_colours_in_a_pipe(folder):
    done = run(folder, "check", "d.txt", "-c", "c.yaml", env=environment(TERM="xterm-256color"))
    assert done.returncode == 1
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_and_can_be_refused(folder, more, coloured):
    terminal, end = os.openpty()
    env = environment(TERM="xterm-256color", **more)
    env = {name: value for name, value in env.items() if name in more or name != "NO_COLOR"}
    done = subprocess.run(
        [*REDRAFT, "check", "d.txt", "-c", "c.yaml"], cwd=folder, stdout=end, stderr=end, env=env, check=False
    )
    os.close(end)
    shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert done.returncode == 1
    assert ("\x1b[31m" in shown or "\x1b[1;31m" in shown) == coloured
    assert "not met" in shown


def test_a_closed_pipe_is_not_an_error(folder):
    nobody, end = os.pipe()
    os.close(nobody)
    for more in ((), ("--json",)):
        done = subprocess.run(
            [*REDRAFT, "check", "d.txt", "-c", "c.yaml", *more],
            cwd=folder, stdout=end, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (1, "")
    os.close(end)


@pytest.mark.parametrize(
    ("closing", "words", "code"),
    [
        (">&-", ("check", "d.txt", "-c", "c.yaml", "--json"), 1),
        ("2>&-", ("check", "no.txt", "-c", "c.yaml"), 2),
        ("<&- >&-", ("check", "-", "-c", "c.yaml"), 2),
    ],
)
def test_closed_streams_are_not_a_defect(folder, closing, words, code):
    started = ("sh", "-c", f'exec "$0" "$@" {closing}', *REDRAFT, *words)
    done = subprocess.run(started, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


CHECK = ("check", "d.txt", "-c", "c.yaml")


@pytest.mark.parametrize("words", [CHECK, (*CHECK, "--json"), ("--help",)])
def test_a_full_disk_is_not_a_defect(folder, words):
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123 (a device)
        done = subprocess.run(
            [*REDRAFT, *words], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    said = "Error: the result can't be written: No space left on device.\n"
    assert (done.returncode, done.stderr) == (2, said)


AGENT = """\
name: idle
stages:
  sense: {substages: [{type: csv, name: rows, config: {path: none.csv, required: true}}]}
"""


def test_an_agent_survives_a_full_disk_under_its_log(folder):
    (folder / "agent.yaml").write_text(AGENT)
    words = ("cycle", "run", "agent.yaml", "--cycles", "3", "--json")
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123 (a device)
        done = subprocess.run(
            [*REDRAFT, *words], cwd=folder, env=environment(REDRAFT_HOME=str(folder / "home")), text=True,
            stdout=subprocess.PIPE, stderr=full, check=False,
        )  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)["count"]) == (1, 3)  # each logs that its source failed


def test_an_interrupted_check_reports_what_was_not_judged(folder):
    (folder / "c.yaml").write_text("- It is kind.")
    process = begun(folder, "check", "d.txt", "-c", "c.yaml", "-m", "any:model", replies=[None])
    interrupt_when_asked(process, folder)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in stderr) == (130, False)
    assert stdout.splitlines()[2:] == [
        "  -   It is kind.  not judged",
        "                   Not judged: CancelledError",
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupted_run_prints_its_best_version(folder, as_json):
    words = ["revise", "d.txt", "-c", "c.yaml", "-m", "any:model", *(["--json"] if as_json else [])]
    process = begun(folder, *words, replies=["aab b", None])
    interrupt_when_asked(process, folder)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "version 2" in stderr
    assert "Stopped: the run was cancelled." in stderr
    assert "Traceback" not in stderr
    assert (json.loads(stdout)["best_output"] if as_json else stdout.rstrip("\n")) == "ab"


def test_a_demo_interrupted_at_once_says_so(folder):
    process = begun(folder, "demo", "-m", "any:model", replies=[None])
    interrupt_when_asked(process, folder)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "Interrupted before there was a result.\n")


EVALUATED = """
import asyncio, json, os
from pathlib import Path
from redraft import Agent, ScriptedModel

async def reply(request):
    if "Task 1" in request.messages[-1].content and not Path("asked").exists():
        Path("asked").touch()
        await asyncio.Event().wait()
    return "good"

writer = Agent(ScriptedModel(reply), name="writer")
"""
CASES = """
criteria: [{name: good, evaluator: regex, config: {pattern: good}}]
cases: [{task: Task 0.}, {task: Task 1.}]
"""


def test_an_interrupted_evaluation_says_how_to_continue(project):
    (project / "app.py").write_text(EVALUATED)
    (project / "cases.yaml").write_text(CASES)
    words = ("eval", "cases.yaml", "-a", "app:writer", "--concurrency", "1")
    process = subprocess.Popen([*REDRAFT, *words], cwd=project, stderr=subprocess.PIPE, text=True)
    interrupt_when_asked(process, project)
    _, stderr = process.communicate(timeout=60)
    said = "Interrupted before there was a result. To continue: the same command with --resume last."
    assert (process.returncode, stderr.splitlines()[-1]) == (130, said)
    done = run(project, *words, "--resume", "last", "--json")
    assert (done.returncode, json.loads(done.stdout)["figures"][0]["cases"]) == (0, 2), done.stderr


@pytest.mark.parametrize("home", [".redraft", ""])
def test_an_evaluation_that_is_not_stored_can_not_be_continued(home, project, monkeypatch):
    async def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setenv("REDRAFT_HOME", home and str(project / home))
    monkeypatch.setattr("redraft.evals.evaluation.Evaluation.run", interrupted)
    (project / "cases.yaml").write_text(CASES)
    ended = redraft("eval", "cases.yaml", "-a", "json:dumps")
    assert (ended.exit_code, "--resume" in ended.stderr) == (130, bool(home))
    assert "--resume" not in redraft("eval", "no.yaml").stderr


def test_a_killed_run_resumes_without_paying_twice(project, monkeypatch):
    words = ("revise", "-", "-c", "c.yaml", "-m", "openai-chat:gpt-4o-mini")
    with serving(monkeypatch) as server:
        server.answers = [(200, {}, completion("aab b")), (None, {}, "")]
        process = subprocess.Popen([*REDRAFT, *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        process.stdin.write(b"ab")
        process.stdin.close()
        while len(server.asked) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
        [row] = document(redraft("runs", "--json"))["runs"]
        assert (row["status"], row["scores"]) == ("killed", [0.0, 0.0])
        server.answers = [(200, {}, completion("aaa"))]
        asked = len(server.asked)
        done = run(project, "resume", "last", "--json", env=environment())
        assert (done.returncode, json.loads(done.stdout)["best_output"]) == (0, "aaa"), done.stderr
        assert "version 3  1.00" in done.stderr
        assert len(server.asked) == asked + 1
    [row] = document(redraft("runs", "--json"))["runs"]
    assert (row["status"], row["scores"]) == ("finished", [0.0, 0.0, 1.0])
