"""Every block of the pages on workflows runs, and the reference names every key."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from redraft import ScriptedModel
from redraft.text.yaml import load_yaml
from redraft.workflow import Workflow, run_action
from redraft.workflow.cases import Expected, ScriptedAnswer, WorkflowCase
from redraft.workflow.spec import (
    PARAMS,
    Jump,
    Limits,
    Node,
    Retries,
    ToolServer,
    WorkflowBudget,
    WorkflowSpec,
)
from support.commands import redraft
from support.pages import Page
from support.scripted_workflows import script_workflows

PAGES = GUIDE, REFERENCE = Page("docs/workflows.md"), Page("docs/workflow-reference.md")
YAML = [block for page in PAGES for block in page.blocks("yaml")]
FILES = GUIDE.files("yaml") | REFERENCE.files("yaml")
TOOLS = REFERENCE.files("python")
PYTHON = [block for page in PAGES for block in page.blocks("python")]
COMMANDS = [command for page in PAGES for command in page.commands()]

GOOD = {"name": "Ada", "email": "ada@example.com"}
BAD = {"name": "", "email": "ada"}
TEA = "Tea is a warm drink."


def parts(kind):
    """The blocks that are an evaluator or a corrector, as data."""
    return [load_yaml(text)[kind] for text in YAML if text.startswith(f"{kind}:")]


SCHEMA = load_yaml(FILES["profile.yaml"])["nodes"][0]["with"]["evaluator"]


def answer(request):
    """Answer as a model that judges by the email, sorts messages, writes profiles, and talks otherwise."""
    asked = request.messages[-1].content
    if request.role == "evaluation":
        return {"valid": "@" in asked, "score": 0.9 if "@" in asked else 0.1, "errors": []}
    if "complaint" in asked:
        return {"kind": "question" if asked.endswith("?") else "rant"}
    return GOOD if "profile" in asked or "JSON" in asked else TEA


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A project with all files of the pages, and a model that answers whatever they ask."""
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.chdir(tmp_path)
    for name, text in (FILES | TOOLS).items():
        Path(name).write_text(text)
    Path("person.txt").write_text("Ada")
    return script_workflows(monkeypatch, answer)


STATES = {
    "profile.yaml": {"message": "Created the profile of Ada"},
    "staff.yaml": {"success": True, **GOOD},
    "inbox.yaml": {"reply": TEA},
    "countdown.yaml": {"left": 0},
    "announce.yaml": {"publish": TEA},
    "letter.yaml": {"letter": TEA, "lines": 3},
    "letters.yaml": {"letters": [{"letter": TEA, "words": 5}] * 2},
    "translations.yaml": {"words": [TEA] * 3},
}


@pytest.mark.parametrize("name", STATES)
def test_each_file_runs_to_its_end(model, name):
    given = {"person": "Ada", "message": "What is tea?"}
    workflow = Workflow.from_file(name, keep=False, approver=lambda approval: True)
    inputs = workflow.spec.inputs
    state = workflow.run_sync({key: given[key] for key in given if not inputs or key in inputs}).state
    assert {key: state[key] for key in STATES[name]} == STATES[name]


def test_the_inbox_leaves_to_a_person_what_the_model_can_not_sort(model):
    result = Workflow.from_file("inbox.yaml", keep=False).run_sync({"message": "I want my money back!"})
    assert result.nodes == ("sort", "person")
    assert "A person will answer" in result.state["reply"]["reply"]


def test_the_code_that_judges_profiles_distinguishes_bad_from_good_replies(model, monkeypatch):
    script_workflows(monkeypatch, BAD, GOOD)
    state = Workflow.from_file("staff.yaml", keep=False).run_sync({"person": "Ada"}).state
    assert [attempt["score"] for attempt in state["reflection_history"]] == [0.0, 1.0]


def attempts_of(generator, evaluator, corrector=None):
    """Run a loop of two attempts, in which the action `write` makes first a bad and then a good profile."""
    params = {"generator": generator, "evaluator": evaluator, "max_iterations": 2}
    if corrector is not None:
        params["corrector"] = corrector
    made = iter([BAD, GOOD])
    actions = {"write": lambda state: next(made)}
    return asyncio.run(run_action("reflection.loop", with_=params, actions=actions, keep=False))


@pytest.mark.parametrize("evaluator", parts("evaluator"), ids=lambda one: one.get("language", one["type"]))
def test_each_evaluator_tells_good_from_bad(model, evaluator):
    value = attempts_of({"action": "write"}, evaluator)
    first, second = value["reflection_history"]
    assert (first["valid"], second["valid"]) == (False, True)
    assert first["score"] < second["score"]
    if evaluator["type"] != "llm":
        assert [error["message"] for error in first["errors"]] == ["the name is missing"]
        assert value["reflection_best_score"] == 1.0


@pytest.mark.parametrize("corrector", parts("corrector"), ids=["model", "code"])
def test_each_corrector_is_followed_by_a_valid_attempt(model, corrector):
    if "action" in corrector:
        corrector = corrector | {"model": "any"}
    value = attempts_of({"action": "write"}, SCHEMA, corrector)
    assert (value["success"], value["reflection_iteration"]) == (True, 2)
    if "action" in corrector:
        assert "- email: " in model.requests[0].messages[-1].content
    if corrector.get("apply") == "replace":
        assert value["email"] == "info@example.com"


@pytest.mark.parametrize("code", PYTHON, ids=lambda code: code.strip().splitlines()[-1][:40])
def test_the_python_runs(model, code):
    _, printed = GUIDE.run(code)
    if "profile.yaml" in code:
        assert printed.startswith("Created the profile of Ada ")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(model, command):
    redraft("run", "profile.yaml", "-v", "person=Ada")
    if " approve" in command:
        redraft("run", "announce.yaml")
    words = shlex.split(command, comments=True)
    assert words.pop(0) == "redraft"
    if ">" in words:
        words = words[: words.index(">")]
    result = redraft(*words)
    waits = words == ["run", "announce.yaml"]
    assert result.exit_code == (5 if waits else 0), result.stderr
    assert result.stdout or waits


WRONG = """\
name: wrong
nodes:
  - {name: write, uses: llm.call,
     with: {prompt: What is tea?,
            schema: {
              type: object,
              required: [age],
              properties: {
                age: {type: intger}}}}}
  - name: tell
    timeout: 300
    run: |
      total = state["age"]
      return totl
"""


def test_the_texts_of_the_guide_are_what_the_commands_print(model, monkeypatch):
    checked, progress, prompt, tested, mistakes = GUIDE.blocks("text")
    run = ("run", "profile.yaml", "-v", "person=Ada Lovelace")
    assert redraft(*run, "--check").stdout == checked

    monkeypatch.setenv("COLUMNS", "120")
    lovelace = {"name": "Ada Lovelace", "email": "ada@example.com"}
    drafts = script_workflows(monkeypatch, lovelace | {"email": "ada"}, lovelace)
    result = redraft(*run)
    assert result.stderr.startswith(progress)
    assert f"`{result.stdout.strip()}`" in GUIDE.text
    assert drafts.requests[1].messages[-1].content == prompt.rstrip()

    assert redraft("test", "profile.yaml").stdout == tested

    Path("wrong.yaml").write_text(WRONG)
    assert redraft("run", "wrong.yaml").stderr == mistakes


OTHERS = {name for name in FILES if not name.endswith(".test.yaml")} - STATES.keys()


def test_the_files_that_reach_others_are_two():
    assert sorted(OTHERS) == ["price.yaml", "research.yaml"]


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_file_that_reaches_others_is_valid(model, name):
    Workflow.from_file(name, models={"openai:gpt-6-luna": ScriptedModel([])}, keep=False)


def test_the_function_is_a_tool(model):
    made = Workflow.from_file("research.yaml", models={"openai:gpt-6-luna": ScriptedModel([])}, keep=False)
    functions = made._resources.tools.functions()
    assert {name: tool("a b") for name, tool in functions.items()} == {"word_count": 2}


KINDS = (WorkflowSpec, WorkflowBudget, Limits, Node, Retries, Jump, ToolServer, *PARAMS.values())
CASES = (WorkflowCase, Expected, ScriptedAnswer)
CODE = "\n".join(re.findall(r"```.*?```|`[^`]+`", REFERENCE.text, re.DOTALL))


@pytest.mark.parametrize("kind", [*KINDS, *CASES], ids=lambda kind: kind.__name__)
def test_the_reference_names_every_key(kind):
    keys = {field.alias or name for name, field in kind.model_fields.items()}
    assert {key for key in keys if not re.search(rf"\b{key}\b", CODE)} == set()
