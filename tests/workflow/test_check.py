"""Mistakes in a workflow are reported with file, line, node and key, before anything is spent."""

# ruff: noqa: E501 (a table: a case a line where it fits)
import asyncio
import textwrap
from pathlib import Path

import pytest

from redraft import ScriptedModel
from redraft.errors import WorkflowError
from redraft.workflow import Workflow
from support.workflows import making, under, workflow

HEAD = "name: t\nnodes:\n"


def nodes(text):
    """A file with these nodes, which begin in line 3."""
    return HEAD + under(text, 2) + "\n"


def params(text, uses="reflection.loop"):
    """A file with a single node, whose parameters begin in line 6."""
    return f"{HEAD}  - name: n\n    uses: {uses}\n    with:\n{under(text, 6)}\n"


GENERATOR = "generator: {run: return 1}\n"
EVALUATOR = "evaluator: {type: custom, run: result = True}\n"
LOOP = GENERATOR + EVALUATOR

FILES = {
    "no mapping": ("- a\n", 1, None, None, "a workflow must be a mapping with 'nodes'"),
    "a list of nodes with a mistake": ("\n- name: m\n  run: return 1\n- name: n\n  outptu: x\n  run: return 2\n", 5, "n", "outptu", "did you mean 'output'?"),
    "code in a list of nodes": ("- name: n\n  run: |\n    x = 1\n    return y\n", 4, "n", "run", "'y' is not defined"),
    "empty": ("", 1, None, None, "a workflow must be a mapping"),
    "no nodes": ("name: t\n", 1, None, "nodes", "'nodes' is missing"),
    "empty nodes": ("name: t\nnodes: []\n", 2, None, "nodes", "a list that is not empty"),
    "empty name": ("name: ''\nnodes:\n- {name: n, run: pass}\n", 1, None, "name", "a non-empty string"),
    "no value as a name": ("name:\nnodes:\n- {name: n, run: pass}\n", 1, None, "name", "expected a string, got nothing"),
    "unknown key of the file": ("name: t\nnods: []\n", 2, None, "nods", "did you mean 'nodes'"),
    "unknown key of a node": (nodes("- name: n\n  run: pass\n  outptu: o"), 5, "n", "outptu", "did you mean 'output'"),
    "a field's name in Python": (nodes("- name: n\n  uses: llm.call\n  with_: {prompt: x}"), 5, "n", "with_", "'with'"),
    "a number as a key": ("name: t\n5: x\nnodes:\n- {name: n, run: pass}", 2, None, "5", "the key 5 is not a string"),
    "true as a key": (nodes("- name: n\n  run: pass\n  true: x"), 5, "n", "true", "the key true is not a string; put it in quotes"),
    "nothing as a key of parameters": (params("prompt: x\n? \n: y", "own"), 5, "n", "with.null", "the key null is not a string"),
    "unknown limit": ("name: t\nlimits: {second: 1}\nnodes: []", 2, None, "limits.second", "'seconds'"),
    "limit too high": ("name: t\nlimits: {seconds: 9}\nnodes:\n- {name: n, run: pass}", 2, None, "limits.seconds", "at most 2, got 9"),
    "no name of a node": (nodes("- run: pass"), 3, "number 1", "name", "'name' is missing"),
    "number as a name": (nodes("- name: 5\n  run: pass"), 3, "5", "name", "got 5"),
    "two of one name": (nodes("- {name: n, run: pass}\n- {name: m, run: pass}\n- {name: n, run: pass}"), 5, "n", "name", "two nodes"),
    "named end": (nodes("- {name: end, run: pass}"), 3, "end", "name", "reserved for the end of a workflow"),
    "neither uses nor run": (nodes("- {name: n}"), 3, "n", None, "either 'uses' (an action) or 'run'"),
    "both uses and run": (nodes("- {name: n, run: pass, uses: llm.call}"), 3, "n", None, "either"),
    "with and run": (nodes("- {name: n, run: pass, with: {a: 1}}"), 3, "n", "with", "parameters of 'uses'"),
    "unknown action": (nodes("- name: n\n  uses: reflexion.loop"), 4, "n", "uses", "did you mean 'reflection.loop'"),
    "unknown own action": (nodes("- name: n\n  uses: owm"), 4, "n", "uses", "did you mean 'own'"),
    "unknown language": (nodes("- name: n\n  run: pass\n  language: ruby"), 5, "n", "language", "'python', 'lua' or 'prolog'"),
    "unknown sandbox": (nodes("- name: n\n  run: pass\n  sandbox: none"), 5, "n", "sandbox", "'inline' or 'process'"),
    "process for Lua": (
        nodes("- name: n\n  run: pass\n  language: lua\n  sandbox: process"), 6, "n", "sandbox", "is for Python",
    ),
    "code that does not parse": (nodes("- name: n\n  run: |\n    x = 1\n    if:"), 6, "n", "run", "on line 2"),
    "folded code that does not parse": (nodes("- name: n\n  run: >\n    x = 1\n\n    if:"), 4, "n", "run", "on line 2"),
    "nested code": (nodes(f"- name: n\n  run: pass = {'(' * 500}"), 4, "n", "run", "does not parse"),
    "goto to nowhere": (nodes("- {name: n, run: pass}\n- name: m\n  run: pass\n  goto: nn"), 6, "m", "goto", "did you mean 'n'"),
    "jump to nowhere": (nodes("- name: n\n  run: pass\n  goto:\n  - {if: true, to: x}"), 6, "n", "goto.0.to", "no node 'x'"),
    "goto a number": (nodes("- name: n\n  run: pass\n  goto: 5"), 5, "n", "goto", "expected a string or a list, got 5"),
    "goto one jump": (nodes("- name: n\n  run: pass\n  goto: {to: n}"), 5, "n", "goto", "expected a string or a list, got {'to'"),
    "when a number": (nodes("- name: n\n  run: pass\n  when: 5"), 5, "n", "when", "a string or true or false, got 5"),
    "jump without to": (nodes("- name: n\n  run: pass\n  goto:\n  - if: 'true'"), 6, "n", "goto.0.to", "'to' is missing"),
    "on_error to nowhere": (nodes("- name: n\n  run: pass\n  on_error: continu"), 5, "n", "on_error", "'continue'"),
    "a cycle to itself": (nodes("- name: n\n  run: pass\n  goto: n"), 3, "n", None, "give 'n' a 'max_visits'"),
    "a cycle": (nodes("- {name: a, run: pass}\n- {name: b, run: pass, goto: a}"), 4, "b", None, "give 'a' a 'max_visits'"),
    "a cycle under a condition": (
        nodes("- {name: a, run: pass}\n- {name: b, run: pass, goto: [{if: state.x, to: a}]}"), 4, "b", None, "'max_visits'",
    ),
    "a cycle of errors": (nodes("- {name: a, run: pass}\n- {name: b, run: pass, on_error: a}"), 4, "b", None, "'max_visits'"),
    "a cycle with its bound in the wrong place": (
        nodes("- {name: a, run: pass}\n- {name: b, run: pass, max_visits: 2, goto: a}"), 4, "b", None, "give 'a'",
    ),
    "a cycle that jumps forth": (
        nodes(
            "- {name: a, run: pass, goto: c}\n- {name: b, run: pass, goto: end}\n"
            "- {name: c, run: pass}\n- {name: d, run: pass, goto: a}"
        ), 6, "d", None, "from 'd' back to 'a'",
    ),
    "a reply that would choose the model": (
        nodes("- name: n\n  uses: llm.call\n  with: {prompt: a}\n  output: model"), 6, "n", "output", "the model of later nodes",
    ),
    "a node whose reply would choose the model": (
        nodes("- name: model\n  uses: llm.call\n  with: {prompt: a}"), 3, "model", "name", "the model of later nodes",
    ),
    "max_visits 0": (nodes("- name: n\n  run: pass\n  max_visits: 0"), 5, "n", "max_visits", "got 0"),
    "when with a single equals sign": (nodes("- name: n\n  run: pass\n  when: state.x = 'a'"), 5, "n", "when", "to compare, write '==' instead of '='"),
    "a template with a single equals sign": (params("prompt: '{% if state.x = 1 %}a{% endif %}'", "own"), 6, "n", "with.prompt", "write '==' instead of '='"),
    "when with two values": (nodes("- name: n\n  run: pass\n  when: state.x state.y"), 5, "n", "when", "unexpected 'state'"),
    "when that does not parse": (nodes("- name: n\n  run: pass\n  when: state.x =="), 5, "n", "when", "invalid template"),
    "if that does not parse": (
        nodes("- name: n\n  run: pass\n  goto:\n  - if: '{{'\n    to: end"), 6, "n", "goto.0.if", "invalid template",
    ),
    "a question without words": (params("data: 1", "human.approve"), 5, "n", "with.message", "'message' is missing"),
    "an empty question": (params("message: ''", "human.approve"), 6, "n", "with.message", "a non-empty string"),
    "an unknown key of a question": (params("message: a\nvalue: 1", "human.approve"), 7, "n", "with.value", "expected one of 'message'"),
    "a default that is none": (params("message: a\ndeadline: 5\ndefault: maybe", "human.approve"), 8, "n", "with.default", "'approve' or 'reject'"),
    "a default without a deadline": (params("message: a\ndefault: approve", "human.approve"), 7, "n", "with.default", "give a 'deadline', too"),
    "a deadline in words": (params("message: a\ndeadline: tomorrow", "human.approve"), 7, "n", "with.deadline", "got 'tomorrow'"),
    "no deadline": (params("message: a\ndeadline: 0", "human.approve"), 7, "n", "with.deadline", "got 0"),
    "a timeout of a question": (nodes("- name: n\n  uses: human.approve\n  timeout: 5\n  with: {message: a}"), 5, "n", "timeout", "set 'deadline' under 'with' instead"),
    "retries of a question": (nodes("- name: n\n  uses: human.approve\n  retries: 5\n  with: {message: a}"), 5, "n", "retries", "it asks once"),
    "a question in a loop": (params("generator:\n  action: human.approve\n" + EVALUATOR), 7, "n", "with.generator.action", "can't be called by another"),
    "an unknown type": ("name: t\ninputs:\n  a: strng\nnodes:\n- {name: n, run: pass}", 3, None, "inputs.a", "did you mean 'string'"),
    "a default of another type": (
        "name: t\ninputs:\n  a: {type: integer, minimum: 1, default: 0}\nnodes:\n- {name: n, run: pass}",
        3, None, "inputs.a.default", "invalid default",
    ),
    "a list of an unknown type": ("name: t\ninputs:\n  a: text[]\nnodes:\n- {name: n, run: pass}", 3, None, "inputs.a", "unknown type 'text[]'"),
    "an output of an unknown type": ("name: t\noutputs:\n  a: int\nnodes:\n- {name: n, run: pass}", 3, None, "outputs.a", "'integer'"),
    "a type that is a number": ("name: t\ninputs:\n  a: 5\nnodes:\n- {name: n, run: pass}", 3, None, "inputs.a", "a string or a mapping, got 5"),
    "an input's schema that is none": ("name: t\ninputs:\n  a: {type: text}\nnodes:\n- {name: n, run: pass}", 3, None, "inputs.a.type", "text"),
    "an input with a value": ("name: t\ninputs:\n  a: {type: string, value: x}\nnodes:\n- {name: n, run: pass}", 3, None, "inputs.a.value", "has a 'default'"),
    "inputs in a list": ("name: t\ninputs: [a]\nnodes:\n- {name: n, run: pass}", 2, None, "inputs", "a mapping"),
    "an output that does not parse": ("name: t\noutputs:\n  a: {value: '{{ state. }}'}\nnodes:\n- {name: n, run: pass}", 3, None, "outputs.a.value", "invalid template"),
    "an output of nothing": ("name: t\noutputs:\n  a: {value: '{{ stat.x }}'}\nnodes:\n- {name: n, run: pass}", 3, None, "outputs.a.value", "did you mean 'state'"),
    "a file that is not there": (nodes("- name: n\n  uses: ./nowhere.yaml"), 4, "n", "uses", "'nowhere.yaml' cannot be read: No such file"),
    "timeout 0": (nodes("- name: n\n  run: pass\n  timeout: 0"), 5, "n", "timeout", "greater than 0, got 0"),
    "timeout as a text": (nodes("- name: n\n  run: pass\n  timeout: 5m"), 5, "n", "timeout", "expected a number of seconds, got '5m'"),
    "endless timeout": (nodes("- name: n\n  run: pass\n  timeout: .inf"), 5, "n", "timeout", "a number of seconds, got '.inf'"),
    "retries -1": (nodes("- name: n\n  run: pass\n  retries: -1"), 5, "n", "retries", "at least 0, got -1"),
    "retries as a text": (nodes("- name: n\n  run: pass\n  retries: often"), 5, "n", "retries", "a whole number or a mapping, got 'often'"),
    "retries without times": (nodes("- name: n\n  run: pass\n  retries: {wait: 1}"), 5, "n", "retries.times", "'times' is missing"),
    "retries 1000": (nodes("- name: n\n  run: pass\n  retries: {times: 1000}"), 5, "n", "retries.times", "at most 100"),
    "unknown key of retries": (nodes("- name: n\n  run: pass\n  retries:\n    times: 2\n    delay: 1"), 7, "n", "retries.delay", "expected one of 'times', 'wait'"),
    "wait -1": (nodes("- name: n\n  run: pass\n  retries: {times: 1, wait: -1}"), 5, "n", "retries.wait", "at least 0, got -1"),
    "budget as a number": ("name: t\nbudget: 5\nnodes:\n- {name: n, run: pass}", 2, None, "budget", "a mapping, got 5"),
    "unknown budget": ("name: t\nbudget:\n  dollars: 5\nnodes:\n- {name: n, run: pass}", 3, None, "budget.dollars", "'usd'"),
    "no tokens": ("name: t\nbudget: {tokens: 0}\nnodes:\n- {name: n, run: pass}", 2, None, "budget.tokens", "at least 1, got 0"),
    "half a token": ("name: t\nbudget: {tokens: 0.5}\nnodes:\n- {name: n, run: pass}", 2, None, "budget.tokens", "a whole number, got 0.5"),
    "no dollars": ("name: t\nbudget: {usd: 0}\nnodes:\n- {name: n, run: pass}", 2, None, "budget.usd", "greater than 0"),
    "two bounds of time": ("name: t\nbudget: {seconds: 9}\ntimeout: 9\nnodes:\n- {name: n, run: pass}", 3, None, "timeout", "give only one"),
    "a map of a number": (nodes("- name: n\n  run: pass\n  map: 5"), 5, "n", "map", "a list or a string, got 5"),
    "a map that does not parse": (nodes("- name: n\n  run: pass\n  map: state.x =="), 5, "n", "map", "invalid template"),
    "a map of what is not there": (nodes("- name: n\n  run: pass\n  map: stat.x"), 5, "n", "map", "did you mean 'state'"),
    "an item that does not parse": (nodes("- name: n\n  run: pass\n  map:\n  - a\n  - '{{ state. }}'"), 7, "n", "map.1", "invalid template"),
    "an item in its own list": (nodes("- name: n\n  run: pass\n  map: item.more"), 5, "n", "map", "only in the parameters and code"),
    "an item without a map": (params("prompt: '{{ item }}'", "own"), 6, "n", "with.prompt", "of a node with a 'map'"),
    "an item in a condition": (nodes("- name: n\n  run: pass\n  map: [1]\n  when: item"), 6, "n", "when", "of a node with a 'map'"),
    "a parameter next to the action": (
        nodes("- name: n\n  uses: own\n  prompt: x"), 5, "n", "prompt", "the parameters of an action go under 'with'",
    ),
    "concurrency without a map": (nodes("- name: n\n  run: pass\n  concurrency: 2"), 5, "n", "concurrency", "no effect without 'map'"),
    "concurrency 0": (nodes("- name: n\n  run: pass\n  map: [1]\n  concurrency: 0"), 6, "n", "concurrency", "at least 1, got 0"),
    "env that is no name": ("name: t\nenv: [A, 'B C']\nnodes:\n- {name: n, run: pass}", 2, None, "env.1", "'B C'"),
    "duplicate keys": ("name: t\nname: u\nnodes: []", 2, None, None, "line 2: duplicate key 'name'"),
    "broken YAML": ("name: [", 2, None, None, "line 2"),
    "an object of Python": ("name: !!python/object:os.system x", 1, None, None, "is not allowed: only plain data"),
    "nested brackets": ("name: " + "[" * 20_000, 1, None, None, "levels of nesting"),
    "aliases that explode": (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcde", "bcdef", strict=True)
        ), 6, None, None, "aliases expand to more than",
    ),
    "an alias in itself": ("name: &a [*a]", 1, None, None, "refers to a value that contains it"),
    "parameters missing": (params("max_iterations: 2"), 5, "n", "with.generator", "'generator' is missing"),
    "evaluator missing": (params(GENERATOR), 5, "n", "with.evaluator", "'evaluator' is missing"),
    "unknown parameter": (params(LOOP + "max_iteration: 2"), 8, "n", "with.max_iteration", "did you mean 'max_iterations'"),
    "max_iterations 0": (params(LOOP + "max_iterations: 0"), 8, "n", "with.max_iterations", "got 0"),
    "max_iterations -1": (params(LOOP + "max_iterations: -1"), 8, "n", "with.max_iterations", "got -1"),
    "max_iterations true": (params(LOOP + "max_iterations: true"), 8, "n", "with.max_iterations", "got True"),
    "max_iterations a text": (params(LOOP + "max_iterations: three"), 8, "n", "with.max_iterations", "got 'three'"),
    "max_iterations 1.5": (params(LOOP + "max_iterations: 1.5"), 8, "n", "with.max_iterations", "got 1.5"),
    "bad on_failure": (params(LOOP + "on_failure: ignore"), 8, "n", "with.on_failure", "'return_best', 'return_last' or 'raise'"),
    "generator a text": (params("generator: x\n" + EVALUATOR), 6, "n", "with.generator", "got 'x'"),
    "generator without either": (params("generator: {}\n" + EVALUATOR), 6, "n", "with.generator", "either 'action' or 'run'"),
    "generator with both": (
        params("generator: {run: pass, action: llm.call}\n" + EVALUATOR), 6, "n", "with.generator", "either 'action' or 'run'",
    ),
    "code with parameters": (
        params("generator:\n  run: pass\n  promt: y\n" + EVALUATOR), 8, "n", "with.generator.promt", "unknown key 'promt'",
    ),
    "generator of an unknown action": (
        params("generator:\n  action: llm.cal\n" + EVALUATOR), 7, "n", "with.generator.action", "did you mean 'llm.call'",
    ),
    "a loop in a loop": (
        params("generator:\n  action: reflection.loop\n" + EVALUATOR), 7, "n", "with.generator.action", "can't be called by another",
    ),
    "llm.call without a prompt": (
        params("generator: {action: llm.call}\n" + EVALUATOR), 6, "n", "with.generator", "either 'prompt' or 'messages'",
    ),
    "llm.call with a wrong key": (
        params("generator:\n  action: llm.call\n  prompt: x\n  temprature: 1\n" + EVALUATOR),
        9, "n", "with.generator.temprature", "did you mean 'temperature'",
    ),
    "llm.call with a wrong model": (
        params("generator:\n  action: llm.call\n  prompt: x\n  model: gpt-5\n" + EVALUATOR),
        9, "n", "with.generator.model", "under 'models'",
    ),
    "a prompt that does not parse": (
        params("generator:\n  action: llm.call\n  model: gpt-4\n  prompt: '{{ state.x'\n" + EVALUATOR),
        9, "n", "with.generator.prompt", "invalid template",
    ),
    "a prompt that does not parse in its third line": (
        params("generator:\n  action: own\n  prompt: |\n    Hi\n    {{ state.x }}\n    {{ state.y + }}\n" + EVALUATOR),
        11, "n", "with.generator.prompt", "invalid template: line 3: ",
    ),
    "an example is no template": (
        params(GENERATOR + "evaluator:\n  type: llm\n  prompt: '{{ x'\n  examples: [{input: '{{ x', output: '{{ x'}]"),
        9, "n", "with.evaluator.prompt", "invalid template",
    ),
    "a template with an unknown filter": (
        params("generator: {action: llm.call, model: gpt-4, prompt: '{{ state.x | shout }}'}\n" + EVALUATOR),
        6, "n", "with.generator.prompt", "shout",
    ),
    "an include": (
        params("generator: {action: llm.call, model: gpt-4, prompt: '{% include \"x\" %}'}\n" + EVALUATOR),
        6, "n", "with.generator.prompt", "include",
    ),
    "a variable that is not listed": (
        params("generator: {action: llm.call, model: gpt-4, prompt: '{{ env.HOME }}'}\n" + EVALUATOR),
        6, "n", "with.generator.prompt", "not listed under 'env'",
    ),
    "a scope that is none": (
        params("generator: {action: llm.call, model: gpt-4, prompt: 'On {{ topic }}'}\n" + EVALUATOR),
        6, "n", "with.generator.prompt", "there is no 'topic'; values are read as in 'state.topic'; expected one of 'state'",
    ),
    "a scope that is misspelled": (nodes("- name: n\n  run: pass\n  when: stat.x"), 5, "n", "when", "did you mean 'state'?"),
    "an action under the key of a node": (
        params("generator:\n  uses: llm.call\n  prompt: x\n" + EVALUATOR), 7, "n", "with.generator.uses", "under 'action'",
    ),
    "an output without a name": (nodes("- name: n\n  run: pass\n  output: ''"), 5, "n", "output", "a non-empty string"),
    "own action with a wrong parameter": (
        params("generator: {action: own, promt: x}\n" + EVALUATOR), 6, "n", "with.generator.promt", "the action 'own' has no parameter 'promt'; did you mean 'prompt'?",
    ),
    "own action with a state of the file": (params("prompt: 1\nstate: 2", "own"), 7, "n", "with.state", "gets the workflow's state as 'state'"),
    "own action without a parameter": (params("{}", "own"), 5, "n", "with", "the action 'own' needs the parameter 'prompt'"),
    "own action with a wrong parameter in a node": (params("promt: 1\nprompt: 2", "own"), 6, "n", "with.promt", "no parameter 'promt'"),
    "evaluator of no type": (params(GENERATOR + "evaluator: {run: pass}"), 7, "n", "with.evaluator.type", "'type' is missing"),
    "evaluator of an unknown type": (
        params(GENERATOR + "evaluator: {type: shema}"), 7, "n", "with.evaluator.type", "'schema', 'llm' or 'custom'",
    ),
    "evaluator without a schema": (params(GENERATOR + "evaluator: {type: schema}"), 7, "n", "with.evaluator", "needs 'schema'"),
    "a threshold of a schema": (
        params(GENERATOR + "evaluator: {type: schema, schema: {}, threshold: 0.5}"), 7, "n", "with.evaluator", "'threshold' is not for",
    ),
    "examples for code": (
        params(GENERATOR + "evaluator: {type: custom, run: return True, examples: [{input: a, output: b}]}"),
        7, "n", "with.evaluator", "'examples' is not for an evaluator of the type 'custom'",
    ),
    "samples of what is no model": (
        params(GENERATOR + "evaluator: {type: schema, schema: {}, judge_samples: 3}"), 7, "n", "with.evaluator", "'judge_samples' is not for",
    ),
    "no samples": (
        params(GENERATOR + "evaluator: {type: llm, prompt: x, judge_samples: 0}"), 7, "n", "with.evaluator.judge_samples", "got 0",
    ),
    "another way to accept": (
        params(GENERATOR + "evaluator: {type: custom, run: pass}\naccept: pair"), 8, "n", "with.accept", "'score' or 'pairwise'",
    ),
    "evaluator with what is not for it": (
        params(GENERATOR + "evaluator: {type: schema, schema: {}, prompt: x}"), 7, "n", "with.evaluator", "'prompt' is not for",
    ),
    "a schema that is none": (
        params(GENERATOR + "evaluator:\n  type: schema\n  schema: {type: objekt}"), 9, "n", "with.evaluator.schema.type", "unknown type 'objekt'; did you mean 'object'?",
    ),
    "a schema from elsewhere": (
        params(GENERATOR + "evaluator:\n  type: schema\n  schema: {$ref: 'https://example.com/a'}"),
        9, "n", "with.evaluator.schema.$ref", "example.com",
    ),
    "a schema outside of the folder": (
        params(GENERATOR + "evaluator:\n  type: schema\n  schema: {$ref: '../../etc/passwd'}"),
        9, "n", "with.evaluator.schema.$ref", "passwd",
    ),
    "an example without output": (
        params(GENERATOR + "evaluator:\n  type: llm\n  prompt: x\n  model: gpt-4\n  examples:\n  - input: a"),
        12, "n", "with.evaluator.examples.0.output", "'output' is missing",
    ),
    "a threshold too high": (
        params(GENERATOR + "evaluator:\n  type: custom\n  run: pass\n  threshold: 80"),
        10, "n", "with.evaluator.threshold", "got 80",
    ),
    "an evaluator in an unknown language": (
        params(GENERATOR + "evaluator:\n  type: custom\n  run: pass\n  language: perl"),
        10, "n", "with.evaluator.language", "'python', 'lua' or 'prolog'",
    ),
    "bad apply": (
        params(LOOP + "corrector:\n  run: pass\n  apply: maybe"), 10, "n", "with.corrector.apply", "'auto', 'replace' or 'feedback'",
    ),
    "llm.call with both": (
        params("prompt: a\nmessages: [{role: user, content: x}]", "llm.call"), 5, "n", "with", "either 'prompt' or 'messages'",
    ),
    "no messages": (params("messages: []", "llm.call"), 6, "n", "with.messages", "expected a list that is not empty"),
    "a text for messages": (params("messages: hello", "llm.call"), 6, "n", "with.messages", "expected a list or a template, got 'hello'"),
    "an unknown role": (
        params("messages:\n- {role: system, content: x}\n- role: usr\n  content: y", "llm.call"),
        8, "n", "with.messages.1.role", "expected 'system', 'user' or 'assistant', got 'usr'",
    ),
    "a message without content": (
        params("messages:\n- role: user\n  contents: y", "llm.call"), 8, "n", "with.messages.0.contents", "did you mean 'content'?",
    ),
    "llm.call with neither": (params("model: gpt-4", "llm_call"), 5, "n", "with", "either 'prompt' or 'messages'"),
    "llm.call without anything": (nodes("- name: n\n  uses: llm.call"), 3, "n", "with", "either 'prompt' or 'messages'"),
    "a schema that is a template": (
        params("prompt: a\nmodel: gpt-4\nschema: '{{ state.s }}'", "llm.call"), 8, "n", "with.schema", "a schema must be an object",
    ),
    "a parameter of one's own that does not parse": (
        params("prompt: a\nmore:\n  examples: ['{{ state.s']", "own"), 8, "n", "with.more.examples.0", "invalid template",
    ),
    "a name that nothing defines": (
        nodes("- name: n\n  run: |\n    total = 0\n    return totl"), 6, "n", "run", "'totl' is not defined; did you mean 'total'?",
    ),
    "a name that is only added to": (
        nodes("- name: n\n  run: |\n    total = 0\n    totl += 1\n    return total"), 6, "n", "run", "'totl' is not defined; did you mean 'total'?",
    ),
    "a scope that is misspelled in code": (nodes("- {name: n, run: 'return stat'}"), 3, "n", "run", "did you mean 'state'?"),
    "a variable of loops in a node": (nodes("- {name: n, run: return output}"), 3, "n", "run", "'output' is not defined"),
    "a name of another node's code": (nodes("- {name: m, run: x = 1}\n- {name: n, run: return x}"), 4, "n", "run", "'x' is not defined"),
    "a name in an evaluator": (
        params(GENERATOR + "evaluator:\n  type: custom\n  run: |\n    return oputput == 1"), 10, "n", "with.evaluator.run", "did you mean 'output'?",
    ),
    "a name in a function": (
        nodes("- name: n\n  run: |\n    def f(a, *b, c=1, **d):\n        return [a, b, c, d, e]\n    return f(1)"), 6, "n", "run", "'e' is not defined",
    ),
    "a type deep in a schema": (
        params(GENERATOR + "evaluator:\n  type: schema\n  schema:\n    properties:\n      a:\n        items: {type: numbr}"),
        12, "n", "with.evaluator.schema.properties.a.items.type", "did you mean 'number'?",
    ),
    "an unknown type among others": (
        params("prompt: x\nmodel: gpt-4\nschema:\n  properties:\n    a:\n      type: [string, nul]", "llm.call"),
        11, "n", "with.schema.properties.a.type", "did you mean 'null'?",
    ),
    "a bound that is no number": (
        params("prompt: x\nmodel: gpt-4\nschema:\n  properties:\n    a:\n      minimum: ten", "llm.call"),
        11, "n", "with.schema.properties.a.minimum", '"ten" is not of type "number"',
    ),
    "a pattern that is none": (
        params("prompt: x\nmodel: gpt-4\nschema:\n  properties:\n    a:\n      pattern: '('", "llm.call"),
        11, "n", "with.schema.properties.a.pattern", 'is not a "regex"',
    ),
    "a reference to nothing": (
        params("prompt: x\nmodel: gpt-4\nschema:\n  items:\n    $ref: '#/$defs/a'", "llm.call"),
        10, "n", "with.schema.items.$ref", "'#/$defs/a' does not exist",
    ),
    "a reference to a missing file": (
        params("prompt: x\nmodel: gpt-4\nschema:\n  items:\n    $ref: ./a.json", "llm.call"),
        10, "n", "with.schema.items.$ref", "not in the folder of the workflow",
    ),
    "a schema of an unknown draft": (
        params("prompt: x\nmodel: gpt-4\nschema: {$schema: draft}", "llm.call"), 8, "n", "with.schema", "'draft'",
    ),
    "Lua without its language": (
        nodes("- name: n\n  run: |\n    -- lua\n    local a = 1"), 6, "n", "run", "for Lua, write 'language: lua'",
    ),
    "imports of the_edge_agent": ("name: t\nimports: []\nnodes:\n- {name: n, run: pass}", 2, None, "imports", "unknown key 'imports'; actions of your own"),
    "settings of the_edge_agent": ("name: t\nsettings: {}\nnodes:\n- {name: n, run: pass}", 2, None, "settings", "redraft.toml"),
    "a script": (nodes("- name: n\n  script: return 1"), 4, "n", "script", "code goes under 'run'"),
    "steps": (nodes("- name: n\n  steps: []"), 4, "n", "steps", "write each step as a node"),
    "a while loop": (nodes("- name: n\n  type: while_loop"), 4, "n", "type", "'reflection.loop', nodes with a 'goto' back"),
    "a node that fans in": (nodes("- name: n\n  run: pass\n  fan_in: true"), 5, "n", "fan_in", "'map' runs a node over a list"),
    "an action of a node": (nodes("- name: n\n  action: llm.call"), 4, "n", "action", "goes under 'uses'"),
    "an action of the_edge_agent": (nodes("- name: n\n  uses: http.get"), 4, "n", "uses", "use 'http.request'"),
    "secrets": (
        params("prompt: 'Key {{ secrets.KEY }}'\nmodel: gpt-4", "llm.call"), 6, "n", "with.prompt", "list environment variables under 'env'",
    ),
    "an edge that leads back": (
        nodes("- {name: m, run: pass}\n- {name: n, run: pass}") + "edges:\n- {from: n, to: m}", 6, None, "edges.0", "write 'goto: m' under the node 'n'",
    ),
    "an edge to another beginning": (
        nodes("- {name: m, run: pass}\n- {name: n, run: pass}") + "edges:\n- {from: __start__, to: n}", 6, None, "edges.0", "put the node 'n' first",
    ),
    "an edge with a condition": (
        nodes("- {name: m, run: pass}\n- {name: n, run: pass}") + "edges:\n- {from: m, to: __end__, when: state.x}",
        6, None, "edges.0", "write 'goto: [{if: CONDITION, to: end}]' under the node 'm'",
    ),
    "parallel edges": (
        nodes("- {name: m, run: pass}\n- {name: n, run: pass}") + "edges:\n- {from: m, to: n, type: parallel, fan_in: n}",
        6, None, "edges.0", "one after the other",
    ),
    "edges that are no list": (nodes("- {name: m, run: pass}") + "edges: {m: n}", 4, None, "edges", "use 'goto' to change it"),
    "a tool that does not exist": (params("prompt: a\nmodel: gpt-4\ntools: [cuont]", "llm.call"), 8, "n", "with.tools.0", "unknown tool 'cuont'"),
    "a tool of no server": (params("prompt: a\nmodel: gpt-4\ntools:\n- shop.price", "llm.call"), 9, "n", "with.tools.0", "unknown tool 'shop.price'"),
    "no tools": (params("prompt: a\nmodel: gpt-4\ntools: []", "llm.call"), 8, "n", "with.tools", "a list that is not empty"),
    "tools that are no list": (params("prompt: a\nmodel: gpt-4\ntools: count", "llm.call"), 8, "n", "with.tools", "expected a list or a template, got 'count'"),
    "steps of a model without tools": (params("prompt: a\nmodel: gpt-4\nmax_steps: 3", "llm.call"), 8, "n", "with.max_steps", "has no effect without 'tools'"),
    "tools in a generator": (
        params("generator: {action: llm.call, model: gpt-4, prompt: x, tools: [a]}\n" + EVALUATOR), 6, "n", "with.generator.tools.0", "unknown tool 'a'",
    ),
    "a server of neither kind": ("mcp: {shop: {}}\nnodes:\n- {name: n, run: pass}", 1, None, "mcp.shop", "either 'command' (a program) or 'url'"),
    "a server of both kinds": (
        "mcp:\n  shop: {command: [a], url: 'http://localhost/mcp'}\nnodes:\n- {name: n, run: pass}", 2, None, "mcp.shop", "either 'command'",
    ),
    "a server's command as a text": (
        "mcp:\n  shop: {command: npx shop}\nnodes:\n- {name: n, run: pass}", 2, None, "mcp.shop.command", "expected a list, got 'npx shop'",
    ),
    "a server's address that is none": (
        "mcp:\n  shop:\n    url: localhost:80\nnodes:\n- {name: n, run: pass}", 3, None, "mcp.shop.url", "expected 'http://' or 'https://'",
    ),
    "a server's variable that is not listed": (
        "mcp:\n  shop:\n    command: [a]\n    env: [KEY]\nnodes:\n- {name: n, run: pass}", 4, None, "mcp.shop.env.0", "'KEY' is not listed under 'env'",
    ),
    "a secret of a server in the file": (
        "mcp:\n  shop:\n    url: http://localhost/mcp\n    headers: {Authorization: Bearer sesame}\nnodes:\n- {name: n, run: pass}",
        4, None, "mcp.shop.headers.Authorization", "a secret such as 'Authorization' comes from the environment only",
    ),
    "a server's header from the state": (
        "mcp:\n  shop:\n    url: http://localhost/mcp\n    headers: {X-User: '{{ state.user }}'}\nnodes:\n- {name: n, run: pass}",
        4, None, "mcp.shop.headers.X-User", "can read only 'env'",
    ),
    "a host that is a URL": ("hosts: ['https://a.test/']\nnodes:\n- {name: n, run: pass}", 1, None, "hosts.0", "expected 'HOST', 'HOST:PORT'"),
    "a request to a host that is not listed": (
        "hosts: [a.test]\n" + params("url: https://b.test/x", "http.request"), 7, "n", "with.url", "the host 'b.test' with port 443 is not listed under 'hosts'; the file lists 'a.test'",
    ),
    "a request without hosts": (params("url: '{{ state.url }}'", "http.request"), 6, "n", "with.url", "sends requests only to hosts listed under 'hosts'"),
    "a request without a URL": (params("method: GET", "http.request"), 5, "n", "with.url", "'url' is missing"),
    "a request by an unknown method": (
        "hosts: [a.test]\n" + params("url: https://a.test/\nmethod: FETCH", "http.request"), 8, "n", "with.method", "got 'FETCH'",
    ),
    "a secret of a request in the file": (
        "hosts: [a.test]\n" + params("url: https://a.test/\nheaders:\n  X-Api-Key: abc", "http.request"),
        9, "n", "with.headers.X-Api-Key", "write {{ env.NAME }}",
    ),
    "a secret of a request in the state": (
        "hosts: [a.test]\n" + params("url: https://a.test/\nheaders:\n  Authorization: Bearer {{ state.token }}", "http.request"),
        9, "n", "with.headers.Authorization", "comes from the environment only",
    ),
    "a request's misspelled key": (
        "hosts: [a.test]\n" + params("url: https://a.test/\nheader: {}", "http.request"), 8, "n", "with.header", "did you mean 'headers'?",
    ),
    "temperature too high": (params("prompt: a\ntemperature: 3", "llm.call"), 7, "n", "with.temperature", "got 3"),
}  # fmt: skip


def own(state, prompt, more=None):
    return prompt


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_mistakes_in_a_file_are_located(case):
    text, line, node, key, message = case
    model = ScriptedModel([])
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text(text, actions={"own": own}, models={"gpt-4": model}, keep=False)
    error = caught.value
    assert message in str(error)
    assert (error.line, error.node, error.key) == (line, node, key)
    assert error.file == "workflow"
    if line is not None:
        assert str(error).startswith(f"workflow, line {line}")
        assert node is None or repr(node) in str(error)
    assert model.requests == []


SEVERAL = """\
name: several
vairables: {a: 1}
nodes:
  - name: one
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: gpt-4, promt: "{{ topic }}"}
      evaluator:
        type: schema
        schema:
          properties:
            name: {type: strng}
            age: {minimum: ten}
      max_iteration: 0
  - name: two
    outptu: x
    run: |
      return stat["x"]
    goto: thre
  - name: three
    max_visits: 0
    run: return 3
    on_error: tow
  - {name: three, run: "if:"}
  - uses: llm.call
    with: {prompt: x, model: gpt-4, temperature: 3}
"""
OF_FORM = {
    2: "did you mean 'variables'?", 7: "did you mean 'prompt'?", 14: "did you mean 'max_iterations'?",
    16: "did you mean 'output'?", 21: "at least 1, got 0", 25: "'name' is missing", 26: "at most 2, got 3",
}  # fmt: skip
CORRECTED = {
    "vairables": "variables", "promt": "prompt", "max_iteration: 0": "max_iterations: 3", "outptu": "output",
    "max_visits: 0": "max_visits: 1", "- uses": "- name: four\n    uses", "temperature: 3": "temperature: 1",
}  # fmt: skip
OF_MEANING = {
    7: "there is no 'topic'", 12: "did you mean 'string'?", 13: "not of type", 18: "did you mean 'state'?",
    19: "did you mean 'three'?", 23: "did you mean 'two'?", 24: "does not parse",
}  # fmt: skip


def found_in(text):
    """The mistakes of a file by their lines."""
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text(text, models={"gpt-4": ScriptedModel([])}, keep=False)
    problems = caught.value.problems
    assert str(caught.value).splitlines() == [str(problem) for problem in problems]
    assert (caught.value.line, caught.value.key) == (problems[0].line, problems[0].key)
    by_line = {}
    for problem in problems:
        by_line[problem.line] = f"{by_line.get(problem.line, '')} {problem}"
    assert list(by_line) == sorted(by_line)
    return by_line


def test_all_mistakes_of_form_are_reported_at_once_then_all_of_meaning():
    found = found_in(SEVERAL)
    assert {line: text for line, text in OF_FORM.items() if text not in found.get(line, "")} == {}
    assert found.keys() == OF_FORM.keys()
    text = SEVERAL
    for wrong, right in CORRECTED.items():
        text = text.replace(wrong, right)
    found = found_in(text)
    assert {line: text for line, text in OF_MEANING.items() if text not in found.get(line, "")} == {}
    assert found.keys() == OF_MEANING.keys()
    assert "two nodes" in found[24]


STAGES = """\
name: stages
env: [HOME]
nodes:
  - name: one
    run: |
      import socket
      import threading
      return [totl, env["HOME"]]
  - name: two
    language: lua
    run: |
      local x = = 1
  - name: three
    uses: reflection.loop
    with:
      generator: {action: own}
      evaluator: {type: schema, prompt: x, judge_samples: 2, schema: {type: strng}}
  - name: four
    uses: ./inner.yaml
    with: {perso: x}
  - name: five
    max_visits: 1
    run: return input("x")
  - name: six
    uses: nothing
    with: {a: "{{ x }}"}
    goto: five
"""
INNER = """\
inputs:
  person: string
  number: {type: integer, default: many}
  words: {type: strng}
nodes:
  - {name: n, run: "import ctypes\\nreturn y"}
"""
IN_STAGES = [
    ("stages.yaml", 6, "No module named 'socket'"),
    ("stages.yaml", 7, "No module named 'threading'"),
    ("stages.yaml", 8, "'totl' is not defined"),
    ("stages.yaml", 12, "not valid Lua"),
    ("stages.yaml", 16, "there is no action 'own'"),
    ("stages.yaml", 17, "'prompt' is not for an evaluator"),
    ("stages.yaml", 17, "'judge_samples' is not for an evaluator"),
    ("stages.yaml", 17, "unknown type 'strng'"),
    ("stages.yaml", 20, "there is no input 'perso'; did you mean 'person'?"),
    ("stages.yaml", 20, "the input 'person' is missing: add it to 'with'"),
    ("stages.yaml", 20, "the input 'words' is missing: add it to 'with'"),
    ("stages.yaml", 23, "inline Python has no input()"),
    ("stages.yaml", 25, "there is no action 'nothing'"),
    ("stages.yaml", 26, "there is no 'x'"),
    ("inner.yaml", 3, "invalid default: expected integer, got 'many'"),
    ("inner.yaml", 4, "did you mean 'string'?"),
    ("inner.yaml", 6, "'y' is not defined"),
    ("inner.yaml", 6, "No module named 'ctypes'"),
]  # fmt: skip


def test_no_mistake_of_meaning_hides_another(tmp_path):
    (tmp_path / "stages.yaml").write_text(STAGES)
    (tmp_path / "inner.yaml").write_text(INNER)
    made = Workflow.from_file(tmp_path / "stages.yaml", keep=False, strict=False)
    with pytest.raises(WorkflowError) as caught:
        asyncio.run(made.check_all())
    problems = caught.value.problems
    assert [(Path(problem.file).name, problem.line) for problem in problems] == [
        (file, line) for file, line, _ in IN_STAGES
    ]
    assert [text for one, (_, _, text) in zip(problems, IN_STAGES, strict=True) if text not in str(one)] == []
    assert set(made.problems) < set(problems)
    with pytest.raises(WorkflowError):
        made.run_sync()


ASKED = "- {name: card, uses: llm.call, output: made, with: {model: gpt-4, prompt: Write.}}"
DRAFTED = "- name: card\n  uses: reflection.loop\n  output: made\n  with:\n" + under(
    "generator: {action: llm.call, model: gpt-4, prompt: PROMPT}\nevaluator: {type: schema, schema: {required: [title]}}",
    4,
)


def with_outputs(outputs, text):
    return f"name: t\noutputs: {outputs}\nnodes:\n{text}\n"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (with_outputs("{a: {value: '{{ state.card.title }}'}}", ASKED), "outputs.a.value"),
        (with_outputs("{a: {value: ['{{ state.made }}', '{{ state.card }}']}}", ASKED), "outputs.a.value.1"),
        (with_outputs("{card: string}", ASKED), "outputs.card"),
    ],
)
def test_an_output_that_no_node_sets_is_reported_before_anything_is_spent(text, key):
    made = Workflow.from_text(text, models={"gpt-4": ScriptedModel([])}, keep=False)
    with pytest.raises(WorkflowError) as caught:
        made.check()
    [problem] = caught.value.problems
    assert (problem.line, problem.key) == (2, key)
    assert "state.card is read here, but nothing sets it: the result of 'card' is state.made" in str(problem)
    assert made.check({"card": {"title": "x"}}).actions


@pytest.mark.parametrize(
    "text",
    [
        with_outputs("{made: any, reflection_output: any, title: string}", DRAFTED),
        with_outputs("{card: string}", DRAFTED),
        with_outputs("{card: string?}", ASKED),
        with_outputs("{a: {value: '{{ state.card | default(1) }}'}}", ASKED),
        with_outputs("{a: {value: '{{ state.made or state.card }}'}}", ASKED),
        with_outputs("{a: {value: '{{ state.card if \"card\" in state else 1 }}'}}", ASKED),
        with_outputs("{a: {value: '{% if state.x is defined %}{{ state.x.y }}{% endif %}'}}", ASKED),
        with_outputs("{card: string}", ASKED + "\n- {name: b, run: 'return {\"card\": 1}'}"),
        with_outputs("{card: string}", ASKED + "\n- {name: b, uses: own, with: {prompt: x}}"),
        with_outputs("{b: array}", ASKED + "\n- {name: b, map: [1], run: 'return {\"x\": 1}'}"),
    ],
)
def test_an_output_that_a_node_may_set_is_no_mistake(text):
    made = Workflow.from_text(text, actions={"own": own}, models={"gpt-4": ScriptedModel([])}, keep=False)
    assert made.check().actions


OF_TEXT = """- name: story
  uses: reflection.loop
  with:
    generator: {action: llm.call, model: gpt-4, prompt: 'Write about {{ state.topic }}.'}
    evaluator: {type: llm, model: gpt-4, prompt: 'Judge {{ state.reflection_output }}.'}
"""
OF_DATA = OF_TEXT.replace(
    "type: llm, model: gpt-4, prompt: 'Judge {{ state.reflection_output }}.'", "type: schema, schema: {}"
)
LATER = "- {name: last, uses: own, with: {prompt: '{{ state.titel }}'}}\n"


@pytest.mark.parametrize(
    "before",
    [
        OF_TEXT,
        OF_TEXT + "- {name: x, run: 'return 1', output: y, when: 'state.success'}\n",
        OF_TEXT + "- {name: x, run: 'return 1', output: y, on_error: continue}\n",
        OF_TEXT + "- {name: x, uses: own, output: y, with: {prompt: a}}\n",
        OF_TEXT + "- {name: x, map: [1], run: 'return {\"titel\": 1}'}\n",
        OF_TEXT + "- {name: x, uses: llm.call, with: {prompt: x, model: gpt-4}}\n",
    ],
)
def test_a_value_that_nothing_sets_is_reported_also_after_a_loop(before):
    made = Workflow.from_text(
        nodes(before + LATER), actions={"own": own}, models={"gpt-4": ScriptedModel([])}, keep=False
    )
    with pytest.raises(WorkflowError) as caught:
        made.check({"topic": "tea"})
    [problem] = caught.value.problems
    assert problem.node == "last"
    assert "state.titel is read here, but nothing sets it" in str(problem)
    assert made.check({"topic": "tea", "titel": "x"}).actions


def test_what_a_workflow_uses_is_shown_in_one_line():
    source = "return 1\n" + "# why\n" * 500
    many = "\n".join(f"- {{name: a{number}, run: return {number}}}" for number in range(50))
    text = nodes(OF_TEXT + "- name: x\n  run: |\n" + under(source, 4) + "\n" + many)
    made = Workflow.from_text(text, models={"gpt-4": ScriptedModel([])}, keep=False)
    shown = repr(made.check({"topic": "tea"}))
    assert shown.startswith(
        "Requirements(actions=['reflection.loop', 'llm.call'], models=['ScriptedModel'], code=["
    )
    assert len(shown) < 400
    assert "# why" not in shown


def test_an_unset_value_gets_a_suggestion():
    text = nodes("- {name: a, run: return 1, output: title}\n" + LATER)
    with pytest.raises(WorkflowError, match=r"did you mean 'state\.title'\?"):
        Workflow.from_text(text, actions={"own": own}, keep=False).check()


@pytest.mark.parametrize(
    "before",
    [
        OF_DATA,
        OF_TEXT.replace(
            "action: llm.call, model: gpt-4, prompt: 'Write about {{ state.topic }}.'", "run: return 1"
        ),
        OF_TEXT + "    corrector: {action: own, prompt: x}\n",
        OF_TEXT.replace("action: llm.call, model: gpt-4", "action: own"),
        OF_TEXT.replace(
            "model: gpt-4, prompt: 'Write", "schema: {type: object}, model: gpt-4, prompt: 'Write"
        ),
        OF_TEXT + "- {name: x, run: 'return {\"titel\": 1}', when: 'state.success'}\n",
        OF_TEXT + "- {name: x, uses: own, with: {prompt: a}}\n",
        OF_TEXT + "- {name: x, run: 'return 1', output: titel, on_error: continue}\n",
        OF_TEXT + "- {name: x, run: 'return 1', goto: end}\n",
        OF_TEXT + "- {name: x, run: 'return 1', on_error: end}\n",
        OF_TEXT + "- {name: titel, run: 'return 1'}\n",
        OF_TEXT.replace("story", "titel").replace(
            "uses: reflection.loop", "uses: reflection.loop\n  output: titel"
        ),
    ],
)
def test_a_value_that_a_node_before_may_set_is_no_mistake(before):
    made = Workflow.from_text(
        nodes(before + LATER), actions={"own": own}, models={"gpt-4": ScriptedModel([])}, keep=False
    )
    assert made.check({"topic": "tea"}).actions


def test_an_action_of_your_own_in_place_of_a_built_in_action_may_set_any_key():
    actions = {"own": own, "llm.call": lambda state, **params: {"titel": "x"}}
    made = Workflow.from_text(
        nodes(OF_TEXT + LATER), actions=actions, models={"gpt-4": ScriptedModel([])}, keep=False
    )
    assert made.check({"topic": "tea"}).actions


@pytest.mark.parametrize(
    "job", ["run: return variables.get('job')", "run: return variables.job, language: lua"]
)
def test_code_may_take_the_model_from_the_variables(job):
    text = f"variables: {{job: {{model: m}}}}\nnodes: [{{name: a, {job}}}, {{name: b, uses: llm.call, with: {{prompt: x}}}}]"
    assert Workflow.from_text(text, models={"m": ScriptedModel([])}, keep=False).check().actions


def test_a_misspelled_action_may_set_the_model():
    text = "nodes: [{name: a, uses: owm}, {name: b, uses: llm.call, with: {prompt: x}}]"
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text(text, actions={"own": own}, keep=False, strict=False).check()
    assert [problem.node for problem in caught.value.problems] == ["a"]


@pytest.mark.parametrize("read", ["error", "result", "success", "reflection_feedback", "reflection_best"])
def test_what_a_loop_or_a_failure_sets_is_no_mistake(read):
    text = nodes(
        OF_TEXT + "- {name: x, run: 'return 1', on_error: continue}\n" + LATER.replace("titel", read)
    )
    made = Workflow.from_text(text, actions={"own": own}, models={"gpt-4": ScriptedModel([])}, keep=False)
    assert made.check({"topic": "tea"}).actions


def test_the_result_of_a_custom_llm_call_is_unknown():
    text = with_outputs("{title: string}", ASKED.replace("output: made, ", "") + "\n- " + READS)
    actions = {"own": own, "llm.call": lambda state, **params: {"title": "x", "x": "y"}}
    made = Workflow.from_text(text, actions=actions, keep=False)
    assert made.check().actions == ["llm.call", "own"]
    assert made.run_sync().outputs == {"title": "x"}


def test_keys_of_a_schema_file_are_unknown(tmp_path):
    (tmp_path / "s.json").write_text('{"required": ["card"]}')
    text = with_outputs("{card: string}", DRAFTED.replace("{required: [title]}", "{$ref: s.json}"))
    (tmp_path / "t.yaml").write_text(text)
    models = {"gpt-4": ScriptedModel(['{"card": "x"}'])}
    made = Workflow.from_file(tmp_path / "t.yaml", models=models, keep=False)
    assert made.check().actions
    assert made.run_sync().outputs == {"card": "x"}


def test_a_misspelled_loop_is_the_only_mistake():
    asks = "{name: b, uses: own, with: {prompt: '{{ state.title }}'}}"
    text = "inputs: {report: string}\n" + nodes(f"- {{name: a, uses: reflection.lop, output: y}}\n- {asks}")
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text(text, actions={"own": own}, keep=False).check({"report": "x"})
    assert [str(problem).partition("; ")[0] for problem in caught.value.problems] == [
        "workflow, line 4, node 'a', uses: there is no action 'reflection.lop'"
    ]


def test_a_file_with_inputs_accepts_no_other_values():
    text = "inputs: {report: string}\n" + nodes("- {name: a, uses: own, with: {prompt: '{{ state.title }}'}}")
    with pytest.raises(WorkflowError, match="declare it under 'inputs', or set it in a node before"):
        Workflow.from_text(text, actions={"own": own}, keep=False).check({"report": "x"})


ASKS = "nodes: [{name: n, uses: llm.call, with: {prompt: '{{ state.x }}'}}]"
READS = "{name: b, uses: own, with: {prompt: '{{ state.x }}'}}"
NO_MODEL, NOT_SET = "No model was given", "state.x is read here, but nothing sets it"
FORM_FIRST = {
    "a limit and no model": ("limits: {seconds: 9}\n" + ASKS, ["at most 2, got 9"]),
    "an edge and no model": (ASKS + "\nedges: [{from: n, to: m}]", ["write 'goto: m' under the node 'n'"]),
    "a condition and a cycle": (nodes("- {name: n, run: pass, when: 5, goto: n}"), ["got 5"]),
    "no type of an evaluator and its threshold and schema": (
        params(GENERATOR + "evaluator: {threshold: 5, schema: {type: strng}}"), ["'type' is missing", "got 5"],
    ),
    "a header with the name of a parameter and a method": (
        params("url: 'https://a.test'\nmethod: GOT\nheaders: {generator: 5}", "http.request"),
        ["headers.generator: expected a string, got 5", "got 'GOT'"],
    ),
    "a node that is none and its successor": (nodes("- 5\n- {name: b, uses: owm}"), ["expected a mapping, got 5"]),
    "parameters in the wrong place": (
        nodes("- {name: n, uses: reflection.loop, generator: {run: pass}, evaluator: {type: custom, run: 'if:'}}"),
        ["unknown key 'generator'; the parameters of an action go under 'with'", "unknown key 'evaluator'; the parameters"],
    ),
    "parameters under a misspelled key": (nodes("- {name: n, uses: reflection.loop, wiht: {}}"), ["did you mean 'with'?"]),
    "two keys next to code": (
        params("generator: {run: pass, promt: y, modle: z}\n" + EVALUATOR), ["unknown key 'promt'", "unknown key 'modle'"],
    ),
    "the settings of a loop": (
        params(
            "generator: {action: llm.call, model: gpt-5, prompt: '{{ x }}', temperature: 3}\n"
            "evaluator: {type: llm, prompt: x, threshold: 2, judge_samples: 0, judge_margin: -1}\n"
            "corrector: {run: 'if:', apply: maybe}\nmax_iterations: 0\ncandidates: 0\naccept: any\non_failure: any"
        ),
        [
            "got 3", "got 2", "judge_samples: expected at least 1, got 0", "got -1", "got 'maybe'",
            "max_iterations: expected", "candidates: expected at least 1, got 0", "with.accept", "with.on_failure",
        ],
    ),
    "the calls of a loop": (
        params(
            "generator: {action: actions.llm_call, prompt: x, temprature: 1}\n" + EVALUATOR
            + "corrector: {action: llm.call, messages: [{role: usr, content: x}], max_tokens: many, apply: 5}"
        ),
        ["did you mean 'temperature'?", "got 'usr'", "a whole number or a template, got 'many'", "apply: expected"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), FORM_FIRST.values(), ids=FORM_FIRST)
def test_mistakes_of_form_are_reported_alone_and_all_together(text, expected):
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text(text, actions={"own": own}, keep=False, strict=False)
    problems = [str(problem) for problem in caught.value.problems]
    assert [what for what in expected if not any(what in problem for problem in problems)] == []
    assert len(problems) == len(expected)


def test_the_parameters_of_a_custom_action_in_place_of_a_built_in_action_are_not_checked():
    text = (
        params("generator: {action: llm.call, temprature: {}}\n" + EVALUATOR)
        + "  - {name: m, uses: llm_call, with: {x: 1}}"
    )
    made = Workflow.from_text(text, actions={"llm.call": lambda state, **params: 1}, keep=False)
    assert made.run_sync().state["m"] == 1


PAIRS = {
    "a host and no model": ("hosts: ['https://a.test/']\n" + ASKS, ["'HOST:PORT'", NO_MODEL]),
    "an input that is missing and a value that nothing sets": ("inputs: {a: string}\n" + ASKS, ["the input 'a' is missing", NOT_SET]),
    "conditions on keys": (
        "timeout: 5\nbudget: {seconds: 5}\nmcp: {a: {}}\n"
        + nodes("- {name: end, uses: llm.call, run: pass, with: {max_steps: 1}, concurrency: 2}\n- {name: q, uses: human.approve, with: {message: x, default: reject}}"),
        [
            "timeout: 'timeout' is a short form", "mcp.a: give an MCP server either", "node 'end': give a node either", "with: 'with' holds",
            "the name 'end' is reserved", "'concurrency' has no effect", "give either 'prompt' or 'messages'", "max_steps: has no effect", "give a 'deadline', too",
        ],
    ),
    "a parameter that is not there and one that is missing": (params("colour: red", "own"), ["no parameter 'colour'", "needs the parameter 'prompt'"]),
    "a type in a schema and a reference": (
        params("prompt: x\nmodel: gpt-4\nschema: {properties: {a: {type: strng}, b: {$ref: '#/$defs/b'}, c: {$ref: ./c.json}}}", "llm.call"),
        ["did you mean 'string'?", "'#/$defs/b' does not exist", "not in the folder of the workflow"],
    ),
    "a reference to elsewhere and a bound": (
        params("prompt: x\nmodel: gpt-4\nschema: {$defs: {a: 5}, minimum: ten, items: {$ref: '../../x'}, not: {$ref: '#/$defs/a'}}", "llm.call"),
        ["x", '"ten" is not of type "number"', "5 is not of types"],
    ),
    "the calls of a loop": (
        params(
            "generator: {action: llm.call, model: gpt-5, prompt: '{{ x }}'}\n"
            "evaluator: {type: llm, prompt: x, run: pass, model: gpt-6}\ncorrector: {run: 'if:'}"
        ),
        ["'gpt-5' is not the name of a model", "no 'x'", "'run' is not for an evaluator", "'gpt-6'", "does not parse"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), PAIRS.values(), ids=PAIRS)
def test_a_mistake_does_not_hide_a_mistake_of_another_kind(text, expected):
    made = Workflow.from_text(
        text, actions={"own": own}, models={"gpt-4": ScriptedModel([])}, keep=False, strict=False
    )
    with pytest.raises(WorkflowError) as caught:
        asyncio.run(made.check_all())
    assert [what for what in expected if what not in str(caught.value)] == []


def test_problems_of_an_inner_file_do_not_hide_problems_of_the_outer_file(tmp_path):
    (tmp_path / "inner.yaml").write_text("hosts: ['a/']\n" + ASKS)
    (tmp_path / "formless.yaml").write_text("limits: {seconds: 9}\n" + ASKS)
    (tmp_path / "outer.yaml").write_text(
        "hosts: ['b/']\nnodes:\n- {name: a, uses: ./inner.yaml, output: y}\n"
        "- {name: b, uses: ./formless.yaml, output: y}\n"
        "- {name: c, uses: ./inner.yaml, with: {y: '{{ state.z }}'}}\n"
    )
    made = Workflow.from_file(tmp_path / "outer.yaml", keep=False, strict=False)
    with pytest.raises(WorkflowError) as caught:
        asyncio.run(made.check_all())
    for found in ("got 'a/'", "got 'b/'", "state.z is read", "at most 2", NO_MODEL, NOT_SET):
        assert found in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "env: HOME\nnodes: [{name: a, uses: own, with: {prompt: '{{ env.HOME }}'}}]",
        "hosts: a.test\nnodes: [{name: a, uses: http.request, with: {url: 'https://a.test/'}}]",
        "mcp: 5\nnodes: [{name: a, uses: llm.call, with: {prompt: x, model: 'openai-chat:gpt-4o', tools: [shop.price]}}]",
        "models: 5\nnodes: [{name: a, uses: llm.call, with: {prompt: x, model: fast}}]",
        "model: 5\nnodes: [{name: a, uses: llm.call, with: {prompt: x}}]",
        "- {name: a, uses: llm.call, with: hello}",
        "- {name: a, uses: reflection.evaluate, with: {evaluator_type: shema, schema: {}, data: 1}}",
        "- {name: a, uses: own, with: {promt: x}}",
        "- {name: a, max_visits: 0, run: return 1}\n- {name: b, run: return 1, goto: a}",
        "- {name: a, run: return 1}\n- {name: b, run: return 1, goto: [{if: 5, to: a}]}",
        "- {name: a, run: return 1, outptu: x}\n- {name: b, uses: own, with: {prompt: '{{ state.x }}'}}",
        "- {name: a, run: return 1, output: 5}\n- {name: b, uses: own, with: {prompt: '{{ state.x }}'}}",
        "- {name: a, run: return 1, goto: '5'}\n- {name: b, run: return 1}\n- {name: 5, run: return 1}",
        "- {run: return 1}",
        "mcp: {shop: {command: npx shop}}\nnodes: [{name: a, run: return 1}]",
        "- {name: a, run: return 1, goto: nowhere}\n- {name: b, run: return 1, goto: a}",
        "- {name: a, uses: own, prompt: x}",
        "- {name: a, uses: llm.call, prompt: x}",
        "- {name: a, uses: reflection.correct, with: {data: 1}}",
        "- {name: a, uses: reflection.loop, with: {generator: {uses: llm.call, prompt: x}, evaluator: {type: custom, run: pass}}}",
        "- {name: a, uses: reflection.evaluate, wtih: {data: 1}}",
        "- {name: a, uses: reflection.evaluate, with:}",
        "- {name: a, uses: reflection.loop, with: {generator: 5, evaluator: {type: custom, run: pass}}}",
        "- {name: a, uses: reflection.loop, with: {generator: {action: llm.call, language: perl, prompt: x}, evaluator: {type: custom, run: pass}}}",
        "- {name: a, uses: llm.call, with: {prompt: x, model: unknown}}",
        "- 5\n- {name: b, run: return 1}",
    ],
)
def test_a_mistake_is_reported_once(text, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    text = nodes(text) if text.startswith("- ") else text

    async def check():
        await Workflow.from_text(text, actions={"own": own}, keep=False, strict=False).check_all()

    with pytest.raises(WorkflowError) as caught:
        asyncio.run(check())
    assert len(caught.value.problems) == 1


def test_a_mistake_is_the_only_one_of_its_problems():
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text("name: t\nnodes: []\n", keep=False)
    assert caught.value.problems == (caught.value,)


DEFINED = [
    "import os.path, sys as system\nfrom json import dumps as dump\nreturn [os, system, dump]",
    "def f(a, /, b, *c, d=1, **e):\n    return a, b, c, d, e\nreturn f",
    "try:\n    x = 1\nexcept ValueError as error:\n    x = error\nreturn x",
    "return [a + b for a, b in []] + [(c := 1), c]",
    "match state:\n    case {'a': a, **rest}: return a, rest\n    case [first, *others]: return first, others\n    case other: return other",
    "with f as g:\n    pass\nf = 1\nreturn g",
    "global h\nh = lambda i: i\nreturn h, json, re, len, variables, env",
    "class A:\n    pass\nreturn A",
    "from math import *\nreturn floor(1)",
]


def test_an_option_that_does_not_exist_is_not_ignored():
    with pytest.raises(TypeError, match="Workflow has no option 'modle'; did you mean 'model"):
        Workflow.from_text(nodes("- {name: n, run: return 1}"), modle="a")


def test_names_of_builtins_may_be_defined_anew():
    code = "input = 5\ndef open(vars): return vars\nfor id in [input]: license = open(id)\nreturn license"
    made = Workflow.from_text(nodes("- name: n\n  run: |\n" + under(code, 4)), keep=False)
    asyncio.run(made.check_all())
    assert made.run_sync().state == {"n": 5}


@pytest.mark.parametrize("code", DEFINED)
def test_names_that_code_defines_are_no_mistake(code):
    Workflow.from_text(nodes("- name: n\n  sandbox: process\n  run: |\n" + under(code, 4)), keep=False)


REFUSED = {
    "an import": ("x = 1\n\nimport socket", 7, "No module named 'socket'"),
    "a builtin that the inline Python lacks": ("x = 1\nreturn input(x)", 6, "inline Python has no input()"),
    "an import in a function": ("def f():\n    import difflib\n    return difflib", 6, "no module 'difflib'"),
}
UNSUPPORTED = {
    "yield": ("x = 1\nyield x", 6, "has no yield expressions: use `sandbox: process`"),
    "next": (
        "x = 1\nreturn next((y for y in [x] if y), None)",
        6,
        "no next() of a generator: use `sandbox: process`",
    ),
    "del": ("x = {'a': 1}\ndel x['a']", 6, "has no 'del' statement"),
    "inheritance": ("class A(dict):\n    pass", 5, "has no class inheritance"),
}


@pytest.mark.parametrize(("code", "line", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_inline_python_lacks_is_refused_with_the_file(code, line, message):
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text(nodes("- name: n\n  run: |\n" + under(code, 4)), keep=False)
    assert [problem.line for problem in caught.value.problems] == [line]
    assert message in str(caught.value)
    Workflow.from_text(nodes("- name: n\n  sandbox: process\n  run: |\n" + under(code, 4)), keep=False)


@pytest.mark.parametrize(("code", "line", "message"), REFUSED.values(), ids=REFUSED)
def test_code_that_the_sandbox_refuses_is_reported_at_its_line_before_it_runs(code, line, message):
    file = Workflow.from_text(nodes("- name: n\n  run: |\n" + under(code, 4)), keep=False)
    with pytest.raises(WorkflowError) as caught:
        asyncio.run(file.check_all())
    assert (caught.value.line, caught.value.key) == (line, "run")
    assert message in str(caught.value)


def test_what_the_sandbox_refuses_while_it_runs_is_at_its_line():
    file = Workflow.from_text(
        nodes("- name: n\n  run: |\n    x = 1\n    return open('/etc/passwd')"), keep=False
    )
    with pytest.raises(WorkflowError, match="Permission denied") as caught:
        file.run_sync()
    assert caught.value.line == 6


def test_values_models_and_code_are_checked_together():
    text = nodes(
        "- {name: n, uses: llm.call, with: {prompt: '{{ state.a }} {{ state.b }} {{ state.a }}', model: '{{ state.model }}'}}\n"
        "- {name: m, run: import socket}"
    )
    with pytest.raises(WorkflowError) as caught:
        asyncio.run(Workflow.from_text(text, keep=False).check_all())
    assert [problem.line for problem in caught.value.problems] == [3, 3, 3, 4]


def test_an_error_names_the_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(nodes("- {name: n}"))
    with pytest.raises(WorkflowError, match=r"mine\.yaml, line 3, node 'n': ") as caught:
        Workflow.from_file(path)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), (b"name: \xff", "is not UTF-8")],
    ids=["missing", "latin"],
)
def test_an_unreadable_file(tmp_path, content, message):
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WorkflowError, match=message) as caught:
        Workflow.from_file(path)
    assert caught.value.file == str(path)


FINE = {
    "a cycle with a bound": "- {name: a, run: return 1, max_visits: 2}\n- {name: b, run: return 1, goto: a}",
    "a goto back that is no cycle": (
        "- {name: a, run: return 1, goto: c}\n- {name: b, run: return 1, goto: end}\n- {name: c, run: return 1, goto: b}"
    ),
    "a goto forth": "- {name: a, run: return 1, goto: c}\n- {name: b, run: return 1}\n- {name: c, run: return 1}",
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_gotos_that_end_are_accepted(text):
    workflow(nodes(text))[0].run_sync()


RUN_TIME = {
    "an undefined key": ("{{ state.user.mail }}", "'mail'"),
    "a class": ("{{ ''.__class__ }}", "__class__"),
    "nested ranges": ("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", ""),
    "changing the state": ("{{ state.list.append(1) }}", "append"),
    "a bad sum": ("{{ state.user + 1 }}", ""),
}


@pytest.mark.parametrize(("template", "message"), RUN_TIME.values(), ids=RUN_TIME)
def test_a_failing_template_names_its_node_and_spends_nothing(template, message):
    state = {"user": {"name": "Ada"}, "list": []}
    text = nodes("- {name: first, run: 'return 1'}\n- name: n\n  uses: own\n  with:\n    prompt: |-") + under(
        template, 8
    )
    seen = making("never")
    with pytest.raises(WorkflowError, match=r"node 'n'") as caught:
        Workflow.from_text(text, actions={"own": lambda state, prompt: seen(state)}, keep=False).run_sync(
            state
        )
    assert message in str(caught.value)
    assert caught.value.line in (7, 8)
    assert caught.value.key == "with.prompt"
    assert seen.seen == []
    assert state == {"user": {"name": "Ada"}, "list": []}


PLACES = {
    "a prompt": ("uses: own\nwith:\n  more: H{{ 1 }}\n  prompt: |\n    Hi\n    {{ state.x }}", 9, "with.prompt"),
    "a condition": ("uses: own\nwith: {prompt: x}\nwhen: state.x", 6, "when"),
    "a goto": ("uses: own\nwith: {prompt: x}\ngoto:\n- {if: state.y, to: end}\n- {if: state.x, to: end}", 8, "goto.1.if"),
    "a generator that mends": (
        ("uses: reflection.loop\nwith:\n  evaluator: {type: custom, run: return False}\n  generator:\n    action: own\n"
         "    prompt: |\n      Hi\n      {% if state.reflection_iteration > 1 %}{{ state.x }}{% endif %}"),
        11, "with.generator.prompt",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES.values(), ids=PLACES)
def test_a_failing_template_names_its_line_and_key(case):
    node, line, key = case
    text = nodes("- name: n\n" + under(node, 2))
    with pytest.raises(WorkflowError, match="'state' has no 'x'") as caught:
        Workflow.from_text(text, actions={"own": own}, keep=False).run_sync({"y": False})
    assert (caught.value.line, caught.value.node, caught.value.key) == (line, "n", key)


CODE = {
    "python": ["while True: pass", "result = 9**9**9", "open('/etc/passwd')", "raise SystemExit(0)", "result = float('nan')"],
    "lua": ["while true do end", "return 0/0"],
    "prolog": ["valid :- repeat, fail."],
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "run"), [(language, run) for language, runs in CODE.items() for run in runs]
)
def test_failing_code_judges_nothing(language, run):
    text = textwrap.dedent(
        """\
        name: t
        limits: {seconds: 0.2}
        nodes:
        - name: n
          uses: reflection.loop
          with:
            generator: {run: return 1}
            max_iterations: 1
            evaluator:
              type: custom
              language: %s
              run: |
        """
    )
    file = text % language + under(run, 8) + "\n"
    value = workflow(file)[0].run_sync().state
    assert (value["success"], value.get("reflection_best_score")) == (False, None)
    assert value["reflection_errors"][0]["message"].startswith("Not judged: the evaluator failed: ")


def test_a_file_that_is_a_link_to_itself_can_not_be_read(tmp_path):
    (tmp_path / "inner.yaml").symlink_to("inner.yaml")
    (tmp_path / "outer.yaml").write_text("nodes:\n- {name: a, uses: ./inner.yaml}\n")
    with pytest.raises(WorkflowError, match=r"outer\.yaml, line 2.*inner\.yaml' cannot be read: Too many"):
        Workflow.from_file(tmp_path / "outer.yaml", keep=False)
