import asyncio
import json

import pytest

from redraft import ModelError, Task
from redraft.demo import RECORDING, TASKS
from redraft.errors import SandboxForbiddenError
from redraft.evaluate.panel import panel
from redraft.protocols import ChatReply, RunContext
from redraft.sandbox.jail import ProcessJail
from support import requirements as needs
from support.commands import document, redraft, script
from support.pages import Page

ORDER, SECOND, TABLE, LEAP = TASKS
ORDER_PAID = {"customer": "Dana Okafor", "lamps": 3, "trays": 1, "total_cents": 8450, "paid": True}
ORDER_RIGHT = ORDER_PAID | {"paid": False}
SECOND_WRONG = "def second_largest(numbers):\n    return sorted(numbers)[-2]"
SECOND_RIGHT = """```python
def second_largest(numbers):
    distinct = sorted(set(numbers))
    return distinct[-2] if len(distinct) > 1 else None
```"""
TABLE_RIGHT = {"name": "Omar Haddad", "guests": 4, "date": "2027-03-05", "smoking": False}
TABLE_FEW = TABLE_RIGHT | {"guests": 3}
LEAP_RIGHT = "def is_leap(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)"


@pytest.mark.parametrize(
    ("task", "draft", "score"),
    [
        (ORDER, json.dumps(ORDER_RIGHT), 1.0),
        (ORDER, json.dumps(ORDER_PAID), 0.8),
        (ORDER, json.dumps(ORDER_RIGHT | {"paid": 0}), 0.8),
        (ORDER, json.dumps(ORDER_RIGHT | {"lamps": "3"}), 0.8),
        (ORDER, json.dumps(ORDER_RIGHT | {"weight_kg": 55}), 0.8),
        (ORDER, "[]", 0.0),
        (ORDER, "Dear Dana", 0.0),
        (SECOND, SECOND_RIGHT, 1.0),
        (SECOND, SECOND_WRONG, 1 / 4),
        (SECOND, "I can't.", 0.0),
        (TABLE, json.dumps(TABLE_RIGHT), 1.0),
        (TABLE, json.dumps(TABLE_RIGHT | {"date": "5 March 2027"}), 0.75),
        (LEAP, LEAP_RIGHT, 1.0),
        (LEAP, "def is_leap(year):\n    return year % 4 == 0", 3 / 4),
    ],
)
def test_the_checks_are_real(task, draft, score):
    judge = panel((task.check,), threshold=1.0, run_command=ProcessJail())
    evaluation = asyncio.run(judge(draft, RunContext(Task("t"), "r")))
    assert evaluation.overall_score == pytest.approx(score)
    assert evaluation.satisfactory == (score == 1.0)


def solved(monkeypatch):
    return script(
        monkeypatch, "loaded", ORDER_PAID, ORDER_RIGHT, SECOND_WRONG, SECOND_RIGHT,
        TABLE_FEW, {}, TABLE_FEW | {"date": ""}, LEAP_RIGHT,
    )  # fmt: skip


def test_it_shows_versions_changes_and_a_table(monkeypatch):
    model = solved(monkeypatch)
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "1. An order as JSON" in lines
    assert (
        "    1  0.80  draft          paid must be true only if the money was paid already, not True" in lines
    )
    assert "  * 2  1.00  full rewrite   all criteria met" in lines
    assert "{+false" in result.stdout
    assert "  Returned: version 2, which meets the criteria." in lines
    header = next(at for at, line in enumerate(lines) if line.startswith("task "))
    assert [line.split()[-5:-1] for line in lines[header + 1 : header + 5]] == [
        ["0.80", "1.00", "2", "quality_met"],
        ["0.25", "1.00", "2", "quality_met"],
        ["0.75", "0.75", "3", "plateau"],
        ["1.00", "1.00", "1", "quality_met"],
    ]
    shown = " ".join(result.stdout.split())
    assert "Better than the first draft: 2 of 4. All criteria met: 3 of 4." in shown
    assert "1/4  version 2  1.00  full rewrite   all criteria met" in result.stderr.splitlines()
    assert all(request.max_tokens for request in model.requests)


def test_with_json_stdout_is_one_document(monkeypatch):
    solved(monkeypatch)
    found = document(redraft("demo", "-m", "any:model", "--json"))
    assert (found["model"], found["improved"], found["met"]) == ("any:model", 2, 3)
    assert [task["title"] for task in found["tasks"]] == [task.title for task in TASKS]
    first = found["tasks"][0]
    assert (first["first_score"], first["best_score"], first["best_version"]) == (0.8, 1.0, 2)


def test_a_failing_model_sets_the_exit_code(monkeypatch):
    script(monkeypatch, "loaded", ORDER_PAID, ModelError("It is away."), *[ChatReply("x")] * 20)
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 4
    assert "Error: It is away." in result.stdout
    assert "Leap years" in result.stdout


def test_an_interrupted_demo_shows_the_finished_tasks(monkeypatch):
    model = solved(monkeypatch)
    answer = model._answer

    def interrupted(request):
        if any("second_largest" in message.content for message in request.messages):
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


RERECORD = "The demo's prompts have changed. Record it again: .venv/bin/python demo/record.py"


@pytest.mark.usefixtures("_no_weights")
def test_without_weights_the_recording_is_replayed_and_says_so():
    result = redraft("demo")
    assert result.exit_code == 0, RERECORD + result.stderr + result.stdout
    shown = " ".join(result.stdout.split())
    assert "4 small tasks for a recording of local:qwen2.5-coder-0.5b" in shown
    assert "This is a replay: the model's replies were recorded; the loop and the checks run now." in shown
    assert "redraft demo --model provider:model or local:PATH.gguf" in shown
    assert "seconds" not in shown  # a recording has none of its own
    assert "All criteria met:" in shown


def test_the_recording_holds_the_demo_of_today():
    found = document(redraft("demo", "--replay", "--json"))
    assert found["recorded"] is True
    assert [task["error"] for task in found["tasks"]] == [None] * len(TASKS), RERECORD
    asked = sum(task["token_usage"]["requests"] for task in found["tasks"])
    assert asked == len(RECORDING.read_text("utf-8").splitlines()), RERECORD


def test_the_readme_shows_the_table_of_the_recording():
    shown = Page("README.md").blocks("console")[0]
    assert shown in redraft("demo", "--replay").stdout


def test_a_machine_without_a_jail_leaves_the_tasks_with_code_out(monkeypatch):
    def refuse(*, programs):
        raise SandboxForbiddenError("There is no jail here.")

    monkeypatch.setattr("redraft.demo.check_jail", refuse)
    script(monkeypatch, "loaded", ORDER_RIGHT, TABLE_RIGHT)
    result = redraft("demo", "-m", "any:model")
    assert result.exit_code == 0, result.stderr
    assert "The tasks that run code are left out" in result.stdout
    assert "second_largest" not in result.stdout


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
    monkeypatch.setattr("redraft.demo.REVISIONS", 1)
    result = redraft("demo", "--json")
    assert result.exit_code == 0, result.stderr
    found = document(result)
    (task,) = found["tasks"]
    assert task["best_score"] >= task["first_score"] > 0.5
    assert task["token_usage"]["input_tokens"] > 50
    assert task["token_usage"]["cost_usd"] == 0.0
