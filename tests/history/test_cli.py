import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
from rich.console import Console

from redraft import (
    Agent,
    Ensemble,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    SqliteStore,
    Task,
)
from redraft.errors import UnfinishedError
from redraft.evals.success import SuccessCriteria, SuccessFigure
from redraft.history.cli import diff_view, run_table, run_view, score_tables, success_view
from redraft.loop.record import Origin, Process
from redraft.loop.version_diff import version_diff
from redraft.types import Advice, Issue, Reflection
from support.commands import document, put, redraft, script
from support.kept_runs import GONE, kept, ran, record
from support.versions import history, version


def test_runs_lists_the_newest_first(revised):
    revised("aab", "aaa")
    revised("b", "bb", "bbb")
    result = redraft("runs")
    assert result.exit_code == 0
    head, second, first = result.stdout.splitlines()
    assert head.split() == ["run", "when", "who", "stopped", "n", "score", "cost", "s", "task"]
    assert first.split("  ")[1:5] == ["just now", "redraft revise", "quality_met", "3"]
    assert "  0.00 > 1.00  ▁▁█  " in first
    assert first.endswith("  Write three letters a.")
    assert second.split()[5:7] == ["plateau", "3"]
    runs = document(redraft("runs", "--json"))["runs"]
    assert [row["reason"] for row in runs] == ["plateau", "quality_met"]
    assert (runs[1]["first_score"], runs[1]["best_score"], runs[1]["satisfactory"]) == (0.0, 1.0, True)
    assert runs[1]["name"] == "redraft revise"


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--status", "finished"], 2),
        (["--status", "killed"], 0),
        (["--reason", "quality_met"], 1),
        (["--name", "redraft revise"], 1),
        (["--name", "redraft check"], 1),
        (["--name", "me"], 0),
        (["--limit", "1"], 1),
        (["--inner"], 2),
    ],
)
def test_runs_is_filtered(revised, words, count):
    revised("aaa")
    redraft("check", "d.txt", "-c", "c.yaml")
    assert len(document(redraft("runs", "--json", *words))["runs"]) == count


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--status", "done"], "Unknown --status 'done'; "),
        (["--reason", "plateu"], "did you mean 'plateau'?"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_runs_rejects_unknown_filters(project, words, says):
    result = redraft("runs", *words)
    assert result.exit_code == 2
    assert says in result.stderr


def test_runs_says_where_it_looked_if_there_are_none(project):
    result = redraft("runs")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert f"No runs are stored in {project}/.redraft/redraft.db yet." in text.replace("/ ", "/")
    assert "try `redraft demo`" in text
    assert not (project / ".redraft").exists()
    assert document(redraft("runs", "--json")) == {
        "schema_version": 1,
        "database": f"{project}/.redraft/redraft.db",
        "runs": [],
    }
    assert "No run in" in redraft("runs", "--status", "failed").stdout


def test_runs_in_a_subfolder_names_the_folder_above_that_has_some(project, monkeypatch):
    (project / ".redraft").mkdir()
    (project / "sub").mkdir()
    (project / "redraft.toml").unlink(missing_ok=True)
    monkeypatch.chdir(project / "sub")
    text = "".join(redraft("runs").stdout.split())
    assert f"{project}hasa.redraftfolder,whichisusedinthatfolderonly,unlessithasaredraft.toml" in text
    (project / "redraft.toml").touch()
    assert "in that folder only" not in redraft("runs").stdout


@pytest.fixture
def own_store(project):
    """The path of a store of the user's own, with a run in it."""
    (project / "own").mkdir()
    model = ScriptedModel(["I like coffee.", "I like tea."])
    tea = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})
    pattern = ReflectionPattern(quality_criteria=[tea])
    Agent(model, pattern=pattern, keep=SqliteStore("own/runs.db")).run_sync("Name a drink.", run_id="mine")
    return "own/runs.db"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["runs"], "Name a drink."),
        (["show", "mine"], "Best: version 2"),
        (["show", "last"], "Best: version 2"),
        (["why", "last"], "quality_met"),
        (["diff", "mine"], "{+tea+}"),
        (["export", "mine", "--json"], '"run_id": "mine"'),
        (["resume", "mine"], "I like tea."),
    ],
)
def test_a_store_of_the_users_own_is_read_with_database(own_store, monkeypatch, command, says):
    monkeypatch.setenv("REDRAFT_HOME", "")  # the project itself stores nothing
    result = redraft(*command, "--database", own_store)
    assert (result.exit_code, says in result.stdout) == (0, True), result.output
    assert redraft(*command).exit_code == 2


def test_the_option_database_holds_for_one_command(own_store, project):
    data = document(redraft("runs", "--json", "--database", own_store))
    assert (data["database"], len(data["runs"])) == (f"{project}/{own_store}", 1)
    assert "--database runs.db" in " ".join(redraft("runs").stdout.split())
    assert document(redraft("runs", "--json"))["runs"] == []


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("runs.db", "There is no database 'runs.db'; give a file, or a URL"),
        ("own", "--database 'own' is a folder; name the file in it"),
        ("c.yaml", "c.yaml is not a SQLite database"),
        ("mysql://me:hush@host/db", "--database: The URL of a PostgreSQL database must be postgresql://"),
    ],
)
def test_a_path_without_a_store_is_refused_and_not_created(own_store, project, path, says):
    result = redraft("why", "last", "--database", path)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
    assert "hush" not in result.output
    assert not (project / "runs.db").exists()


def test_runs_needs_a_home(project, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", "")
    result = redraft("runs")
    assert result.exit_code == 2
    assert "REDRAFT_HOME" in result.stderr


def test_runs_names_a_file_that_is_no_database(project):
    (project / ".redraft").mkdir()
    (project / ".redraft" / "redraft.db").write_text("this is no database " * 100)
    result = redraft("runs")
    assert result.exit_code == 2
    assert "redraft.db" in result.stderr
    assert "Traceback" not in result.stderr


def drawn(renderable, width=80):
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize(
    ("width", "columns"),
    [(80, ["run", "stopped", "n", "score", "task"]),
     (140, ["run", "when", "who", "stopped", "n", "score", "cost", "s", "task"])],
)  # fmt: skip
def test_a_wide_terminal_shows_more_columns(width, columns):
    long = record(history(0.1, 0.5), "semantic_stability", process=GONE)
    head, row, *below = drawn(run_table([long]), width)
    assert head.split() == columns
    assert "▁▅" in row
    assert len(row) <= width
    left_out = {80: ["Left out in 80 columns: s, cost, who, when; --json has all."], 140: []}
    assert below == left_out[width]


@pytest.mark.parametrize(
    ("name", "columns"),
    [("w" * 10, ["run", "stopped", "n", "score", "task"]), ("w" * 16, ["run", "stopped", "score", "task"])],
)
def test_a_narrow_terminal_shows_fewer_columns(name, columns):
    inner = record(history(0.1, 0.5), "semantic_stability", run_id=f"20261122-1200-{name}.12345")
    assert drawn(run_table([inner]))[0].split() == columns


@pytest.mark.parametrize(
    ("fields", "shown"),
    [({}, "running"), ({"process": GONE}, "killed"), ({"status": "cancelled"}, "cancelled")],
)
def test_a_run_without_a_reason_shows_its_state(fields, shown):
    _, row, *_ = drawn(run_table([record(history(0.1), **fields)]))
    assert f"  {shown}  " in row


def test_the_parts_of_a_run_are_shown(revised):
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


def test_gates_weights_and_what_was_not_asked_are_shown(project):
    dated = QualityCriterion("dated", evaluator="regex", evaluator_config={"pattern": "20"}, gate=True)
    judge = ScriptedModel([{"criteria": {"tone": {"score": 1.0}}}])
    agent = Agent(
        ScriptedModel(["Today.", "In 2026."]),
        criteria=[dated, QualityCriterion("tone", weight=2), QualityCriterion("typed", evaluator="regex",
                  evaluator_config={"pattern": "."})],
        judge=judge,
    )  # fmt: skip
    result = agent.run_sync("When?")
    assert "draft, not asked: tone (gate dated not met)  failed: " in result.summary()
    assert "not asked: tone (gate dated not met)" in result._repr_html_()
    lines = redraft("show", "last").stdout.splitlines()
    table = [line.split() for line in lines]
    assert ["needs", "weight", "1", "*2"] in table
    assert ["dated,", "gate", "0.70", "1", "0.00", "<", "1.00"] in table
    assert ["tone", "0.70", "2", "/", "1.00"] in table
    assert "/ not asked, because a gate is not met" in " ".join(" ".join(lines).split())
    assert redraft("export", "last", "--html", project / "run.html").exit_code == 0
    page = (project / "run.html").read_text()
    assert '<th scope="row">dated, gate</th>' in page
    assert '<td title="not asked, because a gate is not met">/</td>' in page


def test_the_type_of_an_output_has_no_threshold(project):
    agent = Agent(
        ScriptedModel(["[]", '{"a": 1}']), output_type={"type": "object"}, criteria=[re.compile("1")]
    )
    agent.run_sync("Count.")
    output = redraft("show", "last").stdout
    assert ["output_type", "0.00"] in [line.split() for line in output.splitlines()]


@pytest.mark.parametrize(
    ("name", "output"), [("first", "ab"), ("2", "aab"), ("v2", "aab"), ("best", "aaa"), ("last", "aaa")]
)
def test_show_prints_only_the_output_of_a_version(revised, name, output):
    revised("aab", "aaa")
    assert redraft("show", "last", "--version", name).stdout == f"{output}\n"
    data = document(redraft("show", "last", "--version", name, "--json"))
    assert data["version"]["output"] == output


def test_candidates_are_shown_explained_and_compared(project):
    run = ran(("a dull text", (0.2, "dull")), ("a lively text", 0.7), candidates=2, max_iterations=0)
    put(run.record)
    detail = "Candidate 2 of 2 is the best by the checks (1: 0.20, 2: 0.70)."
    output = redraft("show", "last").stdout
    assert f"version 1: {detail}" in output
    assert "1.1  0.20  failed: dull" in output
    assert f"Version 1: {detail}" in redraft("why", "last").stdout
    assert redraft("show", "last", "--version", "1.1").stdout == "a dull text\n"
    assert "version 1.1 (0.20) > version 1 (0.70)" in redraft("diff", "last", "1.1", "1").stdout
    compared = document(redraft("diff", "last", "1.1", "1", "--json"))
    assert [compared["from"]["version"], compared["to"]["version"]] == ["1.1", 1]


def test_a_unique_prefix_names_a_run(revised):
    revised("aaa")
    run_id = document(redraft("show", "last", "--json"))["run_id"]
    assert document(redraft("show", run_id[:-3], "--json"))["run_id"] == run_id
    revised("aaa")
    result = redraft("show", run_id[:4])
    assert result.exit_code == 2
    assert "Several runs match" in result.stderr


@pytest.mark.parametrize("command", [["show"], ["why"], ["diff"], ["resume"], ["export", "--json"]])
def test_an_empty_id_names_no_run(revised, command):
    revised("aaa")
    name, *more = command
    assert "There is no run '' here" in redraft(name, "", *more).stderr


@pytest.mark.parametrize("command", [["show"], ["why"], ["diff"], ["resume"], ["export", "--json"]])
def test_an_unknown_id_is_an_error(project, command):
    name, *more = command
    result = redraft(name, "nonsense", *more)
    assert result.exit_code == 2
    assert "There is no run 'nonsense' here; `redraft runs` lists the runs, and " in result.stderr
    assert "`redraft runs --database PATH` those of a store of your own." in result.stderr
    assert "No runs are stored here yet; `redraft runs` says where" in redraft(name, "last", *more).stderr


SECRET = "sk-" + "proj-" + "Qw3rTy7uIoP9aSdF1gHjKl5z"


@pytest.mark.parametrize(
    "words", [("show",), ("show", "--json"), ("show", "--version", "1"), ("diff",), ("diff", "--json")]
)
def test_verbatim_shows_withheld_texts(project, words):
    texts = (f"For Olumide Fashola: {SECRET}", f"For Olumide Fashola, and {SECRET}")
    put(
        record(
            [version(1, 0.5, texts[0], issues=texts[:1]), version(2, 0.6, texts[1])], "plateau", run_id="r"
        )
    )
    command, *more = words
    withheld = redraft(command, "r", *more).stdout
    assert "[withheld: name]" in withheld
    assert "Fashola" not in withheld
    assert SECRET not in withheld
    output = redraft(command, "r", *more, "--verbatim").stdout
    assert "[withheld" not in output
    assert "Olumide Fashola" in output
    assert SECRET in output


def test_an_export_is_never_verbatim(project):
    put(record([version(1, 0.5, "For Olumide Fashola")], "plateau", run_id="r"))
    result = redraft("export", "r", "--json", "--verbatim")
    assert result.exit_code == 2
    assert "--verbatim" in result.stderr


@pytest.mark.parametrize(
    "words", [("show", "--json"), ("show", "--prompts", "--json"), ("show",), ("diff", "--json")]
)
def test_criteria_are_shown_as_they_were_written(project, words):
    says = "The tone of Olumide Fashola, our founder."
    texts = [
        {"name": says, "description": f"{says} Not {SECRET}."},
        {"name": "made up", "description": "As Thandiwe Mokoena, who asked.", "origin": "generated"},
        {"name": "--", "description": ""},
    ]
    criteria = [{**text, "threshold": 0.7} for text in texts]
    versions = [version(1, 0.5, "By Thandiwe Mokoena, today", issues=(says,)), version(2, 0.6, "")]
    run = record(versions, "plateau", run_id="r")
    put(replace(run, options={**run.options, "criteria": criteria}))
    command, *more = words
    result = redraft(command, "r", *more)
    assert result.exit_code == 0, result.stderr
    shown = " ".join(result.stdout.split())
    assert says in shown
    assert SECRET not in shown
    assert "Mokoena" not in shown
    assert says not in redraft("export", "r", "--json").stdout  # which may be shared


def test_prompts_are_shown_verbatim(revised):
    revised("aab", "a\x1b[31maa")
    output = redraft("show", "last", "--prompts").stdout
    assert "version 2, revise: model" in output
    assert "--- user\nWrite three letters a." in output
    assert "=== reply\na\\x1b[31maa" in output
    steps = document(redraft("show", "last", "--prompts", "--json"))["steps"]
    assert [step["name"].split()[0] for step in steps if "/" not in step["place"]] == [
        *("evaluate", "evidence", "revise", "evaluate", "revise", "evaluate")
    ]
    assert "steps" not in document(redraft("show", "last", "--json"))


def test_show_as_json_has_the_whole_record(revised):
    revised("aab", "aaa")
    data = document(redraft("show", "last", "--json"))
    assert (data["status"], data["reason"], data["best"], data["draft"]) == (
        "finished",
        "quality_met",
        3,
        "ab",
    )
    assert data["why"]["rule"] == "quality_met"
    assert data["after_best"]["versions"] == 0
    assert data["origin"]["arguments"] == ["revise", "d.txt", "-c", "c.yaml", "-m", "any:model"]


def test_control_characters_are_escaped_in_every_view(project):
    evil = "\x1b]0;owned\x07"
    put(record([version(1, 0.5, evil, issues=(evil,))], "plateau", diagnostics={"a": evil}, run_id="evil"))
    for command in ("show", "why", "diff", "runs"):
        result = redraft(command, *([] if command == "runs" else ["evil"]))
        assert result.exit_code == 0, result.stderr
        assert "\x1b" not in result.stdout
    assert redraft("show", "evil", "--version", "1").stdout == f"{evil}\n"


def test_a_killed_run_is_shown_as_killed(project):
    put(record([], process=GONE, run_id="gone"))
    assert "State: its process ended before the run did." in redraft("show", "gone").stdout
    assert [row["status"] for row in document(redraft("runs", "--status", "killed", "--json"))["runs"]] == [
        "killed"
    ]
    assert document(redraft("runs", "--status", "running", "--json"))["runs"] == []


def test_the_preference_of_the_judge_is_shown():
    run = kept([version(1, 0.6), version(2, 0.6, preferred=1.0), version(3, 0.6, preferred=0.5)], "plateau")
    lines = drawn(run_view(run, 80))
    at = lines.index("Comparisons")
    assert lines[at + 1 : at + 3] == ["version 2: preferred to the best before", "version 3: not preferred"]


def test_the_model_that_wrote_a_version_is_shown_where_it_is_not_the_only_one():
    versions = [version(1, 0.6, model="a:one"), version(2, 0.9, model="b:two"), version(3, 0.9)]
    lines = drawn(run_view(kept(versions, "plateau", origin=Origin("agent", model="a:one, b:two")), 80))
    at = lines.index("Written by")
    assert lines[at + 1 : at + 4] == ["version 1: a:one", "version 2: b:two", ""]
    lines = drawn(run_view(kept(versions[:1], "plateau", origin=Origin("agent", model="One")), 80))
    assert "Written by" not in lines


def test_advice_and_reflections_are_shown():
    looks = Reflection("error", "Try another tool.", 2, 4), Reflection("manual", "", 2, problem="away")
    advice = Advice("Be brief.", "notes", "same task", 3)
    later = replace(advice, source="later", after="version 1")
    run = kept(history(0.5), "plateau", advice=(advice, later), reflections=looks)
    lines = drawn(run_view(run, 80))
    assert "notes, same task, 3 tokens" in lines
    assert "later, same task, after version 1, 3 tokens" in lines
    assert "  Be brief." in lines
    assert lines[lines.index("error, version 2, step 4") + 1] == "  Try another tool."
    assert "  away" in lines


def test_many_versions_are_split_into_tables_that_fit():
    run = kept(history(*[number / 30 for number in range(30)]), "plateau")
    for width in (60, 80, 120):
        lines = [line for table in score_tables(run, width) for line in drawn(table, width)]
        assert max(map(len, lines)) <= width
        scores = [line.split()[2:] for line in lines if line.startswith("score")]
        assert sum(len([cell for cell in row if cell != "<"]) for row in scores) == 30


def test_without_utf_8_no_sparkline_is_shown():
    run = ran(("a", 0.2), ("b", 0.9))
    assert all(line.isascii() for line in drawn(run_view(replace(run), 80, is_utf8=False)))


def test_a_check_is_stored(project, monkeypatch):
    script(monkeypatch)
    result = redraft("check", "d.txt", "-c", "c.yaml")
    assert result.stderr.startswith("Stored as ")
    assert "redraft check, just now" in redraft("show", "last").stdout


def test_why_names_the_rule_and_the_spend_after_the_best(revised):
    revised("b", "bb", "bbb")
    result = redraft("why", "last")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[2] == "plateau: the best version was not beaten any more."
    assert "plateau_iterations = 2." in " ".join(lines)
    assert "Returned: version 1 (0.00), which falls short:" in lines
    assert "  - the score 0.00 < 1.00" in lines
    assert lines[-1].startswith("Spent after it (2 versions): ")
    data = document(redraft("why", "last", "--json"))
    assert data["why"]["numbers"]["not_better"] == [2, 3]
    assert data["after_best"]["usage"]["requests"] == 2
    assert (data["status"], data["best_version"], data["resuming_call"]) == ("finished", 1, "")


def test_why_tells_how_to_resume_a_failed_run(revised):
    revised(ModelError("It is away."))
    lines = redraft("why", "last").stdout.splitlines()
    assert lines[2] == "error: a step failed for good."
    assert " error " in redraft("runs", "--reason", "error").stdout.splitlines()[-1]
    assert "  The step 'revise' failed after version 1: ModelError: It is away." in lines
    assert lines[-1].startswith("redraft resume ")


def test_a_task_without_criteria_is_never_reported_as_meeting_them(project):
    Ensemble(ScriptedModel(["Leaves."]), [Task("Say what tea is.")]).run_sync()
    told = redraft("why", "last").stdout
    assert told.splitlines()[2:6] == [
        "max_iterations: the maximum number of revisions was made.",
        "  One version was asked for, and there is nothing to judge it by.",
        "",
        "Returned: version 1, which was not judged.",
    ]
    output = redraft("show", "last").stdout
    assert "Best: version 1, which was not judged" in output
    page = project / "run.html"
    assert redraft("export", "last", "--html", page).exit_code == 0
    assert "Version 1 was not judged, because the run has no criteria." in page.read_text()
    for said in (told, output, page.read_text()):
        assert not [words for words in ("meets the", "- could not be judged", "was allowed") if words in said]
    tea = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "Leaves"})
    Ensemble(ScriptedModel(["Leaves."]), [Task("Say what tea is.", criteria=[tea])]).run_sync()
    assert "which meets the criteria" in redraft("show", "last").stdout


def test_diff_compares_the_first_version_with_the_best(revised):
    revised("aab", "aaa b", "aaa")
    lines = redraft("diff", "last").stdout.splitlines()
    assert lines[0] == "version 1 (0.00) > version 4 (1.00)"
    assert "- ab" in lines
    assert "+ aaa" in lines
    points = [line.split("  ", 2)[1] for line in lines if line.startswith("  addressed")]
    assert len(points) == 2


def test_diff_names_the_versions_whose_critique_was_answered(revised):
    revised("aab", "aaa b", "aaa")
    shown = one_line("diff", "last")
    run_id = document(redraft("show", "last", "--json"))["run_id"]
    assert f"`redraft diff {run_id} 3 4` shows the critique that version 4 answers." in shown
    assert "shows the critique" not in one_line("diff", "last", "3", "4")


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (100, "whatever the budget. To have more tried, raise the budget and start a run with a new id."),
        (1, "Raise the budget first: with the same one, the run stops here again. The run mine belongs"),
    ],
)
def test_why_says_how_a_run_that_its_budget_stopped_gets_more(project, tokens, says):
    tea = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})
    pattern = ReflectionPattern(quality_criteria=[tea], budget_tokens=tokens)
    agent = Agent(ScriptedModel(["I like coffee."] * 9), pattern=pattern)
    with suppress(UnfinishedError):
        agent.run_sync("Name a drink.", run_id="mine")
    assert says in one_line("why", "mine")


def one_line(*words):
    return " ".join(redraft(*words).stdout.split())


def test_diff_takes_names_of_versions(revised):
    revised("aab", "aaa b", "aaa")
    data = document(redraft("diff", "last", "v2", "last", "--json"))
    assert (data["from"]["version"], data["to"]["version"]) == (2, 4)
    assert [point["addressed"] for point in data["points"]] == [True, True]
    assert redraft("diff", "last", "9").exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "coloured", "shown"),
    [
        ("a b c", "a x c", False, "a [-b-]{+x+} c"),
        ("a b c", "a x c", True, "a bx c"),
        ({"a": [1, 2]}, {"a": [1], "b": "x"}, False, '/a/1: [-2-]\n/b: {+"x"+}'),
        ('{"a": true}', '{"a": false}', False, "/a: [-true-] {+false+}"),
        ("same", "same", False, "The outputs are the same."),
    ],
)
def test_diff_shows_words_or_fields(old, new, coloured, shown):
    diff = version_diff(version(1, 0.1, old), version(2, 0.2, new))
    plain = "\n".join(str(part) for part in diff_view(diff, "a-run", coloured=coloured).renderables)
    assert shown in plain


def test_diff_names_the_critique_of_each_version():
    diff = version_diff(
        version(1, 0.1, "a", issues=(Issue("long"),)), version(2, 0.2, "b", issues=(Issue("undated"),))
    )
    plain = "\n".join(str(part) for part in diff_view(diff, "a-run", coloured=False).renderables)
    assert "Critique of version 1\n" in plain
    assert "Critique of version 2 only\n" in plain


def test_diff_of_one_version_with_itself(project):
    one = kept([version(1, 0.1)]).version("1")
    assert "Both are the same version" in str(
        diff_view(version_diff(one, one), "a-run", coloured=False).renderables[-1]
    )


def test_export_writes_a_page_and_overwrites_only_by_force(revised, project):
    revised("aaa")
    result = redraft("export", "last", "--html", "run.html")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "read it before you share it" in result.stderr
    page = (project / "run.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "Why it stopped" in page
    (project / "run.html").write_text("mine")
    assert redraft("export", "last", "--html", "run.html").exit_code == 2
    assert (project / "run.html").read_text() == "mine"
    assert redraft("export", "last", "--html", "run.html", "--force").exit_code == 0
    assert redraft("export", "last", "--html", "-").stdout == page


def test_export_as_json_includes_all_steps_and_versions(revised):
    revised("aaa")
    data = document(redraft("export", "last", "--json"))
    assert [step["name"] for step in data["steps"] if "/" not in step["place"]] == [
        "evaluate",
        "evidence",
        "revise",
        "evaluate",
    ]
    assert any(step["given"] for step in data["steps"])
    assert [version["output"] for version in data["versions"]] == ["ab", "aaa"]


@pytest.mark.parametrize("words", [[], ["--json", "--html", "x.html"]])
def test_export_takes_exactly_one_format(project, words):
    result = redraft("export", "last", *words)
    assert result.exit_code == 2
    assert "either --html FILE or --json" in result.stderr


@pytest.mark.parametrize("place", [".", "no/such/folder.html"])
def test_export_rejects_an_unwritable_path(revised, place):
    revised("aaa")
    result = redraft("export", "last", "--html", place)
    assert result.exit_code == 2
    gone = "'no/such/folder.html' cannot be written to: there is no folder 'no/such'."
    assert "--html takes a file" in result.stderr or gone in result.stderr


def test_a_failed_run_resumes_after_its_last_paid_step(revised, project, monkeypatch):
    failed = revised("aab", ModelError("It is away."))
    assert failed.exit_code == 4
    assert "redraft resume last" in failed.stderr
    (project / "d.txt").unlink()
    (project / "c.yaml").write_text("- Something else.")
    model = script(monkeypatch, "aaa")
    result = redraft("resume", "last")
    assert (result.exit_code, result.stdout) == (0, "aaa\n"), result.stderr
    assert len(model.requests) == 1
    runs = document(redraft("runs", "--json"))["runs"]
    assert [(row["status"], row["scores"]) for row in runs] == [("finished", [0.0, 0.0, 1.0])]
    assert document(redraft("show", "last", "--json"))["origin"]["arguments"][0] == "revise"


@pytest.mark.parametrize("touched", [False, True])
def test_a_resumed_run_overwrites_only_its_own_output(revised, project, monkeypatch, touched):
    failed = revised("aab", ModelError("It is away."), words=("-o", "out.txt"))
    out = project / "out.txt"
    assert failed.exit_code == 4
    written = out.read_text()
    if touched:
        out.write_text("mine")
    script(monkeypatch, "aaa")
    result = redraft("resume", "last")
    if touched:
        assert (result.exit_code, out.read_text()) == (2, "mine")
        assert "'out.txt' exists; move it away." in result.stderr
    else:
        assert (result.exit_code, out.read_text()) == (0, "aaa") != (0, written), result.stderr


def test_resuming_a_finished_run_prints_its_result(revised, monkeypatch):
    revised("aaa")
    model = script(monkeypatch)
    result = redraft("resume", "last")
    assert (result.exit_code, result.stdout) == (0, "aaa\n")
    assert "Stopped: the quality threshold was met." in result.stderr
    assert document(redraft("resume", "last", "--json"))["best_output"] == "aaa"
    assert model.requests == []


def test_control_characters_of_a_model_are_escaped_on_a_terminal(revised):
    made = "aaa \x1b]0;title\x07"
    revised(made)
    for words in (("resume", "last"), ("show", "last", "--version", "best")):
        assert redraft(*words).stdout == f"{made}\n"
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "redraft", *words]
    subprocess.run(command, stdout=theirs, stderr=subprocess.DEVNULL, check=True, timeout=60)
    assert os.read(ours, 1000) == b"aaa \\x1b]0;title\\x07\r\n"
    os.close(ours)
    os.close(theirs)


def test_resume_takes_json(revised, monkeypatch):
    revised(ModelError("It is away."))
    script(monkeypatch, "aaa")
    assert document(redraft("resume", "last", "--json"))["best_output"] == "aaa"


def test_a_draft_from_stdin_is_resumed_from_the_record(project, monkeypatch):
    script(monkeypatch, ModelError("It is away."))
    redraft("revise", "-", "-c", "c.yaml", "-m", "any:model", stdin="ab of mine")
    script(monkeypatch, "b")
    redraft("resume", "last", stdin="")
    assert redraft("show", "last", "--version", "1").stdout == "ab of mine\n"


def test_a_run_of_the_demo_is_not_resumed(project, monkeypatch):
    arguments = ("demo", "-m", "any:model")
    put(record([], run_id="r", process=GONE, origin=Origin("command", "redraft demo", "", arguments, ".")))
    model = script(monkeypatch, "loaded")
    result = redraft("resume", "r")
    assert result.exit_code == 2
    assert "Runs of the demo are not resumed: `redraft demo` shows all acts again." in result.stderr
    assert model.requests == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "still working on the run 'r'"),
        ({"parent": "outer", "process": GONE}, "ran inside 'outer': resume that one."),
        ({"process": GONE, "origin": Origin("command", "x", "", (), "/no/such")}, "can't be entered"),
    ],
)
def test_resume_explains_a_refusal(project, fields, says):
    put(record([], run_id="r", **fields))
    result = redraft("resume", "r")
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.fixture
def lost(monkeypatch, tmp_path):
    """A process that is there, on a machine that can't tell whether it is the one that was recorded."""
    monkeypatch.setattr("redraft.loop.record.PROC", tmp_path / "proc")
    monkeypatch.setattr("redraft.loop.record.PS", str(tmp_path / "ps"))
    return Process(Process.this().host, os.getppid(), "")


def test_force_resumes_a_run_whose_process_is_unknown(project, lost, monkeypatch):
    put(record([], run_id="r", process=lost, origin=Origin("command", "x", "", ("settings",), str(project))))
    assert document(redraft("runs", "--status", "unknown", "--json"))["runs"][0]["status"] == "unknown"
    assert "it is not known whether" in redraft("why", "r").stdout
    refused = redraft("resume", "r")
    assert refused.exit_code == 2
    assert f"can't tell whether the process {lost.pid} is still working on the run 'r'" in refused.stderr
    assert "redraft resume r --force" in refused.stderr
    taken_up = redraft("resume", "r", "--force")
    assert "--force" not in taken_up.stderr
    assert taken_up.exit_code == 0


def test_force_does_not_resume_a_running_run(project):
    put(record([], run_id="r"))
    result = redraft("resume", "r", "--force")
    assert result.exit_code == 2
    assert "still working on the run 'r'" in result.stderr


def test_resume_prints_the_call_for_a_run_of_a_program(project):
    put(record([], run_id="r", process=GONE, origin=Origin("agent", "writer", "any:model")))
    result = redraft("resume", "r")
    assert result.exit_code == 2
    assert result.stdout == "await agent.run('Say it.', run_id='r')  # or agent.run_sync\n"
    assert json.loads(redraft("resume", "r", "--json").stdout)["call"].startswith("await agent.run(")


def test_why_prints_the_call_for_a_run_of_a_program(project):
    put(record([], run_id="r", process=GONE, origin=Origin("agent", "writer", "any:model")))
    output = redraft("why", "r").stdout
    assert output.endswith(
        "resumes it with this call:\n  await agent.run('Say it.', run_id='r')  # or agent.run_sync\n"
    )
    assert "redraft resume" not in output


def test_why_names_the_run_with_which_an_inner_run_goes_on(project):
    put(record([], run_id="r", process=GONE, parent="outer"))
    assert redraft("why", "r").stdout.endswith("It ran inside outer, and goes on when that one does.\n")


def test_runs_mentions_inner_runs_if_there_are_no_others(project):
    put(record([], run_id="r", parent="outer"))
    text = " ".join(redraft("runs").stdout.split())
    assert "`redraft runs --inner` lists them, and `redraft eval list` the evaluations." in text
    assert "No runs are stored" not in text


# --- runs --criteria -----------------------------------------------------------------------------------


def test_runs_measures_the_success_criteria(revised):
    revised("aab", "aaa")
    revised("b", "bb", "bbb")
    lines = redraft("runs", "--criteria").stdout.splitlines()
    assert lines[0] == "Success criteria of 2 runs"
    assert lines[2].split() == ["criterion", "value", "target", "based", "on"]
    assert lines[3].split()[:6] == ["Quality", "improvement", "50%", ">=", "80%", "1"]
    [consistency] = [line for line in lines if line.startswith("Consistency")]
    assert consistency.split() == ["Consistency", "?", "<=", "0.10", "no", "outputs"]


@pytest.mark.parametrize(
    ("value", "at_most", "shown"),
    [
        (0.8, False, "80%"),
        (0.796, False, "79.6%"),
        (0.75, False, "75%"),
        (0.1004, True, "0.1004"),
        (0.1, True, "0.10"),
    ],
)
def test_a_figure_is_shown_on_its_side_of_the_target(value, at_most, shown):
    target = 0.1 if at_most else 0.8
    figure = SuccessFigure("Figure", value, target, 1, 2, 0, "runs", "ended", at_most)
    nothing = SuccessFigure.share("Nothing", 0.8, "runs", "ended", [])
    measured = SuccessCriteria(9, figure, nothing, nothing, nothing, nothing)
    console = Console(width=120)
    with console.capture() as captured:
        console.print(success_view(measured))
    assert f" {shown}  " in captured.get()


def test_the_success_criteria_as_json_are_those_of_the_filtered_runs(revised):
    revised("aab", "aaa")
    revised("b", "bb", "bbb")
    data = document(redraft("runs", "--criteria", "--json", "--reason", "quality_met"))
    assert data["runs"] == 1
    assert data["quality_improvement"]["reached"] is True
    assert data["consistency"] == {
        "value": None,
        "target": 0.1,
        "reached": None,
        "met": 0,
        "cases": 0,
        "unknown": 0,
        "noun": "outputs",
    }
    assert document(redraft("runs", "--criteria", "--json", "--limit", "1"))["runs"] == 1


def test_the_success_criteria_of_no_runs(project):
    result = redraft("runs", "--criteria")
    assert result.exit_code == 0
    assert result.stdout.startswith("Success criteria of 0 runs")


def test_outputs_are_judged_a_second_time_if_asked_for(project, monkeypatch):
    def answer(request):
        if request.role != "evaluation":
            return "tea"
        key = next(iter(request.schema["properties"]["criteria"]["properties"]))
        score = {"reason": "r", "score": 1.0}
        return {"criteria": {key: score}, "issues": [], "suggestions": [], "confidence": 1.0}

    (project / "judged.yaml").write_text("- It is kind.")
    model = script(monkeypatch)
    model._answer = answer
    monkeypatch.setattr("redraft.evals.success.model_of", lambda *_: model)
    redraft("revise", "-", "-c", "judged.yaml", "-m", "any:model", stdin="a draft")
    calls = len(model.requests)
    assert "--judge-again N judges N outputs" in redraft("runs", "--criteria").stdout
    assert len(model.requests) == calls
    result = redraft("runs", "--criteria", "--judge-again", "5", "--budget-usd", "1")
    assert result.exit_code == 0, result.stderr
    assert len(model.requests) == calls + 1
    assert "0.00  <= 0.10  1 of 1 output scored within 0.1" in result.stdout
    assert "Judged again: " in result.stdout
    assert document(redraft("runs", "--json"))["runs"][0]["name"] == "redraft revise"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--judge-again", "2"], "--judge-again needs --criteria."),
        (["--criteria", "--model", "any:model"], "--model needs --criteria --judge-again N"),
        (["--budget-usd", "1"], "--budget-usd needs"),
        (["--criteria", "--judge-again", "-1"], "--judge-again"),
        (["--criteria", "--judge-again", "1", "--budget-usd", "0"], "budget_usd"),
    ],
)
def test_options_of_second_judgements_are_checked(project, words, says):
    result = redraft("runs", *words)
    assert result.exit_code == 2
    assert says in result.stderr
