"""What the schema of workflow files accepts and refuses, compared with the check of a workflow."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest

from redraft import ScriptedModel
from redraft.errors import WorkflowError
from redraft.text.yaml import load_yaml
from redraft.workflow import Workflow
from support.commands import redraft
from support.workflow_specification import (
    COMPLETE_EXAMPLE,
    CORRECT_EXAMPLE,
    CORRECTOR,
    CUSTOM_EVALUATOR,
    EVALUATE_EXAMPLE,
    GENERATOR_BY_ACTION,
    GENERATOR_BY_CODE,
    GRACEFUL_DEGRADATION,
    LLM_EVALUATOR,
    SCHEMA_EVALUATOR,
)

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SCHEMA = json.loads(redraft("schema").stdout)
CHECKED = jsonschema_rs.validator_for(SCHEMA)


def looped(*parts):
    """A file around the parts of a loop, as the specification prints them."""
    loop = {key: value for part in parts for key, value in load_yaml(part).items()}
    return json.dumps({"name": "w", "nodes": [{"name": "loop", "uses": "reflection.loop", "with": loop}]})


RIGHT = {
    "the complete example": COMPLETE_EXAMPLE,
    "a standalone judgement": f"name: w\n{EVALUATE_EXAMPLE}",
    "a standalone correction": f"name: w\n{CORRECT_EXAMPLE}",
    "a loop that degrades": f"name: w\nnodes:\n{GRACEFUL_DEGRADATION}",
    "a schema": looped(GENERATOR_BY_ACTION, SCHEMA_EVALUATOR, CORRECTOR),
    "no name": "{nodes: [{name: a, run: return 1}]}",
    "a judge": looped(GENERATOR_BY_CODE, LLM_EVALUATOR),
    "code": looped(GENERATOR_BY_CODE, CUSTOM_EVALUATOR),
    "the default judgement": "{name: w, nodes: [{name: a, uses: reflection_evaluate, with: {schema: {}}}]}",
    "corrections": """\
name: w
nodes:
  - {name: code, uses: reflection.correct, with: {run: return output}}
  - {name: action, uses: reflection.correct, with: {corrector_action: llm.call, prompt: x}}
""",
    "judges": """\
name: w
nodes:
  - name: a
    uses: reflection_loop
    with:
      generator: {run: return 1}
      evaluator: {type: llm, prompt: Good?, model: gpt-4, examples: [{input: a, output: {valid: true}}]}
  - name: b
    uses: reflection.loop
    with:
      generator: {action: mine, depth: 3}
      evaluator: {type: custom, language: lua, run: return true}
      corrector: {run: "return {}", apply: feedback}
""",
    "a question": """\
name: w
nodes:
  - {name: a, uses: human.approve, with: {message: "{{ state.x }}?", data: [1], deadline: 9, default: reject}}
  - {name: b, uses: human_approve, with: {message: Well?, deadline: "{{ state.seconds }}"}}
""",
    "templates in place of values": """\
name: w
hosts: [a.test]
nodes:
  - name: a
    uses: http.request
    with: {url: "https://a.test/", timeout: "{{ state.t }}", headers: "{{ state.h }}"}
  - {name: b, uses: llm.call, with: {messages: "{{ state.m }}", max_tokens: "{{ state.n }}"}}
  - name: c
    uses: reflection.loop
    with:
      generator: {action: llm.call, prompt: x, temperature: "{{ state.t }}"}
      evaluator: {type: custom, run: pass}
      corrector: {action: llm.call, prompt: x, apply: replace}
      max_iterations: "{{ state.n }}"
""",
    "a signature": """\
name: w
inputs: {a: string, b: "integer[]?", c: {type: object, default: {}}}
outputs: {a: string, d: {type: integer, value: "{{ state.a | length }}"}}
nodes:
  - {name: a, run: pass}
""",
    "bounds": """\
name: w
budget: {tokens: 1000, usd: 0.5, seconds: 60}
nodes:
  - {name: a, run: pass, timeout: 5, retries: 2}
  - {name: b, map: state.x, concurrency: 4, run: pass, retries: {times: 2, wait: 0.5, longest_wait: 9}}
  - {name: c, map: [1, two, "{{ state.x }}"], uses: llm.call, with: {prompt: "{{ item }}"}}
""",
    "everything around nodes": """\
name: w
model: gpt-4
models: {fast: gpt-4}
variables: {a: 1}
env: [HOME]
limits: {seconds: 1}
nodes:
  - {name: a, run: pass, when: state.x, goto: [{if: state.x, to: a}, {to: end}], max_visits: 3, on_error: b}
  - {name: b, uses: llm_call, with: {prompt: x, temperature: "{{ state.t }}", schema: {type: object}}}
  - {name: c, uses: llm.call, with: {messages: [{role: user, content: x}], max_tokens: 8}, goto: end}
  - {name: d, uses: mine, with: {anything: [1]}}
""",
}

LOOP = "{{name: w, nodes: [{{name: a, uses: {}, with: {}}}]}}".format
WRONG = {
    "no nodes": "{name: w, nodes: []}",
    "an empty name": "{name: '', nodes: [{name: a, run: pass}]}",
    "an unknown key": "{name: w, nodes: [{name: a, run: pass, ouptut: y}]}",
    "neither uses nor run": "{name: w, nodes: [{name: a}]}",
    "uses and run": "{name: w, nodes: [{name: a, uses: llm.call, with: {prompt: x}, run: pass}]}",
    "code with parameters": "{name: w, nodes: [{name: a, run: pass, with: {a: 1}}]}",
    "a language": "{name: w, nodes: [{name: a, run: pass, language: perl}]}",
    "a sandbox": "{name: w, nodes: [{name: a, run: pass, language: lua, sandbox: process}]}",
    "a name that ends": "{name: w, nodes: [{name: end, run: pass}]}",
    "a variable": "{name: w, env: [A B], nodes: [{name: a, run: pass}]}",
    "visits": "{name: w, nodes: [{name: a, run: pass, max_visits: 0}]}",
    "a raised limit": "{name: w, limits: {seconds: 99}, nodes: [{name: a, run: pass}]}",
    "a question without words": LOOP("human.approve", "{data: 1}"),
    "a default that is none": LOOP("human.approve", "{message: a, deadline: 5, default: yes}"),
    "a deadline in words": LOOP("human.approve", "{message: a, deadline: tomorrow}"),
    "an input of a number": "{name: w, inputs: {a: 5}, nodes: [{name: a, run: pass}]}",
    "outputs in a list": "{name: w, outputs: [a], nodes: [{name: a, run: pass}]}",
    "no time": "{name: w, nodes: [{name: a, run: pass, timeout: 0}]}",
    "time in words": "{name: w, nodes: [{name: a, run: pass, timeout: 5s}]}",
    "fewer than no retries": "{name: w, nodes: [{name: a, run: pass, retries: -1}]}",
    "retries without a number": "{name: w, nodes: [{name: a, run: pass, retries: {wait: 1}}]}",
    "an empty budget": "{name: w, budget: {tokens: 0}, nodes: [{name: a, run: pass}]}",
    "an unknown budget": "{name: w, budget: {euros: 1}, nodes: [{name: a, run: pass}]}",
    "a map of a number": "{name: w, nodes: [{name: a, run: pass, map: 5}]}",
    "no items at once": "{name: w, nodes: [{name: a, run: pass, map: [1], concurrency: 0}]}",
    "a loop without parameters": "{name: w, nodes: [{name: a, uses: reflection.loop}]}",
    "a loop without an evaluator": LOOP("reflection.loop", "{generator: {run: pass}}"),
    "an underscored one likewise": LOOP("reflection_loop", "{generator: {run: pass}}"),
    "no attempt": LOOP(
        "reflection.loop",
        "{generator: {run: pass}, evaluator: {type: custom, run: pass}, max_iterations: 0}",
    ),
    "three attempts in words": LOOP(
        "reflection.loop",
        "{generator: {run: pass}, evaluator: {type: custom, run: pass}, max_iterations: three}",
    ),
    "a strategy": LOOP(
        "reflection.loop",
        "{generator: {run: pass}, evaluator: {type: custom, run: pass}, on_failure: best}",
    ),
    "a generator of two kinds": LOOP(
        "reflection.loop",
        "{generator: {run: pass, action: llm.call, prompt: x}, evaluator: {type: custom, run: pass}}",
    ),
    "parameters of code": LOOP(
        "reflection.loop", "{generator: {run: pass, prompt: x}, evaluator: {type: custom, run: pass}}"
    ),
    "a misspelled parameter of a call": LOOP(
        "reflection.loop", "{generator: {action: llm.call, promt: x}, evaluator: {type: custom, run: pass}}"
    ),
    "a loop in a loop": LOOP(
        "reflection.loop", "{generator: {action: reflection.loop}, evaluator: {type: custom, run: pass}}"
    ),
    "a schema evaluator without one": LOOP(
        "reflection.loop", "{generator: {run: pass}, evaluator: {type: schema}}"
    ),
    "a judge with code": LOOP(
        "reflection.loop", "{generator: {run: pass}, evaluator: {type: llm, prompt: x, run: pass}}"
    ),
    "a schema that is a text": LOOP("reflection.evaluate", "{schema: object}"),
    "nothing to judge by": LOOP("reflection.evaluate", "{data: 1}"),
    "nothing that corrects": LOOP("reflection.correct", "{data: 1}"),
    "a loop that corrects": LOOP("reflection.correct", "{corrector_action: reflection.loop}"),
    "an empty request for a correction": LOOP("reflection.correct", "{prompt: ''}"),
    "two that correct": LOOP("reflection.correct", "{run: pass, prompt: x}"),
    "no prompt": LOOP("llm.call", "{model: local:qwen2.5-coder-0.5b}"),
    "a prompt and messages": LOOP("llm.call", "{prompt: x, messages: [{role: user, content: x}]}"),
    "a schema that is a template": LOOP("llm.call", "{prompt: x, schema: '{{ state.s }}'}"),
    "a server of neither kind": "{name: w, mcp: {a: {}}, nodes: [{name: a, run: pass}]}",
    "two bounds of time": "{name: w, timeout: 5, budget: {seconds: 5}, nodes: [{name: a, run: pass}]}",
    "items without a list": "{name: w, nodes: [{name: a, run: pass, concurrency: 2}]}",
    "a default without a deadline": LOOP("human.approve", "{message: a, default: reject}"),
    "steps without tools": LOOP("llm.call", "{prompt: x, max_steps: 2}"),
    "tools and a limit": LOOP("llm.call", "{prompt: x, tools: [a], max_tokens: 5}"),
    "a judge's samples without a judge": LOOP(
        "reflection.loop",
        "{generator: {run: pass}, evaluator: {type: custom, run: pass, judge_samples: 2}}",
    ),
    "a corrector's misspelled parameter": LOOP(
        "reflection.loop",
        "{generator: {run: pass}, evaluator: {type: custom, run: pass}, "
        "corrector: {action: llm_call, prompt: x, aply: replace}}",
    ),
    "an action under the key of a node": LOOP(
        "reflection.loop", "{generator: {uses: llm.call, prompt: x}, evaluator: {type: custom, run: pass}}"
    ),
    "a cold model": LOOP("llm.call", "{prompt: x, temperature: 3}"),
}


def known(text):
    """Make a workflow in which every model that a file may name is known."""
    return Workflow.from_text(
        text, models={"gpt-4": ScriptedModel([])}, actions={"mine": lambda state, **_: None}, keep=False
    )


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_valid_files_pass_the_schema_and_the_parser(text):
    assert [(error.instance_path, error.message) for error in CHECKED.iter_errors(load_yaml(text))] == []
    known(text)


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_invalid_files_fail_the_schema_and_the_parser(text):
    assert not CHECKED.is_valid(load_yaml(text))
    with pytest.raises(WorkflowError):
        known(text)


def test_the_examples_pass_the_schema():
    for path in EXAMPLES:
        document = load_yaml(path.read_text("utf-8"))
        assert [(error.instance_path, error.message) for error in CHECKED.iter_errors(document)] == [], path


def test_every_key_has_a_description():
    jsonschema_rs.meta.validate(SCHEMA)
    assert SCHEMA["$id"] == "urn:redraft:workflow:1"
    for part in (SCHEMA, *SCHEMA["$defs"].values()):
        assert part["title"]
        for key, value in part["properties"].items():
            assert len(value["description"]) > 5, f"{part['title']}: {key}"
            assert "\n" not in value["description"], key


def test_the_help_shows_the_comment_for_editors(tmp_path):
    said = redraft("schema", "--help").stdout
    assert re.search(r"# yaml-language-server: \$schema=\S+\.json", said)


def test_the_package_imports_its_names_lazily():
    code = (
        "import sys, redraft.workflow as w; assert 'pydantic' not in sys.modules; "
        "assert {'Workflow', 'WorkflowResult', 'action', 'run_action'} < set(dir(w)); "
        "from redraft.workflow import *; print(Workflow.__name__, action.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "Workflow action\n", done.stderr
