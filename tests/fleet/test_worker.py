"""Fleet and FleetWorker: submitting, running, cancelling, picking up, fencing and poison."""

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from threading import current_thread

import pytest

from redraft import Agent, MemoryStore, QualityCriterion, ReflectionPattern, Runs, ScriptedModel, Workflow
from redraft.approvals import Approvals
from redraft.errors import (
    ClaimLostError,
    ConfigError,
    JobError,
    ModelError,
    StoreError,
    StoreSettingsError,
    WorkflowError,
)
from redraft.events import RunFinished, StepFinished
from redraft.fleet import Fleet, FleetWorker, StoreQueue
from redraft.fleet.postgres_queue import ProcrastinateQueue
from redraft.fleet.programs import JobOutcome
from redraft.fleet.queue import WorkerCard
from redraft.fleet.worker import STOPPED
from redraft.loop import Retry
from redraft.loop.journal import STEP, Claim, claim_under_way
from redraft.stores.base import Record
from redraft.stores.location import project_store
from redraft.types import ConvergenceReason
from redraft.workflow.history import Workflows

LONG = QualityCriterion("long", evaluator="words", evaluator_config={"at_least": 3})
PATTERN = ReflectionPattern(max_iterations=2, quality_criteria=[LONG])


def writer(store, answer, name="clerk", **options):
    return Agent(ScriptedModel(answer), pattern=PATTERN, keep=store, name=name, **options)


async def three_words(_request):
    return "one two three"


@asynccontextmanager
async def working(fleet, **options):
    """Run a worker of a fleet in the background, and stop it in the end."""
    worker = FleetWorker(fleet, **options)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        worker.stop()
        await task


def fleet_of(store, *agents, **options):
    return Fleet(agents, store=store, queue=StoreQueue(store), **options)


async def until(condition, seconds=10):
    async with asyncio.timeout(seconds):
        while not (found := await condition()):  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.02)
    return found


async def test_a_job_is_submitted_run_and_answered():
    store = MemoryStore()
    clerk = writer(store, three_words)
    fleet = fleet_of(store, clerk)
    async with working(fleet):
        handle = await fleet.submit(clerk, "Write three words.", run_id="order-1")
        result = await handle.result(within=10)
        assert result.best_output == "one two three"
        assert result.run_id == "order-1"
        assert (await handle.job()).state == "finished"
        again = await fleet.submit("clerk", "Write three words.", run_id="order-1")
        assert (await again.result()).best_output == "one two three"
    assert len(clerk.model.requests) == 1


def test_the_queue_of_a_project_does_not_depend_on_the_order_of_access(postgres, monkeypatch, tmp_path):
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path))
    monkeypatch.setenv("REDRAFT_DATABASE_URL", postgres.url)
    monkeypatch.setenv("REDRAFT_PROJECT", "orders")
    fleet = Fleet([writer(True, three_words)])
    assert fleet.store is project_store()
    assert isinstance(fleet.queue, ProcrastinateQueue)


class Busy:
    """A cycle whose agent is run by another process at first, more often than a job may be tried."""

    name, runs_alone, takes_object, keep, definition = "beat", True, False, True, "beat"

    def __init__(self, times):
        self.times = times

    def check(self, task, *, priced=False):
        pass

    async def run(self, _task, _run_id):
        self.times -= 1
        return JobOutcome("Another process runs it.", is_busy=True) if self.times >= 0 else JobOutcome()

    async def result(self, _run_id, _store):
        return None


async def test_a_cycle_that_waits_for_another_one_uses_up_no_tries(monkeypatch):
    monkeypatch.setattr("redraft.fleet.worker.BUSY_DELAY", 0.01)
    store = MemoryStore()
    fleet = fleet_of(store, writer(store, three_words), tries=1)
    fleet.programs["beat"] = Busy(5)
    async with working(fleet):
        handle = await fleet.submit("beat")
        await handle.result(within=20)
        job = await handle.job()
        assert (job.state, job.tries) == ("finished", 0)


GREET = """
name: greet
nodes:
  - name: hello
    uses: greet
    with: {name: "{{ state.person }}"}
    output: greeting
"""


async def test_a_workflow_is_a_program_too():
    store = MemoryStore()
    greet = {"greet": lambda state, name: f"Hello {name}"}
    fleet = Fleet(workflows=[Workflow.from_text(GREET, actions=greet, keep=store)], store=store)
    with pytest.raises(WorkflowError, match="person"):
        await fleet.submit("greet", {})
    with pytest.raises(ConfigError, match="must be an object"):
        await fleet.submit("greet", "Ada")
    async with working(fleet):
        handle = await fleet.submit("greet", {"person": "Ada"})
        assert (await handle.result(within=10)).state["greeting"] == "Hello Ada"


def test_a_workflow_that_waits_for_a_person_goes_on_after_the_answer(monkeypatch):
    monkeypatch.setattr("redraft.fleet.worker.ANSWER_DELAY", 0.05)
    text = "name: ask\nnodes: [{name: ask, uses: human.approve, with: {message: 'Send?'}, output: answer}]"

    async def main():
        store = MemoryStore()
        fleet = Fleet(workflows=[Workflow.from_text(text, keep=store)], store=store)
        handle = await fleet.submit("ask", {}, run_id="r")
        async with working(fleet):
            (approval,) = await until(lambda: Approvals(store).waiting())
            await until(lambda: has(handle, "queued"))
            await Approvals(store).answer(approval, approved=True)
            result = await handle.result(within=10)
        assert (result.status, result.state["answer"]["approved"]) == ("finished", True)
        assert (await handle.job()).tries == 0

    async def has(handle, state):
        return (await handle.job()).state == state

    asyncio.run(main())


async def test_the_result_of_a_workflow_says_that_its_budget_was_spent():
    text = "name: slow\nbudget: {seconds: 0.01}\nnodes: [{name: wait, uses: wait}]"

    async def wait(state):
        await asyncio.sleep(60)

    store = MemoryStore()
    fleet = Fleet(workflows=[Workflow.from_text(text, actions={"wait": wait}, keep=store)], store=store)
    handle = await fleet.submit("slow", {})
    await FleetWorker(fleet).run(until_idle=True)
    result = await handle.result()
    assert (result.status, result.stop.reason) == ("stopped", ConvergenceReason.TIME_BUDGET)
    assert "(budget.seconds)" in result.stop.detail


class Odd(BaseException):
    """No `Exception`, such as the outcomes of pytest."""


@pytest.mark.parametrize("error", [Odd("no"), SystemExit("no"), asyncio.CancelledError("no")], ids=repr)
async def test_a_job_fails_whatever_its_program_raises(error):
    class Failing(Busy):
        async def run(self, _task, _run_id):
            raise error

    store = MemoryStore()
    fleet = fleet_of(store, writer(store, three_words))
    fleet.programs["beat"] = Failing(0)
    handle = await fleet.submit("beat")
    assert await FleetWorker(fleet).run(until_idle=True) == 1
    job = await handle.job()
    assert (job.state, job.error) == ("failed", f"{type(error).__name__}: no")


async def test_events_of_a_run_are_followed_from_elsewhere():
    store = MemoryStore()
    clerk = writer(store, three_words)
    fleet, other = fleet_of(store, clerk), fleet_of(store, writer(store, []))
    handle = await other.submit("clerk", "Write.", run_id="a")

    async def follow():
        return [event async for event in handle.stream()]

    following = asyncio.create_task(follow())
    async with working(fleet):
        events = await asyncio.wait_for(following, 60)
    assert [event.name for event in events if isinstance(event, StepFinished)] == ["generate", "evaluate"]
    assert isinstance(events[-1], RunFinished)


async def test_cancelling_a_running_job_keeps_its_finished_steps():
    store = MemoryStore()
    calls = []

    async def answer(_request):
        calls.append(1)
        if len(calls) > 1:
            await asyncio.Event().wait()
        return "short"

    clerk = writer(store, answer)
    fleet = fleet_of(store, clerk, pick_up_after=1)
    async with working(fleet):
        handle = await fleet.submit(clerk, "Write.", run_id="a")

        async def second_call():
            return len(calls) > 1

        await until(second_call)
        assert (await handle.cancel()).is_cancelling
        with pytest.raises(JobError, match=r"is cancelled\.$") as raised:
            await handle.result(within=10)
        assert raised.value.state == "cancelled"
    run = await Runs(store).get("a")
    assert run.status == "cancelled"
    assert [version.output for version in run.versions] == ["short"]


async def test_a_cancelled_job_has_time_to_clean_up():
    store, calls = MemoryStore(), []

    async def answer(_request):
        calls.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.6)  # several heartbeats
            calls.append("cleaned up")

    clerk = writer(store, answer)
    fleet = fleet_of(store, clerk, pick_up_after=1)
    async with working(fleet, grace=10):
        handle = await fleet.submit(clerk, "Write.", run_id="a")

        async def begun():
            return calls

        await until(begun)
        await handle.cancel()
        with pytest.raises(JobError, match=r"is cancelled\.$"):
            await handle.result(within=10)
    assert calls == ["begun", "cleaned up"]


async def test_a_function_that_hangs_does_not_hold_up_the_end_of_a_worker():
    daemons = []

    def check(_text):
        daemons.append(current_thread().daemon)  # others are joined when a process exits
        return True

    store = MemoryStore()
    clerk = Agent(ScriptedModel(["Done."]), criteria=[check], keep=store, name="clerk")
    fleet = fleet_of(store, clerk)
    await fleet.submit(clerk, "Write.")
    assert await FleetWorker(fleet).run(until_idle=True) == 1
    assert daemons == [True]


async def test_the_second_stop_waits_for_no_claim():
    asked = asyncio.Event()

    class Silent(StoreQueue):
        async def claim(self, **_):
            asked.set()
            await asyncio.Event().wait()

    store = MemoryStore()
    worker = FleetWorker(Fleet([writer(store, three_words)], store=store, queue=Silent(store)))
    task = asyncio.create_task(worker.run())
    await asyncio.wait_for(asked.wait(), 20)
    worker.stop()
    worker.stop()
    assert await asyncio.wait_for(task, 20) == 0


async def test_stopping_hands_jobs_back_and_another_worker_continues():
    store = MemoryStore()
    calls = []

    async def answer(_request):
        calls.append(1)
        if len(calls) == 2:
            await asyncio.Event().wait()
        return f"draft {len(calls)}"

    clerk = writer(store, answer)
    fleet = fleet_of(store, clerk)
    worker = FleetWorker(fleet, grace=0)
    task = asyncio.create_task(worker.run())
    handle = await fleet.submit(clerk, "Write.", run_id="a")

    async def second_call():
        return len(calls) == 2

    await until(second_call)
    worker.stop()
    await task
    assert (await handle.job()).state == "queued"
    async with working(fleet):
        result = await handle.result(within=10)
    assert result.history.versions[0].output == "draft 1"
    assert len(calls) == len(result.history.versions) + 1  # only the interrupted call was made again


async def test_a_failure_that_may_pass_is_tried_again(monkeypatch):
    monkeypatch.setattr("redraft.fleet.worker.FIRST_DELAY", 0.05)
    store = MemoryStore()
    replies = [ConnectionError("nobody answers")] * 4 + ["one two three"]
    pattern = ReflectionPattern(quality_criteria=[LONG], retry=Retry(1))
    clerk = Agent(ScriptedModel(replies), pattern=pattern, keep=store, name="clerk")
    fleet = fleet_of(store, clerk, tries=4)
    handle = await fleet.submit(clerk, "Write.", run_id="a")
    assert await FleetWorker(fleet).run(until_idle=True) == 1
    assert (await handle.result(within=10)).success
    assert (await handle.job()).tries == 4


async def test_a_permanent_failure_fails_the_job_until_a_person_retries_it():
    store = MemoryStore()
    clerk = Agent(
        ScriptedModel([ModelError("The key is wrong.", status=401), "one two three"]),
        pattern=PATTERN,
        keep=store,
        name="clerk",
    )
    fleet = fleet_of(store, clerk)
    async with working(fleet):
        handle = await fleet.submit(clerk, "Write.", run_id="a")
        with pytest.raises(JobError, match="The key is wrong") as raised:
            await handle.result(within=10)
        assert raised.value.state == "failed"
        assert (await handle.retry()).state == "queued"
        assert (await handle.result(within=10)).success


async def test_a_worker_that_was_replaced_may_write_nothing():
    store = MemoryStore()
    asked = asyncio.Event()
    go_on = asyncio.Event()

    async def slow(_request):
        asked.set()
        await go_on.wait()
        return "from the zombie"

    zombie = writer(store, slow)
    claim = await Claim.take(store, "a", 1, "zombie", valid_for=60)
    claim_under_way.set(claim)
    run = asyncio.create_task(zombie.run("Write.", run_id="a"))
    await asked.wait()
    claim_under_way.set(await Claim.take(store, "a", 2, "other"))
    result = await writer(store, three_words).run("Write.", run_id="a")
    assert result.best_output == "one two three"
    go_on.set()
    with pytest.raises(ClaimLostError, match="taken over by other"):
        await run
    texts = [
        record.data["result"]["output"]
        for record in await store.find(STEP, prefix="a/")
        if record.data["name"] == "generate" and record.key.count("/") == 1
    ]
    assert texts == ["one two three"]
    assert (await Runs(store).get("a")).status == "finished"
    with pytest.raises(ClaimLostError):
        await Claim.take(store, "a", 1, "zombie")


async def test_a_claim_that_was_not_renewed_is_checked_before_an_effect():
    store = MemoryStore()
    model = ScriptedModel(three_words)
    claim_under_way.set(await Claim.take(store, "a", 1, "zombie", valid_for=0))
    await Claim.take(store, "a", 2, "other")
    with pytest.raises(ClaimLostError):
        await Agent(model, pattern=PATTERN, keep=store, name="clerk").run("Write.", run_id="a")
    assert model.requests == []


async def test_deaths_without_progress_are_counted_and_a_suspect_is_poison_only_if_it_ran_alone():
    store = MemoryStore()
    number = 0

    async def take():
        nonlocal number
        number += 1
        return await Claim.take(store, "a", number)

    assert [(await take()).deaths for _ in range(2)] == [0, 1]
    await store.put(Record(STEP, "a.child/00001", {}))
    assert [(await take()).deaths for _ in range(2)] == [0, 1]
    await (await take()).release()  # handed back: neither a death, nor an acquittal
    for _ in range(3):  # workers that die while it waits for its turn
        suspect = await take()
        assert (suspect.deaths, suspect.is_suspect, suspect.is_poison) == (2, True, False)
    await suspect.run_alone()
    await suspect.release()  # handed back once more
    suspect = await take()
    assert (suspect.deaths, suspect.is_poison) == (2, False)
    await suspect.run_alone()
    await store.put(Record(STEP, "a/00002", {}))
    claim = await take()
    assert (claim.deaths, claim.is_suspect, claim.is_poison) == (0, False, False)
    for _ in range(2):
        claim = await take()
    await claim.run_alone()
    claim = await take()
    assert (claim.deaths, claim.is_poison) == (3, True)
    await claim.release(acquit=True)
    claim = await take()
    assert (claim.deaths, claim.is_suspect, claim.is_poison) == (0, False, False)
    with pytest.raises(ClaimLostError):
        await suspect.run_alone()


async def die(store, fleet, *, alone=False):
    """Claim a job as a worker that dies before the first step of the run is recorded."""
    dying = StoreQueue(store)
    await dying.register(WorkerCard("dying", "here", 1, fleet.version, ("clerk",), 1))
    job = await dying.claim()
    claim = await Claim.take(store, job.run_id, job.claim)
    if alone:
        await claim.run_alone()
    await asyncio.sleep(0.01)
    await dying.reap(0)


async def test_a_job_that_kills_every_worker_is_poisoned_until_someone_retries_it():
    store = MemoryStore()
    clerk = writer(store, three_words)
    fleet = fleet_of(store, clerk)
    handle = await fleet.submit(clerk, "Write.", run_id="a")
    for number in range(3):
        await die(store, fleet, alone=number == 2)
    async with working(fleet):
        with pytest.raises(JobError, match=r"died 3 times .* ran nothing else") as raised:
            await handle.result(within=60)
        assert raised.value.state == "poisoned"
        assert clerk.model.requests == []
        await handle.retry()
        assert (await handle.result(within=60)).success


async def test_a_job_that_failed_for_good_is_not_poisoned_by_retrying_it():
    store = MemoryStore()
    clerk = writer(store, [*[ModelError("The key is wrong.", status=401)] * 5, "one two three"])
    fleet = fleet_of(store, clerk)
    async with working(fleet):
        handle = await fleet.submit(clerk, "Write.", run_id="a")
        for _ in range(5):
            with pytest.raises(JobError, match="The key is wrong"):
                await handle.result(within=60)
            await handle.retry()
        assert (await handle.result(within=60)).success


async def test_a_suspect_runs_by_itself_and_the_worker_claims_nothing_meanwhile():
    store, under_way, seen = MemoryStore(), set(), {}
    go_on = asyncio.Event()

    async def answer(request):
        name = request.messages[-1].content.split()[1]
        under_way.add(name)
        seen[name] = set(under_way)
        await go_on.wait()
        under_way.discard(name)
        return "one two three"

    clerk = writer(store, answer)
    fleet = fleet_of(store, clerk)
    await fleet.submit(clerk, "Write suspect", run_id="suspect", priority=5)
    for _ in range(2):
        await die(store, fleet)
    await fleet.submit(clerk, "Write first", run_id="first", priority=9)
    async with working(fleet) as worker:

        async def first_runs():
            return "first" in under_way and worker._isolation.suspects

        await until(first_runs, 60)
        later = [await fleet.submit(clerk, f"Write later-{number}") for number in range(3)]
        go_on.set()
        for handle in later:
            await handle.result(within=60)
    assert list(seen)[:2] == ["first", "suspect"]
    assert seen["suspect"] == {"suspect"}


async def test_programs_submissions_and_options_are_checked():
    store = MemoryStore()
    clerk = writer(store, three_words)
    for wrong, message in [
        (Fleet, "at least one"),
        (lambda: fleet_of(store, clerk, clerk), "have the name 'clerk'"),
        (lambda: fleet_of(store, "clerk"), "got 'clerk'"),
        (lambda: fleet_of(store, writer(MemoryStore(), three_words)), "must store its runs"),
        (lambda: fleet_of(store, clerk, version="a\nb"), "version must be"),
        (lambda: fleet_of(store, clerk, tries=-1), "tries must be"),
        (lambda: fleet_of(store, clerk, pick_up_after=0), "pick_up_after must be"),
        (lambda: FleetWorker(fleet_of(store, clerk), concurrency=0), "concurrency"),
        (lambda: FleetWorker(fleet_of(store, clerk), grace=-1), "grace must be"),
    ]:
        with pytest.raises(ConfigError, match=message):
            wrong()
    fleet = fleet_of(store, clerk)
    with pytest.raises(ConfigError, match="jobs must be"):
        await FleetWorker(fleet).run(1.5)
    for arguments, options, message in [
        (("clark", "Write."), {}, "did you mean 'clerk'"),
        ((clerk, {"a": object()}), {}, "must be JSON"),
        ((clerk, {1: "a"}), {}, "must be JSON"),
        ((clerk, float("nan")), {}, "must be JSON"),
        ((clerk, ["a"]), {}, "must be a text"),
        ((clerk, " "), {}, "must be a text"),
        ((clerk, "x" * 1_000_001), {}, "1,000,000 characters"),
        ((clerk, "a"), {"priority": 1001}, "priority must be"),
        ((clerk, "a"), {"priority": True}, "priority must be"),
        ((clerk, "a"), {"delay": -1}, "delay must be"),
        ((clerk, "a"), {"delay": float("inf")}, "delay must be"),
        ((clerk, "a"), {"run_id": "a/b"}, "run_id must be"),
    ]:
        with pytest.raises(ConfigError, match=message):
            await fleet.submit(*arguments, **options)
    assert await fleet.jobs() == []
    await fleet.submit(clerk, "a", run_id="a")
    with pytest.raises(ConfigError, match="belongs to a job"):
        await fleet.submit(clerk, "b", run_id="a")
    with pytest.raises(ConfigError, match="no job 'b'"):
        await fleet.handle("b").result()


def test_the_version_is_a_fingerprint_of_the_programs():
    store = MemoryStore()

    def version(**options):
        return fleet_of(store, writer(store, three_words, **options)).version

    assert version() == version()
    assert version() != version(system_prompt="Be brief.")
    first, second = (lambda text: len(text) > 3), (lambda text: len(text) > 4)

    def judged(function):
        criterion = QualityCriterion("own", evaluator="function", evaluator_config={"function": function})
        agent = Agent(
            ScriptedModel([]), pattern=ReflectionPattern(quality_criteria=[criterion]), keep=store, name="a"
        )
        return fleet_of(store, agent).version

    assert judged(first) == judged(first) != judged(second)
    # What a function contains counts, too.
    assert judged(lambda text: [len(word) > 3 for word in text]) != judged(
        lambda text: [len(word) > 4 for word in text]
    )
    assert fleet_of(store, writer(store, []), version="2026-11-23").version == "2026-11-23"


def test_the_version_is_the_same_in_every_process():
    """The order of a set differs between processes, also in a function's code."""
    code = (
        "from redraft._codec import fingerprint\n"
        "def vowels(word): return [letter in {'a', 'e', 'i', 'o', 'u'} for letter in word]\n"
        "print(fingerprint([vowels, {'a', 'e', 'i', 'o', 'u'}]))"
    )
    versions = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(versions) == 1


async def test_a_worker_whose_heartbeat_breaks_ends_with_the_error():
    class Broken(StoreQueue):
        beats = 0

        async def heartbeat(self):
            self.beats += 1
            if self.beats > 1:
                raise ZeroDivisionError
            return await super().heartbeat()

    store = MemoryStore()
    fleet = Fleet([writer(store, three_words)], store=store, queue=Broken(store), pick_up_after=1)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(FleetWorker(fleet).run(), 60)


async def test_an_outage_of_the_store_loses_neither_steps_nor_the_end_of_a_run(monkeypatch):
    monkeypatch.setattr("redraft.loop.journal.OUTAGE_WAIT", 0.05)
    monkeypatch.setattr("redraft.fleet.worker.OUTAGE_WAIT", 0.05)

    class Away(MemoryStore):
        until = 0.0

        async def check(self):
            if asyncio.get_running_loop().time() < self.until:
                raise StoreError("The store is away.")

        async def put_all_if(self, *arguments):
            await self.check()
            return await super().put_all_if(*arguments)

        async def get(self, *arguments):
            await self.check()
            return await super().get(*arguments)

    store, calls = Away(), []

    async def answer(_request):
        calls.append(asyncio.get_running_loop().time())
        store.until = calls[-1] + 0.3
        return "short" if len(calls) == 1 else "one two three"

    clerk = writer(store, answer)
    fleet = fleet_of(store, clerk)
    handle = await fleet.submit(clerk, "Write.", run_id="a")
    assert await asyncio.wait_for(FleetWorker(fleet).run(until_idle=True), 60) == 1
    result = await handle.result()
    assert [version.output for version in result.history.versions] == ["short", "one two three"]
    assert "not_kept" not in result.diagnostics
    assert len(calls) == 2
    assert calls[1] - calls[0] >= 0.3  # nothing is paid for that can't be recorded


class Refusing(MemoryStore):
    """A store that can be read, and refuses writes of a claim as often as `refusals` says, then takes one."""

    def __init__(self, refusals, kinds=("step", "run")):
        super().__init__()
        self.refusals, self.kinds, self.refused = refusals, kinds, 0

    async def put_all_if(self, kind, key, held, records):
        if kind == "claim" and records[0].kind in self.kinds and self.refused < self.refusals:
            self.refused += 1
            raise StoreError("The connection was cut.")
        self.refused = 0
        return await super().put_all_if(kind, key, held, records)


async def test_a_write_is_tried_again_as_often_as_connections_are_cut():
    store = Refusing(5)
    clerk = writer(store, three_words)
    fleet = fleet_of(store, clerk)
    handle = await fleet.submit(clerk, "Write.", run_id="a")
    await FleetWorker(fleet).run(until_idle=True)
    assert "not_kept" not in (await handle.result(within=1)).diagnostics
    assert len(clerk.model.requests) == 1


async def test_an_error_of_the_store_takes_no_try_from_the_provider(monkeypatch):
    monkeypatch.setattr("redraft.fleet.worker.FIRST_DELAY", 0.01)

    class Cut(MemoryStore):
        failures = 0

        async def put_if_absent(self, record):
            if self.failures:
                self.failures -= 1
                raise StoreError("The connection was cut.")
            return await super().put_if_absent(record)

    store = Cut()
    replies = [ConnectionError("nobody answers"), "one two three"]
    pattern = ReflectionPattern(quality_criteria=[LONG], retry=Retry(1))
    clerk = Agent(ScriptedModel(replies), pattern=pattern, keep=store, name="clerk")
    fleet = fleet_of(store, clerk, tries=1)
    handle = await fleet.submit(clerk, "Write.", run_id="a")
    store.failures = 5
    async with working(fleet):
        assert (await handle.result(within=10)).best_output == "one two three"
    job = await handle.job()
    assert (store.failures, job.tries, job.store_tries) == (0, 1, 5)


async def test_a_job_whose_run_can_not_be_stored_is_not_finished():
    store = Refusing(1_000, kinds=("run",))
    clerk = writer(store, three_words)
    fleet = fleet_of(store, clerk)
    handle = await fleet.submit(clerk, "Write.", run_id="a")
    await FleetWorker(fleet).run(until_idle=True)
    assert (await handle.job()).state == "failed"
    assert "not stored" in (await handle.job()).error
    store.refusals = 0
    await handle.retry()
    await FleetWorker(fleet).run(until_idle=True)
    assert (await handle.result(within=1)).best_output == "one two three"
    assert len(clerk.model.requests) == 1  # the steps were stored


async def test_a_run_of_other_code_fails_immediately_instead_of_mixing_two_programs():
    store = MemoryStore()
    clerk = writer(store, three_words)
    fleet = fleet_of(store, clerk)
    await clerk.run("Something else.", run_id="a")
    handle = await fleet.submit(clerk, "Write.", run_id="a")
    assert await FleetWorker(fleet).run(until_idle=True) == 1
    with pytest.raises(JobError, match="ChangedRunError: The run 'a' was for another task"):
        await handle.result(within=1)
    assert (await handle.job()).tries == 0


async def test_a_job_is_not_lost_with_the_answer_to_its_claim():
    """The claim was committed, and the connection cut before the worker heard of it."""

    class Losing(StoreQueue):
        lost = 0

        async def claim(self, **options):
            job = await super().claim(**options)
            if job is not None and not self.lost:
                self.lost += 1
                raise StoreError("the connection was cut")
            return job

    store = MemoryStore()
    fleet = Fleet([writer(store, three_words)], store=store, queue=Losing(store), pick_up_after=1)
    handle = await fleet.submit("clerk", "Write.", run_id="a")
    async with working(fleet):
        assert (await handle.result(within=20)).success
    assert fleet.queue.lost == 1


@pytest.mark.parametrize("verb", ["open", "register", "heartbeat"])
async def test_a_worker_that_loses_the_queue_while_it_starts_waits_for_it(verb, monkeypatch, caplog):
    monkeypatch.setattr("redraft.fleet.worker.OUTAGE_WAIT", 0.01)
    calls = []

    class Starting(StoreQueue):
        """The first three calls of `verb` fail."""

    async def failing(self, *args):
        calls.append(verb)
        if len(calls) <= 3:
            raise StoreError("nobody answers")
        return await getattr(StoreQueue, verb)(self, *args)

    setattr(Starting, verb, failing)
    store = MemoryStore()
    fleet = Fleet([writer(store, three_words)], store=store, queue=Starting(store))
    await fleet.submit("clerk", "Write.", run_id="a")
    worker = FleetWorker(fleet)
    assert await worker.run(until_idle=True) == 1
    assert len(await fleet.queue.workers()) == 0
    assert len(calls) > 3
    assert caplog.text.count("this worker waits for it: nobody answers") == 1


async def test_a_worker_is_stopped_while_it_waits_for_the_queue_and_gives_up_if_the_settings_are_wrong():
    class Closed(StoreQueue):
        error = StoreError("nobody answers")

        async def open(self):
            raise self.error

    store = MemoryStore()
    fleet = Fleet([writer(store, three_words)], store=store, queue=Closed(store))
    worker = FleetWorker(fleet)
    working = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    assert worker.problem == "The worker has not reached the queue yet."
    worker.stop()
    assert await working == 0
    Closed.error = StoreSettingsError("rejects the password")
    with pytest.raises(StoreSettingsError, match="rejects the password"):
        await FleetWorker(fleet).run()


async def test_an_outage_is_logged_once_and_no_worker_is_declared_dead_after_it(monkeypatch, caplog):
    monkeypatch.setattr("redraft.fleet.worker.OUTAGE_WAIT", 0.05)

    class Away(StoreQueue):
        is_away = False

        async def heartbeat(self):
            if self.is_away:
                raise StoreError("nobody answers")
            return await super().heartbeat()

        async def reap(self, silent):
            if self.is_away:
                raise StoreError("nobody answers")
            return await super().reap(silent)

        async def claim(self, **options):
            if self.is_away:
                raise StoreError("nobody answers")
            return await super().claim(**options)

    store = MemoryStore()
    queue = Away(store)
    fleet = Fleet([writer(store, three_words)], store=store, queue=queue, pick_up_after=1)
    other = StoreQueue(store)
    await other.register(WorkerCard("other", "here", 1, fleet.version, ("clerk",), 1))
    await fleet.submit("clerk", "Write.", run_id="a")
    held = await other.claim()
    async with working(fleet):
        await asyncio.sleep(0.2)  # it has begun
        queue.is_away = True
        await asyncio.sleep(1.2)
        queue.is_away = False
        await asyncio.sleep(0.5)  # as silent as the other one was, it has been cut off itself
        assert (await queue.get("a")).state == "running"
        assert await other.finish(held, "finished")
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "The queue can't be reached",
        "The queue can be reached again.",
    ]


@pytest.mark.parametrize(("queue_jumps", "sleeps"), [(3_600, 0), (-3_600, 0), (3_600, 3_600)])
def test_a_clock_that_is_set_and_a_machine_that_slept_make_no_worker_dead(queue_jumps, sleeps, monkeypatch):
    """Heartbeats from before seem old, or to come from the future, until each worker has sent another."""
    queue_time, up, reaped = [1_795_435_200.0], [1_000.0], []
    monkeypatch.setattr("redraft.fleet.worker.uptime", lambda: up[0])

    class Clocked(StoreQueue):
        async def heartbeat(self):
            now = datetime.fromtimestamp(queue_time[0], UTC)
            return replace(await super().heartbeat(), now=now)

        async def reap(self, silent):
            reaped.append(up[0])
            return []

    async def main():
        store = MemoryStore()
        fleet = Fleet([writer(store, three_words)], store=store, queue=Clocked(store), pick_up_after=6)
        worker = FleetWorker(fleet)
        await worker._begin_beating()
        for beat in range(12):
            if beat == 3:
                queue_time[0] += queue_jumps
                up[0] += sleeps
            up[0] += 1.5
            queue_time[0] += 1.5
            await worker._pulse()
            assert worker._clock() == pytest.approx(queue_time[0])
        await fleet.queue.leave()

    asyncio.run(main())
    assert [time - sleeps * (time > 2_000) for time in reaped] == [
        1_001.5, 1_003.0, 1_004.5, *(1_012 + 1.5 * beat for beat in range(5))
    ]  # fmt: skip


async def test_a_run_and_a_workflow_that_a_stopped_worker_hands_back_are_waiting():
    begun = []

    async def hang(state):
        begun.append(state)
        await asyncio.sleep(60)

    async def both():
        return len(begun) == 2

    store = MemoryStore()
    source = "name: slow\nnodes: [{name: hang, uses: hang}]"
    workflow = Workflow.from_text(source, actions={"hang": hang}, keep=store)
    clerk = writer(store, hang)
    fleet = Fleet([clerk], workflows=[workflow], store=store)
    handles = [await fleet.submit(clerk, "Write."), await fleet.submit("slow", {})]
    async with working(fleet):
        await until(both)
    run, workflow = (handle.run_id for handle in handles)
    whys = [(await Runs(store).stored(run)).why, (await Workflows(store).why(workflow)).why]
    assert {(why.rule, why.detail) for why in whys} == {("waiting", STOPPED)}
