"""`redraft eval` on the command line: the files, the tables, the exit codes."""

import json
import os
import sys
from types import SimpleNamespace

import pytest

from redraft import Agent, Evaluation, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.evals.cases import read_cases
from support.commands import document, put, redraft
from support.kept_runs import record
from support.versions import history, version

CASES = """\
criteria:
  - {name: good, evaluator: regex, config: {pattern: good}}
cases:
""" + "".join(f"  - {{id: case-{n}, task: Task {n}.}}\n" for n in range(12))


def agent(*, first="bad", revised="good"):
    def answer(request):
        return first if request.role == "generation" else revised

    return Agent(ScriptedModel(answer), pattern=ReflectionPattern(2), name="writer")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    (tmp_path / "cases.yaml").write_text(CASES, "utf-8")
    app = SimpleNamespace(
        writer=agent(),
        right=agent(first="good"),
        wrong=agent(revised="bad"),
        shout=lambda prompt: prompt.upper(),
    )
    monkeypatch.setitem(sys.modules, "an_app", app)
    return tmp_path


def test_without_a_verdict_it_does_not_pass(project):
    cases = CASES.replace("evaluator: regex, config: {pattern: good}", "description: Is it good?")
    (project / "judged.yaml").write_text(cases, "utf-8")
    result = redraft("eval", "judged.yaml", "--agent", "an_app:wrong", "--junit", "j.xml")
    assert result.exit_code == 4
    why = "Not judged: the judge's reply can't be used."
    assert f"12 of 12 tries could not be judged, and are left out. {why}" in " ".join(result.stdout.split())
    assert f'<skipped message="{why}' in (project / "j.xml").read_text("utf-8")


def test_it_says_that_the_runs_could_not_be_judged(project, monkeypatch):
    app = SimpleNamespace(writer=Agent(ScriptedModel(lambda _: "good"), max_iterations=1, name="writer"))
    monkeypatch.setitem(sys.modules, "plain_app", app)
    graded = CASES.replace("criteria:", "hidden:")  # so that the agent has no criteria of its own
    (project / "cases.yaml").write_text(graded, "utf-8")
    result = redraft("eval", "cases.yaml", "--agent", "plain_app:writer")
    said = " ".join(result.stdout.split())
    what = "12 of 12 runs of writer could not be judged, so nothing was revised further: "
    assert f"{what}the judge's reply can't be used" in said
    run = said.partition("(redraft why ")[2].partition(")")[0]
    assert "could not be judged" in redraft("why", run).stdout


def test_an_agent_is_compared_with_its_first_draft(project, monkeypatch):
    result = redraft(
        "eval", "cases.yaml", "--agent", "an_app:writer", "--junit", "out/j.xml", "--markdown", "s.md"
    )
    assert result.exit_code == 0, result.stderr
    assert "writer against writer (first draft): better, +100.0 points (95 %: " in result.stdout
    assert "12  100 % (" in result.stdout
    assert "Stored as eval-" in result.stderr
    assert (project / "out" / "j.xml").read_text("utf-8").startswith("<?xml")
    assert (project / "s.md").read_text("utf-8").startswith("### Evaluation: 12 cases")
    assert "\nwriter\n" in result.stdout, "the ways of its revisions"
    assert " fresh " in result.stdout
    shown = redraft("eval", "show")
    assert shown.stdout == result.stdout
    monkeypatch.setenv("REDRAFT_HOME", "")
    nowhere = redraft("eval", "cases.yaml", "--agent", "an_app:writer")
    assert nowhere.exit_code == 0
    assert nowhere.stderr.startswith("12 tries to make. At most 36 calls without retries: agent 36 (")
    assert "Stored as" not in nowhere.stderr
    monkeypatch.setenv("REDRAFT_HOME", str(project / ".redraft"))
    listed = redraft("eval", "list")
    assert "writer, writer (first draft)" in listed.stdout
    (listed,) = document(redraft("eval", "list", "--json"))["evaluations"]
    assert (listed["n"], listed["state"]) == (1, "finished")


def test_a_narrow_terminal_names_the_columns_that_it_leaves_out(project, monkeypatch):
    redraft("eval", "cases.yaml", "--agent", "an_app:writer")
    monkeypatch.setenv("COLUMNS", "80")
    narrow = " ".join(redraft("eval", "show").stdout.split())
    assert "Left out in 80 columns: tokens per passed" in narrow
    monkeypatch.setenv("COLUMNS", "200")
    assert "Left out" not in redraft("eval", "show").stdout


@pytest.mark.parametrize(
    "words", [("--model", "openai:gpt-5-mini"), ("-a", "keyed_app:writer", "--judge", "openai:gpt-5")]
)
def test_a_dry_run_needs_no_key(project, monkeypatch, words):
    pytest.importorskip("openai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (project / "keyed_app.py").write_text(
        "from redraft import Agent\nwriter = Agent('openai:gpt-5-mini', max_iterations=1)\n", "utf-8"
    )
    monkeypatch.delitem(sys.modules, "keyed_app", raising=False)
    done = redraft("eval", "cases.yaml", *words, "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("12 tries to make. At most ")
    assert "OPENAI_API_KEY" not in os.environ
    assert "OPENAI_API_KEY" in redraft("eval", "cases.yaml", "--model", "openai:gpt-5-mini").stderr


def test_an_evaluation_reads_a_file_of_cases(project):
    for path in ("cases.yaml", project / "cases.yaml"):
        assert Evaluation(path, agent()).estimate_sync().tries == 12
    assert read_cases("cases.yaml") == read_cases(project / "cases.yaml")


def test_a_dry_run_asks_no_model_and_writes_nothing(project, monkeypatch):
    asked = []
    quiet = Agent(ScriptedModel(asked.append), pattern=ReflectionPattern(2), name="writer")
    monkeypatch.setitem(sys.modules, "quiet_app", SimpleNamespace(writer=quiet))
    words = ["eval", "cases.yaml", "-a", "quiet_app:writer", "--compare", "loop,first,best-of-3", "--dry-run"]
    result = redraft(*words, "--junit", "out/j.xml")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("24 tries to make. At most 60 calls without retries: agent 60 (")
    assert "about $0.0000. Tokens of 'loop' and 'best-of-3'" in " ".join(result.stdout.split())
    as_json = document(redraft(*words, "--json"))
    assert (as_json["calls"], as_json["cost_usd"], as_json["tries"]) == (60, 0, 24)
    assert [part["calls"] for part in as_json["parts"] if part["by"] == "agent"] == [36, 24]
    assert asked == []
    assert not (project / "out").exists()
    assert document(redraft("eval", "list", "--json"))["evaluations"] == []
    refused = redraft("eval", "cases.yaml", "-a", "an_app:shout", "--compare", "loop,first", "--dry-run")
    assert refused.exit_code == 2


def test_a_regression_has_exit_code_1(project):
    good = redraft("eval", "cases.yaml", "-a", "an_app:right", "--json")
    assert good.exit_code == 0
    assert document(good)["differences"][0]["verdict"] == "not distinguishable"
    (project / "baseline.json").write_text(good.stdout, "utf-8-sig")  # as PowerShell writes it
    for against in ("baseline.json", "an_app:right"):
        worse = redraft("eval", "cases.yaml", "-a", "an_app:wrong", "--against", against)
        assert worse.exit_code == 1
        assert "worse, -100.0 points" in worse.stdout
        assert "  lost: case-0, case-1" in worse.stdout
    same = redraft("eval", "cases.yaml", "-a", "an_app:right", "--against", "baseline.json")
    assert same.exit_code == 0


def test_answers_that_do_not_pass_are_failures_in_junit_but_no_regression(project):
    result = redraft("eval", "cases.yaml", "-a", "an_app:wrong", "--junit", "j.xml")
    assert result.exit_code == 0
    assert 'failures="12"' in (project / "j.xml").read_text("utf-8")


def test_an_answer_that_took_more_calls_is_no_regression(project, monkeypatch):
    def patient(passes_at):
        drafts = {}

        def answer(request):
            task = next(line for line in request.messages[-1].content.splitlines() if "Task" in line)
            drafts[task] = drafts.get(task, 0) + 1
            return "good" if drafts[task] == passes_at else f"bad {drafts[task]}"

        return Agent(ScriptedModel(answer), pattern=ReflectionPattern(3), name=f"at {passes_at}")

    app = SimpleNamespace(two=patient(2), three=patient(3))
    monkeypatch.setitem(sys.modules, "patient_app", app)
    quicker = redraft("eval", "cases.yaml", "-a", "patient_app:two", "--json")
    (project / "two.json").write_text(quicker.stdout, "utf-8")
    slower = redraft("eval", "cases.yaml", "-a", "patient_app:three", "--against", "two.json")
    assert slower.exit_code == 0, slower.stdout
    assert "three against baseline: not distinguishable" in slower.stdout


def test_markdown_can_go_to_stdout(project):
    result = redraft("eval", "cases.yaml", "-a", "an_app:writer", "--markdown", "-")
    assert result.exit_code == 0
    assert result.stdout.startswith("### Evaluation: 12 cases")
    assert not (project / "-").exists()


def test_a_report_that_cannot_be_written_is_refused_before_the_evaluation(project):
    (project / "taken").mkdir()
    result = redraft("eval", "cases.yaml", "-a", "an_app:writer", "--junit", "taken")
    assert result.exit_code == 2
    assert "--junit 'taken' can't be written: Is a directory." in result.stderr
    assert not (project / ".redraft").exists()


def test_an_evaluation_that_fails_leaves_no_empty_report(project):
    result = redraft("eval", "none.yaml", "-a", "an_app:writer", "--junit", "out/j.xml", "--markdown", "s.md")
    assert result.exit_code == 2
    assert "none.yaml" in result.stderr
    assert not (project / "out" / "j.xml").exists()
    assert not (project / "s.md").exists()


def test_half_a_character_in_an_answer_does_not_keep_a_report_from_being_written(project, monkeypatch):
    app = SimpleNamespace(half=agent(first="bad \ud800", revised="bad \ud800"))
    monkeypatch.setitem(sys.modules, "half_app", app)
    criterion = "criteria:\n  - {name: odd, evaluator: function, config: {function: 'half_app:says'}}\n"
    app.says = lambda text: (False, f"It says {text}")
    (project / "odd.yaml").write_text(f"{criterion}cases:\n  - task: Task 1.\n", "utf-8")
    result = redraft("eval", "odd.yaml", "-a", "half_app:half", "--junit", "j.xml")
    assert result.exit_code == 0, result.stderr
    assert "It says bad ?" in (project / "j.xml").read_text("utf-8")


def test_parts_are_compared(project):
    result = redraft(
        "eval", "cases.yaml", "-a", "an_app:writer", "--compare", "loop,first,best-of-3", "-n", "2"
    )
    assert result.exit_code == 0
    assert "loop against first: better" in result.stdout
    assert "loop against best-of-3, with at most 2 calls each: better" in result.stdout


def test_an_interrupted_evaluation_goes_on(project):
    words = ("eval", "cases.yaml", "-a", "an_app:writer", "--concurrency", "1")
    stopped = redraft(*words, "--budget-tokens", "140")
    assert stopped.exit_code == 3
    assert "The budget was spent after 1 of 12 tries." in " ".join(stopped.stdout.split())
    assert "budget spent" in redraft("eval", "list").stdout
    whole = redraft("eval", "cases.yaml", "-a", "an_app:writer", "--resume", "last")
    assert whole.exit_code == 0
    assert "12  100 % (" in whole.stdout
    [listed] = document(redraft("eval", "list", "--json"))["evaluations"]
    assert listed["state"] == "finished"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("eval", "missing.yaml"), "can't be read"),
        (("eval", "cases.yaml", "-a", "an_app:writer", "--junit", "-"), "--junit needs a file"),
        (("eval", "cases.yaml", "-a", "writer"), "named MODULE:NAME"),
        (("eval", "cases.yaml", "-a", "an_app:editor"), "can't be imported"),
        (("eval", "cases.yaml", "-a", "script:writer"), "can't be imported: SystemExit"),
        (("eval", "cases.yaml", "-a", "an_app:writer", "--compare", "loop,last"), "Unknown part 'last'"),
        (
            ("eval", "cases.yaml", "-a", "an_app:shout", "--compare", "loop,first"),
            "needs an Agent or a Task",
        ),
        (
            ("eval", "cases.yaml", "-a", "an_app:writer", "--against", "x.json"),
            "baseline 'x.json' can't be read",
        ),
        (
            ("eval", "cases.yaml", "-a", "an_app:writer", "--against", "deep.json"),
            "is not JSON: it is nested too deeply",
        ),
        (
            ("eval", "cases.yaml", "-a", "an_app:writer", "--against", "cases.json", "--compare", "x"),
            "not both",
        ),
        (("eval", "cases.yaml", "-a", "an_app:writer", "--against", "old.json"), "it has no sides"),
        (("eval", "cases.yaml", "-a", "an_app:writer", "--resume", "eval-1"), "There is no evaluation"),
        (("eval", "cases.yaml", "-a", "an_app:writer", "-m", "openai:x"), "--judge"),
        (("eval", "cases.yaml"), "The cases name no agent: name one with --agent MODULE:NAME, or a model"),
        (("eval", "add"), "Say which runs"),
        (("eval", "add", "last"), "No runs are stored here yet"),
        (("eval", "hf:a/b"), "Save the rows as JSON lines first"),
    ],
)
def test_mistakes_cost_nothing_and_have_exit_code_2(project, words, message):
    (project / "script.py").write_text("raise SystemExit")
    (project / "old.json").write_text('{"sides": [], "tries": []}', "utf-8")
    (project / "deep.json").write_text("[" * 100_000, "utf-8")
    result = redraft(*words)
    assert result.exit_code == 2, result.stdout
    assert message in result.stderr
    assert not sys.modules["an_app"].writer.model.requests


def test_runs_become_cases(project):
    short = QualityCriterion("short", evaluator="regex", evaluator_config={"pattern": "x"})
    put(record(history(0.2, 0.4), "max_iterations", run_id="run-failed"))
    put(record(history(0.9, 0.3), "max_iterations", run_id="run-worse"))
    put(record([version(1, 1.0, satisfactory=True)], "quality_met", run_id="run-right"))
    added = redraft("eval", "add", "--failed", "--regressed", "--cases", "mine.yaml")
    assert added.exit_code == 0, added.stderr
    assert "mine.yaml: 2 cases added" in added.stdout
    controls = redraft("eval", "add", "--control", "-o", "mine.yaml", "--json")
    assert document(controls)["added"] == ["say-it-3"]
    again = redraft("eval", "add", "run-right", "-o", "mine.yaml")
    assert "0 cases added; 1 run already there" in again.stdout
    once_more = document(redraft("eval", "add", "run-right", "-o", "mine.yaml", "--json"))
    assert (once_more["already_there"], once_more["without_criteria"]) == (1, [])
    cases = read_cases(project / "mine.yaml")
    assert {case.run: case.control for case in cases} == {
        "run-worse": False, "run-failed": False, "run-right": True,
    }  # fmt: skip
    assert cases[0].criteria == (short,)
    evaluated = redraft("eval", "mine.yaml", "-a", "an_app:writer", "--json")
    assert json.loads(evaluated.stdout)["controls"] == ["say-it-3"]


def test_the_cases_name_their_agent(project):
    text = CASES.replace("criteria:", "agent: an_app:writer\ncriteria:", 1)
    (project / "own.yaml").write_text(text, "utf-8")
    assert "writer against writer (first draft)" in redraft("eval", "own.yaml").stdout
    (project / "two.yaml").write_text(text + "  - {task: Other., agent: an_app:right}\n", "utf-8")
    several = redraft("eval", "two.yaml")
    assert several.exit_code == 2
    assert "from several agents" in several.stderr


@pytest.mark.parametrize("model", [[], ["--model", "an:answerer"]])
def test_a_recorded_system_prompt_makes_no_second_agent(model, project, monkeypatch):
    """A case that `eval add` appends has the prompt of its run; those written by hand only name the agent."""
    answerer = ScriptedModel(lambda request: "good")
    monkeypatch.setattr("redraft.models.names.model_named", lambda *_: answerer)
    added = "  - {task: Other., agent: an_app:writer, system_prompt: You write., run: run-1}\n"
    (project / "own.yaml").write_text(f"agent: an_app:writer\n{CASES}{added}", "utf-8")
    evaluated = redraft("eval", "own.yaml", *model)
    assert evaluated.exit_code == 0, evaluated.stderr
    assert "writer (first draft)" in evaluated.stdout
    assert bool(answerer.requests) == bool(model)
