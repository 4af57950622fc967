"""`redraft show --edit`, and where a correction is shown."""

import asyncio
import sys
from pathlib import Path

import pytest

from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel
from support.commands import document, redraft

NOT_EMPTY = QualityCriterion("not empty", evaluator="regex", evaluator_config={"pattern": "."})
LETTER = "The colour is red."


@pytest.fixture
def run(project):
    """The id of a stored run in a project."""
    return stored_run(LETTER)


def stored_run(output, **options):
    agent = Agent(
        model=ScriptedModel([output]),
        name="clerk",
        pattern=ReflectionPattern(quality_criteria=[NOT_EMPTY]),
        **options,
    )
    return asyncio.run(agent.run("Write a letter.")).run_id


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Let the editor replace one text by another."""

    def use(old, new):
        script = tmp_path / "editor.py"
        script.write_text(
            "import sys, pathlib\n"
            "path = pathlib.Path(sys.argv[1])\n"
            f"path.write_text(path.read_text().replace({old!r}, {new!r}) + chr(10))\n"
        )
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")

    return use


def test_an_edited_output_is_shown_by_every_command(run, editor):
    editor("colour", "color")
    result = redraft("show", "--edit", run)
    assert result.exit_code == 0, result.output
    assert 'replaced "colour" with "color"' in result.stdout
    assert "Lesson: clerk/" in result.stdout
    for command in ("show", "why"):
        assert 'replaced "colour" with "color"' in redraft(command, run).stdout
        assert document(redraft(command, run, "--json"))["correction"]["output"] == "The color is red."
    assert "Corrected by a person" in redraft("export", run, "--html", "-").stdout
    assert "color" in redraft("lessons", "show", "last").stdout
    redraft("eval", "add", "--corrected", "--cases", "cases.yaml")
    assert "reference: The color is red." in Path("cases.yaml").read_text()


def test_a_second_correction_continues_the_first(run, editor):
    editor("colour", "color")
    redraft("show", "--edit", run)
    unchanged = redraft("show", "--edit", run)
    assert unchanged.stderr == "Nothing was changed.\n"
    editor("color is", "color was")
    assert redraft("show", "--edit", run).exit_code == 0
    assert document(redraft("show", run, "--json"))["correction"]["output"] == "The color was red."
    [lesson] = document(redraft("lessons", "--json"))["lessons"]
    assert "was" in lesson["title"]


def test_the_original_output_takes_the_correction_back(run, editor):
    editor("colour", "color")
    redraft("show", "--edit", run)
    editor("color", "colour")
    assert redraft("show", "--edit", run).stderr == "The correction was taken back.\n"
    assert document(redraft("show", run, "--json"))["correction"] is None
    [lesson] = document(redraft("lessons", "--json"))["lessons"]
    assert lesson["status"] == "retired"


@pytest.mark.parametrize("output", ["a\r\nb", "a\rb\r", "a\n\n", "a \ud800", "\ufeffa", "a\x85b\x0c"])
def test_an_editor_changes_nothing_by_itself(project, monkeypatch, output):
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("VISUAL", raising=False)
    result = redraft("show", "--edit", stored_run(output))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Nothing was changed.\n")


def test_an_unchanged_output_says_so(run, editor):
    editor("colour", "colour")
    result = redraft("show", "--edit", run)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Nothing was changed.\n")
    assert document(redraft("show", run, "--json"))["correction"] is None


@pytest.mark.parametrize(
    ("editor", "message"),
    [
        (None, "There is no terminal to edit in"),
        ("no-such-editor-at-all", "can't be run"),
        ("false", "exited with code 1"),
    ],
)
def test_an_editor_is_needed(run, monkeypatch, editor, message):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    if editor:
        monkeypatch.setenv("EDITOR", editor)
    result = redraft("show", "--edit", run)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_refused_text_is_saved_and_resumed(run, editor, project):
    editor(LETTER, "")
    result = redraft("show", "--edit", run)
    assert result.exit_code == 2
    assert "is empty" in result.stderr
    run = stored_run('{"a": 1}', output_type={"type": "object", "properties": {"a": {"type": "integer"}}})
    editor('"a": 1', '"a": "x"')
    result = redraft("show", "--edit", run)
    assert result.exit_code == 2
    assert f"{run}.rejected" in result.stderr
    assert '"a": "x"' in (project / f"{run}.rejected").read_text()
    editor('"x"', "2")
    assert redraft("show", "--edit", run).exit_code == 0
    assert not (project / f"{run}.rejected").exists()
    assert document(redraft("show", run, "--json"))["correction"]["output"] == {"a": 2}


def starts_with_the(text):
    return text.startswith("The")


def test_a_case_is_offered_only_if_its_criteria_can_be_stored(project, editor):
    def local(text):
        return True

    editor("colour", "color")
    for check, is_offered in ((starts_with_the, True), (local, False)):
        agent = Agent(ScriptedModel([LETTER]), criteria=[check], name="clerk")
        run_id = agent.run_sync("Write a letter.").run_id
        redraft("show", "--edit", run_id)
        assert (f"As a case: redraft eval add {run_id}" in redraft("show", run_id).stdout) is is_offered
        assert (redraft("eval", "add", run_id).exit_code == 0) is is_offered
