import time

import pytest

from cli_commands import THREE_A, document, redraft, script
from redraft import ChatReply, ModelError, TokenUsage


@pytest.fixture
def criteria(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(THREE_A)
    return path


@pytest.fixture
def revise(criteria):
    def revise(*words, stdin="ab"):
        return redraft("revise", "-", "-c", criteria, "-m", "any:model", *words, stdin=stdin)

    return revise


def test_the_best_version_is_all_that_stdout_gets(monkeypatch, revise):
    script(monkeypatch, "aab", "aaa")
    result = revise()
    assert result.exit_code == 0
    assert result.stdout == "aaa\n"
    lines = result.stderr.splitlines()
    assert lines[0].startswith("version 1  0.00  given")
    assert "version 3  1.00  full rewrite   all criteria met" in lines
    assert "Stopped: the quality threshold was met." in lines
    assert "Returned: version 3, which meets the criteria." in lines


def test_json_tells_the_run(monkeypatch, revise):
    script(monkeypatch, "aaa")
    found = document(revise("--json"))
    assert (found["success"], found["best_output"], found["best_version"]) == (True, "aaa", 2)
    assert found["convergence_reason"] == "quality_met"
    assert [version["output"] for version in found["versions"]] == ["ab", "aaa"]


BIG = ChatReply("aab", usage=TokenUsage(input_tokens=900, output_tokens=200, requests=1, cost_usd=0.5))


@pytest.mark.parametrize(
    ("replies", "words", "code", "stdout"),
    [
        (["b", "bb", "bbb"], ["--max-iterations", "2"], 1, "ab\n"),
        (["aaa"], ["-o", "-"], 0, "aaa\n"),
        ([BIG], ["--budget-tokens", "1000"], 3, "ab\n"),
        ([BIG], ["--budget-usd", "0.4"], 3, "ab\n"),
        ([ModelError("The provider is away.")], [], 4, "ab\n"),
        (["aaa"], ["--max-iterations", "0"], 1, "ab\n"),
        ([], ["--max-iterations", "-1"], 2, ""),
        ([], ["--strategy", "hybird"], 2, ""),
        ([], ["--budget-seconds", "0"], 2, ""),
    ],
)
def test_the_exit_code_says_how_it_ended(monkeypatch, revise, replies, words, code, stdout):
    script(monkeypatch, *replies)
    result = revise(*words)
    assert (result.exit_code, result.stdout) == (code, stdout)


def test_a_strategy_is_followed(monkeypatch, revise):
    model = script(monkeypatch, "aaa")
    revise("--strategy", "incremental")
    assert "Build on your answer" in model.requests[0].messages[-1].content


def test_the_seconds_are_bounded(monkeypatch, revise):
    model = script(monkeypatch)
    model._answer = lambda _request: time.sleep(0.06) or "b"
    assert revise("--budget-seconds", "0.05").exit_code == 3


def test_a_file_is_never_overwritten_silently(monkeypatch, revise, tmp_path):
    out = tmp_path / "out.txt"
    out.write_text("mine")
    model = script(monkeypatch, "aaa")
    result = revise("-o", out)
    assert result.exit_code == 2
    assert "exists; --force lets it be overwritten." in result.stderr
    assert out.read_text() == "mine"
    assert model.requests == []
    result = revise("-o", out, "--force")
    assert (result.exit_code, result.stdout, out.read_text()) == (0, "", "aaa")


def test_a_file_that_came_into_being_meanwhile_stays(monkeypatch, revise, tmp_path):
    out = tmp_path / "out.txt"
    model = script(monkeypatch, "aaa")
    model._answer = lambda _request: out.write_text("mine") and "aaa"
    result = revise("-o", out)
    assert (result.exit_code, result.stdout, out.read_text()) == (2, "aaa\n", "mine")


@pytest.mark.parametrize("out", [".", "no/such/folder.txt"])
def test_a_place_that_cannot_be_written_to_is_refused_first(monkeypatch, revise, out):
    model = script(monkeypatch, "aaa")
    assert revise("-o", out).exit_code == 2
    assert model.requests == []


def test_without_a_task_the_draft_is_the_material(monkeypatch, revise, criteria):
    criteria.write_text(THREE_A.replace("task: Write three letters a.\n", ""))
    model = script(monkeypatch, "aaa")
    revise(stdin="some words of mine")
    assert "some words of mine" in model.requests[0].messages[1].content


def test_a_model_has_to_be_named(criteria):
    result = redraft("revise", "-", "-c", criteria, stdin="x")
    assert result.exit_code == 2
    assert "use --model NAME" in result.stderr


def test_debug_prints_the_traceback(criteria):
    result = redraft("revise", "-", "-c", criteria, "-m", "nonsense", "--debug", stdin="x")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    result = redraft("revise", "-", "-c", criteria, "-m", "nonsense", stdin="x")
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("Error: 'nonsense' is not the name of a model")


def test_a_defect_has_a_code_of_its_own(monkeypatch, revise):
    def broken(_given, _settings):
        raise KeyError("oops")

    monkeypatch.setattr("redraft.cli.running.model_of", broken)
    result = revise()
    assert result.exit_code == 70
    assert result.stderr.startswith("Defect in Redraft: KeyError: 'oops'\n")
