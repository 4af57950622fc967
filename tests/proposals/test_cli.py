"""`redraft criteria`."""

import ast
import json

import pytest

from redraft import ScriptedModel
from redraft.loop.criteria_file import read_criteria
from support.commands import always, document, redraft
from support.recurring import dated, samples


@pytest.fixture
def rows(project):
    """Files of good and bad outputs, a row each."""
    bad, good = samples(dated)
    for name, side in (("good.jsonl", good), ("bad.jsonl", bad)):
        lines = [json.dumps({"task": "Write it.", "output": one.output}) for one in side]
        (project / name).write_text("\n".join(lines))
    return project


def test_examples_in_rows_become_a_check(rows):
    data = document(redraft("criteria", "propose", "--good", "good.jsonl", "--bad", "bad.jsonl", "--json"))
    [one] = data["criteria"]
    assert one["check"] == "Contains text of the form YYYY-MM-DD"
    assert one["criterion"]["evaluator"] == "regex"
    assert one["refused_wrongly"]["count"] == 0
    assert one["caught"]["count"] == one["caught"]["of"] == 10
    assert one["held_out"]["caught"] == 10


def test_a_table_with_an_example_of_each(rows, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    output = redraft("criteria", "--good", "good.jsonl", "--bad", "bad.jsonl").stdout
    assert all(len(line) <= 80 for line in output.splitlines())
    assert "10 of 10" in output
    assert "refuses   'Order of" in output
    assert "passes    'Order of" in output


def test_texts_of_examples_can_not_steer_a_terminal(project):
    for number in range(3):
        (project / f"g{number}.txt").write_text(f"tea {number} \x1b]0;gotcha\x07 regards")
        (project / f"b{number}.txt").write_text(f"tea {number} \x1b]0;gotcha\x07")
    words = [word for number in range(3) for word in ("--good", f"g{number}.txt", "--bad", f"b{number}.txt")]
    assert "\x1b" not in redraft("criteria", *words).stdout


def test_an_example_keeps_its_white_space(project):
    for number in range(3):
        (project / f"g{number}.txt").write_text(f"tea {number}:\n  a regards")
        (project / f"b{number}.txt").write_text(f"tea {number}:\n  a  b")
    words = [word for number in range(3) for word in ("--good", f"g{number}.txt", "--bad", f"b{number}.txt")]
    assert r"refuses  'tea 0:\n  a  b'" in redraft("criteria", *words).stdout


def test_few_examples_give_several_checks_to_choose_from(project):
    for name, text in {
        "g1": "Dear Ada, the tea costs 4 euros.\n\nBest regards",
        "g2": "Dear Bob, the lamp costs 9 euros and 20 cents.\n\nBest regards",
        "b1": "Hi! The lamp is cheap.",
        "b2": "Hi Ada! Tea is cheap. Buy!",
    }.items():
        (project / name).write_text(text)
    data = document(
        redraft("criteria", "--good", "g1", "--good", "g2", "--bad", "b1", "--bad", "b2", "--json")
    )
    checks = [criterion["check"] for criterion in data["criteria"]]
    assert 'Ends with "Best regards"' in checks or 'Begins with "Dear"' in checks
    assert (
        "Has no exclamation mark." in checks
        or "Does not contain an exclamation mark" in checks
        or len(checks) > 2
    )
    assert all("too few to tell" in criterion["weakness"] for criterion in data["criteria"])


def test_a_task_alone_is_enough_and_checks_that_refuse_good_examples_are_left_out(project):
    task = "Write an offer in at most 6 words. Use no exclamation marks."
    both = document(redraft("criteria", "--task", task, "--json"))["criteria"]
    assert [one["drafted_by"] for one in both] == ["task", "task"]
    (project / "good.txt").write_text("This offer of ours has more than six words in it.")
    [one] = document(redraft("criteria", "--task", task, "--good", "good.txt", "--json"))["criteria"]
    assert one["check"] == "Has no exclamation mark"


def test_each_check_is_listed_once_and_sentences_without_a_check_are_named(project):
    task = "Write a commit message. At most 12 words, e.g. six. Be polite. Never use the word 'cheap'."
    result = redraft("criteria", "--task", task)
    assert result.stdout.count("Has at most 12 words") == 1
    assert result.stdout.count('"cheap"') == 1
    assert result.stderr.splitlines()[:3] == [
        "No check was made of:",
        "  Write a commit message.",
        "  Be polite.",
    ]
    found = document(redraft("criteria", "--task", task, "--json"))
    assert found["without_check"] == ["Write a commit message.", "Be polite."]
    assert redraft("criteria", "--task", "At most 12 words.").stderr == ""


def test_written_after_a_question_or_printed_as_python(project):
    command = ("criteria", "--task", "Answer in at most 6 words.", "--write", "criteria.yaml")
    refused = redraft(*command)
    assert refused.exit_code == 2
    assert not (project / "criteria.yaml").exists()
    assert "Written into criteria.yaml: Has at most 6 words." in redraft(*command, "--yes").stderr
    assert [criterion.name for criterion in read_criteria(project / "criteria.yaml").criteria] == [
        "Has at most 6 words"
    ]
    assert "checks that already" in redraft(*command, "--yes").stderr
    printed = redraft("criteria", "--task", "Answer in at most 6 words.", "--python").stdout
    assert "'Has at most 6 words'" in ast.unparse(ast.parse(printed))


def test_a_model_asks_what_no_check_decides_and_its_question_is_tried(project, monkeypatch):
    for name in ("good", "bad"):
        (project / f"{name}.txt").write_text(f"A {name} tea.")
    reply = {"checks": [], "questions": ["Praises the tea.", "Names a price."]}

    def answer(request):
        if request.role == "reflection":
            return json.dumps(reply)
        text = request.messages[-1].content
        [name] = request.schema["properties"]["criteria"]["properties"]
        score = 1.0 if name == "praises_the_tea" and "A good tea." in text else 0.0
        return {
            "criteria": {name: {"reason": "...", "score": score}},
            "issues": [],
            "suggestions": [],
            "confidence": 1,
        }

    monkeypatch.setattr("redraft.proposals.cli.model_of", always(ScriptedModel(answer)))
    words = (
        "--task",
        "Praise it.",
        "--good",
        "good.txt",
        "--bad",
        "bad.txt",
        "--model",
        "any:model",
        "--json",
    )
    found = document(redraft("criteria", *words))["criteria"]
    judged = [one for one in found if one["criterion"].get("evaluator", "llm") == "llm"]
    assert [one["check"] for one in judged] == ["Praises the tea."]
    assert judged[0]["caught"]["count"] == 1
    assert found[-1] == judged[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Give --task"),
        (("--bad", "d.txt"), "Give --good, too"),
        (("--good", "d.txt", "--bad", "nowhere.txt"), "nowhere.txt"),
        (("--good", "d.txt", "--bad", "rows.jsonl"), "row 1: there is no output"),
        (("--task", "x", "--json", "--python"), "not both"),
    ],
)
def test_bad_input_is_named(project, words, message):
    (project / "rows.jsonl").write_text('{"score": 1}')
    result = redraft("criteria", *words)
    assert result.exit_code == 2
    assert message in result.stderr
