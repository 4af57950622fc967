"""`redraft run`, and how the commands for runs treat workflows."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redraft import ConvergenceReason, ModelError, SqliteStore
from redraft._sync import run_sync
from redraft.errors import OutputError, ReflectionFailedError, UnfinishedError, WorkflowError
from redraft.terminal.exits import code_of_error
from redraft.workflow import Workflow, action
from support.commands import document, redraft
from support.scripted_workflows import script_workflows
from support.workflow_specification import COMPLETE_EXAMPLE, GRACEFUL_DEGRADATION
from support.workflows import under

PROFILE = """\
name: profile
model: gpt-4
nodes:
  - name: generate
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: gpt-4, prompt: "A profile: {{ state.request }}"}
      evaluator:
        type: schema
        schema: {type: object, required: [name, age], properties: {age: {type: integer}}}
      max_iterations: 2
      on_failure: FAILURE
    output: profile
  - name: use
    run: |
      if state.get("success"):
          return {"message": f"Created profile for {state['name']}"}
      return {"message": "Failed", "best_attempt": state.get("reflection_best")}
"""
GOOD, BAD = {"name": "Ada", "age": "36"}, {"name": "Ada"}


@pytest.fixture
def ran(project, monkeypatch):
    """Run the profile workflow with a model that gives these replies; return the result of the command."""

    def ran(*replies, words=("-v", "request=ada"), text=PROFILE, failure="return_best"):
        ran.model = script_workflows(monkeypatch, *replies)
        (project / "w.yaml").write_text(text.replace("FAILURE", failure))
        return redraft("run", "w.yaml", *words)

    return ran


def test_progress_goes_to_stderr_and_the_last_result_to_stdout(ran):
    result = ran(BAD, GOOD)
    assert (result.exit_code, result.stdout) == (0, "Created profile for Ada\n"), result.stderr
    progress = [line.split() for line in result.stderr.splitlines()]
    assert progress[0][:5] == ["generate", "version", "1", "0.50", "draft"]
    assert "the key 'age' is required" in result.stderr
    assert progress[1][:5] == ["generate", "version", "2", "1.00", "regenerated"]
    assert "generate  valid after 2 attempts, best score 1.00" in result.stderr
    assert "use       done" in result.stderr
    assert "Finished: 2 nodes. Used: " in result.stderr
    assert "redraft show last" in result.stderr
    assert redraft("show", "last").exit_code == 0
    assert redraft("resume", "last").stdout == "Created profile for Ada\n"


def test_json_prints_the_final_state(ran):
    state = document(ran(GOOD, words=("-v", "request=ada", "--json")))["state"]
    assert state["profile"]["reflection_output"] == {"name": "Ada", "age": 36}
    assert state["message"] == "Created profile for Ada"


@pytest.mark.parametrize(
    ("code", "when", "printed"),
    [
        ("'a text'", "true", "a text\n"),
        ("{'message': 'so'}", "true", "so\n"),
        ("{'a': 'x', 'b': 2}", "true", '{\n  "a": "x",\n  "b": 2\n}\n'),
        ("[1]", "true", "[\n  1\n]\n"),
        ("0", "true", "0\n"),
        ("None", "true", ""),
        ("'a text'", "false", ""),
    ],
)
def test_the_last_result_is_printed_for_people(ran, code, when, printed):
    text = f"name: last\nnodes:\n  - {{name: only, run: \"return {code}\", when: '{when}'}}\n"
    result = ran(text=text, words=())
    assert (result.exit_code, result.stdout) == (0, printed), result.stderr
    again = redraft("resume", "last")
    assert again.stdout == printed


def test_a_failed_item_is_counted_from_one(ran):
    node = "{name: n, map: [1, 0], run: 'return 1 / item', on_error: continue}"
    result = ran(text=f"name: items\nnodes:\n  - {node}\n", words=())
    assert "item 2 of 2: " in result.stderr


def test_a_loop_prints_its_output(ran):
    text = PROFILE.partition("  - name: use")[0]
    assert json.loads(ran(GOOD, text=text).stdout) == {"name": "Ada", "age": 36}


ECHO = "name: echo\nnodes:\n  - name: all\n    run: return state\n"


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["-v", "a=1"], {"a": "1"}),
        (["-v", "a=x=y", "-v", "b="], {"a": "x=y", "b": ""}),
        (["-v", "a=true"], {"a": "true"}),
        (["-v", "a:=true", "-v", 'b:=[1, {"c": null}]'], {"a": True, "b": [1, {"c": None}]}),
        (["-v", 'a:="@x"'], {"a": "@x"}),
        (["-v", "a=@text.txt"], {"a": "äöü\n[1]"}),
        (["-v", "a:=@data.json"], {"a": {"b": [1.5]}}),
        (["-v", "a=@marked.txt"], {"a": "x"}),
        (["-v", "a:=@marked.json"], {"a": [1]}),
        (["-v", "a=@-"], {"a": "from a pipe"}),
    ],
)  # fmt: skip
def test_values_are_text_unless_they_are_json(project, words, state):
    (project / "text.txt").write_text("äöü\n[1]", "utf-8")
    (project / "data.json").write_text('{"b": [1.5]}')
    (project / "marked.txt").write_text("x", "utf-8-sig")
    (project / "marked.json").write_text("[1]", "utf-8-sig")
    (project / "w.yaml").write_text(ECHO)
    result = redraft("run", "w.yaml", *words, "--json", stdin="from a pipe")
    assert result.exit_code == 0, result.stderr
    assert document(result)["state"] == state


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-v", "a"], "Invalid value -v 'a'; expected NAME=TEXT, NAME=@FILE, NAME:=JSON or NAME:=@FILE."),
        (["-v", "=a"], "Invalid value"),
        (["-v", ":=1"], "Invalid value"),
        (["-v", "a=1", "-v", "a:=2"], "-v 'a' is given twice."),
        (["-v", "a:={"], "-v a: invalid JSON"),
        (["-v", "a:=NaN"], "NaN is not a number of JSON"),
        (["-v", "a:=[1e999]"], "the number 1e999 is too large"),
        (["-v", "a:=" + "[" * 100_000], "-v a: invalid JSON"),
        (["-v", "a=@no.txt"], "-v a: 'no.txt' cannot be read: No such file or directory."),
        (["-v", "a=@bytes"], "-v a: 'bytes' is not UTF-8 text."),
        (["-v", "a=@."], "-v a: '.' cannot be read: Is a directory."),
        (["--events", "-"], "--events - would mix"),
        (["--events", "no/such"], "The events can't be written to 'no/such'"),
    ],
)
def test_invalid_values_are_reported_before_anything_runs(project, words, message):
    (project / "bytes").write_bytes(b"\xff")
    (project / "w.yaml").write_text(ECHO)
    result = redraft("run", "w.yaml", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert document(redraft("runs", "--json"))["runs"] == []


NODE = "name: w\nnodes:\n  - name: first\n    {}\n"
CALL = NODE.format("uses: llm.call\n    with: {{prompt: x, {}}}")
LOOP_NODE = """\
  - name: loop
    uses: reflection_loop
    with:
      generator: {action: llm.call, prompt: x}
      evaluator: {type: custom, run: return True}
"""
LOOP_ALONE = f"name: w\nnodes:\n{LOOP_NODE}"
CYCLES = "name: heater\nstages:\n  sense: {substages: []}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: []", "w.yaml, line 1"),
        ("name: [", "w.yaml, line"),
        (NODE.format("rum: x"), "w.yaml, line 4, node 'first', rum: unknown key 'rum'; did you mean 'run'?"),
        (CALL.format("system: '{{ state.topic }}'"), "w.yaml, line 5, node 'first', with.system: state"),
        (CALL.format("model: no-such"), "w.yaml, line 5, node 'first', with.model: 'no-such' is not"),
        (CALL.format("max_tokens: 9"), "w.yaml, line 5, node 'first', with: No model was given"),
        (CALL.format("max_tokens: 9"), "use --model NAME"),
        (LOOP_ALONE, "w.yaml, line 6, node 'loop', with.generator: No model was given"),
        (f"{LOOP_ALONE}  - {{name: tell, run: return dict(state)}}\n", "with.generator: No model was given"),
        (f"nodes:\n  - {{name: first, run: 'return 3'}}\n{LOOP_NODE}", "with.generator: No model was given"),
        (f"nodes:\n  - {{name: first, run: 'return {{\"n\": [1]}}'}}\n{LOOP_NODE}", "No model was given"),
        (CYCLES, "line 2, stages: this file defines an agent that runs in cycles; use redraft cycle run w."),
        (CYCLES.replace("stages:", "reflect:"), "reflect: this file defines an agent that runs in cycles"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_file_line_node_and_key(project, text, message):
    (project / "w.yaml").write_text(text)
    for words in ([], ["--check"], ["--json"]):
        result = redraft("run", "w.yaml", *words)
        assert (result.exit_code, result.stdout) == (2, ""), result.stderr
        assert message in result.stderr
        assert "Traceback" not in result.stderr


def test_a_missing_extra_is_reported_before_any_model_call(ran, monkeypatch):
    monkeypatch.setattr("redraft.sandbox.scripts.installed", lambda module: module != "lupa")
    result = ran(text=PROFILE + "  - {name: late, run: return 1, language: lua}\n")
    assert result.exit_code == 2
    assert "node 'late', language: Running Lua scripts needs an optional part" in result.stderr
    assert ran.model.requests == []


def test_a_check_notes_that_inline_python_runs_in_a_process(project, monkeypatch):
    (project / "w.yaml").write_text("nodes:\n- {name: a, run: return 1}\n- {name: b, run: return 2}\n")
    assert "note" not in redraft("run", "w.yaml", "--check").stdout
    monkeypatch.setattr("redraft.sandbox.scripts.installed", lambda module: False)
    [note] = json.loads(redraft("run", "w.yaml", "--check", "--json").stdout)["notes"]
    assert note.startswith(
        "w.yaml, line 2, node 'a', run: inline Python runs as with 'sandbox: process' here"
    )


def test_a_model_that_does_not_exist_is_reported_where_the_file_names_it(project):
    (project / "w.yaml").write_text("model: chef\nnodes:\n- {name: a, uses: llm.call, with: {prompt: x}}\n")
    result = redraft("run", "w.yaml", "--check")
    assert "w.yaml, line 1, model: 'chef' is not the name of a model" in result.stderr


LATER = """\
name: later
nodes:
  - {name: pay, uses: llm.call, with: {model: gpt-4, prompt: x}}
  - {name: late, language: LANGUAGE, run: CODE}
"""


@pytest.mark.parametrize(
    ("language", "code", "message"),
    [
        ("lua", "local x = = 1", "line 4, node 'late', run: The Lua script, line 1, is not valid Lua"),
        ("prolog", "valid :- (.", "line 4, node 'late', run: The Prolog script"),
        ("python", "import socket", "line 4, node 'late', run: The Python script, line 1"),
    ],
)
def test_code_that_can_not_run_is_reported_before_any_model_call(ran, language, code, message):
    result = ran(text=LATER.replace("LANGUAGE", language).replace("CODE", f"'{code}'"), words=())
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert ran.model.requests == []


def test_a_local_model_without_its_runtime_is_reported(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    (project / "w.yaml").write_text(PROFILE.replace("FAILURE", "return_best"))
    result = redraft("run", "w.yaml", "-v", "request=x", "-m", "local:qwen2.5-coder-0.5b")
    message = "with.generator.model: A local model needs an optional part: pip install 'redraft[local]'"
    assert message in result.stderr


READS = """\
name: reads
model: gpt-4
variables: {tone: calm}
nodes:
  - {name: one, uses: llm.call, with: {prompt: "{{ variables.tone }}"}, output: text}
  - {name: two, SECOND}
  - {name: three, uses: llm.call, with: {prompt: "{{ state.x }} {{ state.text }}"}}
"""
CODE = "{type: custom, run: return True}"
ASKED = "generator: {action: llm.call, prompt: '{{ SEES }}'}"
LOOP = f"uses: reflection.loop, with: {{{ASKED}, evaluator: {CODE}}}"


@pytest.mark.parametrize(
    ("second", "missing"),
    [
        ("uses: llm.call, with: {prompt: x}", True),
        ("uses: llm.call, with: {prompt: x, schema: {type: object}}", False),
        ("uses: llm.call, with: {prompt: x}, output: x", False),
        ("uses: reflection.evaluate, with: {data: 1, schema: {}}, output: y", True),
        ("uses: reflection.evaluate, with: {data: 1, schema: {}}", False),
        ("run: 'return {\"x\": 1}'", False),
        ("run: return 1, output: y", True),
        ("uses: llm.call, with: {prompt: x}, when: state.x is defined", True),
        ("uses: llm.call, with: {prompt: '{{ state.x | default(1) }}'}, goto: end", False),
        ("uses: llm.call, with: {prompt: '{{ state.x }}'}, goto: end", True),
        ("uses: llm.call, with: {messages: [{role: user, content: '{{ state.x }}'}]}, goto: end", True),
        ("uses: llm.call, with: {prompt: x, schema: {const: '{{ state.x }}'}}, on_error: continue", False),
        (f"uses: reflection.loop, with: {{generator: {{run: return state}}, evaluator: {CODE}}}", False),
        (LOOP.replace("SEES", "state.x"), True),
        (LOOP.replace("SEES", "state.reflection_errors"), True),
    ],
)  # fmt: skip
def test_check_reports_values_that_are_never_set(project, monkeypatch, second, missing):
    script_workflows(monkeypatch)
    (project / "w.yaml").write_text(READS.replace("SECOND", second))
    result = redraft("run", "w.yaml", "--check")
    assert result.exit_code == (2 if missing else 0), result.stderr
    assert ("state.x is read here" in result.stderr) == missing
    assert redraft("run", "w.yaml", "--check", "-v", "x=1").exit_code == 0


def test_check_lists_what_a_run_would_use_and_calls_no_model(project, monkeypatch):
    text = (
        PROFILE.replace("FAILURE", "raise")
        + """\
  - {name: lua, run: return 1, language: lua}
  - {name: whole, run: return 1, sandbox: process}
  - {name: mine, uses: mine, with: {a: 1}}
env: [HOME, NO_SUCH_VARIABLE]
mcp: {shop: {command: [shop]}}
"""
    )
    (project / "w.yaml").write_text(text)
    action("mine")(lambda state, a: a)
    result = redraft("run", "w.yaml", "--check", "-v", "request=x", "-m", "local:qwen2.5-coder-0.5b")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "ok       w.yaml: profile, 5 nodes",
        "models   local:qwen2.5-coder-0.5b",
        "actions  llm.call, mine, reflection.loop",
        "code     lua (inline), python (inline), python (process)",
        "servers  shop",
        "extras   local, lua, mcp, python",
        "env      HOME (set), NO_SUCH_VARIABLE (not set)",
    ]
    model = script_workflows(monkeypatch)
    found = document(redraft("run", "w.yaml", "--check", "-v", "request=x", "--json"))
    assert (found["ok"], found["models"], found["nodes"]) == (True, ["gpt-4"], 5)
    assert model.requests == []
    assert document(redraft("runs", "--json"))["runs"] == []


UNREADABLE = {
    "lua": ("language: lua\nrun: |\n  local x = 1\n  if x the\n", 7, "line 2, is not valid Lua: 'then'"),
    "prolog": ("language: prolog\nrun: |\n  ok.\n  valid :- ok(.\n", 7, "line 2, could not be read"),
    "inline": ("run: |\n  import json\n  x = 1\n  del x\n", 7, "inline Python has no 'del' statement"),
    "a module": ("run: |\n  import json\n  import statistics\n", 6, "line 2, raised ModuleNotFoundError"),
    "whole": ("sandbox: process\nrun: |\n  x = 1\n  import nowhere\n", 7, "No module named 'nowhere'"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "line", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_check_parses_code_in_its_sandbox(project, code, line, message):
    fine = "name: w\nnodes:\n  - {name: a, run: return 1}\n  - {name: b, run: 'return {}', language: lua}\n"
    (project / "w.yaml").write_text(fine + "  - name: n\n" + under(code, 4))
    result = redraft("run", "w.yaml", "--check")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: w.yaml, line {line + 2}, node 'n', run: ")
    assert message in result.stderr


@pytest.mark.parametrize(
    "code",
    [
        "run: |\n  from __future__ import annotations\n  import re\n  while True: pass\n",
        "run: |\n  try:\n    import statistics\n  except ImportError:\n    return 1\n",
        "sandbox: process\nrun: |\n  import statistics\n  raise SystemExit\n",
        "sandbox: process\nrun: |\n  from __future__ import annotations\n  while True: pass\n",
        "language: lua\nrun: |\n  -- a comment\n  while true do end\n",
        "language: prolog\nrun: |\n  % a comment\n  evaluate(X) :- repeat, X == 1, !.\n",
        "language: prolog\nrun: |\n  valid :- repeat, fail.\n",
    ],
)
def test_check_runs_no_code(project, code):
    (project / "w.yaml").write_text("name: w\nnodes:\n  - name: n\n" + under(code, 4))
    result = redraft("run", "w.yaml", "--check")
    assert (result.exit_code, result.stderr) == (0, "")


def away(state):
    raise ModelError("away \x1b[31m")


def test_control_characters_are_escaped(project):
    action("mine")(away)
    nodes = '- {name: "n \\e[31m", run: return 1}\n- {name: "m\\nm", uses: mine, with: {}}\n'
    (project / "w.yaml").write_text('name: "w \\e]0;x\\a"\nnodes:\n' + nodes)
    for words in (["--check"], []):
        result = redraft("run", "w.yaml", *words)
        assert "\x1b" not in result.output
        assert r"\x1b" in result.output
    assert result.stderr.splitlines()[0] == r"n \x1b[31m  done"
    assert r"away \x1b[31m" in result.stderr


def test_the_model_option_replaces_every_model_of_a_file(project, monkeypatch):
    asked = []
    monkeypatch.setattr("redraft.workflow.runtime.model_of", asked.append)
    monkeypatch.setattr("redraft.workflow.runtime.model_of", lambda name, _settings=None: asked.append(name))
    text = (
        PROFILE.replace("FAILURE", "raise")
        + "  - {name: x, uses: llm.call, with: {prompt: x, model: gpt-5}}\n"
    )
    (project / "w.yaml").write_text(text)
    assert redraft("run", "w.yaml", "--check", "-v", "request=x", "-m", "mine:one").exit_code == 0
    assert set(asked) == {"mine:one"}


@pytest.mark.parametrize(
    "node",
    [
        """run: 'return "a:b"', output: model""",
        """run: 'return {"model": "a:b"}'""",
        """run: 'return dict(model="a:b")'""",
        """run: 'return {**state["given"]}'""",
        """run: 'return {state["key"]: "a:b"}'""",
        """run: 'result = {}; result["model"] = "a:b"'""",
        """run: 'return {model = "a:b"}', language: lua""",
        """run: 'return 1', goto: [{if: state.again, to: later}]""",
    ],
)
def test_check_accepts_a_missing_model_that_a_node_may_set(project, node):
    chooses = "{name: later, run: 'return dict(state)', goto: [{if: state.more, to: ask}]}"
    lines = [f"{{name: choose, {node}}}", "{name: ask, uses: llm.call, max_visits: 2, with: {prompt: x}}"]
    if "goto" in node:
        lines.append(chooses)
    (project / "w.yaml").write_text("nodes:\n" + "".join(f"  - {line}\n" for line in lines))
    result = redraft("run", "w.yaml", "--check")
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("replies", "failure", "code", "message"),
    [
        ([BAD, BAD], "return_best", 0, "generate  not valid after 2 attempts, best score 0.50"),
        ([BAD, BAD], "raise", 1, "Error: w.yaml, line 4, node 'generate': No valid output in 2 attempts."),
        ([ModelError("It is away.")] * 9, "return_best", 0, "The generator failed: It is away."),
    ],
)
def test_only_a_loop_that_raises_exits_with_1(ran, replies, failure, code, message):
    result = ran(*replies, failure=failure)
    assert result.exit_code == code, result.stderr
    assert message in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WorkflowError("x"), 2),
        (ReflectionFailedError("x", None), 1),
        (UnfinishedError("x"), 4),
        (UnfinishedError("x", reason=ConvergenceReason.TOKEN_BUDGET), 3),
        (UnfinishedError("x", reason=ConvergenceReason.CANCELLED), 4),
        (KeyError("x"), 70),
    ],
)
def test_each_error_has_its_exit_code(error, code):
    assert code_of_error(error) == code


ASK = """\
name: ask
model: gpt-4
nodes:
  - {name: one, run: return 1}
  - {name: two, uses: llm.call, with: {prompt: x}}
"""


@pytest.mark.parametrize(
    ("error", "code"), [(ModelError("It is away."), 4), (OutputError("It is prose."), 4)]
)
def test_a_failed_call_is_located_and_can_be_resumed(ran, monkeypatch, error, code):
    result = ran(error, text=ASK, words=())
    assert result.exit_code == code
    error_line, stored = result.stderr.splitlines()[-2:]
    assert error_line == f"Error: w.yaml, line 5, node 'two': {error}"
    assert stored.startswith("Stored as ")
    assert stored.endswith("; redraft resume last")
    model = script_workflows(monkeypatch, "hello")
    again = redraft("resume", "last")
    assert (again.exit_code, again.stdout) == (0, "hello\n"), again.stderr
    assert len(model.requests) == 1
    run_id = stored.split()[2].rstrip(";")
    for name in (run_id, run_id[:-3], "last"):
        assert document(redraft("resume", name, "--json"))["state"]["two"] == "hello"


def test_errors_of_custom_actions_are_not_reported_as_defects(ran):
    @action("breaks")
    def breaks(state):
        raise KeyError("nothing")

    result = ran(text="name: w\nnodes:\n  - {name: a, uses: breaks}\n", words=())
    assert result.exit_code == 2
    assert (
        "Error: w.yaml, line 3, node 'a': KeyError: 'nothing'. Most likely one of your own actions"
        in result.stderr
    )


def test_handled_node_errors_are_reported_once(ran):
    failing = NODE.format("run: 'return state[\"no\"]'\n    on_error: continue")
    result = ran(text=failing + "  - {name: b, run: return 2}\n", words=())
    assert (result.exit_code, result.stdout) == (0, "2\n")
    assert result.stderr.count("KeyError") == 1
    assert "first  failed" in result.stderr


def test_events_are_lines_of_json(ran, project):
    ran(GOOD, words=("-v", "request=x", "--events", "events.jsonl"))
    events = [json.loads(line) for line in (project / "events.jsonl").read_text().splitlines()]
    names = [event["event"] for event in events]
    assert names[0] == "node_started"
    assert "version_evaluated" in names
    assert names[-3:] == ["node_started", "node_finished", "workflow_finished"]


def test_no_keep_stores_nothing(ran):
    result = ran(GOOD, words=("-v", "request=x", "--no-keep"))
    assert result.exit_code == 0
    assert "Kept" not in result.stderr
    assert document(redraft("runs", "--json"))["runs"] == []


def test_resume_uses_the_original_values(ran, project, monkeypatch):
    (project / "r.txt").write_text("of then")
    ran(
        OutputError("Bad."),
        text=ASK.replace("prompt: x", 'prompt: "{{ state.r }}"'),
        words=("-v", "r=@r.txt"),
    )
    (project / "r.txt").unlink()
    model = script_workflows(monkeypatch, "hello")
    assert redraft("resume", "last").stdout == "hello\n"
    assert model.requests[0].messages[0].content == "of then"


def test_resume_takes_the_id_of_a_loop_and_last_is_the_newest_run(ran, project, monkeypatch):
    ran(BAD, BAD, OutputError("Bad."), text=PROFILE + ASK.partition("nodes:\n")[2], failure="return_best")
    loop = document(redraft("runs", "--json"))["runs"][0]["run_id"]
    script_workflows(monkeypatch, "hello")
    assert redraft("resume", loop).stdout == "hello\n"
    redraft("check", "d.txt", "-c", "c.yaml")
    shown = redraft("resume", "last")
    assert "Returned: version 1" in shown.stderr


def test_a_workflow_started_in_python_is_resumed_in_python(project, monkeypatch):
    script_workflows(monkeypatch, OutputError("Bad."))
    (project / "w.yaml").write_text(ASK)

    async def main():
        async_store = SqliteStore(project / ".redraft" / "redraft.db")
        try:
            await Workflow.from_file("w.yaml", keep=async_store).run({"a": 1}, run_id="mine")
        finally:
            await async_store.aclose()

    with pytest.raises(OutputError):
        run_sync(main())
    result = redraft("resume", "last")
    assert result.exit_code == 2
    assert result.stdout.endswith(
        "await Workflow.from_file('w.yaml', keep=...).run({'a': 1}, run_id='mine')  # or run_sync\n"
    )
    assert document(redraft("resume", "mine", "--json"))["run_id"] == "mine"


KILLED = """
import os, sys
from redraft import SqliteStore
from redraft.workflow import Workflow

TEXT = '''
name: killed
nodes:
  - {name: first, uses: work}
  - {name: second, uses: die}
  - {name: third, uses: work}
'''

def work(state):
    return 1

def die(state):
    os.kill(os.getpid(), 9)

store = SqliteStore(sys.argv[1])
Workflow.from_text(TEXT, actions={"work": work, "die": die}, keep=store).run_sync({"a": 1}, run_id="wf1")
"""


def test_a_killed_workflow_says_how_to_resume(project):
    command = [sys.executable, "-c", KILLED, str(project / ".redraft" / "redraft.db")]
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    (row,) = rows("--status", "killed", kind="workflow")
    assert (row["run_id"], row["status"], row["nodes"]) == ("wf1", "killed", 1)
    assert "killed, workflow: 1 node ran" in redraft("runs").stdout
    call = "await Workflow.from_text(..., actions=..., keep=...).run({'a': 1}, run_id='wf1')  # or run_sync"
    output = redraft("why", "wf1").stdout
    assert "killed: its process ended before the workflow did." in output
    assert "is gone; 1 node had finished." in output
    assert "redraft resume" not in output
    assert call in output
    explained = document(redraft("why", "wf1", "--json"))
    assert (explained["why"]["rule"], explained["status"]) == ("killed", "killed")
    assert explained["resuming_call"].endswith(call)
    refused = redraft("resume", "wf1")
    assert (refused.exit_code, refused.stdout.splitlines()[-1]) == (2, call)


SLOW = """\
name: slow
nodes:
  - {name: first, run: "return FIRST", output: first}
  - name: second
    run: SECOND
    output: second
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_workflows_resume_where_they_stopped(project, how):
    (project / "w.yaml").write_text(SLOW.replace("FIRST", "1").replace("SECOND", "'while True: pass'"))
    command = (sys.executable, "-m", "redraft")
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {
        "REDRAFT_HOME": ".redraft"
    }
    process = subprocess.Popen([*command, "run", "w.yaml"], env=env, text=True, stderr=subprocess.PIPE)
    assert process.stderr.readline() == "first   done\n"
    busy = redraft("resume", "last")
    assert (busy.exit_code, "is still working on the run" in busy.stderr) == (2, True)
    process.send_signal(how)
    _, stderr = process.communicate(timeout=30)
    if how == signal.SIGINT:
        assert process.returncode == 130
        first, stored = stderr.splitlines()
        assert first == "Interrupted."
        assert stored.endswith("; redraft resume last")
    (project / "w.yaml").write_text(SLOW.replace("FIRST", "7").replace("SECOND", "return 2"))
    result = redraft("resume", "last", "--json")
    assert result.exit_code == 0, result.stderr
    assert document(result)["state"] == {"first": 1, "second": 2}


TWO = """\
name: two nodes
nodes:
  - name: draft
    uses: reflection.loop
    with:
      generator: {run: "return {'n': state.get('reflection_iteration', 1)}"}
      evaluator: {type: schema, schema: {properties: {n: {minimum: 2}}}}
  - name: skipped
    when: state.n > 100
    run: "return {'never': 1}"
  - name: shaky
    run: "return {}[1]"
    on_error: continue
  - name: use
    run: "return {'words': LAST}"
"""


@pytest.fixture
def workflow(project):
    """Run the workflow, whose last node is an expression, and return its id."""

    def workflow(last="state['n'] + 1", code=0, who="Ada"):
        (project / "w.yaml").write_text(TWO.replace("LAST", last))
        assert redraft("run", "w.yaml", "-v", f"who={who}").exit_code == code
        return rows("--name", "two nodes", kind="workflow")[0]["run_id"]

    return workflow


def rows(*words, kind):
    return [row for row in document(redraft("runs", *words, "--json"))["runs"] if row["kind"] == kind]


def test_runs_lists_a_workflow_with_its_loops(workflow):
    run_id = workflow()
    (row,) = rows(kind="workflow")
    assert (row["name"], row["status"], row["nodes"], row["error"]) == ("two nodes", "finished", 3, "")
    assert row["usage"]["cost_usd"] == 0
    assert [run["parent"] for run in rows(kind="run")] == [run_id]
    listed = redraft("runs").stdout
    assert "two nodes, workflow: 3 nodes ran" in listed
    assert f"{run_id}." in listed


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (("--status", "finished"), {"workflow", "run"}),
        (("--status", "failed"), set()),
        (("--name", "two nodes"), {"workflow", "run"}),
        (("--name", "another"), set()),
        (("--reason", "quality_met"), {"run"}),
        (("--limit", "1"), {"run"}),
    ],
)
def test_filters_apply_to_workflows(workflow, words, kinds):
    workflow()
    assert {row["kind"] for row in document(redraft("runs", *words, "--json"))["runs"]} == kinds


@pytest.mark.parametrize("last", [True, False])
def test_show_lists_the_nodes_in_order_with_their_outcomes(workflow, last):
    run_id = workflow()
    shown = redraft("show", "last" if last else run_id).stdout
    lines = [
        "workflow two nodes (w.yaml)",
        '{"who": "Ada"}',
        "State: finished",
        "valid after 2 attempts, best score 1.00",
        f"{run_id}.",
        "KeyError",
        '{"words": 3}',
        "Used: 0 tokens",
    ]
    places = [shown.index(line) for line in lines]
    assert places == sorted(places)
    assert "skipped" not in shown


def test_show_json_has_inputs_nodes_and_state(workflow):
    shown = document(redraft("show", workflow(), "--json"))
    assert (shown["kind"], shown["file"], shown["inputs"]) == ("workflow", "w.yaml", {"who": "Ada"})
    assert shown["state"]["words"] == 3
    assert [(node["node"], len(node["runs"])) for node in shown["nodes"]] == [
        ("draft", 1),
        ("shaky", 0),
        ("use", 0),
    ]
    assert shown["nodes"][0]["runs"][0]["best_score"] == 1.0
    assert "KeyError" in shown["nodes"][1]["error"]


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_show_withholds_names_unless_it_is_verbatim(workflow, words):
    run_id = workflow(who="Ada Lovelace")
    assert "Lovelace" not in redraft("show", run_id, *words).stdout
    assert "Ada Lovelace" in redraft("show", run_id, *words, "--verbatim").stdout


def test_show_names_the_node_that_failed(workflow):
    run_id = workflow("state['nothing']", code=2)
    (row,) = rows("--status", "failed", kind="workflow")
    assert (row["run_id"], row["nodes"]) == (run_id, 3)
    shown = redraft("show", run_id).stdout
    assert "State: failed" in shown
    assert "node 'use'" in shown


def test_show_says_that_a_loop_is_inside_a_workflow(workflow):
    workflow()
    (run,) = rows(kind="run")
    assert "inside" in redraft("show", run["run_id"]).stdout


ONE_LOOP = """
  - name: NAME
    uses: reflection.loop
    with: {generator: {run: return 1}, evaluator: {type: custom, run: return True}}
"""


@pytest.fixture
def kept(project):
    """Run a workflow of these nodes, and return its id."""

    def kept(nodes):
        (project / "w.yaml").write_text(f"name: w\nnodes:{nodes}")
        assert redraft("run", "w.yaml").exit_code == 0
        return rows(kind="workflow")[0]["run_id"]

    return kept


@pytest.mark.parametrize("command", ["why", "diff", "export"])
def test_commands_for_runs_take_the_only_loop_of_a_workflow(kept, command):
    run_id = kept(ONE_LOOP)
    for word in ("last", run_id, run_id[:-3]):
        assert document(redraft(command, word, "--json"))["run_id"].startswith(f"{run_id}.")
    run_id = kept(ONE_LOOP + ONE_LOOP.replace("NAME", "other"))
    refused = redraft(command, run_id, "--json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"The workflow '{run_id}' has 2 loops; give the id of one: {run_id}." in refused.stderr
    run_id = kept("\n  - {name: n, run: return 1}\n")
    for word in ("last", run_id):
        refused = redraft(command, word, "--json")
        if command == "why":
            assert document(refused)["why"]["rule"] == "finished"
            output = redraft("why", word).stdout
            assert "finished: it has run to its end.\n  1 node ran, the last one 'n'" in output
            assert f"redraft show {run_id} lists its nodes and their results." in output
            continue
        assert f"No loop of the workflow '{run_id}' has run; `redraft show {run_id}`" in refused.stderr


@pytest.mark.parametrize("words", [("--version", "best"), ("--prompts",)])
def test_version_and_prompts_are_rejected_for_a_workflow(workflow, words):
    run_id = workflow()
    result = redraft("show", run_id, *words)
    assert result.exit_code == 2
    assert f"{words[0]} applies to runs only; name one of its loops: {run_id}." in " ".join(
        result.stderr.split()
    )


def test_show_withholds_secrets(workflow):
    token = "ghp_" + "a1B2" * 9
    run_id = workflow(repr(token))
    for words in ((), ("--json",)):
        shown = redraft("show", run_id, *words).stdout
        assert token not in shown
        assert "words" in shown


def test_the_examples_of_the_specification_run_as_printed_with_a_model(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    reply = {"name": "Ada", "email": "ada@example.com", "age": 36, "content": "hello"}
    script_workflows(monkeypatch, lambda request: reply)
    for text, values, printed in (
        (COMPLETE_EXAMPLE, ["-v", "request=a user"], "Created profile for Ada"),
        (GRACEFUL_DEGRADATION, [], "hello"),
    ):
        Path("printed.yaml").write_text(text)
        result = redraft("run", "printed.yaml", "--model", "local:qwen2.5-coder-0.5b", *values)
        assert (result.exit_code, result.stdout.strip()) == (0, printed), result.stderr
