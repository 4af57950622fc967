import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from redraft import (
    Agent,
    ConfigError,
    ConvergenceReason,
    QualityCriterion,
    ScriptedModel,
    TokenUsage,
    reflect_sync,
    reflected,
)
from redraft._sync import run_sync
from redraft.errors import OutputError
from redraft.loop.journal import Journalled
from redraft.loop.record import Process, task_digest
from redraft.loop.runs import Runs, StoredRun, StoredStep, state_of
from redraft.protocols import ReflectionCallbacks
from redraft.stores.base import Record
from redraft.stores.sqlite import MemoryStore, SqliteStore
from redraft.types import Stop
from support.kept_runs import GONE, kept, ran, record
from support.versions import history, version


def test_a_run_without_criteria_falls_short_by_its_first_issue():
    failed = version(1, 0.0, issues=("The generator failed: it is away.", "Nothing is there."))
    stored = StoredRun(record([failed], "max_iterations", options={"quality_threshold": 0.8}), ())
    assert stored.why.short_of == ("the score 0.00 < 0.80", "The generator failed: it is away.")


PAID = OutputError("no", usage=TokenUsage(7, 3, requests=1, cost_usd=0.05))


@pytest.mark.parametrize(
    ("outputs", "choices", "versions", "tokens", "cost"),
    [
        ([("a", 0.1), ("b", 1.0)], {}, 0, 0, 0.0),
        ([("a", 0.5), ("b", 0.4), ("c", 0.3)], {}, 2, 240, 0.02),
        ([("a", 0.1), ("b", 0.5), ("c", 0.3), ("d", 0.3)], {}, 2, 240, 0.02),
        ([("a", 0.5), PAID], {}, 0, 10, 0.05),
        ([("a", 0.5), ("b", 0.4), PAID], {}, 1, 130, 0.06),
        ([("a", 0.5), ("b", 0.4), ("c", 0.3)], {"preserve_all_versions": False}, 2, None, None),
    ],
)
def test_the_spend_after_the_best_is_summed(outputs, choices, versions, tokens, cost):
    spent = ran(*outputs, **choices).after_best
    assert spent.versions == versions
    assert spent.seconds >= 0
    if tokens is None:
        assert spent.usage is None
    else:
        assert spent.usage.total_tokens == tokens
        assert spent.usage.cost_usd is None or spent.usage.cost_usd == pytest.approx(cost)


def test_the_usage_of_a_failed_first_draft_is_shown():
    @reflected(criteria=[str.isupper], keep=(store := MemoryStore()))
    def write(prompt, feedback=""):
        raise OutputError("no", usage=TokenUsage(7, 3, requests=1))

    with pytest.raises(OutputError):
        write.run_as_sync("r", "Write.")
    assert run_sync(Runs(store).get("r")).usage.total_tokens == 10


@pytest.mark.parametrize(
    ("name", "number"),
    [(2, 2), ("2", 2), ("v2", 2), ("first", 1), ("best", 2), ("last", 3), ("final", 3)],
)
def test_a_version_has_many_names(name, number):
    assert kept(history(0.1, 0.5, 0.3)).version(name).iteration == number


@pytest.mark.parametrize(
    ("scores", "name", "message"),
    [
        ((0.1, 0.2), "7", "has no version '7'; it has 1, 2."),
        (
            (0.1,),
            "bset",
            "A version must be a number such as 2, v2 or 1.3, 'first', 'best' or 'last'; got 'bset'.",
        ),
        ((0.1,), "²", "got '²'"),
        ((), "best", "has no version to show (state: running)"),
    ],
)
def test_an_unknown_version_is_an_error(scores, name, message):
    with pytest.raises(ConfigError, match="version") as error:
        kept(history(*scores)).version(name)
    assert message in str(error.value)


@pytest.mark.parametrize("output", [{"$is": "x"}, {"$is": "pathlib:Path", "value": "/"}, {"$is": {"$is": 1}}])
def test_an_output_that_looks_like_a_record_is_read_as_it_is(output):
    store = MemoryStore()
    step = Journalled(store, "run")
    reflect_sync("Task.", generate=lambda _: output, evaluate=lambda _: True, step=step)
    stored = run_sync(Runs(store).stored("run"))
    assert stored.record.versions[0].output == output
    assert stored.steps[0].result["output"] == output


def stored_steps(store):
    """A run that was killed after its only version, and its steps."""
    reflect_sync("Task.", generate=lambda _: "x", evaluate=lambda _: 1.0, step=Journalled(store, "run"))
    run = run_sync(store.get("run", "run"))
    run_sync(store.put(replace(run, data={**run.data, "status": "running"})))
    return run_sync(store.find("step"))


@pytest.mark.parametrize(
    ("number", "result", "versions"), [(0, {"output": "x", "usage": 5}, 0), (1, {"overall_score": "x"}, 0)]
)
def test_a_step_that_cannot_be_read_hides_no_run(number, result, versions):
    store = MemoryStore()
    step = stored_steps(store)[number]
    run_sync(store.put(replace(step, data={**step.data, "result": result})))
    [run] = run_sync(Runs(store).find())
    assert (run.run_id, len(run.versions)) == ("run", versions)


def test_the_usage_of_a_step_that_cannot_be_read_is_unknown():
    run = ran(("a", 0.5), ("b", 0.4), ("c", 0.3))
    steps = [
        replace(step, result={"output": "x", "usage": 5}) if step.name == "revise" else step
        for step in run.steps
    ]
    assert StoredRun(run.record, tuple(steps)).after_best.usage.cost_usd is None


@pytest.mark.parametrize("criterion", ["x", {}, {"name": None}, {"name": "a", "threshold": []}])
def test_a_run_with_a_damaged_criterion_is_listed_as_damaged(criterion):
    store = MemoryStore()
    stored_steps(store)
    run = run_sync(store.get("run", "run"))
    options = {**run.data["options"], "criteria": [criterion]}
    run_sync(store.put(replace(run, data={**run.data, "options": options})))
    [listed] = run_sync(Runs(store).find())
    assert (listed.run_id, listed.status) == ("run", "damaged")


def test_an_exchange_that_cannot_be_read_is_shown_as_json():
    step = StoredStep(
        "00001/model 1#1", "model 1", 0.0, 1.0, datetime.now(UTC), [{"messages": [5]}], {"text": 5}
    )
    assert [turn.text for turn in (*step.exchange.request, *step.exchange.reply)] == [
        '[{"messages": [5]}]',
        '{"text": 5}',
    ]


@pytest.mark.parametrize("limit", [0, -1, "2", True])
def test_a_page_has_at_least_one_run(limit):
    with pytest.raises(ConfigError, match="limit must be a whole number of at least 1"):
        run_sync(Runs(MemoryStore()).find(limit=limit))


def seen(run):
    return [(step.step.name, step.version) for step in run.timeline]


def test_each_step_belongs_to_the_version_that_it_worked_on():
    run = ran(("a", 0.1), ("b", 0.5), callbacks=ReflectionCallbacks(), max_iterations=1)
    assert seen(run) == [
        ("generate", 1), ("on_generation", 1), ("evaluate", 1), ("on_reflection", 1),
        ("revise", 2), ("on_generation", 2), ("on_revision", 2), ("evaluate", 2), ("on_reflection", 2),
    ]  # fmt: skip


def test_a_failed_step_belongs_to_the_missing_version():
    assert seen(ran(("a", 0.1), OSError("away")))[-1] == ("revise", 2)


def test_steps_add_up():
    stretches = ran(("a", 0.1), ("b", 0.5), max_iterations=1).timeline
    assert all(one.seconds >= 0 and one.began >= 0 for one in stretches)
    assert [one.began for one in stretches] == sorted(one.began for one in stretches)


def test_why_shows_the_recorded_stop():
    stop = Stop(ConvergenceReason.PLATEAU, "It was not beaten.", {"plateau_iterations": 2})
    why = kept(history(0.5, 0.4, 0.3), stop=stop).why
    assert (why.rule, why.detail, why.numbers) == ("plateau", stop.detail, stop.numbers)
    assert why.headline == "the best version was not beaten any more"


@pytest.mark.parametrize(
    ("fields", "rule", "message"),
    [
        ({}, "running", "is working on it: 1 version and 0 finished steps so far."),
        (
            {"process": Process("far", 7, "1")},
            "running",
            "The process 7 on far is working on it, unless it has died, which only that machine can tell: 1",
        ),
        ({"process": GONE}, "killed", "is gone; 1 version and 0 finished steps are stored"),
        ({"status": "failed", "error": "E: x"}, "failed", "A step failed after version 1: E: x"),
        ({"status": "cancelled"}, "cancelled", "It was cancelled after version 1."),
    ],
)
def test_why_explains_the_state_of_a_run_without_a_rule(fields, rule, message):
    why = kept(history(0.4), **fields).why
    assert why.rule == rule
    assert message in why.detail


def test_why_says_that_a_run_killed_immediately_starts_again():
    detail = kept([], process=GONE).why.detail
    assert detail.endswith(" is gone; nothing was finished, so a resumed run starts from the beginning.")


def test_the_step_that_failed_is_named():
    run = ran(("a", 0.1), OSError("away"))
    assert run.why.detail == "The step 'revise' failed after version 1: OSError: away"
    assert run.why.numbers == {"step": "revise", "error": "OSError: away"}


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        ({"satisfactory": True}, ()),
        ({"criteria_scores": {"short": 0.5}}, ("the score 0.60 < 0.80", "short 0.50 < 0.70")),
        ({"criteria_scores": {"short": None}}, ("the score 0.60 < 0.80", "short could not be judged")),
        ({"criteria_scores": {"short": 0.69999}}, ("the score 0.60 < 0.80", "short 0.69999 < 0.70000")),
    ],
)
def test_shortfalls_of_a_version(fields, lacks):
    one = version(1, 0.6, **fields)
    assert kept([one]).shortfalls(one) == lacks


# What the index says


CALL = TokenUsage(10, 5, requests=1, cost_usd=0.5)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "redraft.db")
    yield store
    run_sync(store.aclose())


def keep(store, *records):
    for stored_run in records:
        run_sync(store.put(stored_run.stored()))


def ended(run_id, *scores, reason="plateau", **fields):
    return record(history(*scores or (0.5,), token_usage=CALL), reason, run_id=run_id, **fields)


def at(store, moment, *records):
    """Keep runs as if they had begun at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redraft.stores.sqlite.time_ns", lambda: int(moment.timestamp() * 1e9))
        keep(store, *records)


def test_an_index_row_has_what_lists_and_sums_need(store):
    judged = history(0.2, 0.9, 0.4, 0.3, token_usage=CALL)
    for number, each in enumerate(judged):
        each.evaluation.criteria_scores["facts"] = number / 10
    keep(store, record(judged, "plateau", run_id="a", usage_by_role={"revision": CALL}))
    row = run_sync(Runs(store).row("a"))
    assert (row.status, row.reason, row.versions) == ("finished", "plateau", 4)
    assert (row.first_score, row.best_score, row.criteria) == (0.2, 0.9, {"facts": (0.0, 0.1)})
    assert (row.requests, row.input_tokens, row.cost_usd) == (1, 10, 0.5)
    assert (row.later_tokens, row.later_usd, row.later_unpriced) == (30, 1.0, False)
    assert (row.agent, row.model, row.task) == ("redraft revise", "any:model", task_digest("Say it."))
    assert (row.strategy, row.max_iterations, row.threshold) == ("hybrid", 3, 0.8)
    assert run_sync(Runs(store).row("b")) is None


def test_an_index_row_has_the_state(store):
    keep(store, ended("a"), ended("b", reason=None), ended("c", reason=None, process=GONE))
    assert [state_of(run_sync(Runs(store).row(name))) for name in "abc"] == ["finished", "running", "killed"]
    spend = run_sync(Runs(store).spend())
    assert (spend.at_work, spend.interrupted) == (1, 1)
    assert sum(used.runs for used in spend.days.values()) == 1


@pytest.mark.parametrize(
    ("since", "inner", "runs"),
    [
        (None, True, "abc"),
        (None, False, "ab"),
        (date(2026, 1, 30), True, "abc"),
        (date(2026, 1, 31), True, "bc"),
        (date(2026, 1, 31), False, "b"),
        (date(2026, 2, 1), True, ""),
    ],
)
def test_spend_of_a_period(store, since, inner, runs):
    at(store, datetime(2026, 1, 30, 9, tzinfo=UTC), ended("a"))
    at(store, datetime(2026, 1, 31, 23, 30, tzinfo=UTC), ended("b"), ended("c", parent="b"))
    spend = run_sync(Runs(store).spend(since, inner=inner))
    for sums in (spend.days, spend.agents, spend.tasks, spend.roles, spend.models):
        assert sum(used.runs for used in sums.values()) == len(runs)
    assert spend.inner_runs == (since != date(2026, 2, 1))


def test_the_latest_step_changes_with_each_step():
    async def main():
        store, seen = MemoryStore(), []
        for place in (None, "00001/model 1", "00001", "00002", "00003/model 1", "00003/model 2", "00003"):
            if place:
                await store.put(Record("step", f"a/{place}", {"name": place}))
            seen.append(await Runs(store).latest_step("a"))
        return seen

    seen = run_sync(main())
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("wrong", ["runs.db", Path("runs.db"), 5])
def test_runs_are_read_from_a_store(wrong):
    with pytest.raises(ConfigError, match="store must be a Store, such as SqliteStore"):
        Runs(wrong)


def test_a_criterion_may_have_the_name_of_the_tag_in_records():
    def judge(text):
        return 0.5

    async def main():
        store = MemoryStore()
        criterion = QualityCriterion("$is", evaluator="function", evaluator_config={"function": judge})
        agent = Agent(ScriptedModel(["tea"]), criteria=[criterion], max_iterations=0, keep=store)
        first = await agent.run("Q?", run_id="a run")
        (run,) = await Runs(store).find()
        assert run.versions[0].evaluation.criteria_scores == {"$is": 0.5}
        assert (await agent.run("Q?", run_id="a run")).history == first.history

    asyncio.run(main())
