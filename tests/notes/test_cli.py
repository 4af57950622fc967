import asyncio

import pytest

from redraft.notes.note import NoteUse, TaskReflection
from redraft.notes.store import PostgresReflectionStore, SqliteReflectionStore, project_notes
from redraft.notes.task import TaskIdentity
from redraft.types import PlainTask
from support.commands import document, redraft

REPORT = PlainTask("Write a report on {topic}.", "Three sections.")
ESCAPES = "\x1b]0;gotcha\x07"
KEY = "sk-" + "a1B2c3D4" * 5
PAGE = PlainTask(f"Sum up the page{ESCAPES} with {KEY}.")
ID = TaskIdentity.of(REPORT)


async def fill(notes):
    """Store two tasks: `report` with three notes of rising scores, and one with a hostile note."""
    async with notes:
        for number in range(1, 4):
            version = number - 1 or None
            for turn in range(2):
                use = NoteUse(
                    f"run-{number}-{turn}", version, "note" if version else "none", 0.2 + 0.2 * number
                )
                await notes.record_use(ID, use)
            reflection = TaskReflection.of_first_run(
                f"Write a report on {{topic}} with {number} sources.", "Three sections.", [f"Seen {number}."]
            )
            await notes.append(REPORT, reflection, run_id=f"run-{number}-1", based_on=version, name="report")
        reflection = TaskReflection.of_first_run(f"Sum it up. {ESCAPES}", f"Use {KEY}.")
        await notes.append(PAGE, reflection, run_id="run-x")


@pytest.fixture
def noted(project):
    asyncio.run(fill(project_notes()))
    return project


def test_list_without_notes_says_where_it_looked(project):
    result = redraft("notes")
    assert result.exit_code == 0
    assert f"There are no notes in {project}/.redraft/redraft.db yet." in " ".join(result.stdout.split())
    assert not (project / ".redraft").exists()
    assert document(redraft("notes", "--json"))["tasks"] == []


def test_list_fails_if_the_settings_store_nothing(project, monkeypatch):
    monkeypatch.setenv("REDRAFT_HOME", "")
    result = redraft("notes")
    assert result.exit_code == 2
    assert "REDRAFT_HOME" in result.stderr


def test_list_shows_the_version_in_force_and_the_scores(noted):
    result = redraft("notes")
    head, page, report = result.stdout.splitlines()
    assert head.split() == ["id", "runs", "notes", "in", "force", "state", "before", "now", "task"]
    assert report.split() == [ID[:8], "6", "3", "v3", "on", "0.40", "0.70", "▄▅▇", "report"]
    assert page.split()[1:7] == ["0", "1", "v1", "on", "-", "-"]
    data = document(redraft("notes", "--json"))
    row = data["tasks"][1]
    assert (row["identity"], row["name"], row["run_count"], row["in_force"]) == (ID, "report", 3, 3)
    assert [task["runs"] for task in data["tasks"]] == [0, 6]
    assert row["trend"] == pytest.approx([0.4, 0.6, 0.8])
    assert (row["score_before"], row["score_now"]) == (pytest.approx(0.4), pytest.approx(0.7))
    assert data["database"] == f"{noted}/.redraft/redraft.db"


def test_list_says_whether_notes_pay(noted):
    said = " ".join(redraft("notes").stderr.split())
    assert "Do notes pay off? Not known: 4 scored runs with, 0 without" in said
    assert "Runs before a task's first note are not counted: they had none to go without." in said

    async def control():
        async with project_notes() as notes:
            for number in range(12):
                for arm, version, score in (("control", None, 0.2), ("note", 3, 0.7)):
                    use = NoteUse(f"{arm}-{number}", version, arm, score + number / 100)
                    await notes.record_use(ID, use)

    asyncio.run(control())
    said = redraft("notes").stderr  # up to the last control run
    assert "Do notes pay off? Yes: +0.48 (95 %: " in said
    assert ", 15 runs with, 12 without" in said
    assert document(redraft("notes", "--json"))["payoff"]["without_runs"] == 12


def test_show_prints_the_note_in_force_and_its_versions(noted):
    output = redraft("notes", "show", "report").stdout
    assert "## Task Improvement Notes (from prior executions)" in output
    assert "  Write a report on {topic} with 3 sources.\n" in output
    assert "0.40 before notes, 0.70 in the latest runs with one" in output
    rows = [line.split() for line in output.splitlines() if line[2:3] == "v"]
    assert [(row[-2], row[-1]) for row in rows[1:]] == [("0.80", "run-2-1"), ("0.60", "run-1-1")]
    assert rows[0][:2] == ["*", "v3"]
    data = document(redraft("notes", "show", "report", "--json"))
    assert data["block"].startswith("## Task Improvement Notes")
    assert [each["version"] for each in data["revisions"]] == [1, 2, 3]
    assert [each["score"] for each in data["revisions"]] == [pytest.approx(0.6), pytest.approx(0.8), None]
    assert len(data["uses"]) == 6
    assert [int(row[-3]) for row in rows[1:]][::-1] == [each["runs"] for each in data["revisions"][:2]]
    assert ([each["repeats"] for each in data["revisions"]], data["why_newer_wait"]) == ([False] * 3, "")


def test_show_limits_the_versions_but_includes_the_one_in_force(noted):
    async def more():
        async with project_notes() as notes:
            for number in range(4, 31):
                reflection = TaskReflection.of_first_run(f"Write a report on {{topic}}. {number}", "")
                await notes.append(REPORT, reflection, run_id=f"run-{number}", based_on=number - 1)

    asyncio.run(more())
    redraft("notes", "rollback", "report", "v2")
    output = redraft("notes", "show", "report").stdout
    rows = [line[:6].rstrip() for line in output.splitlines() if line[2:3] == "v"]
    assert rows[:2] + rows[-1:] == ["  v30", "  v29", "* v2"]
    assert output.endswith("and 9 older versions: `redraft notes export` prints all\n")
    assert len(document(redraft("notes", "export"))["tasks"][0]["revisions"]) == 30


def test_show_marks_a_version_that_says_what_the_one_before_says(noted):
    assert "=" not in redraft("notes", "show", "report").stdout

    async def again():
        async with project_notes() as notes:
            last = await notes.revision(ID, 3)
            await notes.append(REPORT, last.reflection, run_id="run-again", based_on=3)

    asyncio.run(again())
    redraft("notes", "rollback", "report", "v2")
    output = redraft("notes", "show", "report").stdout
    marked = [line[:8].split() for line in output.splitlines() if line[2:3] == "v"]
    assert marked == [["v4", "="], ["v3"], ["*", "v2"], ["v1"]]
    assert "* in force   = as the version before it" in output
    assert (
        "2 newer versions are not in force: v2 stays until a run that was given it adds the next." in output
    )


def test_diff_compares_two_versions_word_by_word(noted):
    output = redraft("notes", "diff", "report", "v1", "v2").stdout
    assert output.startswith("version 1 (0.60) > version 2 (0.80)\n")
    assert "with [-1-]{+2+} sources." in output
    assert "- Seen [-1-]{+2+}." in output
    assert "with [-1-]{+3+} sources." in redraft("notes", "diff", "report").stdout
    assert "The notes are the same." in redraft("notes", "diff", "report", "now", "last").stdout
    data = document(redraft("notes", "diff", "report", "2", "3", "--json"))
    assert (data["from"]["version"], data["to"]["version"]) == (2, 3)
    assert {"op": "-", "text": "2"} in data["words"]


def test_a_pinned_version_is_shown_until_it_is_unpinned(noted):
    printed = redraft("notes", "pin", "report", "v2").stdout
    assert ": version 2 of 3 is in force until `redraft notes unpin " in printed
    assert "pinned" in redraft("notes").stdout
    assert (
        "Notes: pinned, v2 of 3 in force until `redraft notes unpin "
        in redraft("notes", "show", "report").stdout
    )
    assert document(redraft("notes", "--json"))["tasks"][0]["pinned"] is True
    assert redraft("notes", "unpin", "report").stdout.endswith(": version 2 of 3 is in force.\n")
    assert redraft("notes", "pin", "report", "--json").exit_code == 0  # the version in force
    assert document(redraft("notes", "--json"))["tasks"][0]["in_force"] == 2


def test_a_rollback_ends_a_pin_with_a_message(noted):
    redraft("notes", "pin", "report", "v2")
    assert redraft("notes", "rollback", "report", "v1").stdout == (
        "report: version 1 of 3 is in force (rolled back from version 2, which is no longer pinned).\n"
    )
    assert document(redraft("notes", "--json"))["tasks"][0]["state"] == "rolled back"
    assert "pinned" not in redraft("notes", "rollback", "report", "v2").stdout


def test_rollback_off_and_on(noted):
    assert redraft("notes", "rollback", "report", "v2").stdout == (
        "report: version 2 of 3 is in force (rolled back from version 3).\n"
    )
    assert redraft("notes").stdout.splitlines()[1].split()[3:6] == ["v2", "rolled", "back"]
    assert redraft("notes", "off", "report", "--why", "they are wrong").stdout == (
        "report: no note is in force (they are wrong).\n"
    )
    row = document(redraft("notes", "off", "report", "--json"))
    assert (row["state"], row["in_force"], row["off"]) == ("off", None, True)
    output = redraft("notes", "show", "report").stdout
    assert "## Task Improvement" not in output
    assert "Notes: off (switched off)" in output
    assert redraft("notes", "on", "report").stdout == "report: version 2 of 3 is in force.\n"
    assert document(redraft("notes", "rollback", "report", "first", "--json"))["in_force"] == 1


def test_export_prints_every_version_as_json_or_markdown(noted):
    data = document(redraft("notes", "export"))
    assert [len(task["revisions"]) for task in data["tasks"]] == [1, 3]
    assert document(redraft("notes", "export", "report", "--json"))["tasks"] == data["tasks"][1:]
    output = redraft("notes", "export", "report", "--markdown").stdout
    assert output.startswith("# Notes: report\n")
    assert output.count("\n## Version ") == 3
    assert "\n> Write a report on {topic} with 2 sources.\n" in output
    every_task = redraft("notes", "export", "--markdown").stdout
    assert ": 1 revision, version 1 is in force." in every_task
    assert KEY not in every_task
    assert redraft("notes", "export", "--markdown", "--json").exit_code == 2


@pytest.mark.parametrize("arguments", [(), ("show", "page"), ("diff", "page"), ("export",), ("off", "page")])
@pytest.mark.parametrize("json", [False, True])
def test_secrets_and_terminal_escapes_are_not_shown(noted, arguments, json):
    result = redraft("notes", *arguments, *(["--json"] if json else []))
    assert result.exit_code == 0
    assert KEY not in result.stdout
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nothing"), "No task with notes matches 'nothing'"),
        (
            ("show", "p"),
            f"Several tasks match 'p': {TaskIdentity.of(PAGE)[:8]} Sum up the page\\x1b]0;gotcha",
        ),
        (("show", ""), "No task with notes matches ''"),
        (("rollback", "report", "9"), "There is no version '9'"),
        (("rollback", "report", "v0"), "There is no version 'v0'"),
        (("diff", "report", "x"), "There is no version 'x'"),
        (("show", "report", "--database", "gone.db"), "There is no database 'gone.db'"),
        (("--json", "show", "report"), "Got unexpected extra argument(s) (show report)"),
    ],
)
def test_bad_arguments_are_reported(noted, arguments, message):
    result = redraft("notes", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert KEY not in result.stderr
    assert "\x1b" not in result.stderr
    assert not (noted / "gone.db").exists()


@pytest.mark.parametrize("wanted", ["report", ID, ID[:6], "on {topic}", "WRITE A"])
def test_a_task_is_found_by_name_id_or_text(noted, wanted):
    assert document(redraft("notes", "show", wanted, "--json"))["identity"] == ID


def test_database_reads_another_file(project, tmp_path):
    place = tmp_path / "other.db"
    asyncio.run(fill(SqliteReflectionStore(place)))
    data = document(redraft("notes", "--database", place, "--json"))
    assert (data["database"], len(data["tasks"])) == (str(place), 2)
    assert redraft("notes", "rollback", "report", "1", "--database", place).exit_code == 0
    assert document(redraft("notes", "show", "report", "--database", place, "--json"))["in_force"] == 1
    assert document(redraft("notes", "--json"))["tasks"] == []


def test_database_reads_a_server(project, postgres):
    asyncio.run(fill(PostgresReflectionStore(postgres.url)))
    data = document(redraft("notes", "--database", postgres.url, "--json"))
    assert len(data["tasks"]) == 2
