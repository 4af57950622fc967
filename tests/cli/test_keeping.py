import json
from pathlib import Path

import pytest

from cli_commands import document, redraft, script


def test_what_is_kept_says_so_on_stderr(revised):
    result = revised("aaa")
    assert result.stdout == "aaa\n"
    run_id = document(redraft("show", "last", "--json"))["run_id"]
    assert f"Kept as {run_id}; redraft show last" in result.stderr.splitlines()


@pytest.mark.parametrize("words", [["revise", "-m", "any:model"], ["check"]])
def test_no_keep_keeps_nothing(project, monkeypatch, words):
    name, *more = words
    script(monkeypatch, "aaa")
    result = redraft(name, "d.txt", "-c", "c.yaml", *more, "--no-keep")
    assert "Kept" not in result.stderr
    assert not (project / ".redraft").exists()


def test_a_store_that_cannot_be_written_costs_no_answer(revised, project):
    (project / ".redraft").write_text("this is no folder")
    result = revised("aaa")
    assert (result.exit_code, result.stdout) == (0, "aaa\n")
    assert "Note: The run is not kept: " in " ".join(result.stderr.split())
    assert "Kept as" not in result.stderr


@pytest.mark.parametrize("words", [[], ["--no-keep"]])
def test_events_are_lines_of_json(revised, project, words):
    revised("aaa", words=["--events", "events.jsonl", *words])
    events = [json.loads(line) for line in (project / "events.jsonl").read_text().splitlines()]
    assert events[0]["event"] == "run_started"
    assert events[-1]["event"] == "run_finished"
    assert sum(event["event"] == "version_evaluated" for event in events) == 2
    assert len({event["run_id"] for event in events}) == 1


def test_all_runs_of_a_demo_go_into_one_file(project, monkeypatch):
    monkeypatch.setattr("redraft.cli.demo_run.REVISIONS", 0)
    script(monkeypatch, "loaded", *["x"] * 4)
    assert redraft("demo", "-m", "any:model", "--events", "e.jsonl").exit_code == 0
    events = [json.loads(line) for line in (project / "e.jsonl").read_text().splitlines()]
    assert sum(event["event"] == "run_finished" for event in events) == 4
    assert len(document(redraft("runs", "--json"))["runs"]) == 4


@pytest.mark.parametrize("place", ["-", ".", "no/such/folder.jsonl"])
@pytest.mark.parametrize("command", ["check", "revise", "demo"])
def test_events_that_cannot_be_written_are_refused_before_anything_is_spent(
    project, monkeypatch, command, place
):
    model = script(monkeypatch, "aaa")
    files = [] if command == "demo" else ["d.txt", "-c", "c.yaml"]
    result = redraft(command, *files, "-m", "any:model", "--events", place)
    assert result.exit_code == 2
    assert ("--events - would mix" if place == "-" else "can't be written to") in result.stderr
    assert model.requests == []


def test_events_may_have_stdout_where_it_is_free(revised):
    result = revised("aaa", words=["--events", "-", "-o", "out.txt"])
    assert {json.loads(line)["schema_version"] for line in result.stdout.splitlines()} == {1}
    assert Path("out.txt").exists()
    assert revised("aaa", words=["--events", "-", "-o", "two.txt", "--json"]).exit_code == 2
