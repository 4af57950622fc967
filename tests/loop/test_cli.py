import io
import json
import re
import sys
import time
from pathlib import Path

import pytest

from redraft import Issue, ModelError, TokenUsage
from redraft.events import StepFinished, StepStarted, TokenEvent
from redraft.loop.cli import Progress, issue_line
from redraft.protocols import ChatReply
from redraft.terminal.console import CalmConsole
from support.commands import THREE_A, document, redraft, script


@pytest.fixture
def criteria(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(THREE_A)
    return path


@pytest.mark.parametrize(
    ("draft", "code", "message"), [("aaa", 0, "1.00  met"), ("ab", 1, "0.00  not met, needs 1.00")]
)
def test_the_verdict_is_the_exit_code(criteria, draft, code, message):
    result = redraft("check", "-", "-c", criteria, stdin=draft)
    assert result.exit_code == code
    assert result.stdout.startswith(message)
    assert result.stderr == ""


def test_issues_are_shown_next_to_their_criterion(criteria):
    lines = redraft("check", "-", "-c", criteria, stdin="x\nb aaa").stdout.splitlines()
    assert lines[2:] == ["1.00  three", "0.00  no b   line 2: Found forbidden: 'b' ('b' in 'b aaa')"]


def test_check_as_json_has_the_evaluation(criteria, tmp_path):
    (tmp_path / "d.txt").write_text("aab")
    verdict = document(redraft("check", tmp_path / "d.txt", "-c", criteria, "--json"))
    assert verdict["satisfactory"] is False
    assert verdict["run_id"]
    assert verdict["evaluation"]["criteria_scores"] == {"three": 0.0, "no b": 0.0}
    assert verdict["evaluation"]["issues"][0]["criterion"] == "three"


def judged(score):
    return {
        "criteria": {"kind": {"reason": "r", "score": score}},
        "issues": [],
        "suggestions": ["Smile."],
        "confidence": 1.0,
    }


def test_a_model_judges_only_if_a_criterion_needs_one(monkeypatch, tmp_path):
    (tmp_path / "c.yaml").write_text("task: Greet.\ncriteria: [{name: kind, description: It is kind.}]")
    model = script(monkeypatch, ModelError("no"))
    result = redraft("check", "-", "-c", tmp_path / "c.yaml", "-m", "any:model", stdin="Hello")
    assert result.exit_code == 4
    assert "not judged" in result.stdout
    assert "Error: no" in result.stdout
    assert "Greet." in model.requests[0].messages[-1].content


def test_the_criteria_file_says_how_the_model_judges(monkeypatch, tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("judge_samples: 2\naccept: pairwise\ncriteria: [{name: kind, description: It is kind.}]")
    model = script(monkeypatch, judged(0.4), judged(0.6))
    verdict = document(redraft("check", "-", "-c", file, "-m", "any:model", "--json", stdin="Hello"))
    assert verdict["evaluation"]["overall_score"] == 0.5
    assert len(model.requests) == 2, "a draft alone is compared with nothing"
    better = {"reason": "so", "winner": "B"}
    model = script(
        monkeypatch, *[judged(0.1), judged(0.2)], "Hi", *[judged(0.3), judged(0.4)], better, better
    )
    redraft("revise", "-", "-c", file, "-m", "any:model", "--max-iterations", "1", stdin="Hello")
    assert [request.role for request in model.requests].count("evaluation") == 6


def test_check_asks_for_a_missing_model(tmp_path):
    (tmp_path / "c.yaml").write_text("- It is kind.")
    result = redraft("check", "-", "-c", tmp_path / "c.yaml", stdin="Hello")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: There is no model to judge 'It is kind.': use --model NAME, set REDRAFT_MODEL, or `model` in "
        "redraft.toml.\n"
    )


@pytest.mark.parametrize(
    ("file", "stdin", "message"),
    [
        ("no.txt", None, "cannot be read: No such file"),
        ("-", " \n", "The draft standard input is empty."),
        (".", None, "Is a directory"),
    ],
)
def test_an_unreadable_or_empty_draft_is_an_error(criteria, file, stdin, message):
    result = redraft("check", file, "-c", criteria, stdin=stdin)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_a_function_is_imported_from_the_folder_of_the_criteria(tmp_path):
    name = "checks_beside_the_criteria"
    (tmp_path / f"{name}.py").write_text("def warm(text):\n    return 'tea' in text, 'It is cold.'\n")
    config = f"{{function: '{name}:warm'}}"
    (tmp_path / "c.yaml").write_text(f"- {{name: warm, evaluator: function, config: {config}}}")
    before = list(sys.path)
    assert redraft("check", "-", "-c", tmp_path / "c.yaml", stdin="tea").exit_code == 0
    assert "It is cold." in redraft("check", "-", "-c", tmp_path / "c.yaml", stdin="ice").stdout
    assert sys.path == before
    del sys.modules[name]


def test_a_binary_draft_is_an_error(criteria, tmp_path):
    (tmp_path / "d.bin").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in redraft("check", tmp_path / "d.bin", "-c", criteria).stderr


def test_an_error_in_a_function_names_the_criterion(tmp_path, monkeypatch):
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


def test_the_id_of_a_stored_run_is_on_stderr(revised):
    result = revised("aaa")
    assert result.stdout == "aaa\n"
    run_id = document(redraft("show", "last", "--json"))["run_id"]
    assert f"Stored as {run_id}; redraft show last" in result.stderr.splitlines()


@pytest.mark.parametrize("words", [["revise", "-m", "any:model"], ["check"]])
def test_no_keep_keeps_nothing(project, monkeypatch, words):
    name, *more = words
    script(monkeypatch, "aaa")
    result = redraft(name, "d.txt", "-c", "c.yaml", *more, "--no-keep")
    assert "Kept" not in result.stderr
    assert not (project / ".redraft").exists()


def test_an_unwritable_store_costs_no_answer(revised, project):
    (project / ".redraft").write_text("this is no folder")
    result = revised("aaa")
    assert (result.exit_code, result.stdout) == (0, "aaa\n")
    assert "Note: The run is not stored: " in " ".join(result.stderr.split())
    assert "Stored as" not in result.stderr


@pytest.mark.parametrize("words", [[], ["--no-keep"]])
def test_events_are_lines_of_json(revised, project, words):
    revised("aaa", words=["--events", "events.jsonl", *words])
    events = [json.loads(line) for line in (project / "events.jsonl").read_text().splitlines()]
    assert events[0]["event"] == "run_started"
    assert events[-1]["event"] == "run_finished"
    assert sum(event["event"] == "version_evaluated" for event in events) == 2
    assert len({event["run_id"] for event in events}) == 1


def test_all_runs_of_a_demo_go_into_one_file(project, monkeypatch):
    monkeypatch.setattr("redraft.demo.cli.REVISIONS", 0)
    script(monkeypatch, "loaded", *["x"] * 7)
    assert redraft("demo", "-m", "any:model", "--events", "e.jsonl").exit_code == 0
    events = [json.loads(line) for line in (project / "e.jsonl").read_text().splitlines()]
    assert sum(event["event"] == "run_finished" for event in events) == 7
    assert len(document(redraft("runs", "--json"))["runs"]) == 6  # the last one has a store of its own


@pytest.mark.parametrize(
    ("command", "place"), [("check", "-"), ("revise", "."), ("revise", "no/such/folder.jsonl"), ("demo", "-")]
)
def test_unwritable_events_are_rejected_before_any_call(project, monkeypatch, command, place):
    model = script(monkeypatch, "aaa")
    files = [] if command == "demo" else ["d.txt", "-c", "c.yaml"]
    result = redraft(command, *files, "-m", "any:model", "--events", place)
    assert result.exit_code == 2
    assert ("--events - would mix" if place == "-" else "can't be written to") in result.stderr
    assert model.requests == []


def test_events_go_to_stdout_if_nothing_else_does(revised):
    result = revised("aaa", words=["--events", "-", "-o", "out.txt"])
    assert {json.loads(line)["schema_version"] for line in result.stdout.splitlines()} == {1}
    assert Path("out.txt").exists()
    assert revised("aaa", words=["--events", "-", "-o", "two.txt", "--json"]).exit_code == 2


@pytest.fixture
def revise(criteria):
    def revise(*words, stdin="ab"):
        return redraft("revise", "-", "-c", criteria, "-m", "any:model", *words, stdin=stdin)

    return revise


def test_revise_prints_only_the_best_version(monkeypatch, revise):
    script(monkeypatch, "aab", "aaa")
    result = revise()
    assert result.exit_code == 0
    assert result.stdout == "aaa\n"
    lines = result.stderr.splitlines()
    assert lines[0].startswith("version 1  0.00  given")
    assert "version 3  1.00  full rewrite   all criteria met" in lines
    assert "Stopped: the quality threshold was met." in lines
    assert "Returned: version 3, which meets the criteria." in lines


def test_revise_as_json_has_the_versions(monkeypatch, revise):
    script(monkeypatch, "aaa")
    verdict = document(revise("--json"))
    assert (verdict["success"], verdict["best_output"], verdict["best_version"]) == (True, "aaa", 2)
    assert verdict["convergence_reason"] == "quality_met"
    assert [version["output"] for version in verdict["versions"]] == ["ab", "aaa"]


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
def test_the_exit_code_of_revise(monkeypatch, revise, replies, words, code, stdout):
    script(monkeypatch, *replies)
    result = revise(*words)
    assert (result.exit_code, result.stdout) == (code, stdout)


def test_revise_follows_the_strategy(monkeypatch, revise):
    model = script(monkeypatch, "aaa")
    revise("--strategy", "incremental")
    assert "Build on your answer" in model.requests[0].messages[-1].content


def test_revise_is_bounded_in_seconds(monkeypatch, revise):
    model = script(monkeypatch)
    model._answer = lambda _request: time.sleep(0.06) or "b"
    assert revise("--budget-seconds", "0.05").exit_code == 3


def test_revise_overwrites_only_by_force(monkeypatch, revise, tmp_path):
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


def test_a_file_created_meanwhile_is_not_overwritten(monkeypatch, revise, tmp_path):
    out = tmp_path / "out.txt"
    model = script(monkeypatch, "aaa")
    model._answer = lambda _request: out.write_text("mine") and "aaa"
    result = revise("-o", out)
    assert (result.exit_code, result.stdout, out.read_text()) == (2, "aaa\n", "mine")


@pytest.mark.parametrize("draft", [b"tea\r\nice\r\n", b"\xef\xbb\xbftea\nice\n", b"\xef\xbb\xbftea\r\nice"])
def test_a_draft_is_judged_the_same_in_a_file_and_on_standard_input(criteria, tmp_path, draft):
    criteria.write_text(
        "criteria:\n"
        "- {name: lines, evaluator: regex, config: {pattern: '(?m)^tea$'}, gate: true}\n"
        "- {name: own, evaluator: function, config: {function: 'checks:is_tea'}}\n"
    )
    (tmp_path / "checks.py").write_text("def is_tea(text):\n    return text.rstrip() == 'tea\\nice'\n")
    (tmp_path / "draft.txt").write_bytes(draft)
    by_file = redraft("check", tmp_path / "draft.txt", "-c", criteria)
    by_input = redraft("check", "-", "-c", criteria, stdin=draft)
    assert by_file.stdout == by_input.stdout
    assert (by_file.exit_code, by_input.exit_code) == (0, 0), by_file.stdout


def test_a_revision_keeps_the_line_breaks_of_its_file(monkeypatch, criteria, tmp_path):
    file, out = tmp_path / "draft.txt", tmp_path / "out.txt"
    file.write_bytes(b"first\r\nab\r\nlast\r\n")
    script(monkeypatch, "<<<<<<< SEARCH\nab\n=======\naaa\n>>>>>>> REPLACE")
    arguments = ("-c", criteria, "-m", "any:model", "--strategy", "targeted_edit", "--max-iterations", "1")
    redraft("revise", file, *arguments, "-o", out)
    assert out.read_bytes() == b"first\r\naaa\r\nlast\r\n"


@pytest.mark.parametrize("out", [".", "no/such/folder.txt"])
def test_an_unwritable_output_is_rejected_before_any_call(monkeypatch, revise, out):
    model = script(monkeypatch, "aaa")
    assert revise("-o", out).exit_code == 2
    assert model.requests == []


def test_without_a_task_the_draft_is_the_material(monkeypatch, revise, criteria):
    criteria.write_text(THREE_A.replace("task: Write three letters a.\n", ""))
    model = script(monkeypatch, "aaa")
    revise(stdin="some words of mine")
    assert "some words of mine" in model.requests[0].messages[1].content


def test_revise_needs_a_model(criteria):
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


def test_a_defect_has_its_own_exit_code(monkeypatch, revise):
    def broken(_given, _settings):
        raise KeyError("oops")

    monkeypatch.setattr("redraft.loop.cli.model_of", broken)
    result = revise()
    assert result.exit_code == 70
    assert result.stderr.startswith("Bug in Redraft: KeyError: 'oops'\n")


@pytest.mark.parametrize(
    ("issue", "shown"),
    [
        (Issue("It is missing."), "It is missing."),
        (Issue("expected a number", path="age"), "age: expected a number"),
        (Issue("age: expected a number", path="age"), "age: expected a number"),
        (Issue("ages are missing", path="age"), "age: ages are missing"),
        (Issue("found\n'b'", line=3), "line 3: found\\n'b'"),
        (Issue("line 3: found 'b'", line=3), "line 3: found 'b'"),
    ],
)
def test_an_issue_names_its_location_once(issue, shown):
    assert issue_line(issue).plain == shown


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_of(monkeypatch, *events):
    """The last frame of the progress on a terminal after these events."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    progress = Progress(CalmConsole(stderr=True))
    with progress:
        for event in events:
            (progress.on_token if isinstance(event, TokenEvent) else progress)(event)
    frame = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue())
    return [line.rstrip() for line in re.split(r"[\r\n]+", frame) if line.strip()]


def token(text, attempt=1):
    return TokenEvent("r", text, 1, "draft", attempt)


def test_the_end_of_what_a_model_writes_is_shown(monkeypatch):
    lines = [f"line {number}\n" for number in range(9)]
    started = StepStarted("r", "generate")
    assert shown_of(monkeypatch, started, *map(token, lines), token("and\x1b[2J so on"))[-4:] == [
        "  line 6",
        "  line 7",
        "  line 8",
        "  and\\x1b[2J so on",
    ]
    long = shown_of(monkeypatch, started, *(token(f"word{number} ") for number in range(100)))
    assert long[-1].endswith("word99")
    assert max(map(len, long)) <= 40


def test_of_several_attempts_the_latest_is_shown_until_it_is_written(monkeypatch):
    started, finished = StepStarted("r", "generate"), StepFinished("r", "generate", None, 1.0)
    pieces = token("old"), token("new ", 2), token("er", 1), token("text", 2)
    assert shown_of(monkeypatch, started, *pieces)[-1] == "  new text"
    assert "new text" not in "".join(shown_of(monkeypatch, started, *pieces, finished)[-1:])


def test_a_command_streams_only_to_a_terminal(criteria, monkeypatch):
    asked = []

    class Model:
        async def __call__(self, request):
            asked.append("call")
            return ChatReply("aaa")

        async def stream(self, request, on_text):
            asked.append("stream")
            on_text("aaa")
            return ChatReply("aaa")

    monkeypatch.setattr("redraft.loop.cli.model_of", lambda *_: Model())
    words = ("revise", "-", "-c", criteria, "-m", "any:model", "--no-keep")
    assert redraft(*words, stdin="x").stdout == "aaa\n"
    monkeypatch.setattr(Progress, "is_live", True)
    assert redraft(*words, stdin="x").stdout == "aaa\n"
    assert asked == ["call", "stream"]
