from dataclasses import replace

import pytest
from rich.console import Console

from cli_commands import document, put, redraft, script
from kept import GONE, kept, ran, record
from redraft.cli.run_view import run_view, score_tables
from redraft.core.reflection import Reflection
from redraft.core.task import Advice
from versions import history, version


def drawn(renderable, width=80):
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_it_tells_the_run(revised):
    revised("aab", "aaa")
    result = redraft("show", "last")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "redraft revise with any:model, just now" in lines[0]
    assert lines[1] == "  Write three letters a."
    assert "Best: version 3, 1.00, which meets the criteria   ▁▁█" in lines
    assert lines[4].startswith("Stopped: the quality threshold was met. Version 3 scored 1.00 >= 1.00, and")
    table = [line.split() for line in lines]
    assert ["needs", "1", "2", "*3"] in table
    assert ["three", "0.70", "0.00", "<", "0.00", "<", "1.00"] in table
    assert "after the best  nothing" in lines


@pytest.mark.parametrize(
    ("name", "output"), [("first", "ab"), ("2", "aab"), ("v2", "aab"), ("best", "aaa"), ("last", "aaa")]
)
def test_a_versions_output_is_all_that_stdout_gets(revised, name, output):
    revised("aab", "aaa")
    assert redraft("show", "last", "--version", name).stdout == f"{output}\n"
    found = document(redraft("show", "last", "--version", name, "--json"))
    assert found["version"]["output"] == output


def test_a_unique_beginning_is_enough(revised):
    revised("aaa")
    run_id = document(redraft("show", "last", "--json"))["run_id"]
    assert document(redraft("show", run_id[:-3], "--json"))["run_id"] == run_id
    revised("aaa")
    result = redraft("show", run_id[:4])
    assert result.exit_code == 2
    assert "Several runs begin with" in result.stderr


@pytest.mark.parametrize("command", [["show"], ["why"], ["diff"], ["resume"], ["export", "--json"]])
def test_nothing_is_the_beginning_of_no_run(revised, command):
    revised("aaa")
    name, *more = command
    assert "There is no run '' here" in redraft(name, "", *more).stderr


@pytest.mark.parametrize("command", [["show"], ["why"], ["diff"], ["resume"], ["export", "--json"]])
def test_a_run_that_is_not_there_is_an_error(project, command):
    name, *more = command
    result = redraft(name, "nonsense", *more)
    assert result.exit_code == 2
    assert "There is no run 'nonsense' here; `redraft runs` lists those that there are." in result.stderr
    assert "No run is kept here yet." in redraft(name, "last", *more).stderr


def test_prompts_are_word_for_word(revised):
    revised("aab", "a\x1b[31maa")
    shown = redraft("show", "last", "--prompts").stdout
    assert "version 2, revise: model" in shown
    assert "--- user\nWrite three letters a." in shown
    assert "=== reply\na\\x1b[31maa" in shown
    steps = document(redraft("show", "last", "--prompts", "--json"))["steps"]
    assert [step["name"].split()[0] for step in steps if "/" not in step["place"]] == [
        *("evaluate", "revise", "evaluate", "revise", "evaluate")
    ]
    assert "steps" not in document(redraft("show", "last", "--json"))


def test_json_has_the_whole_record(revised):
    revised("aab", "aaa")
    found = document(redraft("show", "last", "--json"))
    assert (found["status"], found["reason"], found["best"], found["draft"]) == (
        "finished",
        "quality_met",
        3,
        "ab",
    )
    assert found["why"]["rule"] == "quality_met"
    assert found["after_best"]["versions"] == 0
    assert found["origin"]["arguments"] == ["revise", "d.txt", "-c", "c.yaml", "-m", "any:model"]


def test_what_acts_on_a_terminal_is_spelt_out(project):
    evil = "\x1b]0;owned\x07"
    put(record([version(1, 0.5, evil, issues=(evil,))], "plateau", diagnostics={"a": evil}, run_id="evil"))
    for command in ("show", "why", "diff", "runs"):
        result = redraft(command, *([] if command == "runs" else ["evil"]))
        assert result.exit_code == 0, result.stderr
        assert "\x1b" not in result.stdout
    assert redraft("show", "evil", "--version", "1").stdout == f"{evil}\n"


def test_a_run_that_was_killed_says_so(project):
    put(record([], process=GONE, run_id="gone"))
    assert "State: its process ended before the run did." in redraft("show", "gone").stdout
    assert [row["status"] for row in document(redraft("runs", "--status", "killed", "--json"))["runs"]] == [
        "killed"
    ]
    assert document(redraft("runs", "--status", "running", "--json"))["runs"] == []


def test_advice_and_looks_back_are_shown():
    looks = Reflection("error", "Try another tool.", 2, 4), Reflection("manual", "", 2, problem="away")
    advice = Advice("Be brief.", "notes", "same task", 3)
    run = kept(history(0.5), "plateau", advice=(advice,), reflections=looks)
    lines = drawn(run_view(run, 80))
    assert "notes, same task, 3 tokens" in lines
    assert "  Be brief." in lines
    assert lines[lines.index("error, version 2, step 4") + 1] == "  Try another tool."
    assert "  away" in lines


def test_many_versions_go_into_tables_that_fit():
    run = kept(history(*[number / 30 for number in range(30)]), "plateau")
    for width in (60, 80, 120):
        lines = [line for table in score_tables(run, width) for line in drawn(table, width)]
        assert max(map(len, lines)) <= width
        scores = [line.split()[2:] for line in lines if line.startswith("score")]
        assert sum(len([cell for cell in row if cell != "<"]) for row in scores) == 30


def test_without_utf_8_there_are_no_bars():
    run = ran(("a", 0.2), ("b", 0.9))
    assert all(line.isascii() for line in drawn(run_view(replace(run), 80, is_utf8=False)))


def test_checks_are_kept_too(project, monkeypatch):
    script(monkeypatch)
    result = redraft("check", "d.txt", "-c", "c.yaml")
    assert result.stderr.startswith("Kept as ")
    assert "redraft check, just now" in redraft("show", "last").stdout
