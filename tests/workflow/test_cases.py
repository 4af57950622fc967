"""`redraft test`: cases with scripted replies, what they expect, and what they say when they fail."""

# ruff: noqa: E501 (files on a line)
import json

import pytest

from redraft.workflow.cases import differences
from support.commands import redraft

WORKFLOW = """\
name: w
env: [TONE]
hosts: [shop.test]
mcp: {shop: {command: [/nowhere/server]}}
nodes:
  - name: write
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: gpt-4, prompt: 'Profile of {{ state.person }}, {{ env.TONE | default("plain") }}'}
      evaluator: {type: llm, model: judge, prompt: Is it good?}
      max_iterations: 2
  - {name: look, uses: http.request, with: {url: https://shop.test/}, output: price}
"""
ASKING = (
    WORKFLOW
    + """\
  - name: ask
    uses: llm.call
    with: {model: gpt-4, prompt: How much?, tools: [shop.price, count]}
"""
)
HEAD = "  inputs: {person: Ada}\n  actions: {http.request: 24}\n"


@pytest.fixture
def run(tmp_path):
    def run(*cases, workflow=WORKFLOW):
        (tmp_path / "functions.py").write_text("def count(text: str) -> int:\n    return len(text.split())\n")
        (tmp_path / "w.yaml").write_text(workflow)
        listed = "".join(f"- name: case {number}\n{HEAD}{case}" for number, case in enumerate(cases, 1))
        (tmp_path / "w.test.yaml").write_text(f"cases:\n{listed}")
        result = redraft("test", str(tmp_path / "w.yaml"), "--json")
        return (
            result
            if result.exit_code == 2
            else [case["problems"] for case in json.loads(result.stdout)["cases"]]
        )

    return run


PASSING = {
    "one script for all models": "  replies: [hello, {valid: true}]\n  expect: {state: {result: hello, price: 24}}\n",
    "a script for each model": (
        "  replies: {gpt-4: [a, b], judge: [{valid: false, errors: [too short]}, {valid: true}]}\n"
        "  expect: {state: {reflection_output: b}, prompts: [Profile of Ada, Is it good?, too short, Is it good?]}\n"
    ),
    "nodes and a schema": (
        "  replies: [hello, {score: 0.9}]\n  expect: {nodes: [write, look], schema: {required: [price], properties: {price: {const: 24}}}}\n"
    ),
    "a variable": "  env: {TONE: warm}\n  replies: [hello, {valid: true}]\n  expect: {prompts: ['Ada, warm', good]}\n",
    "a failure that the loop survives": "  replies: [{$error: away}, hello, {valid: true}]\n  expect: {state: {reflection_iteration: 2}}\n",
}


@pytest.mark.parametrize("case", PASSING.values(), ids=PASSING)
def test_cases_that_pass(run, case):
    assert run(case) == [[]]


FAILING = {
    "another value": (
        "  replies: [hello, {valid: true}]\n  expect: {state: {result: bye}}\n",
        "state.result: expected 'bye', got 'hello'",
    ),
    "a value that is not there": (
        "  replies: [hello, {valid: true}]\n  expect: {state: {nope: 1}}\n",
        "state.nope: expected 1, but it is missing",
    ),
    "too few replies": (
        "  replies: [hello]\n  expect: {state: {valid: true}}\n",
        "replies: none is left for call 2, which asks",
    ),
    "too many replies": (
        "  replies: [hello, {valid: true}, more]\n  expect: {state: {valid: true}}\n",
        "1 of 3 were not used",
    ),
    "another node": (
        "  replies: [hello, {valid: true}]\n  expect: {nodes: [write]}\n",
        "nodes: expected ['write'], got ['write', 'look']",
    ),
    "another prompt": (
        "  replies: [hello, {valid: true}]\n  expect: {prompts: [Bob, good]}\n",
        "prompts: expected 'Bob' in call 1",
    ),
    "fewer prompts": (
        "  replies: [hello, {valid: true}]\n  expect: {prompts: [Ada]}\n",
        "expected 1 call, got 2",
    ),
    "an error that did not come": (
        "  replies: [hello, {valid: true}]\n  expect: {error: away}\n",
        "expected 'away', but the workflow finished",
    ),
    "a schema": ("  replies: [hello, {valid: true}]\n  expect: {schema: {required: [nope]}}\n", "schema: "),
}


@pytest.mark.parametrize(("case", "problem"), FAILING.values(), ids=FAILING)
def test_cases_that_fail_say_why(run, case, problem):
    [problems] = run(case)
    assert problem in " ".join(problems)


def test_a_case_that_fails_reports_every_difference(run):
    expect = "expect: {state: {result: bye}, nodes: [write], schema: {required: [nope]}}"
    [problems] = run(f"  replies: [hello, {{valid: true}}]\n  {expect}\n")
    assert [problem.partition(":")[0] for problem in problems] == ["state.result", "nodes", "schema"]


JUDGED_BY_CODE = """\
outputs: {words: {type: integer, value: "{{ 2 + 1 }}"}}
nodes:
  - name: write
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: m, prompt: Write a profile.}
      evaluator: {type: custom, run: 'return bool(output.get("name"))'}
  - {name: broken, run: 'return state["nope"]', on_error: continue}
  - {name: look, uses: http.request, with: {url: 'https://shop.test/'}}
hosts: [shop.test]
"""


def test_a_case_that_fails_says_why_a_loop_ended_early_and_which_node_failed(run):
    [problems] = run(
        "  replies: [{name: Ada}]\n  expect: {state: {success: true}}\n", workflow=JUDGED_BY_CODE
    )
    assert problems[0] == "state.success: expected True, got False"
    assert problems[1].startswith("The loop 'write' ended early: ")
    assert "'str' object has no attribute 'get'" in problems[1]
    assert "give the generator's 'llm.call' a 'schema', such as {type: object}" in problems[1]
    assert problems[2].startswith("The node 'broken' failed: ")


def test_a_case_expects_outputs(run):
    script = "  replies: [plain text]\n  expect: {outputs: {%s}}\n"
    passing, wrong = run(script % "words: 3", script % "words: 4", workflow=JUDGED_BY_CODE)
    assert passing == []
    assert wrong[0] == "outputs.words: expected 4, got 3"
    assert "give the generator's" not in " ".join(wrong)  # the text is no JSON, so a schema would not help
    [misplaced] = run(script.replace("outputs", "state") % "words: 3", workflow=JUDGED_BY_CODE)
    assert misplaced[1] == "state.words: this is an output and not in the state; expect it under 'outputs'"
    [unknown] = run(script % "wrods: 3", workflow=JUDGED_BY_CODE)
    assert unknown[0].startswith("expect.outputs: the workflow has no 'wrods'; did you mean 'words'?")


def test_a_prompt_without_a_reply_does_not_repeat_the_earlier_ones(run):
    [problems] = run("  replies: []\n  expect: {state: {valid: true}}\n")
    assert all(problem.count("which asks") == 1 for problem in problems)


def test_a_model_without_replies_is_never_asked(run):
    for replies, missing in (("gpt-4: [a, b]", "judge"), ("'openai:other': [a]", "gpt-4")):
        result = run(f"  replies: {{{replies}}}\n  expect: {{state: {{}}}}\n")
        assert f"replies: none are given for the model {missing!r}" in result.stderr


def test_models_call_tools_that_return_what_the_case_says(run):
    replies = "hello, {valid: true}, {$tool: price, arguments: {name: lamp}}, {$tool: count, arguments: {text: a b}}, It is 24."
    expect = "expect: {state: {ask: It is 24.}, prompts: [Ada, good, How much?, '24', '2']}"
    assert run(f"  replies: [{replies}]\n  tools: {{price: 24}}\n  {expect}\n", workflow=ASKING) == [[]]
    [problems] = run(f"  replies: [{replies}]\n  {expect}\n", workflow=ASKING)
    assert "There is no result for the tool 'price'" in problems[0]
    [problems] = run(f"  replies: [{replies.replace('price', 'shop.price')}]\n  {expect}\n", workflow=ASKING)
    assert "has no tool 'shop.price'; did you mean 'price'?" in problems[0]


def test_a_case_never_sends_a_request(tmp_path):
    (tmp_path / "w.yaml").write_text(
        "hosts: [shop.test]\nnodes:\n- {name: look, uses: http.request, with: {url: https://shop.test/}}\n"
    )
    (tmp_path / "w.test.yaml").write_text("cases:\n- {name: a, expect: {}}\n")
    assert "no result for the action 'http.request'" in redraft("test", str(tmp_path / "w.yaml")).stdout


def test_the_command_shows_each_case_and_fails_if_one_does(run, tmp_path):
    run(PASSING["one script for all models"], FAILING["another value"][0])
    result = redraft("test", str(tmp_path / "w.yaml"))
    assert result.exit_code == 1
    assert result.stdout.split("\n")[:3] == [
        "ok      case 1",
        "FAILED  case 2",
        "        state.result: expected 'bye', got 'hello'",
    ]
    elsewhere = (tmp_path / "w.test.yaml").rename(tmp_path / "more.yaml")
    assert redraft("test", str(tmp_path / "w.yaml"), "--cases", str(elsewhere)).exit_code == 1
    missing = redraft("test", str(tmp_path / "w.yaml"))
    assert missing.exit_code == 2
    assert "w.test.yaml' does not exist. Write it, or name another file with --cases." in missing.stderr
    missing = redraft("test", str(tmp_path / "v.yaml"))
    assert (missing.exit_code, "v.yaml' cannot be read" in missing.stderr) == (2, True)


REPLIES = "cases:\n- name: a\n  replies:\n  - %s\n  expect: {}\n"
UNKNOWN = {
    "a node": (
        "expect: {nodes: [wirte]}",
        "expect.nodes: the workflow has no 'wirte'; did you mean 'write'?",
    ),
    "a variable": ("env: {TON: warm}\n  expect: {}", "env: the workflow has no 'TON'; did you mean 'TONE'?"),
    "an action": ("expect: {}", "actions: the workflow has no 'http.request'"),
    "a tool": ("tools: {pirce: 24}\n  expect: {}", "tools: no workflow file uses a tool 'pirce'"),
}


@pytest.mark.parametrize(("case", "problem"), UNKNOWN.values(), ids=UNKNOWN)
def test_names_that_the_workflow_does_not_have_fail_a_case(run, case, problem):
    is_without = problem.startswith(("actions", "tools"))
    text = "nodes:\n- {name: write, run: return 1}\n" if is_without else WORKFLOW
    [problems] = run(f"  {case}\n", workflow=text)
    assert problem in " ".join(problems)


QUESTION = """\
nodes:
- {name: check, map: [a, b], uses: human.approve, with: {message: "Send {{ item }}?", data: "{{ item }}"}, output: said}
- {name: tell, run: 'return [[one["approved"], one["value"], one["by"]] for one in state["said"]]'}
"""


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("true", [[True, "a", "case"], [True, "b", "case"]]),
        ("{approved: false, by: Ada}", [[False, "a", "Ada"], [False, "b", "Ada"]]),
        ("{approved: true, value: c}", [[True, "c", "case"], [True, "c", "case"]]),
    ],
)
def test_a_case_answers_for_a_person(tmp_path, answer, state):
    (tmp_path / "w.yaml").write_text(QUESTION)
    case = f"- name: a\n  actions: {{human_approve: {answer}}}\n  expect: {{state: {{tell: {json.dumps(state)}}}}}\n"
    (tmp_path / "w.test.yaml").write_text(f"cases:\n{case}")
    output = redraft("test", str(tmp_path / "w.yaml"))
    assert output.stdout == "ok      a\n"
    (tmp_path / "w.test.yaml").write_text("cases:\n- {name: a, expect: {}}\n")
    output = " ".join(redraft("test", str(tmp_path / "w.yaml")).stdout.split())
    assert (
        "There is no answer to 'Send a?'; add one under 'actions', such as 'human.approve: {approved: true}'"
        in output
    )


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("uses: human.approve, with: {message: Send it?}", "There is no answer to 'Send it?'"),
        ("uses: http.request, with: {url: https://shop.test/}", "no result for the action 'http.request'"),
    ],
)
def test_what_a_case_does_not_script_fails_it_even_if_the_workflow_goes_on(tmp_path, node, message):
    (tmp_path / "w.yaml").write_text(
        f"hosts: [shop.test]\nnodes:\n- {{name: a, on_error: continue, {node}}}\n"
    )
    (tmp_path / "w.test.yaml").write_text("cases:\n- {name: a, expect: {}}\n")
    result = redraft("test", str(tmp_path / "w.yaml"))
    assert (result.exit_code, message in " ".join(result.stdout.split())) == (1, True)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("cases: []\n", 1, "a list that is not empty"),
        ("- a\n", 1, "a file of cases must be a mapping with 'cases'"),
        ("cases:\n- name: a\n  expect: {}\n  reply: []\n", 4, "did you mean 'replies'?"),
        ("cases:\n- name: a\n  expect: {stat: {}}\n", 3, "did you mean 'state'?"),
        ("cases:\n- name: a\n", 2, "'expect' is missing"),
        ("cases:\n- expect: {}\n", 2, "'name' is missing"),
        (
            "cases:\n- name: a\n  expect: {error: b,\n    nodes: [n]}\n",
            4,
            "'nodes' can't be combined with 'error'",
        ),
        ("cases:\n- name: a\n  expect: {error: b,\n    schema: {}}\n", 4, "'schema' can't be combined"),
        ("cases:\n- name: a\n  expect:\n    schema:\n      type: objct\n", 5, "did you mean 'object'?"),
        ("cases:\n- name: a\n  expect:\n    schema:\n      requird: [a]\n", 5, "did you mean 'required'?"),
        ("cases:\n- name: a\n  expect:\n    schema: {$ref: a.json}\n", 4, "'$defs' can be referred to"),
        ("cases:\n- {name: a, expect: {}}\n- {name: a, expect: {}}\n", 3, "there are two cases named 'a'"),
        (REPLIES % "{$eror: away}", 4, "unknown key '$eror'; did you mean '$error'?"),
        (REPLIES % "{$error: away, more: 1}", 4, "unknown key 'more'"),
        (REPLIES % "{$error: away, $tool: a}", 4, "'$tool' can't be combined with '$error'"),
        (REPLIES % "{$error: away, arguments: {}}", 4, "'arguments' can't be combined with '$error'"),
        (REPLIES % "{$tool: 5}", 4, "expected a string, got 5"),
        (REPLIES % "{$tool: a, arguments: [1]}", 4, "expected a mapping, got [1]"),
        (REPLIES.replace("  - ", "    m: [") % "{$tol: a}]", 4, "did you mean '$tool'?"),
        (
            "cases:\n- name: a\n  expect: {}\n  actions:\n    human.approve: {approve: true}\n",
            5,
            "did you mean 'approved'?",
        ),
        ("cases:\n- name: a\n  expect: {}\n  actions:\n    human.approve: 'yes'\n", 5, "expected a mapping"),
    ],
)
def test_mistakes_in_cases_are_located(tmp_path, text, line, message):
    (tmp_path / "w.yaml").write_text("nodes:\n- {name: n, run: pass}\n")
    (tmp_path / "w.test.yaml").write_text(text)
    result = redraft("test", str(tmp_path / "w.yaml"))
    assert result.exit_code == 2
    assert f"w.test.yaml, line {line}" in result.stderr
    assert message in result.stderr


def test_a_workflow_with_mistakes_is_not_run(run):
    result = run(PASSING["a variable"], workflow="nodes:\n- {name: n, rnu: pass}\n")
    assert result.exit_code == 2
    assert "did you mean 'run'?" in result.stderr


def test_tools_without_their_package_name_the_extra(run, monkeypatch):
    for module in ("cases", "check", "tools"):
        monkeypatch.setattr(f"redraft.workflow.{module}.find_spec", lambda name: None)
    result = run("  replies: [x]\n  expect: {}\n", workflow=ASKING)
    assert result.exit_code == 2
    assert (
        "with.tools: A model with tools needs an optional part: pip install 'redraft[providers]'"
        in result.stderr
    )
    assert "redraft[mcp]" not in result.stderr, "no server is started in a test"


@pytest.mark.parametrize(
    ("expected", "got", "places"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 2, "d": 3}]}}, []),
        ({"a": [1]}, {"a": [1, 2]}, ["state.a"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["state.a.1"]),
        ({"a": True}, {"a": 1}, ["state.a"]),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": None}, {}, ["state.a"]),
        ({"a": {}}, {"a": []}, ["state.a"]),
    ],
)
def test_only_the_listed_values_are_compared(expected, got, places):
    assert [problem.partition(":")[0] for problem in differences(expected, got)] == places
