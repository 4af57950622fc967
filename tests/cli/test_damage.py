"""A damaged record is named wherever records are listed, by commands and pages, and hides no other."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from redraft import Agent, ModelError, ReflectionPattern, SqliteStore, reflect
from redraft._sync import run_sync
from redraft.cycles.agents import Agents
from redraft.errors import DamagedRecordError, StoreError
from redraft.loop import Journalled, Retry
from redraft.loop.runs import Runs
from redraft.models.testing import ScriptedModel
from redraft.notes.note import NoteUse, TaskReflection
from redraft.notes.store import project_notes
from redraft.notes.task import TaskIdentity
from redraft.stores import run_index as run_index_module
from redraft.stores.location import project_store
from redraft.stores.run_index import run_index
from redraft.types import PlainTask
from support.commands import document, put, redraft
from support.dashboards import pages
from support.kept_agents import ran_cycles, visited
from support.kept_runs import START, record
from support.kept_workflows import kept as kept_workflows
from support.versions import history


def flip(folder, kind, key, old, new):
    """Change letters in the data of records whose keys begin so."""
    with closing(sqlite3.connect(folder / ".redraft" / "redraft.db")) as connection:
        changed = connection.execute(
            "UPDATE records SET data = replace(data, ?, ?) WHERE kind = ? AND key LIKE ? AND data LIKE ?",
            (old, new, kind, f"{key}%", f"%{old}%"),
        )
        assert changed.rowcount >= 1
        connection.commit()


FLIPS = [("finished", "finishee"), ('"index"', '"indeq"'), ("0.42", "0.43"), ('"task":', '"task";')]


@pytest.fixture
def three_runs(project):
    for letter in "abc":
        put(record(history(0.42, 0.9), "quality_met", run_id=f"run-{letter}", started_at=START))
    return project


@pytest.mark.parametrize(("old", "new"), FLIPS)
def test_runs_with_a_damaged_record_are_listed(three_runs, old, new):
    flip(three_runs, "run", "run-b", old, new)
    listed = {one["run_id"]: one for one in document(redraft("runs", "--json"))["runs"]}
    assert {run: one["status"] for run, one in listed.items()} == {
        "run-a": "finished",
        "run-b": "damaged",
        "run-c": "finished",
    }
    assert "'run' 'run-b' is damaged: it does not match its checksum" in listed["run-b"]["error"]
    output = redraft("runs").stdout
    assert "damaged" in output
    assert output.count("quality_met") == 2
    for command in (
        ("show", "run-a"),
        ("show", "last"),
        ("why", "run-c"),
        ("export", "run-a", "--html", "a.html", "--force"),
    ):
        assert redraft(*command).exit_code == 0, command
    broken = redraft("show", "run-b")
    assert broken.exit_code == 2
    assert "'run' 'run-b' is damaged" in broken.stderr
    assert "move" not in broken.stderr.replace("remove", "")


def test_the_dashboard_shows_damaged_runs(three_runs):
    flip(three_runs, "run", "run-b", "finished", "finishee")
    client = pages(SqliteStore(three_runs / ".redraft" / "redraft.db", project_store()._space))
    for path in ("/runs", "/spend", "/runs/run-a", "/runs?status=finished"):
        assert client.get(path).status_code == 200, path
    assert "✗ damaged" in client.get("/runs").text
    assert [run["status"] for run in client.get("/runs.json").json()["runs"]].count("damaged") == 1
    assert "&#39;run-b&#39; is damaged" in client.get("/runs/run-b").text


def test_a_page_after_a_damaged_record(three_runs):
    flip(three_runs, "run", "run-b", "finished", "finishee")
    found = run_sync(Runs().find(limit=2))
    rest = run_sync(Runs().find(before=found[-1].run_id))
    assert sorted(run.run_id for run in (*found, *rest)) == ["run-a", "run-b", "run-c"]


def damage_index(folder, table, column, value):
    with closing(sqlite3.connect(folder / ".redraft" / "redraft.db")) as connection:
        sql = f"UPDATE {table} SET {column} = ? WHERE run_id = 'run-b'"  # noqa: S608 (a test's own)
        connection.execute(sql, (value,))
        connection.commit()


RUBBISH = [b"\xff\xfe", "\\x", "{", -(2**62)]


@pytest.mark.parametrize("value", RUBBISH)
def test_a_damaged_row_of_the_index_hides_no_other(three_runs, value, caplog):
    sound = (three_runs / ".redraft" / "redraft.db").read_bytes()
    index = run_index(project_store())
    for column in ("created_at", *run_index_module._COLUMNS, "criteria"):
        damage_index(three_runs, "runs", column, value)
        listed = {run.run_id: run.status for run in run_sync(Runs().find(inner=True))}
        assert listed == dict.fromkeys(("run-a", "run-b", "run-c"), "finished"), column  # by their records
        assert {row.run_id for row in run_sync(index.find())} == set(listed)
        for by in ("day", "agent", "model", "is_advised", "threshold", "role", "role_model"):
            run_sync(index.sum(by))
            run_sync(index.count(by))
        run_sync(project_store().aclose())
        (three_runs / ".redraft" / "redraft.db").write_bytes(sound)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == len(set(warnings))
    assert any("A row of the index 'runs' is damaged, that of 'run-b'" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("runs", "run_id", b"\xff"),
        ("runs", "created_at", "soon"),
        ("runs", "created_at", 2**62),
        ("runs", "status", b"\xff"),
        ("runs", "criteria", "{"),
        ("runs", "criteria", '{"a": [1]}'),
        ("runs", "agent", "\\q"),
        ("run_shares", "value", b"\xff"),
        ("run_shares", "known_usd", "much"),
    ],
)
def test_commands_and_pages_with_a_damaged_row_of_the_index(three_runs, table, column, value, monkeypatch):
    monkeypatch.setattr("redraft.doctor.JAILED", {})
    damage_index(three_runs, table, column, value)
    for command in (("runs",), ("runs", "--json"), ("show", "last"), ("why", "run-a")):
        assert redraft(*command).exit_code == 0, command
    assert {"run-a", "run-c"} <= {run["run_id"] for run in document(redraft("runs", "--json"))["runs"]}
    assert redraft("doctor").exit_code in (0, 1)
    client = pages(project_store())
    for path in ("/runs", "/runs.json", "/spend", "/runs/run-a"):
        assert client.get(path).status_code == 200, path


def test_doctor_names_a_damaged_row_of_the_index(three_runs):
    damage_index(three_runs, "runs", "criteria", "{")
    [problem] = run_sync(project_store().problems())
    assert "A row of the index 'runs' is damaged, that of 'run-b': " in problem
    assert "'run-b'" in redraft("doctor").stdout


def test_a_damaged_step_is_not_replayed_and_the_run_is_shown(project):
    store = project_store()
    pattern = ReflectionPattern(max_iterations=0, quality_criteria=["clarity"], retry=Retry(attempts=1))
    models = []

    def again(*replies):
        models.append(ScriptedModel(replies))
        return Agent(models[-1], pattern=pattern, keep=store).run_sync("W.", run_id="mine")

    assert again("a draft", ModelError("down")).convergence_reason == "error"
    flip(project, "step", "mine/", "a draft", "b draft")
    with pytest.raises(DamagedRecordError, match=r"'step' 'mine/0.*' is damaged"):
        again("another draft")
    assert models[-1].requests == []  # nor is it paid for again without a word
    steps = run_sync(Runs(store).steps("mine"))
    assert {step.name for step in steps} >= {"(damaged)", "evaluate"}
    result = redraft("show", "mine", "--prompts")
    assert result.exit_code == 0
    assert "is damaged" in result.stdout


def test_a_running_run_with_a_damaged_step_shows_the_steps_before(project):
    store = project_store()
    drafts = iter(["a draft", "b draft", "c draft"])
    step = Journalled(store, "mine")
    run_sync(reflect("W.", generate=lambda _: next(drafts), evaluate=lambda _: (0.4, "dull"), step=step))
    put(record((), run_id="mine"))  # as it was before it ended
    flip(project, "step", "mine/", "b draft", "B draft")
    [run] = run_sync(Runs(store).find())
    assert (run.status, [version.output for version in run.versions]) == ("running", ["a draft"])
    assert redraft("show", "mine").exit_code == 0


def test_workflows_with_a_damaged_record_are_listed(project):
    kept_workflows("one", "two", "three", store=project_store())
    flip(project, "workflow", "two", '"status":"finished"', '"status":"finishee"')
    listed = {run["run_id"]: run["status"] for run in document(redraft("runs", "--json"))["runs"]}
    workflows = {run_id: status for run_id, status in listed.items() if "." not in run_id}
    assert workflows == {"one": "finished", "two": "damaged", "three": "finished"}
    assert redraft("show", "one").exit_code == 0
    assert redraft("show", "last").exit_code == 0
    assert "'workflow' 'two' is damaged" in redraft("show", "two").stderr
    client = pages(project_store())
    assert "✗ damaged" in client.get("/runs").text
    assert client.get("/workflows/three").status_code == 200


def test_a_damaged_loop_of_a_workflow_is_shown(project):
    kept_workflows("one", store=project_store())
    flip(project, "run", "one.", "quality_met", "quality_mes")
    result = redraft("show", "one")
    assert result.exit_code == 0
    assert "shaky" in result.stdout
    assert pages(project_store()).get("/workflows/one").status_code == 200


TASKS = [PlainTask(f"Write report {number}.") for number in range(3)]


def test_tasks_with_a_damaged_note_are_listed(project):
    async def fill():
        async with project_notes() as notes:
            for task in TASKS:
                await notes.record_use(TaskIdentity.of(task), NoteUse("before", None, "none", 0.3))
                for number in range(3):
                    said = TaskReflection.of_first_run(f"With {number} sources.", "Three sections.")
                    await notes.append(task, said, run_id=f"run-{number}")

    asyncio.run(fill())
    broken = TaskIdentity.of(TASKS[1])
    flip(project, "noted_task", broken, "Write report", "Write repost")
    listed = document(redraft("notes", "--json"))["tasks"]
    assert sorted(one["name"] for one in listed) == ["", "", "(a damaged record)"]
    assert "(a damaged record)" in redraft("notes").stdout
    assert redraft("notes", "show", TaskIdentity.of(TASKS[0])).exit_code == 0
    assert "is damaged" in redraft("notes", "show", broken).stderr
    client = pages(project_store())
    assert "(a damaged record)" in client.get("/tasks").text
    assert client.get(f"/tasks/{TaskIdentity.of(TASKS[0])}").status_code == 200
    whole = TaskIdentity.of(TASKS[2])
    flip(project, "note", whole, "With 1", "With 9")  # one revision of three
    flip(project, "note_use", whole, "before", "befose")
    assert len(run_sync(project_notes().revisions(whole))) == 2
    assert [use.run_id for use in run_sync(project_notes().uses(whole))] == ["before"]  # from its columns
    assert redraft("notes", "show", whole).exit_code == 0


def test_agents_with_a_damaged_cycle_are_listed(project):
    async def main():
        await ran_cycles(4, "first")
        await ran_cycles(4, "second")

    asyncio.run(main())
    flip(project, "cycle", "0000000002", '"status":"finished"', '"status":"finishee"')
    for name in ("first", "second"):
        cycles = run_sync(run_sync(Agents().get(name)).cycles())
        assert [(cycle.number, cycle.status) for cycle in cycles] == [
            (4, "finished"),
            (3, "finished"),
            (2, "damaged"),
            (1, "finished"),
        ]
        assert "'cycle' '0000000002-" in cycles[2].error
    for command in ("status", "metrics"):
        assert redraft("cycle", command, "first").exit_code == 0, command
    assert "After cycle 4" in redraft("cycle", "memory", "first").stdout  # which is stored by itself
    assert "damaged" in redraft("cycle", "status", "first").stdout
    with pytest.raises(StoreError, match="damaged"):  # what it has changed is not known
        run_sync(run_sync(Agents().get("first")).memory_at(1))

    async def look():
        async with visited() as client:
            return [await client.get(path) for path in ("/agents", "/agents/first", "/agents/first.json")]

    assert [page.status_code for page in asyncio.run(look())] == [200, 200, 200]
    flip(project, "agent", "", '"name":"first"', '"name":"fisst"')
    assert {"first", "second"} <= {one.name for one in run_sync(Agents().all())}


def test_damaged_memory_is_not_an_outage(project):
    asyncio.run(ran_cycles(2, "first"))
    flip(project, "memory", "", "cycle", "cykle")
    with pytest.raises(DamagedRecordError, match="'memory' 'memory' is damaged"):
        asyncio.run(ran_cycles(1, "first"))


def test_errors_of_runs_are_listed_without_secrets(project):
    key = "sk-" + "a1B2c3D4" * 5
    put(record(history(0.4), "error", run_id="mine", error=f"ModelError: the key {key} is wrong"))
    [row] = document(redraft("runs", "--json"))["runs"]
    assert row["error"].startswith("ModelError: the key ")
    page = pages(project_store()).get("/runs.json").text
    assert "ModelError: the key " in page
    assert key not in row["error"] + page
