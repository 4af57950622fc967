"""`redraft worker`, `submit`, `fleet` and `cancel`, on the store of a project."""

import asyncio
import re
import sys

import pytest

from redraft.fleet.fleet import project_queue
from redraft.fleet.queue import WorkerCard
from support.commands import document, redraft

APP = """
from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel, Workflow
from redraft.errors import ModelError
from redraft.fleet import Fleet


def answer(request):
    text = request.messages[-1].content
    if "fail" in text:
        raise ModelError("The key is wrong.", status=401)
    return "Dear customer, thank you."


GREET = '''
name: greet
nodes:
  - name: hello
    uses: greet
    with: {name: "{{ state.person }}"}
    output: greeting
'''
short = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 9})
pattern = ReflectionPattern(max_iterations=0, quality_criteria=[short])
clerk = Agent(ScriptedModel(answer), pattern=pattern, name="clerk")
greet = Workflow.from_text(GREET, actions={"greet": lambda state, name: f"Hello {name}"})
fleet = Fleet([clerk], [greet], version="v1", budget_usd_per_day=5)
other = Fleet([clerk], [greet], version="v2")
number = 3
"""


@pytest.fixture
def app(project, monkeypatch):
    """A project with a fleet in the module `fleet_of_test`."""
    (project / "fleet_of_test.py").write_text(APP)
    monkeypatch.setattr(sys, "path", [str(project), *sys.path])
    yield "fleet_of_test:fleet"
    sys.modules.pop("fleet_of_test", None)


def test_a_task_is_submitted_carried_out_and_shown(app):
    assert redraft("submit", app, "clerk", "Write.", "--id", "order-1", "--priority", 3).stdout == "order-1\n"
    result = redraft("fleet")
    assert "1 queued" in result.stdout
    assert "start one with redraft worker APP" in result.stdout
    worked = redraft("worker", app, "--until-idle")
    assert worked.exit_code == 0, worked.stderr
    assert "runs clerk, greet, version v1, 10 at once" in worked.stderr
    assert "Done: 1 job." in worked.stderr
    data = document(redraft("fleet", "--json"))
    assert [(job["run_id"], job["state"], job["priority"]) for job in data["jobs"]] == [
        ("order-1", "finished", 3)
    ]
    assert data["depth"]["jobs"]["finished"] == 1
    assert data["spending"]["budget_usd"] == 5
    assert re.search(
        r"Spent +\$0.0000 of \$5.0000 on 20\d\d-\d\d-\d\d \(UTC\), \$5.0000 left", redraft("fleet").stdout
    )
    assert "order-1" in redraft("runs").stdout
    again = redraft("submit", app, "clerk", "Write.", "--id", "order-1")
    assert (again.stdout, again.stderr) == ("order-1\n", "The job order-1 had already ended: finished.\n")
    assert redraft("submit", app, "clerk", "Write.", "--id", "order-1", "--wait").stdout == (
        "Dear customer, thank you.\n"
    )


def test_a_dead_worker_is_marked(app, project):
    async def register():
        for name, pick_up_after in (("alive", 3600.0), ("dead", 0.0)):
            queue = project_queue()
            await queue.register(WorkerCard(name, "here", 1, "v1", ("clerk",), 4, pick_up_after))

    asyncio.run(register())
    lines = {line.split()[0]: line for line in redraft("fleet").stdout.splitlines() if line.strip()}
    assert re.search(r"v1 +0/4 +gone, 0 s ago", lines["dead"])
    assert re.search(r"v1 +0/4 +\d+ s ago", lines["alive"])
    workers = {
        worker["card"]["name"]: worker["is_gone"]
        for worker in document(redraft("fleet", "--json"))["workers"]
    }
    assert workers == {"alive": False, "dead": True}


def test_a_workflow_takes_an_object(app):
    assert redraft("submit", app, "greet", '{"person": "Ada"}', "--id", "g").exit_code == 0
    redraft("worker", app, "--until-idle")
    data = document(
        redraft("submit", app, "greet", "-", "--id", "g", "--wait", "--json", stdin='{"person": "Ada"}')
    )
    assert data["job"]["state"] == "finished"
    assert data["result"]["state"]["greeting"] == "Hello Ada"
    wrong = redraft("submit", app, "greet", "{person: Ada}")
    assert (wrong.exit_code, "must be a JSON object" in wrong.stderr) == (2, True)


def test_jobs_are_cancelled_and_failed_ones_tried_again(app):
    redraft("submit", app, "clerk", "Write.", "--id", "a")
    assert redraft("cancel", "a").stdout == "a is cancelled.\n"
    redraft("submit", app, "clerk", "Please fail.", "--id", "b")
    redraft("worker", app, "--until-idle")
    output = redraft("fleet").stdout
    assert "b  failed: ModelError: The key is wrong." in output
    assert "1 failed, 1 cancelled" in output
    assert document(redraft("fleet", "retry", "a", "--json"))["job"]["state"] == "queued"
    waited = redraft("submit", app, "clerk", "Please fail.", "--id", "b", "--wait")
    assert (waited.exit_code, "is failed" in waited.stderr) == (1, True)


def test_who_no_longer_waits_for_a_job_is_told_how_to_wait_again(app, monkeypatch):
    async def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("redraft.fleet.fleet.JobHandle.result", interrupted)
    waited = redraft("submit", app, "clerk", "Write.", "--id", "c", "--wait")
    assert waited.exit_code == 130
    assert waited.stderr.endswith(" The job goes on; the same command with --id c waits for it.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("worker", "app"), "MODULE:OBJECT"),
        (("worker", "no_such_module:fleet"), "no module 'no_such_module'"),
        (("worker", "fleet_of_test:flet"), "has no 'flet'"),
        (("worker", "fleet_of_test:number"), "is not a Fleet but 3"),
        (("worker", "broken:fleet"), "ZeroDivisionError"),
        (("worker", "script:fleet"), "'script' can't be imported: SystemExit"),
        (("worker", "fleet_of_test:fleet", "--concurrency", "0"), "concurrency"),
        (("submit", "fleet_of_test:fleet", "clark", "a"), "did you mean 'clerk'"),
        (("submit", "fleet_of_test:fleet", "clerk"), "must be a text"),
        (("submit", "fleet_of_test:fleet", "clerk", "a", "--priority", "5000"), "priority must be"),
        (("cancel", "nothing"), "no job 'nothing'"),
        (("fleet", "retry", "nothing"), "no job 'nothing'"),
    ],
)
def test_mistakes_are_named(app, project, words, message):
    (project / "broken.py").write_text("1 / 0")
    (project / "script.py").write_text("raise SystemExit")
    result = redraft(*words)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_a_fleet_without_a_place_or_a_name_is_refused(app, monkeypatch):
    monkeypatch.setenv("REDRAFT_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert "needs a name for the project" in redraft("fleet").stderr
    monkeypatch.setenv("REDRAFT_PROJECT", "orders")
    away = redraft("submit", app, "clerk", "Write.")
    assert (away.exit_code, "'none' on 127.0.0.1:1" in away.stderr) == (2, True), away.stderr
    monkeypatch.setenv("REDRAFT_HOME", "")
    assert "so no jobs are stored here" in redraft("fleet").stderr
