import json
import os
import subprocess
import sys

import pytest

from cli_commands import document, put, redraft, script
from kept import GONE, record
from redraft import ModelError, Task
from redraft.cli.resuming import resuming_call
from redraft.loop.record import Origin, Process

ORDER = {
    "customer": "Dana Okafor",
    "items": [{"name": "lamp", "quantity": 3}, {"name": "tray", "quantity": 1}],
    "total_cents": 8450,
    "paid": False,
}


def test_a_run_that_failed_goes_on_after_what_was_paid_for(revised, project, monkeypatch):
    failed = revised("aab", ModelError("It is away."))
    assert failed.exit_code == 4
    assert "redraft resume last" in failed.stderr
    (project / "d.txt").unlink()
    (project / "c.yaml").write_text("- Something else.")
    model = script(monkeypatch, "aaa")
    result = redraft("resume", "last")
    assert (result.exit_code, result.stdout) == (0, "aaa\n"), result.stderr
    assert len(model.requests) == 1
    found = document(redraft("runs", "--json"))["runs"]
    assert [(row["status"], row["scores"]) for row in found] == [("finished", [0.0, 0.0, 1.0])]
    assert document(redraft("show", "last", "--json"))["origin"]["arguments"][0] == "revise"


@pytest.mark.parametrize("touched", [False, True])
def test_a_run_that_failed_may_replace_what_it_wrote_and_nothing_else(revised, project, monkeypatch, touched):
    failed = revised("aab", ModelError("It is away."), words=("-o", "out.txt"))
    out = project / "out.txt"
    assert failed.exit_code == 4
    written = out.read_text()
    if touched:
        out.write_text("mine")
    script(monkeypatch, "aaa")
    result = redraft("resume", "last")
    if touched:
        assert (result.exit_code, out.read_text()) == (2, "mine")
        assert "'out.txt' exists; move it away." in result.stderr
    else:
        assert (result.exit_code, out.read_text()) == (0, "aaa") != (0, written), result.stderr


def test_a_run_that_finished_gives_its_result_again(revised, monkeypatch):
    revised("aaa")
    model = script(monkeypatch)
    result = redraft("resume", "last")
    assert (result.exit_code, result.stdout) == (0, "aaa\n")
    assert "Stopped: the quality threshold was met." in result.stderr
    assert document(redraft("resume", "last", "--json"))["best_output"] == "aaa"
    assert model.requests == []


@pytest.mark.parametrize("words", [("resume", "last"), ("show", "last", "--version", "best")])
def test_what_a_model_made_does_not_act_on_a_terminal(revised, words):
    made = "aaa \x1b]0;title\x07"
    revised(made)
    assert redraft(*words).stdout == f"{made}\n"
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "redraft", *words]
    subprocess.run(command, stdout=theirs, stderr=subprocess.DEVNULL, check=True, timeout=60)
    assert os.read(ours, 1000) == b"aaa \\x1b]0;title\\x07\r\n"
    os.close(ours)
    os.close(theirs)


def test_json_may_be_asked_for_afterwards(revised, monkeypatch):
    revised(ModelError("It is away."))
    script(monkeypatch, "aaa")
    assert document(redraft("resume", "last", "--json"))["best_output"] == "aaa"


def test_the_draft_that_came_in_by_a_pipe_is_in_the_record(project, monkeypatch):
    script(monkeypatch, ModelError("It is away."))
    redraft("revise", "-", "-c", "c.yaml", "-m", "any:model", stdin="ab of mine")
    script(monkeypatch, "b")
    redraft("resume", "last", stdin="")
    assert redraft("show", "last", "--version", "1").stdout == "ab of mine\n"


def test_a_run_of_a_demo_is_the_only_one_that_is_run_again(project, monkeypatch):
    script(monkeypatch, "loaded", "{}", ModelError("away"), *["x"] * 40)
    redraft("demo", "-m", "any:model")
    first = document(redraft("runs", "--status", "failed", "--json"))["runs"][0]["run_id"]
    script(monkeypatch, "loaded", ORDER)
    result = redraft("resume", first)
    assert result.exit_code == 0
    assert "1. An order as JSON" in result.stdout
    assert "2." not in result.stdout.splitlines()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "is at work on the run 'r'"),
        ({"parent": "outer", "process": GONE}, "ran inside 'outer': resume that one."),
        ({"process": GONE, "origin": Origin("command", "x", "", (), "/no/such")}, "can't be gone to"),
    ],
)
def test_what_cannot_be_resumed_says_why(project, fields, says):
    put(record([], run_id="r", **fields))
    result = redraft("resume", "r")
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.fixture
def lost(monkeypatch, tmp_path):
    """A process that is there, on a machine that can't tell whether it is the one that was recorded."""
    monkeypatch.setattr("redraft.loop.record.PROC", tmp_path / "proc")
    monkeypatch.setattr("redraft.loop.record.PS", str(tmp_path / "ps"))
    return Process(Process.this().host, os.getppid(), "")


def test_where_the_machine_can_not_tell_force_resumes(project, lost, monkeypatch):
    put(record([], run_id="r", process=lost, origin=Origin("command", "x", "", ("settings",), str(project))))
    assert document(redraft("runs", "--status", "unknown", "--json"))["runs"][0]["status"] == "unknown"
    assert "it is not known whether" in redraft("why", "r").stdout
    refused = redraft("resume", "r")
    assert refused.exit_code == 2
    assert f"can't tell whether the process {lost.pid} is still at work on the run 'r'" in refused.stderr
    assert "redraft resume r --force" in refused.stderr
    taken_up = redraft("resume", "r", "--force")
    assert "--force" not in taken_up.stderr
    assert taken_up.exit_code == 0


def test_force_does_not_take_a_run_from_a_process_that_is_known_to_be_at_work(project):
    put(record([], run_id="r"))
    result = redraft("resume", "r", "--force")
    assert result.exit_code == 2
    assert "is at work on the run 'r'" in result.stderr


def test_a_run_of_a_program_is_resumed_there(project):
    put(record([], run_id="r", process=GONE, origin=Origin("agent", "writer", "any:model")))
    result = redraft("resume", "r")
    assert result.exit_code == 2
    assert result.stdout == "await agent.run('Say it.', run_id='r')\n"
    assert json.loads(redraft("resume", "r", "--json").stdout)["call"].startswith("await agent.run(")


@pytest.mark.parametrize(
    ("origin", "task", "call"),
    [
        (Origin("agent"), Task("x"), "await agent.run('x', run_id='r')"),
        (Origin("agent"), Task("x" * 300),
         "from redraft import Runs\n\nawait agent.run((await Runs().get('r')).task, run_id='r')"),
        (Origin("reflected", "main.<locals>.answer"), Task("x"), "await answer.run_as('r', ...)"),
        (Origin("function", "reflect"), Task("x"), "await reflect('x', ..., step=Journalled(store, 'r'))"),
    ],
)  # fmt: skip
def test_the_call_is_the_one_that_began_it(origin, task, call):
    assert resuming_call(record([], run_id="r", origin=origin, task=task)) == call


@pytest.mark.parametrize("run_id", ["my.1", "my.12-3"])
def test_a_task_of_an_ensemble_is_resumed_with_the_ensemble(run_id):
    call = "await ensemble.run(..., run_id='my')"
    assert resuming_call(record([], run_id=run_id, origin=Origin("task", "write"))) == call
