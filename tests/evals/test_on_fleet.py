"""Evaluations whose runs are carried out by the workers of a fleet."""

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from redraft import (
    Agent,
    ConfigError,
    EvalCase,
    Evaluation,
    MemoryStore,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    Runs,
    ScriptedModel,
    Task,
)
from redraft.errors import MissingExtraError
from redraft.fleet import Fleet, FleetWorker, StoreQueue
from redraft.loop import Retry
from redraft.protocols import ChatReply
from redraft.types import Advice, PlainTask
from support.commands import redraft
from support.eval_cases import CALL, cases, drafts_an_odd_task
from support.fleet_load import FleetLoad

COUNT = 8
CASES = cases(COUNT)


def clerk(store, answer=None, **options):
    """An agent whose first drafts are bad for odd tasks, and whose revisions and later drafts are good."""

    async def reply(request):
        again = request.temperature is not None
        is_bad = drafts_an_odd_task(request) and not again
        found = answer(request) if answer else "bad" if is_bad else "good " * (1 + again)
        if isinstance(found, Exception):
            raise found
        return ChatReply(found, usage=CALL)

    pattern = ReflectionPattern(2, retry=Retry(attempts=1))
    return Agent(ScriptedModel(reply), **{"pattern": pattern, "name": "clerk", "keep": store, **options})


def fleet_of(store, *agents, **options):
    return Fleet(agents, store=store, queue=StoreQueue(store), **options)


@asynccontextmanager
async def working(fleet):
    worker = FleetWorker(fleet)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        worker.stop()
        await task


async def until(condition):
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.01)


async def jobs_in(fleet, number):
    """Wait until so many jobs are in the queue of a fleet."""

    async def are_there():
        return len(await fleet.jobs()) >= number

    await until(are_there)


def found_in(report):
    tries = [
        (
            one.key,
            one.usage,
            one.error,
            [(answer.output, answer.passed, answer.usage) for answer in one.answers],
        )
        for one in sorted(report.tries, key=lambda one: one.key)
    ]
    return tries, [one.sentence() for one in report.differences]


class Learner:
    """An advisor that remembers what it was shown."""

    def __init__(self):
        self.observed = []

    async def recall(self, _task, /):
        return [Advice("Be good.")]

    async def observe(self, result, /):
        self.observed.append(result)


@pytest.mark.parametrize("compare", [(), ("loop", "first", "best-of-3", "no-lessons")])
def test_it_finds_what_a_local_evaluation_finds_and_leaves_the_same_records(compare):
    async def main():
        store, learner = MemoryStore(), Learner()
        agent = clerk(store, lessons=learner)
        local = await Evaluation(
            CASES, clerk(False, lessons=learner), compare=compare, store=MemoryStore()
        ).run()
        fleet = fleet_of(store, agent)
        async with working(fleet):
            report = await Evaluation(CASES, agent, compare=compare, fleet=fleet, run_id="e").run()
        assert found_in(report) == found_in(local)
        runs = Runs(store)
        assert await runs.rows() == []
        inner = await runs.read_rows(await runs.rows(inner=True))
        assert {run.parent for run in inner} == {"e"}
        assert {job.evaluation for job in await fleet.jobs()} == {"e"}
        assert learner.observed == []

    asyncio.run(main())


def test_nothing_is_submitted_for_an_agent_that_the_workers_would_not_run():
    store = MemoryStore()
    fleet = fleet_of(store, clerk(store))

    def unnamed(output):
        return "good" in output

    local = QualityCriterion("local", evaluator="function", evaluator_config={"function": unnamed})
    with pytest.raises(ConfigError, match=r"'case-0' on the fleet: .*no program 'other'"):
        Evaluation(CASES, clerk(store, name="other"), fleet=fleet)
    with pytest.raises(ConfigError, match="'clerk' is not defined like the one of the fleet"):
        Evaluation(CASES, clerk(store, system_prompt="Be brief."), fleet=fleet)
    with pytest.raises(ConfigError, match="A fleet evaluates agents only, and 'answer' is not an Agent"):
        Evaluation(CASES, {"clerk": fleet.programs["clerk"].agent, "answer": lambda _: "good"}, fleet=fleet)
    with pytest.raises(ConfigError, match="A fleet evaluates agents only, and 'Say' is not an Agent"):
        Evaluation(CASES, Task("Say", model=ScriptedModel(["good"])), fleet=fleet)
    with pytest.raises(ConfigError, match="'local' is a function that a worker can't import"):
        Evaluation([EvalCase("one", PlainTask("Task 1."), (local,))], clerk(store), fleet=fleet)
    with pytest.raises(ConfigError, match="kept in the store of the fleet"):
        Evaluation(CASES, clerk(store), fleet=fleet, store=MemoryStore())
    with pytest.raises(ConfigError, match=r"fleet must be a redraft.fleet.Fleet, got 'app:fleet'"):
        Evaluation(CASES, clerk(store), fleet="app:fleet")
    assert asyncio.run(fleet.jobs()) == []


def test_a_run_that_a_provider_failed_is_unknown_and_made_again_by_the_next_call():
    async def main():
        store = MemoryStore()
        failing = [ModelError("The key is wrong.", status=401)]
        agent = clerk(store, lambda _request: failing[0] if failing else "good")
        fleet = fleet_of(store, agent)
        async with working(fleet):
            first = await Evaluation(cases(2), agent, fleet=fleet, run_id="e").run()
            failing.clear()
            again = await Evaluation(cases(2), agent, fleet=fleet, run_id="e").run()
        assert [(one.unknown, "The key is wrong." in one.error) for one in first.tries] == [(True, True)] * 2
        assert [one.error for one in again.tries] == ["", ""]

    asyncio.run(main())


def test_a_worker_that_lacks_an_extra_ends_the_evaluation_and_does_not_count_against_the_agent():
    async def main():
        store = MemoryStore()
        agent = clerk(store, lambda _request: MissingExtraError("This model", "local"))
        fleet = fleet_of(store, agent)
        async with working(fleet):
            with pytest.raises(ConfigError, match="redraft\\[local\\]"):
                await Evaluation(cases(2), agent, fleet=fleet).run()

    asyncio.run(main())


def test_a_run_that_ended_in_an_error_counts_with_what_it_had_made():
    """As it does here: the versions were paid for, and would be returned."""

    async def main():
        store = MemoryStore()

        def answer(request):
            return "bad" if request.role == "generation" else ModelError("No more.", status=401)

        agent = clerk(store, answer)
        fleet = fleet_of(store, agent)
        local = await Evaluation(cases(2), clerk(False, answer), store=MemoryStore()).run()
        async with working(fleet):
            report = await Evaluation(cases(2), agent, fleet=fleet).run()
        assert found_in(report) == found_in(local)
        assert [one.answers[0].output for one in report.tries] == ["bad", "bad"]

    asyncio.run(main())


def test_cancelling_an_evaluation_cancels_what_it_has_submitted():
    async def main():
        store = MemoryStore()
        agent = clerk(store)
        fleet = fleet_of(store, agent)
        evaluation = asyncio.create_task(Evaluation(CASES, agent, fleet=fleet, at_once=3, run_id="e").run())
        await jobs_in(fleet, 3)
        evaluation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await evaluation
        assert [job.state for job in await fleet.jobs()] == ["cancelled"] * 3
        async with working(fleet):
            report = await Evaluation(CASES, agent, fleet=fleet, run_id="e").run()
        assert [one.error for one in report.tries] == [""] * COUNT

    asyncio.run(main())


def test_only_workers_of_the_evaluated_version_carry_it_out(caplog):
    async def main():
        store = MemoryStore()
        agent = clerk(store)
        old, new = fleet_of(store, agent, version="old"), fleet_of(store, agent, version="new")
        async with working(old):
            await until(old.queue.workers)
            evaluation = asyncio.create_task(Evaluation(cases(2), agent, fleet=new, run_id="e").run())
            await jobs_in(new, 2)
            ordinary = await old.submit(agent, "Task 2.")
            await ordinary.result(within=20)  # so the worker has looked, and left the others alone
            assert {job.state for job in await new.jobs() if job.evaluation} == {"queued"}
            async with working(new):
                await asyncio.wait_for(evaluation, 20)

    asyncio.run(main())
    assert "The evaluation is waiting: no worker has the version new of this fleet, only old" in caplog.text


def test_the_command_evaluates_on_a_fleet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    app = """
from redraft import Agent, ReflectionPattern, ScriptedModel
from redraft.fleet import Fleet
writer = Agent(ScriptedModel(lambda request: "Paris"), pattern=ReflectionPattern(0), name="writer")
fleet = Fleet([writer])
"""
    (tmp_path / "fleet_of_command.py").write_text(app, "utf-8")
    (tmp_path / "cases.yaml").write_text(
        "cases: [{task: The capital?, reference: Paris, match: exact}]", "utf-8"
    )
    command = ("eval", "cases.yaml", "--agent", "fleet_of_command:writer", "--fleet")
    assert "'fleet_of_command:writer' is of type Agent" in redraft(*command, "fleet_of_command:writer").stderr
    worker = subprocess.Popen(
        [sys.executable, "-m", "redraft", "worker", "fleet_of_command:fleet"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    try:
        done = redraft(*command, "fleet_of_command:fleet", "--json")
    finally:
        worker.terminate()
        worker.communicate(timeout=30)
    assert (done.exit_code, json.loads(done.stdout)["figures"][0]["mean_passed"]) == (0, 1.0), done.stderr
    sys.modules.pop("fleet_of_command")


def test_killed_workers_and_a_killed_evaluation_change_nothing_and_pay_for_nothing_twice(postgres, tmp_path):
    """Two workers in real processes; one is killed in the middle, and so is the process that evaluates."""
    load = FleetLoad(postgres.url, tmp_path, FLEET_PICK_UP=2, FLEET_COST=0.01)

    def evaluate(place, **environment):
        script = Path(__file__).with_name("on_fleet.py")
        return subprocess.Popen(
            [sys.executable, script, place, str(COUNT)],
            env={**load.environment, **environment},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    try:
        killed, _ = [load.start("--at-once", "2") for _ in range(2)]
        first = evaluate("fleet")
        load.wait_for_calls(12)
        load.kill(killed)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        again = evaluate("fleet")
        found, errors = again.communicate(timeout=120)
    finally:
        load.stop()
    assert again.returncode == 0, errors.decode() + load.said()
    report = load.report()  # before the local one, whose rows have no claims
    local = evaluate("local", REDRAFT_PROJECT="local", FLEET_LOG=str(tmp_path / "local.log"))
    expected, errors = local.communicate(timeout=120)
    assert local.returncode == 0, errors.decode()
    assert json.loads(found) == json.loads(expected)
    assert (report.finished, report.repeated, report.wrong) == (COUNT, 0, 0)
    assert report.calls == 6 * COUNT + report.interrupted
    assert report.interrupted <= 2  # those under way in the worker
