import json
from pathlib import Path
from weakref import WeakValueDictionary

import pytest

from support.commands import document, redraft

AGENT = """\
name: heater
description: Heats.
triggers: [{type: manual}]
stages:
  sense:
    substages: [{type: function, name: look, config: {function: look}}]
  reason:
    substages:
      - {type: plan, name: plan, config: {rules: [{action: heat, params: {level: 1}}]}}
  actuate:
    substages:
      - type: execute
        name: act
        config: {actions: [{name: heat, type: function, function: heat, with: {level: "{{ params.level }}"}}]}
  reflect:
    substages:
      - {type: update-state, name: keep, config: {retention: {memory.recentActions: {maxItems: 2}}}}
      - {type: capture-metrics, name: count, config: {trackCycleDuration: true}}
"""
FUNCTIONS = """\
from pathlib import Path
from json import loads

def look():
    if Path("broken").exists():
        raise ValueError("no thermometer")
    return {"degrees": 19}

def heat(level):
    return {"level": level}

def _hidden():
    return 1
"""


@pytest.fixture(autouse=True)
def _no_agents_of_other_tests(monkeypatch):
    """Hide agents that other tests left in this process."""
    monkeypatch.setattr("redraft.cycles.storage._in_process", WeakValueDictionary())


@pytest.fixture
def heater(project):
    Path("agent.yaml").write_text(AGENT)
    Path("functions.py").write_text(FUNCTIONS)
    return project


def cycles(*words):
    return redraft("cycle", *words)


def test_a_command_quotes_a_name_with_spaces(heater):
    Path("agent.yaml").write_text(AGENT.replace("name: heater", "name: the heater", 1))
    ran = cycles("run", "agent.yaml", "--cycles", 1)
    assert "1 cycle of the heater; redraft cycle memory 'the heater'" in ran.stderr


@pytest.mark.parametrize(
    ("words", "fails"), [(("--check",), True), (("--check", "--functions", "own.py"), False)]
)
def test_a_missing_file_of_functions_is_named(heater, words, fails):
    Path("functions.py").rename("own.py")
    checked = cycles("run", "agent.yaml", *words)
    where = "Write it in functions.py next to agent.yaml, or name a file with --functions PATH.py"
    assert (where in " ".join((checked.stdout + checked.stderr).split())) == fails
    assert (checked.exit_code == 0) != fails


def test_run_status_memory_and_metrics(heater):
    ran = cycles("run", "agent.yaml", "--cycles", 3)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert "cycle 3    finished  actions: 1 done, memory: 2 changes" in ran.stderr
    assert "3 cycles of heater; redraft cycle memory heater" in ran.stderr
    assert cycles("status").stdout.splitlines()[1].split()[:3] == ["heater", "finished", "3"]
    assert len(cycles("status", "heater", "-n", 2).stdout.splitlines()) == 5
    assert "After cycle 3" in cycles("memory", "heater").stdout
    assert cycles("memory", "heater", "--diff", 2, 3).stdout.splitlines()[:3] == [
        "recentActions",
        "- heat",
        '      cycle 1, type function, status succeeded, params {"level": 1}, result {"level": 1}',
    ]
    assert cycles("memory", "heater", "--diff", 3, 3).stdout == "Nothing changed from cycle 3 to 3.\n"
    assert cycles("metrics", "heater").stdout.splitlines()[1].split()[:2] == ["3", "finished"]


def test_every_command_has_json(heater):
    ran = document(cycles("run", "agent.yaml", "--cycles", 2, "--json"))
    assert (ran["agent"], ran["count"]) == ("heater", 2)
    assert [one["status"] for one in ran["cycles"]] == ["finished", "finished"]
    assert ran["cycles"][0]["environmental_data"]["payload"] == {"degrees": 19}
    [agent] = document(cycles("status", "--json"))["agents"]
    assert (agent["status"], agent["last"]["number"], agent["pending_feedback"]) == ("finished", 2, 0)
    one = document(cycles("status", "heater", "--json"))
    assert [cycle["number"] for cycle in one["cycles"]] == [2, 1]
    memory = document(cycles("memory", "heater", "--json"))
    assert [item["cycle"] for item in memory["memory"]["recentActions"]] == [1, 2]
    earlier = document(cycles("memory", "heater", "--at", 1, "--json"))
    assert [item["cycle"] for item in earlier["memory"]["recentActions"]] == [1]
    changes = document(cycles("memory", "heater", "--diff", 0, 1, "--json"))["changes"]
    assert [(change["before"], change["after"]["action"]) for change in changes] == [(None, "heat")]
    metrics = document(cycles("metrics", "heater", "--json"))
    assert metrics["cycles"][0]["metrics"]["duration_ms"] >= 0
    sent = document(cycles("feedback", "heater", "--reject", "-m", "too hot", "--json"))["feedback"]
    assert (sent["verdict"], sent["message"]) == ("reject", "too hot")
    assert document(cycles("prune", "heater", "--keep", 1, "--json"))["deleted"]["cycles"] == 1


def test_the_next_cycle_remembers_feedback_from_the_command(heater):
    cycles("run", "agent.yaml", "--cycles", 1)
    words = ("--modify", '{"level": 3}', "--action", "heat", "--cycle", "1", "--by", "Ola", "-m", "more")
    assert cycles("feedback", "heater", *words).stdout == "Sent to heater on cycle 1: modify.\n"
    assert "1 new" in cycles("status").stdout
    cycles("run", "agent.yaml", "--cycles", 1)
    [item] = document(cycles("memory", "heater", "--json"))["memory"]["feedbackHistory"]
    assert (item["changes"], item["by"], item["action"]) == ({"level": 3}, "Ola", "heat")


@pytest.mark.parametrize("number", ["999", "-1", "0"])
def test_feedback_on_a_cycle_that_never_was_is_an_error(heater, number):
    cycles("run", "agent.yaml", "--cycles", 1)
    ran = cycles("feedback", "heater", "--reject", "--cycle", number)
    assert ran.exit_code == 2
    assert f"The agent 'heater' has no cycle {number} to give feedback on" in ran.stderr


def test_a_long_name_leaves_the_status_readable(heater, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = "heater-of-the-third-room-on-the-left-of-the-second-floor-of-the-old-house"
    for name in (long, "heater"):
        Path("agent.yaml").write_text(AGENT.replace("name: heater", f"name: {name}", 1))
        cycles("run", "agent.yaml", "--cycles", 1)
    head, *rows = cycles("status").stdout.splitlines()
    assert head.split()[:4] == ["agent", "status", "cycle", "began"]
    assert all(len(row) <= 80 for row in rows)
    assert rows[0].split()[1:3] == ["finished", "1"]
    assert "".join(row.split()[0] for row in rows).removesuffix(long) == "heater"


def test_a_failed_cycle_exits_with_1(heater):
    agent = AGENT.replace("function: look}", "function: look, required: true}")
    Path("agent.yaml").write_text(agent)
    Path("broken").touch()
    ran = cycles("run", "agent.yaml", "--cycles", 1)
    assert ran.exit_code == 1
    assert "no thermometer" in ran.stderr
    assert "reason/plan skipped" in ran.stderr


def test_a_plan_that_cannot_be_evaluated_is_shown_and_does_not_fail_the_cycle(heater):
    rule = "rules: [{action: heat, when: environmentalData.payload.degree < 20,"
    Path("agent.yaml").write_text(AGENT.replace("rules: [{action: heat,", rule))
    ran = cycles("run", "agent.yaml", "--cycles", 2)
    assert ran.exit_code == 0
    assert "cycle 2    finished  1 failure, actions: -" in ran.stderr
    assert "2 cycles of heater, 2 with failures; redraft cycle memory heater" in ran.stderr
    assert "finished, 1 failure" in cycles("status").stdout
    output = cycles("status", "heater").stdout
    assert output.count("finished, 1 failure") == 3
    assert "can't be evaluated" in " ".join(output.split())


@pytest.mark.parametrize("required", [True, False])
def test_a_failed_source_is_shown_once(heater, required):
    Path("broken").touch()
    Path("agent.yaml").write_text(
        AGENT.replace("{function: look}", f"{{function: look, required: {required}}}", 1)
    )
    ran = cycles("run", "agent.yaml")
    assert (ran.exit_code, ran.stderr.count("no thermometer")) == (int(required), 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["status", "nobody"], "There is no agent 'nobody' here; no agent has run here yet."),
        (["run", "missing.yaml"], "'missing.yaml' cannot be read: No such file or directory."),
        (["run", "agent.yaml", "--functions", "c.yaml"], "'c.yaml' is not a Python file"),
        (["run", "agent.yaml", "--functions", "wrong.py"], "'wrong.py' can't be loaded: NameError"),
        (["run", "agent.yaml", "--functions", "heat.py"], "'look'"),
        (["feedback", "heater"], "Expected what the agent is to learn: -m TEXT, --reject or --modify"),
        (["feedback", "heater", "--reject", "--modify", "{}"], "Expected --reject or --modify, not both"),
        (["feedback", "heater", "--modify", "3"], "--modify must be a JSON object"),
        (["feedback", "heater", "--modify", "{"], "--modify must be a JSON object"),
    ],
)
def test_errors_are_one_line(heater, words, message):
    Path("wrong.py").write_text("nothing_like_it\n")
    Path("heat.py").write_text("def heat(level): ...\n")
    ran = cycles(*words)
    assert ran.exit_code == 2
    assert message in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_without_a_project_store_is_an_error(heater, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", "")
    for words in (["status"], ["run", "agent.yaml"]):
        ran = cycles(*words)
        assert ran.exit_code == 2
        assert "REDRAFT_HOME" in ran.stderr


def test_events_are_written_to_a_file(heater):
    assert cycles("run", "agent.yaml", "--cycles", 1, "--events", "events.jsonl").exit_code == 0
    lines = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines][:1] == ["cycle_started"]
    assert [line["event"] for line in lines][-1:] == ["cycle_finished"]


MODELS = """\
model: fast
models: {fast: "local:qwen2.5-coder-0.5b"}
env: [TOKEN]
"""
PLAN = "{type: plan, name: plan, config: {rules: [{action: heat, params: {level: 1}}]}}"
ANALYZE = "{type: analyze, name: think, prompt: Is it warm?, outputSchema: {type: object}}"


def test_check_reports_what_an_agent_would_use_without_running_it(heater):
    Path("agent.yaml").write_text(AGENT.replace("description: Heats.\n", MODELS))
    checked = cycles("run", "agent.yaml", "--check")
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert checked.stdout.splitlines() == [
        "ok         agent.yaml: heater, 5 substages",
        "triggers   manual",
        "functions  heat, look",
        "env        TOKEN (not set)",
    ]
    assert document(cycles("run", "agent.yaml", "--check", "--json")) == {
        "schema_version": 1,
        "file": "agent.yaml",
        "ok": True,
        "name": "heater",
        "substages": 5,
        "triggers": ["manual"],
        "models": [],
        "functions": ["heat", "look"],
        "notify": None,
        "env": {"TOKEN": False},
    }
    assert document(cycles("status", "--json"))["agents"] == []


def test_check_reports_the_models(heater, monkeypatch):
    monkeypatch.setattr("redraft.cycles.agent.model_of", lambda _name: None)
    text = AGENT.replace("description: Heats.\n", MODELS).replace(PLAN, f"{PLAN}\n      - {ANALYZE}")
    Path("agent.yaml").write_text(text)
    assert "models     local:qwen2.5-coder-0.5b\n" in cycles("run", "agent.yaml", "--check").stdout
    other = document(cycles("run", "agent.yaml", "--check", "--model", "openai:gpt-5", "--json"))
    assert other["models"] == ["openai:gpt-5"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (AGENT.replace("function: look", "function: lok"), "agent.yaml, line 6, stage 'sense', substage"),
        (AGENT.replace(PLAN, ANALYZE), "use --model NAME"),
        ("name: w\nnodes:\n  - {name: n, run: return 1}\n",
         "agent.yaml, line 2, nodes: this is a workflow; run it with: redraft run agent.yaml"),
    ],
)  # fmt: skip
def test_check_reports_errors(heater, text, says):
    Path("agent.yaml").write_text(text)
    for words in ([], ["--check"]):
        result = cycles("run", "agent.yaml", *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert says in result.stderr


def test_check_reports_all_mistakes_to_an_editor(heater):
    text = AGENT.replace("function: look", "function: lok").replace("action: heat", "action: het")
    Path("agent.yaml").write_text(text)
    result = cycles("run", "agent.yaml", "--check", "--json")
    problems = json.loads(result.stdout)["problems"]
    assert [(problem["line"], problem["stage"], problem["key"]) for problem in problems] == [
        (6, "sense", "config.function"),
        (9, "reason", "config.rules.0.action"),
    ]
    assert result.exit_code == 2
    printed = cycles("run", "agent.yaml", "--check").stderr.splitlines()
    assert printed == [f"Error: {problem['message']}" for problem in problems]
