"""`redraft approve`: questions of workflows and of agents in cycles, in one list."""

import sys
from pathlib import Path
from threading import Event, Thread
from weakref import WeakValueDictionary

import pytest

from redraft.cycles import CycleAgent
from redraft.cycles.cycle import CycleWaiting
from support.commands import document, redraft

AGENT = """\
name: heater
stages:
  reason:
    substages:
      - type: plan
        name: plan
        config: {rules: [{action: heat, params: {level: 1}, reason: "it is cold"}, {action: log, params: {}}]}
      - {type: authorize, name: ask, config: {mode: controlled}}
  actuate:
    substages:
      - type: execute
        name: act
        config:
          actions:
            - {name: heat, type: function, function: heat, with: {level: "{{ params.level }}"}}
            - {name: log, type: log, message: done}
  reflect: {substages: [{type: update-state, name: keep}]}
"""
WORKFLOW = """\
name: send
nodes:
  - {name: check, uses: human.approve, with: {message: "Send it?", data: "a letter"}, output: decision}
"""


@pytest.fixture
def waiting(project, monkeypatch):
    """Run an agent whose cycle waits for a person; return a function that waits for its end."""
    monkeypatch.setattr("redraft.cycles.storage._in_process", WeakValueDictionary())
    Path("agent.yaml").write_text(AGENT)
    levels, ended, is_waiting = [], [], Event()

    def listen(event):
        if isinstance(event, CycleWaiting):
            is_waiting.set()

    def heat(level):
        levels.append(level)

    def run():
        agent = CycleAgent.from_file(
            "agent.yaml", functions={"heat": heat}, storage="project", on_event=listen
        )
        ended.append(agent.run_cycle_sync().status)

    cycle = Thread(target=run, daemon=True)
    cycle.start()
    assert is_waiting.wait(60)

    def end():
        cycle.join(60)
        assert ended == ["finished"]
        return [int(level) for level in levels]

    yield end
    while cycle.is_alive() and questions():
        redraft("approve", "heater", "--reject")
    cycle.join(60)


def questions():
    return document(redraft("approve", "--json"))["waiting"]


def at_a_terminal(monkeypatch, *lines):
    """Answer prompts with these lines."""
    typed = iter([*(f"{line}\n" for line in lines), ""])

    class Terminal:
        def isatty(self):
            return True

        def readline(self):
            return next(typed)

    for module in ("history.approve", "terminal.input"):
        monkeypatch.setattr(f"redraft.{module}.sys", type("Sys", (), {"stdin": Terminal()}))


def test_one_command_lists_and_decides_on_cycles_and_workflows(waiting):
    Path("send.yaml").write_text(WORKFLOW)
    assert redraft("run", "send.yaml").exit_code == 5
    heat, log, send = questions()
    assert [one["workflow"] for one in (heat, log, send)] == ["heater", "heater", "send"]
    assert (heat["node"], heat["message"], heat["data"]) == ("1-1", "heat: it is cold", {"level": 1})
    assert "heat: it is cold" in redraft("approve").stdout
    assert redraft("approve", "last").exit_code == 0
    assert len(questions()) == 2
    approved = redraft("approve", heat["id"], "--value", '{"level": 4}', "-m", "colder still")
    assert approved.stderr == "Approved.\n1 more question of heater: redraft approve heater\n"
    rejected = document(redraft("approve", "last", "--reject", "--json"))
    assert rejected == {"schema_version": 1, "answered": [log["id"]], "approved": False, "continuation": ""}
    assert waiting() == [4]
    memory = document(redraft("cycle", "memory", "heater", "--json"))["memory"]
    assert [one["status"] for one in memory["recentActions"]] == ["succeeded", "blocked"]
    assert [item["verdict"] for item in memory["feedbackHistory"]] == ["modify", "reject"]
    assert memory["feedbackHistory"][0]["message"] == "colder still"
    assert redraft("approve").stderr == "Nothing is waiting for an answer.\n"


def test_the_name_of_an_agent_decides_on_its_whole_plan(waiting):
    assert redraft("approve", "heater").stderr == "Approved.\nApproved.\n"
    assert waiting() == [1]


def test_on_a_terminal_the_question_is_shown_and_asked(waiting, monkeypatch):
    monkeypatch.setenv("EDITOR", f"{sys.executable} edit.py")
    Path("edit.py").write_text("import sys\nopen(sys.argv[1], 'w').write('{\"level\": 7}')\n")
    at_a_terminal(monkeypatch, "q")
    left = redraft("approve", "last")
    assert "log" in left.stderr
    assert "[y]es, [n]o, [e]dit, or [q]uit? Not answered." in left.stderr
    at_a_terminal(monkeypatch, "what", "edit", "no")
    answered = redraft("approve", "heater")
    assert answered.stderr.count("[y]es, [n]o") == 3
    assert answered.stderr.endswith(" Rejected.\n")
    assert waiting() == [7]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["approve", "1-1", "--value", "3"], "There is no open question '1-1'"),
        (["approve", "heater.", "--reject"], "Several approvals match 'heater.'"),
        (["cycle", "feedback", "heater", "--reject"], "is waiting for a decision: redraft approve heater"),
        (
            ["cycle", "feedback", "heater", "--approve"],
            "There is no `redraft cycle feedback --approve`: praise needs only -m TEXT",
        ),
    ],
)
def test_errors(waiting, words, message):
    ran = redraft(*words)
    assert ran.exit_code == 2
    assert message in ran.stderr
    assert len(questions()) == 2


def test_the_parameters_of_an_action_are_an_object_that_it_takes(waiting):
    heat = questions()[0]["id"]
    assert "are a JSON object, got 3" in redraft("approve", heat, "--value", "3").stderr
    wrong = redraft("approve", heat, "--value", '{"levle": 3}')
    assert "takes no parameter 'levle'; did you mean 'level'?" in wrong.stderr
    assert len(questions()) == 2
