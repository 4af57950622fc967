import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, wraps
from http.client import RemoteDisconnected

import pytest
from pydantic import BaseModel

from redraft import (
    ConfigError,
    ConvergenceReason,
    Draft,
    ModelError,
    QualityCriterion,
    ReflectionPattern,
    ScriptedModel,
    TokenUsage,
    reflect,
    reflect_sync,
    reflected,
)
from redraft._steps import answer, direct, step_context, step_scope
from redraft.errors import ChangedRunError, DamagedRecordError, OutputError, StoreError
from redraft.events import StepFailed, StepFinished
from redraft.loop import Retry
from redraft.loop.agent import Agent
from redraft.loop.budget import NO_BUDGET, Tally
from redraft.loop.journal import LONGEST_ID, STEP, Journalled, StepRecords
from redraft.loop.record import RUN
from redraft.loop.runs import Runs
from redraft.protocols import ChatRequest, Message, ReflectionCallbacks, ReflectionDecision
from redraft.stores.sqlite import MemoryStore

TEA = QualityCriterion("tea", evaluator="regex", evaluator_config={"pattern": "tea"})
PLAIN = ReflectionPattern(max_iterations=2, retry=Retry(attempts=3, first_wait=0))


class Killed(BaseException):
    """What a process that is killed looks like from inside: nothing after it runs."""


class Work:
    """Functions for a run that count their calls, and die at the call that is named."""

    def __init__(self, dies_at=None, fails_at=None, error=None):
        self.calls = []
        self.dies_at, self.fails_at, self.error = dies_at, fails_at, error

    def _call(self, name):
        self.calls.append(name)
        if len(self.calls) == self.dies_at:
            raise Killed
        if len(self.calls) == self.fails_at:
            raise self.error

    async def generate(self, prompt):
        self._call("generate")
        return Draft("draft 1", TokenUsage(10, 5, requests=1, cost_usd=0.01))

    async def evaluate(self, output):
        self._call(f"evaluate {output}")
        return int(output[-1]) / 10, f"{output} is not good"

    async def revise(self, output, evaluation):
        self._call("revise")
        return Draft(f"draft {int(output[-1]) + 1}", TokenUsage(7, 3, requests=1, cost_usd=0.02))

    def run(self, store, pattern=PLAIN, run_id="a run", **others):
        verbs = {"generate": self.generate, "evaluate": self.evaluate, "revise": self.revise}
        others = {"step": Journalled(store, run_id), **verbs, **others}
        return reflect("Say it.", pattern=pattern, **others)


def visible(result):
    """What a caller sees of a run."""
    history = result.history
    return (
        [(v.output, v.evaluation, v.timestamp, v.token_usage, v.strategy, v.base) for v in history.versions],
        history.best_version.iteration,
        result.convergence_reason,
        result.token_usage,
        result.usage_by_role,
        result.execution_time,
        result.diagnostics,
        result.run_id,
    )


def test_a_finished_run_is_replayed_without_calls():
    async def main():
        store, work = MemoryStore(), Work()
        first = await work.run(store)
        again = await work.run(store)
        assert work.calls == [
            "generate", "evaluate draft 1", "revise", "evaluate draft 2", "revise", "evaluate draft 3",
        ]  # fmt: skip
        assert visible(again) == visible(first)
        assert first.run_id == "a run"

    asyncio.run(main())


@pytest.mark.parametrize("dies_at", range(1, 7))
def test_a_killed_run_resumes_after_its_last_finished_step(dies_at):
    async def main():
        store, work = MemoryStore(), Work(dies_at)
        with pytest.raises(Killed):
            await work.run(store)
        before = list(work.calls)
        result = await work.run(store)
        assert work.calls[len(before)] == before[-1]  # only the step under way is repeated
        assert len(work.calls) == 7
        assert [version.output for version in result.history.versions] == ["draft 1", "draft 2", "draft 3"]
        assert result.token_usage == TokenUsage(24, 11, requests=3, cost_usd=0.05)

    asyncio.run(main())


def test_the_clock_resumes_from_the_time_worked(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("redraft.loop.journal.monotonic", lambda: now[0])

    async def main():
        store, work = MemoryStore(), Work(dies_at=5)

        async def slow(prompt):
            now[0] += 50
            return await work.generate(prompt)

        with pytest.raises(Killed):
            await work.run(store, generate=slow)
        now[0] += 2_000  # no step is at work, so the clock is paused
        stamps = [datetime.fromisoformat(step.data["at"]) for step in await store.find(STEP)]
        result = await work.run(store, generate=slow)
        assert result.execution_time == 50
        assert result.history.versions[0].timestamp == stamps[1]
        assert result.history.versions[-1].timestamp > stamps[-1]

    asyncio.run(main())


def test_a_time_budget_counts_the_work_before_the_crash(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("redraft.loop.journal.monotonic", lambda: now[0])

    async def main():
        store, work = MemoryStore(), Work(dies_at=3)
        pattern = ReflectionPattern(max_iterations=5, budget_seconds=6000)

        async def slow(prompt):
            now[0] += 5000
            return await work.generate(prompt)

        with pytest.raises(Killed):
            await work.run(store, pattern, generate=slow)

        async def revise(output, evaluation):
            now[0] += 2000
            return await work.revise(output, evaluation)

        result = await work.run(store, pattern, generate=slow, revise=revise)
        assert result.convergence_reason is ConvergenceReason.TIME_BUDGET
        assert len(result.history.versions) == 2

    asyncio.run(main())


def test_a_time_budget_does_not_count_steps_outside_the_loop(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("redraft.loop.journal.monotonic", lambda: now[0])

    async def review():
        now[0] += 5000
        return True

    async def main():
        store, work = MemoryStore(), Work()
        assert await Journalled(store, "a run").outside("review", bool, review)
        result = await work.run(store, ReflectionPattern(max_iterations=1, budget_seconds=10))
        assert result.convergence_reason is ConvergenceReason.MAX_ITERATIONS
        assert result.execution_time < 10

    asyncio.run(main())


def test_decisions_of_callbacks_are_replayed():
    class Person(ReflectionCallbacks):
        asked = 0

        async def on_reflection(self, evaluation, iteration):
            self.asked += 1
            if iteration == 3:
                raise Killed
            return ReflectionDecision.CONTINUE

    async def main():
        store, person, work = MemoryStore(), Person(), Work()
        pattern = ReflectionPattern(max_iterations=9, plateau_iterations=1, callbacks=person)
        with pytest.raises(Killed):
            await work.run(store, pattern)
        assert person.asked == 3
        with pytest.raises(Killed):
            await work.run(store, pattern)
        assert person.asked == 4

    asyncio.run(main())


class LateError(TimeoutError):
    pass


class BusyError(ModelError):
    pass


@pytest.mark.parametrize(
    "error", [RemoteDisconnected("gone"), LateError("late"), BusyError("busy", retryable=True)]
)
def test_a_retried_failure_of_another_class_is_retried_in_a_replay_as_well(error):
    async def main():
        store, work = MemoryStore(), Work(fails_at=1, error=error, dies_at=3)
        with pytest.raises(Killed):
            await work.run(store)
        result = await work.run(store)
        assert result.convergence_reason is ConvergenceReason.MAX_ITERATIONS
        assert work.calls.count("generate") == 2

    asyncio.run(main())


@pytest.mark.parametrize("name", ["ConnectionError", "ModelError", "UnfinishedError"])
def test_a_failure_is_not_taken_for_another_class_of_its_name(name):
    class Forgetful:
        async def recall(self, task):
            raise type(name, (OSError,), {})("no memory")

        async def observe(self, result):
            pass

    async def main():
        store, work = MemoryStore(), Work(dies_at=2)
        pattern = replace(PLAIN, advisors=[Forgetful()])
        with pytest.raises(Killed):
            await work.run(store, pattern)
        result = await work.run(store, pattern)
        assert result.diagnostics["advisor_failed"].endswith(f"ignored: {name}: no memory.")

    asyncio.run(main())


def test_the_usage_of_a_failed_step_counts_in_a_resumed_run():
    async def main():
        store = MemoryStore()
        work = Work(fails_at=3, error=OutputError("odd", usage=TokenUsage(60, 20, requests=1)))
        first = await work.run(store)
        assert first.convergence_reason is ConvergenceReason.ERROR
        again = await work.run(store)
        assert again.convergence_reason is ConvergenceReason.MAX_ITERATIONS
        assert (first.token_usage.total_tokens, again.token_usage.total_tokens) == (95, 115)
        assert again.usage_by_role["revision"].total_tokens == 100

    asyncio.run(main())


def test_a_budget_counts_the_failed_steps_of_earlier_processes():
    calls = []

    async def revise(output, evaluation):
        calls.append(output)
        raise OutputError("odd", usage=TokenUsage(80, requests=1))

    async def main():
        store, work = MemoryStore(), Work()
        pattern = replace(PLAIN, budget_tokens=200)
        results = [await work.run(store, pattern, revise=revise) for _ in range(4)]
        assert [result.token_usage.total_tokens for result in results] == [95, 175, 255, 255]
        assert results[-1].convergence_reason is ConvergenceReason.TOKEN_BUDGET
        assert len(calls) == 3

    asyncio.run(main())


def test_failures_and_waits_are_replayed_without_waiting():
    async def main():
        store = MemoryStore()
        work = Work(fails_at=2, error=ModelError("busy", retryable=True, usage=TokenUsage(5)))
        first = await work.run(store)
        waits = [step.data["name"] for step in await store.find(STEP)].count("wait")
        assert waits == 1
        await store.delete("run", "a run")  # so that the steps are replayed, not the result read
        failures = []

        def listen(event):
            if isinstance(event, StepFailed):
                failures.append(str(event.error))

        again = await work.run(store, ReflectionPattern(max_iterations=2, on_event=listen, retry=PLAIN.retry))
        assert failures == ["busy"]
        assert again.token_usage == first.token_usage
        assert first.token_usage.failed_requests == 1
        assert first.token_usage.input_tokens == 29
        assert visible(again) == visible(first)

    asyncio.run(main())


def test_replayed_events_have_their_original_times():
    async def main():
        store, work, seconds = MemoryStore(), Work(), []

        def listen(event):
            if isinstance(event, StepFinished):
                seconds.append((event.name, event.seconds))

        pattern = ReflectionPattern(max_iterations=1, on_event=listen)
        await work.run(store, pattern)
        await store.delete("run", "a run")
        await work.run(store, pattern)
        assert [name for name, _ in seconds[:4]] == ["generate", "evaluate", "revise", "evaluate"]
        assert seconds[:4] == seconds[4:]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "calls_again"),
    [(ModelError("key refused", status=401), 1), (OutputError("empty"), 1), (KeyError("x"), 1)],
)
def test_a_failed_run_retries_the_failed_step(error, calls_again):
    async def main():
        store, work = MemoryStore(), Work(fails_at=3, error=error)
        failed = await work.run(store)
        assert failed.convergence_reason is ConvergenceReason.ERROR
        assert failed.error is error
        result = await work.run(store)
        assert work.calls[3:] == ["revise", "evaluate draft 2", "revise", "evaluate draft 3"]
        assert result.error is None
        assert len(await store.find("void")) == calls_again

    asyncio.run(main())


def test_another_program_is_rejected():
    async def main():
        store, work = MemoryStore(), Work(dies_at=4)
        with pytest.raises(Killed):
            await work.run(store)
        callbacks = ReflectionCallbacks()
        with pytest.raises(ChangedRunError, match="'evaluate', but is 'on_generation' now"):
            await work.run(store, ReflectionPattern(callbacks=callbacks))
        assert len(work.calls) == 4

    asyncio.run(main())


@pytest.mark.parametrize("step", ["run-1", MemoryStore(), Journalled], ids=["id", "store", "class"])
def test_a_step_that_is_no_function_is_refused(step):
    with pytest.raises(ConfigError, match=r"step must be a Journalled\(store, run_id\), or a function"):
        reflect_sync("T", generate=lambda _: "made", evaluate=lambda _: 1.0, step=step)


STATE = Tally(NO_BUDGET).state()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("elapsed", {}), ("at", 5), ("budget_state", {"longest": None}), ("budget_state", [1])],
        ("budget_state", STATE | {"longest": {"generation": []}}),
        ("budget_state", STATE | {"exhausted": "bankrupt"}),
        ("budget_state", STATE | {"reported": {"a": 1}}),
    ],
)
def test_a_damaged_step_is_named(field, value):
    async def main():
        store = MemoryStore()
        run = partial(reflect, "T", generate=lambda _: "made", evaluate=lambda _: 1.0, budget_tokens=1_000)
        await run(step=Journalled(store, "r"))
        stored = await store.get("run", "r")
        await store.put(replace(stored, data={**stored.data, "status": "running"}))
        step = (await store.find("step"))[0]
        await store.put(replace(step, data={**step.data, field: value}))
        with pytest.raises(DamagedRecordError, match="'step' 'r/00001' is damaged"):
            await run(step=Journalled(store, "r"))

    asyncio.run(main())


@pytest.mark.parametrize(
    "damage",
    [{"versions": []}, {"best": None}, {"final": 9}, {"stop": None}, {"stop": 5}],
    ids=["no versions", "no best", "unknown last", "no stop", "wrong stop"],
)
def test_a_finished_run_without_its_result_is_named(damage):
    async def main():
        store = MemoryStore()
        run = partial(reflect, "T", generate=lambda _: "made", evaluate=lambda _: 1.0)
        await run(step=Journalled(store, "r"))
        stored = await store.get("run", "r")
        await store.put(replace(stored, data={**stored.data, **damage}))
        with pytest.raises(DamagedRecordError, match="'run' 'r' is damaged"):
            await run(step=Journalled(store, "r"))

    asyncio.run(main())


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a", None), (None, "b"), ({"x": 1}, {"x": 2})])
@pytest.mark.parametrize("interrupted", [False, True])
def test_another_draft_is_rejected(first, second, interrupted):
    async def main():
        store = MemoryStore()

        def run(draft):
            return reflect(
                "Say it.",
                generate=lambda _: "made",
                evaluate=lambda _: 1.0,
                draft=draft,
                step=Journalled(store, "a run"),
            )

        made = (await run(first)).best_output
        if interrupted:
            record = await store.get(RUN, "a run")
            await store.put(replace(record, data={**record.data, "status": "running"}))
        with pytest.raises(ChangedRunError, match=f"began from .*{first or 'no draft'}"):
            await run(second)
        assert (await run(first)).best_output == made

    asyncio.run(main())


def test_two_processes_under_one_id_agree():
    async def main():
        store, one, two = MemoryStore(), Work(), Work()

        async def either(prompt):
            await asyncio.sleep(0.01)
            return Draft(f"by {id(asyncio.current_task())} 1")

        results = await asyncio.gather(
            one.run(store, generate=either), two.run(store, generate=either), return_exceptions=False
        )
        assert results[0].best_output == results[1].best_output
        assert [v.evaluation for v in results[0].history.versions] == [
            v.evaluation for v in results[1].history.versions
        ]

    asyncio.run(main())


class Answer(BaseModel):
    text: str


def test_a_typed_output_comes_back_typed():
    async def main():
        store, seen = MemoryStore(), []

        async def generate(prompt):
            return Answer(text="x")

        async def evaluate(output):
            seen.append(output)
            if len(seen) == 1:
                raise Killed
            return True

        for _ in range(2):
            try:
                result = await reflect("T", generate=generate, evaluate=evaluate, step=Journalled(store, "r"))
            except Killed:
                continue
        assert seen == [Answer(text="x")] * 2
        assert result.best_output == Answer(text="x")

    asyncio.run(main())


def test_a_model_call_inside_a_step_is_not_paid_twice():
    async def main():
        store = MemoryStore()
        judged = iter(["no json at all", Killed(), '{"scores": []}'])

        def reply(request):
            if request.role == "generation":
                return "the draft"
            answer = next(judged)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        model = ScriptedModel(reply)
        pattern = ReflectionPattern(max_iterations=0, quality_criteria=["clarity"])
        with pytest.raises(Killed):
            await Agent(model, pattern=pattern).run("T", step=Journalled(store, "r"))
        await Agent(model, pattern=pattern).run("T", step=Journalled(store, "r"))
        roles = [request.role for request in model.requests]
        # The judge's first reply was of no use and is not asked for again; the second question was under way.
        assert roles == ["generation", "evaluation", "evaluation", "evaluation"]
        inner = [step.data for step in await store.find(STEP) if step.key.count("/") == 2]
        assert inner[0]["given"][0]["messages"][-1]["content"].startswith("T\n\n")
        assert inner[0]["result"]["text"] == "the draft"

    asyncio.run(main())


def test_a_step_outside_the_loop_is_done_once_and_is_not_in_the_way_of_another_attempt():
    async def main():
        store, replies = MemoryStore(), iter([ModelError("busy"), "a reply", "never asked for"])

        def reply(request):
            answer = next(replies)
            if isinstance(answer, Exception):
                raise answer
            return answer

        async def write():
            text = (await answer(model, ChatRequest((Message("user", "Why?"),)))).text
            if not is_ready:
                raise OSError("The disk is full.")
            return text

        work, model, is_ready = Work(fails_at=3, error=KeyError("x")), ScriptedModel(reply), False
        await work.run(store)
        for error in (ModelError, OSError):
            with pytest.raises(error):
                await Journalled(store, "a run").outside("lesson", str, write)
        is_ready = True
        assert await Journalled(store, "a run").outside("lesson", str, write) == "a reply"
        assert await Journalled(store, "a run").outside("lesson", str, write) == "a reply"
        assert len(model.requests) == 2
        result = await work.run(store)
        assert result.error is None

    asyncio.run(main())


@pytest.mark.parametrize("dies_at", range(1, 8))
def test_confirmations_and_comparisons_are_not_paid_twice(dies_at):
    calls = []

    def reply(request):
        calls.append(request)
        if len(calls) == dies_at:
            raise Killed
        if request.role != "evaluation":
            return f"{request.role} text"
        if "winner" in request.schema["properties"]:
            first, _, _ = request.messages[-1].content.partition("answer B begins")
            return {"reason": "", "winner": "A" if "revision text" in first else "B"}
        is_first = "generation text" in request.messages[-1].content
        score = 0.5 if is_first else 0.85 if request.temperature is None else 0.7
        return {"criteria": {"clarity": {"reason": "so", "score": score}}, "issues": [], "confidence": 0.9}

    async def main():
        store = MemoryStore()
        pattern = ReflectionPattern(max_iterations=1, quality_criteria=["clarity"], accept="pairwise")
        agent = Agent(ScriptedModel(reply), pattern=pattern)
        with pytest.raises(Killed):
            await agent.run("T", step=Journalled(store, "r"))
        result = await agent.run("T", step=Journalled(store, "r"))
        assert [version.evaluation.preferred for version in result.history.versions] == [None, 1.0]
        assert result.history.best_version.evaluation.samples == ({"clarity": 0.85}, {"clarity": 0.7})
        requests = [str(request) for request in calls]
        # A draft, a revision, three judgements and two comparisons; what was under way is asked again.
        assert len(set(requests)) == 7
        assert len(requests) <= 9
        again = await agent.run("T", step=Journalled(store, "r"))
        assert len(calls) == len(requests)
        assert again.history.versions == result.history.versions

    asyncio.run(main())


def test_a_path_is_rejected_as_a_store():
    with pytest.raises(ConfigError, match=r"such as SqliteStore\(path\); got 'runs.db'"):
        Journalled("runs.db", "r")


@pytest.mark.parametrize("run_id", ["", "  ", "a/b", "x" * 201, "line\nbreak", 5, ".", ".."])
def test_an_invalid_id_is_rejected(run_id):
    with pytest.raises(ConfigError, match="run_id must be"):
        Journalled(MemoryStore(), run_id)


def test_a_journal_serves_one_run():
    async def main():
        journal = Journalled(MemoryStore(), "r")
        await reflect("T", generate=lambda p: "x", evaluate=lambda o: True, step=journal)
        with pytest.raises(ConfigError, match="has already been used"):
            await reflect("T", generate=lambda p: "x", evaluate=lambda o: True, step=journal)

    asyncio.run(main())


class Failing(MemoryStore):
    """A store that fails for a while."""

    failing = False

    async def put_if_absent(self, record):
        self._check()
        return await super().put_if_absent(record)

    async def put(self, record):
        self._check()
        return await super().put(record)

    async def find(self, kind, **how):
        self._check()
        return await super().find(kind, **how)

    def _check(self):
        if self.failing:
            raise StoreError("the disk is full")


def test_steps_wait_for_a_store_that_fails(caplog):
    async def main():
        store, work = Failing(), Work()

        async def evaluate(output):
            store.failing = output != "draft 3"
            return await work.evaluate(output)

        with caplog.at_level(logging.WARNING, "redraft"):
            result = await work.run(store, evaluate=evaluate)
        assert len(result.history.versions) == 3
        assert "not_kept" not in result.diagnostics  # by the end everything was written after all
        assert caplog.text.count("the disk is full") == 1
        names = [step.data["name"] for step in await store.find(STEP)]
        assert names == ["generate", "evaluate", "revise", "evaluate", "revise", "evaluate"]

    asyncio.run(main())


class Unreadable(MemoryStore):
    """A store that can be written, but from which no step can be read while it is `deaf`."""

    deaf = False

    async def get(self, kind, key):
        if self.deaf and kind == STEP:
            raise StoreError("the reading connection is cut")
        return await super().get(kind, key)


def test_a_journal_that_cannot_be_read_for_a_while_is_reported_once_an_outage_and_loses_nothing(caplog):
    async def main():
        store = Unreadable()
        log = StepRecords(store, "a")
        for number in range(4):
            store.deaf = number in (0, 1, 3)
            for step in range(3):
                assert await log.look_up(f"{number}{step}") is None
                await log.write(f"{number}{step}", {"name": "generate"})
        assert len(await store.find(STEP)) == 12
        assert log.store_error == ""

    asyncio.run(main())
    messages = [record.message for record in caplog.records]
    assert [message.partition(";")[0] for message in messages] == ["The run a can't read its journal"] * 2
    assert "the reading connection is cut" in messages[0]
    assert "not recorded" not in caplog.text


def test_a_store_that_keeps_failing_is_reported(caplog):
    async def main():
        store, work = Failing(), Work()

        async def evaluate(output):
            store.failing = True
            return await work.evaluate(output)

        result = await work.run(store, evaluate=evaluate)
        assert len(result.history.versions) == 3
        assert "the disk is full" in result.diagnostics["not_kept"]

    asyncio.run(main())


def test_an_unreadable_store_stops_a_resume_before_any_call():
    async def main():
        store, work = Failing(), Work()
        store.failing = True
        with pytest.raises(StoreError, match="full"):
            await work.run(store)
        assert work.calls == []

    asyncio.run(main())


def test_a_run_without_a_journal_has_its_own_clock():
    result = asyncio.run(reflect("T", generate=lambda p: "x", evaluate=lambda o: True))
    assert abs((datetime.now(UTC) - result.history.versions[0].timestamp).total_seconds()) < 5


# --- steps around a journal --------------------------------------------------------------------------------


def traced(inner, seen):
    """A step as a function around another."""

    @wraps(inner)
    async def step(name, returns, fn, *args, **kwargs):
        seen.append(name)
        return await inner(name, returns, fn, *args, **kwargs)

    return step


class Traced:
    """A step as an object around another."""

    def __init__(self, inner, seen):
        self.__wrapped__, self.seen = inner, seen

    async def __call__(self, name, returns, fn, *args, **kwargs):
        self.seen.append(name)
        return await self.__wrapped__(name, returns, fn, *args, **kwargs)


class Offering:
    """A step that names its journal."""

    def __init__(self, inner, seen):
        self.inner, self.seen, self.journal = inner, seen, inner.journal

    async def __call__(self, name, returns, fn, *args, **kwargs):
        self.seen.append(name)
        return await self.inner(name, returns, fn, *args, **kwargs)


AROUND = [
    traced,
    Traced,
    Offering,
    lambda inner, seen: Traced(traced(inner, seen), []),
    lambda inner, seen: traced(Traced(inner, seen), []),
    lambda inner, seen: traced(Offering(inner, seen), []),
]


@pytest.mark.parametrize("around", AROUND)
def test_a_run_is_stored_through_a_step_around_its_journal(around):
    async def main():
        store, seen, calls = MemoryStore(), [], []

        def reply(request):
            calls.append(request)
            return "coffee" if len(calls) == 1 else "tea"

        def run():
            agent = Agent(ScriptedModel(reply), pattern=ReflectionPattern(quality_criteria=[TEA]))
            return agent.run("Write.", step=around(Journalled(store, "x"), seen))

        first = await run()
        assert first.run_id == "x"
        assert seen == ["generate", "evaluate", "revise", "evaluate"]
        kept = await Runs(store).get("x")
        assert (kept.status, kept.revisions) == ("finished", 1)
        assert visible(await run()) == visible(first)
        assert len(calls) == 2

    asyncio.run(main())


@pytest.mark.parametrize("around", AROUND)
def test_a_killed_run_resumes_through_a_step_around_its_journal(around):
    async def main():
        store = MemoryStore()
        with pytest.raises(Killed):
            await Work(dies_at=4).run(store, step=around(Journalled(store, "a run"), []))
        work = Work()
        resumed = await work.run(store, step=around(Journalled(store, "a run"), []))
        assert work.calls == ["evaluate draft 2", "revise", "evaluate draft 3"]
        assert resumed.history.versions[0].timestamp < resumed.history.versions[2].timestamp
        assert visible(await work.run(store)) == visible(resumed)

    asyncio.run(main())


@pytest.mark.parametrize("outer", ["outer", "o" * LONGEST_ID])
@pytest.mark.parametrize("around", AROUND)
def test_a_run_inside_a_step_is_found_through_a_step_around_that(around, outer):
    async def main():
        store = MemoryStore()
        agent = Agent(ScriptedModel(lambda _: "tea"), pattern=ReflectionPattern(quality_criteria=[TEA]))
        ids = []

        async def generate(prompt):
            with step_scope(step=around(step_context.get().step, [])):
                ids.append((await agent.run("Write.")).run_id)
            return "x"

        step = around(Journalled(store, outer), [])
        await reflect("T", generate=generate, evaluate=lambda o: True, step=step)
        assert ids[0].startswith(f"{outer}.")
        assert (await Runs(store).get(ids[0])).parent == outer

    asyncio.run(main())


def test_a_journal_that_the_run_does_not_find_is_rejected_before_any_call():
    def hiding(inner):
        async def step(name, returns, fn, *args, **kwargs):
            return await inner(name, returns, fn, *args, **kwargs)

        return step

    async def main():
        store, work = MemoryStore(), Work()
        with pytest.raises(ConfigError, match=r"No run .* 'x'.* functools\.wraps"):
            await work.run(store, step=hiding(Journalled(store, "x")))
        assert work.calls == []
        assert await store.find(STEP) == []
        result = await work.run(store, step=hiding(direct))
        assert len(result.history.versions) == 3

    asyncio.run(main())


def test_a_failing_store_stops_no_run_with_a_step_around_its_journal(caplog):
    async def main():
        store, work, seen = Failing(), Work(), []
        store.failing = True
        step = traced(Journalled(store, "x", resumes=False), seen)
        result = await work.run(store, step=step)
        assert "the disk is full" in result.diagnostics["not_kept"]
        assert seen == ["generate", "evaluate", "revise", "evaluate", "revise", "evaluate"]
        assert caplog.text.count("the disk is full") == 1
        assert result.execution_time > 0

    asyncio.run(main())


def test_result_that_cannot_be_restored_is_named_at_once_and_refused_later(caplog):
    report = object()

    @reflected(evaluate=lambda _: 1.0, max_iterations=0, keep=(store := MemoryStore()))
    def write(topic: str, feedback: str = ""):
        return {"topic": topic, "report": report}

    result = write.run_as_sync("r", "tea")
    assert set(result.best_output) == {"topic", "report"}
    assert "/output/report: the store can't hold a value of the class" in result.diagnostics["not_restorable"]
    assert "object" in caplog.text
    assert "can't be resumed if it is interrupted" in caplog.text
    with pytest.raises(StoreError, match=r"/output/report|only the text of a value"):
        write.run_as_sync("r", "tea")
    assert asyncio.run(Runs(store).get("r")).versions[0].output["topic"] == "tea"
