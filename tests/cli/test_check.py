import sys

import pytest

from cli_commands import THREE_A, document, redraft, script
from redraft import ModelError


@pytest.fixture
def criteria(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(THREE_A)
    return path


@pytest.mark.parametrize(
    ("draft", "code", "says"), [("aaa", 0, "1.00  met"), ("ab", 1, "0.00  not met, needs 1.00")]
)
def test_the_verdict_is_the_exit_code(criteria, draft, code, says):
    result = redraft("check", "-", "-c", criteria, stdin=draft)
    assert result.exit_code == code
    assert result.stdout.startswith(says)
    assert result.stderr == ""


def test_what_failed_stands_beside_its_criterion(criteria):
    lines = redraft("check", "-", "-c", criteria, stdin="x\nb aaa").stdout.splitlines()
    assert lines[2:] == ["1.00  three", "0.00  no b   line 2: Found forbidden: 'b' ('b')"]


def test_json_holds_the_evaluation(criteria, tmp_path):
    (tmp_path / "d.txt").write_text("aab")
    found = document(redraft("check", tmp_path / "d.txt", "-c", criteria, "--json"))
    assert found["satisfactory"] is False
    assert found["evaluation"]["criteria_scores"] == {"three": 0.0, "no b": 0.0}
    assert found["evaluation"]["issues"][0]["criterion"] == "three"


def judged(score):
    return {
        "criteria": [{"name": "kind", "reason": "r", "score": score}],
        "issues": [],
        "suggestions": ["Smile."],
        "confidence": 1.0,
    }


def test_a_judge_is_asked_where_a_criterion_needs_one(monkeypatch, tmp_path):
    (tmp_path / "c.yaml").write_text("task: Greet.\ncriteria: [{name: kind, description: It is kind.}]")
    model = script(monkeypatch, ModelError("no"))
    result = redraft("check", "-", "-c", tmp_path / "c.yaml", "-m", "any:model", stdin="Hello")
    assert result.exit_code == 4
    assert "not judged" in result.stdout
    assert "Error: no" in result.stdout
    assert "Greet." in model.requests[0].messages[-1].content


def test_a_judge_that_is_missing_is_asked_for(tmp_path):
    (tmp_path / "c.yaml").write_text("- It is kind.")
    result = redraft("check", "-", "-c", tmp_path / "c.yaml", stdin="Hello")
    assert result.exit_code == 2
    assert (
        result.stderr
        == "Error: No model was given: use --model NAME, set REDRAFT_MODEL, or `model` in redraft.toml.\n"
    )


@pytest.mark.parametrize(
    ("file", "stdin", "says"),
    [
        ("no.txt", None, "cannot be read: No such file"),
        ("-", " \n", "The draft standard input is empty."),
        (".", None, "Is a directory"),
    ],
)
def test_a_draft_that_is_none_is_an_error(criteria, file, stdin, says):
    result = redraft("check", file, "-c", criteria, stdin=stdin)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


def test_a_function_may_stand_beside_the_criteria(tmp_path):
    name = "checks_beside_the_criteria"
    (tmp_path / f"{name}.py").write_text("def warm(text):\n    return 'tea' in text, 'It is cold.'\n")
    config = f"{{function: '{name}:warm'}}"
    (tmp_path / "c.yaml").write_text(f"- {{name: warm, evaluator: function, config: {config}}}")
    before = list(sys.path)
    assert redraft("check", "-", "-c", tmp_path / "c.yaml", stdin="tea").exit_code == 0
    assert "It is cold." in redraft("check", "-", "-c", tmp_path / "c.yaml", stdin="ice").stdout
    assert sys.path == before
    del sys.modules[name]


def test_a_draft_that_is_no_text_is_an_error(criteria, tmp_path):
    (tmp_path / "d.bin").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in redraft("check", tmp_path / "d.bin", "-c", criteria).stderr


def test_a_mistake_in_a_function_is_named_with_its_criterion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def short(text):\n    return text.lenght < 9\n")
    (tmp_path / "c.yaml").write_text(
        "- {name: short, evaluator: function, config: {function: 'mine:short'}}\n"
    )
    result = redraft("check", "-", "-c", "c.yaml", stdin="a draft")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "Error: The function of the criterion 'short': AttributeError: 'str' object"
    )
