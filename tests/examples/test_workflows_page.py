"""Every block of docs/workflows.md runs."""

import asyncio
import shlex
from pathlib import Path

import pytest

from redraft.text.yaml import load_yaml
from redraft.workflow import Workflow, run_action
from support.commands import redraft
from support.pages import Page
from support.scripted_workflows import script_workflows

PAGE = Page("docs/workflows.md")
YAML = PAGE.blocks("yaml")
FILES = PAGE.files("yaml")
NODES = [text for text in YAML if text.startswith("- name:")]
PYTHON = PAGE.blocks("python")
COMMANDS = PAGE.commands()

GOOD = {"name": "Ada", "email": "ada@example.com"}
BAD = {"name": "", "email": "ada"}


def parts(kind):
    """Return the blocks that are a generator, an evaluator or a corrector, as data."""
    return [load_yaml(text)[kind] for text in YAML if text.startswith(f"{kind}:")]


def answer(request):
    """Answer as a model that judges by the email, writes profiles, and talks otherwise."""
    asked = request.messages[-1].content
    if request.role == "evaluation":
        return {"valid": "@" in asked, "score": 0.9 if "@" in asked else 0.1, "errors": []}
    return GOOD if "profile" in asked or "JSON" in asked else "Tea is a warm drink."


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A project with all files of the page, and a model that answers whatever they ask."""
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    Path("person.txt").write_text("Ada")
    return script_workflows(monkeypatch, answer)


ENDS = {
    "profile.yaml": {"message": "Created the profile of Ada"},
    "countdown.yaml": {"tell": "[3, 2, 1], and risky failed", "left": 0},
    "templates.yaml": {"answer": "Tea is a warm drink."},
    "once.yaml": {"mended": {"corrected_output": {**GOOD, "phone": "unknown"}, "success": True}},
    "mapped.yaml": {"ask": "Tea is a warm drink."},
    "bounded.yaml": {"tell": "The Python script ran longer than its limit of 0.5 s."},
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_runs_to_its_end(model, name):
    state = Workflow.from_file(name, keep=False).run_sync({"person": "Ada"}).state
    assert {key: state[key] for key in ENDS[name]} == ENDS[name]


@pytest.mark.parametrize(
    ("nodes", "end"), list(zip(NODES, [{"tell": "ReflectionFailedError"}, {"median": 2}], strict=True))
)
def test_nodes_run(nodes, end):
    indented = "".join(f"  {line}\n" for line in nodes.splitlines())
    state = Workflow.from_text(f"name: w\nnodes:\n{indented}", keep=False).run_sync().state
    assert {key: state[key] for key in end} == end


def looped(generator, evaluator, corrector=None):
    given = {"generator": generator, "evaluator": evaluator, "max_iterations": 2}
    with_ = given | ({"corrector": corrector} if corrector else {})
    makes = iter([BAD, GOOD])
    actions = {"write": lambda state: next(makes)}
    return asyncio.run(run_action("reflection.loop", with_=with_, state={}, actions=actions, keep=False))


@pytest.mark.parametrize("evaluator", parts("evaluator"), ids=lambda one: one.get("language", one["type"]))
def test_each_evaluator_tells_good_from_bad(model, evaluator):
    value = looped({"action": "write"}, evaluator)
    assert [attempt["valid"] for attempt in value["reflection_history"]] == [False, True]
    first, second = value["reflection_history"]
    assert first["score"] < second["score"]
    if evaluator["type"] != "llm":
        assert len(first["errors"]) == 2
        assert value["reflection_best_score"] == 1.0


@pytest.mark.parametrize("generator", parts("generator"), ids=["action", "code"])
def test_each_generator_makes_a_profile(model, generator):
    value = looped(
        generator | {"model": "any"} if "action" in generator else generator, parts("evaluator")[0]
    )
    assert (value["success"], value["reflection_output"]["email"]) == (True, GOOD["email"])


@pytest.mark.parametrize(
    ("corrector", "strategy"), list(zip(parts("corrector"), ["reply", "code", "feedback"], strict=True))
)
def test_each_corrector_is_followed_by_a_better_attempt(model, corrector, strategy):
    if "action" in corrector:
        corrector = corrector | {"model": "any"}
    value = looped({"action": "write"}, parts("evaluator")[0], corrector)
    assert value["success"]
    assert value["reflection_iteration"] == 2
    if strategy == "reply":
        assert "- email: " in model.requests[0].messages[-1].content
    if strategy == "code":
        assert value["email"] == "info@example.com"


@pytest.mark.parametrize("code", PYTHON, ids=lambda code: code.strip().splitlines()[-1][:40])
def test_the_python_runs(model, code):
    _, printed = PAGE.run(code)
    if "profile.yaml" in code:
        assert printed.startswith("Created the profile of Ada ")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(model, command):
    redraft("run", "profile.yaml", "-v", "person=Ada")
    words = shlex.split(command, comments=True)
    assert words.pop(0) == "redraft"
    if ">" in words:
        words = words[: words.index(">")]
    result = redraft(*words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout


def test_the_error_message_is_as_shown(model):
    text = "name: wrong\nnodes:\n  - {name: write, uses: llm.call,\n     with: {promt: What is tea?}}\n"
    Path("wrong.yaml").write_text(text)
    assert [redraft("run", "wrong.yaml").stderr] == PAGE.blocks("text")
