import asyncio
import logging

import pytest

from redraft import Ensemble, MemoryStore, ModelError, QualityCriterion, Runs, ScriptedModel, Task
from redraft.errors import EnsembleError, StoreError
from redraft.notes import InMemoryReflectionStore, ReflectionConfig, TaskIdentity, TaskReflection, Trial
from redraft.notes.store import NoteStore
from support.ensembles import BETTER, asked, better, thinking, warnings

PRIOR = TaskReflection.of_first_run("Say it well.", "", ["before"])
EXACT = QualityCriterion("exact", evaluator="regex", evaluator_config={"pattern": "^good$"})


def fails(given):
    raise ValueError("no idea")


async def down(request):
    raise ModelError("the model is down")


async def cancelled(given):
    raise asyncio.CancelledError


class Broken(NoteStore):
    """A store with some methods that fail."""

    def __init__(self, *broken):
        super().__init__(MemoryStore())
        self.broken = broken

    async def current(self, identity, /):
        if "current" in self.broken:
            raise StoreError("the store is down")
        return await super().current(identity)

    async def append(self, task, reflection, /, **more):
        if "append" in self.broken:
            raise StoreError("the store is down")
        return await super().append(task, reflection, **more)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ReflectionConfig(strategy=fails), "ValueError: no idea"),
        (ReflectionConfig(strategy=cancelled), "the reflection was cancelled, and the run was not"),
        (ReflectionConfig(strategy=lambda given: None), "must return a TaskReflection, got None"),
        (ReflectionConfig(strategy=lambda given: "better"), "must return a TaskReflection, got 'better'"),
        (ReflectionConfig(strategy=lambda given: TaskReflection("Lost.", "")), "lost {it}"),
        (ReflectionConfig(model=ScriptedModel(down)), "the model is down"),
        (ReflectionConfig(model=ScriptedModel(["no marker in this"])), "marker"),
        (ReflectionConfig(model=ScriptedModel(lambda _request: "")), "empty"),
    ],
)
def test_a_failed_reflection_leaves_the_note_and_warns_once(config, message, caplog):
    store, events, identity = InMemoryReflectionStore(), [], TaskIdentity.of("Say {it}.")
    asyncio.run(store.store(identity, PRIOR))
    task = Task("Say {it}.", reflect=config, name="say")
    result = Ensemble(thinking("said"), [task], store, events.append).run_sync({"it": "hello"})
    assert result.output == "said"
    assert result[task].reflection is None
    assert message in result[task].no_reflection
    [warning] = warnings(caplog)
    assert "'say'" in warning
    assert message in warning
    assert events == []
    assert asyncio.run(store.retrieve(identity)) == PRIOR


def test_a_note_that_cannot_be_stored_costs_one_warning(caplog):
    task = Task("Say it.", reflect=BETTER)
    result = Ensemble(thinking("said"), [task], Broken("append")).run_sync()
    assert (result.output, result[task].reflection) == ("said", None)
    [warning] = warnings(caplog)
    assert "'Say it.': the store is down" in warning


def test_a_run_goes_without_a_note_that_cannot_be_read(caplog):
    model = thinking("said")
    result = Ensemble(model, [Task("Say it.", reflect=BETTER)], Broken("current")).run_sync()
    assert (result.output, asked(model)) == ("said", ["Say it."])
    [without] = warnings(caplog)
    assert "'Say it.' runs without its note, which can't be read: the store is down" in without


def test_without_a_model_to_reflect_one_warning_names_the_settings(caplog):
    task = Task("Fetch", handler=lambda ctx: "fetched", reflect=True)
    result = Ensemble(tasks=[task], reflection_store=InMemoryReflectionStore()).run_sync()
    assert result.output == "fetched"
    [warning] = warnings(caplog)
    for name in ("'Fetch'", "ReflectionConfig.model", "Task.model", "the ensemble's model", "REDRAFT_MODEL"):
        assert name in warning


@pytest.mark.parametrize("given", [("config", "task", "ensemble"), ("task", "ensemble"), ("ensemble",)])
def test_the_model_of_the_config_comes_before_the_tasks_and_the_ensembles(given):
    models = {name: thinking() for name in given}
    task = Task(
        "Research AI trends in 2025",
        handler=lambda ctx: "made",
        model=models.get("task"),
        reflect=ReflectionConfig(model=models.get("config")),
    )
    Ensemble(models["ensemble"], [task], InMemoryReflectionStore()).run_sync()
    assert {name: len(model.requests) for name, model in models.items()} == dict.fromkeys(given, 0) | {
        given[0]: 1
    }


def test_a_transient_model_failure_is_retried():
    failures = [ModelError("busy", retryable=True, retry_after=0.0)]

    def reply(request):
        if failures:
            raise failures.pop()
        return "OBSERVATIONS:\n- It went well"

    task = Task("Say it.", reflect=True)
    result = Ensemble(thinking("said", reply), [task], InMemoryReflectionStore()).run_sync()
    assert result[task].reflection.observations == ("It went well",)
    assert result[task].usage.failed_requests == 1


def test_an_async_strategy_gets_the_run_and_the_note_in_force():
    seen = []

    async def look(given):
        seen.append(given)
        return better(given)

    task = Task("Say {it}.", "{it}", criteria=[EXACT], reflect=ReflectionConfig(strategy=look, max_tokens=99))
    ensemble = Ensemble(ScriptedModel(["good", "bad"]), [task], InMemoryReflectionStore())
    for _ in range(2):
        ensemble.run_sync({"it": "hello"})
    first, second = seen
    assert (first.task.description, first.task.expected_output) == ("Say {it}.", "{it}")
    assert (first.task_output, first.prior_reflection, first.max_tokens) == ("good", None, 99)
    assert (first.evaluation.overall_score, second.evaluation.overall_score) == (1.0, 0.0)
    assert second.prior_reflection.refined_description == "Say {it}. Well."


def test_secrets_are_neither_stored_nor_passed_to_listeners():
    key = "sk-" + "proj-" + "a1B2c3D4e5F6g7H8" * 3

    def leaks(given):
        return TaskReflection.of_first_run(f"Say it with {key}", "", [key], [])

    store, events = InMemoryReflectionStore(), []
    Ensemble(
        thinking(), [Task("Say it.", reflect=ReflectionConfig(strategy=leaks))], store, events.append
    ).run_sync()
    stored = asyncio.run(store.retrieve(TaskIdentity.of("Say it.")))
    assert key not in str(stored)
    assert key not in str(events)
    assert stored.refined_description.startswith("Say it with ")


@pytest.mark.parametrize("error", [RuntimeError("listener down"), asyncio.CancelledError("listener down")])
def test_a_failing_listener_does_not_stop_the_others(error, caplog):
    events = []

    def raises(event):
        raise error

    async def hears(event):
        events.append(event.version)

    task = Task("Say it.", reflect=BETTER)
    listeners = [raises, hears, lambda event: events.append(event.run_id)]
    result = Ensemble(thinking("said"), [task], InMemoryReflectionStore(), listeners).run_sync()
    assert events == [1, result[task].run_id]
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "listener down" in record.exc_text


def test_a_task_runs_without_its_note_if_reading_it_is_cancelled():
    class Lost:
        retrieve = staticmethod(cancelled)

        def store(self, identity, reflection):
            pass

    result = Ensemble(thinking("said"), [Task("Say it.", reflect=BETTER)], Lost()).run_sync()
    assert result.output == "said"


def test_a_listener_object_with_an_async_call_is_awaited():
    events = []

    class Listener:
        async def __call__(self, event):
            events.append(event.version)

    Ensemble(thinking("x"), [Task("A", reflect=BETTER)], InMemoryReflectionStore(), Listener()).run_sync()
    assert events == [1]


def test_the_note_of_a_run_is_recorded_with_its_first_score():
    store = InMemoryReflectionStore()
    task = Task("Say it.", criteria=[EXACT], reflect=BETTER, review=lambda output: output != "bad")
    ensemble = Ensemble(ScriptedModel(["bad", "good", "good"]), [task], store)
    for _ in range(2):
        ensemble.run_sync()
    uses = asyncio.run(store.uses(TaskIdentity.of(task)))
    assert [(use.version, use.arm, use.score) for use in uses] == [(None, "none", 0.0), (1, "note", 1.0)]


def test_a_trial_withholds_notes_and_rolls_back_a_harmful_one():
    store, events = InMemoryReflectionStore(), []
    model = ScriptedModel(
        lambda request: "bad" if "Improvement Notes" in request.messages[-1].content else "good"
    )
    config = ReflectionConfig(strategy=better, trial=Trial(share=0.5, min_runs=1))
    task = Task("Say it.", criteria=[EXACT], reflect=config)
    ensemble = Ensemble(model, [task], store, events.append, keep=MemoryStore())
    arms = [ensemble.run_sync(run_id=f"run-{number}").results[0].arm for number in range(40)]
    assert {"control", "note"} <= set(arms)
    [event] = [event for event in events if event.rollback is not None]
    assert event.rollback.effect < 0
    assert event.rollback.to is None
    assert set(arms[events.index(event) + 1 :]) == {"none"}


def test_a_control_run_against_the_previous_note_gets_that_note():
    model = ScriptedModel(lambda request: "good")
    config = ReflectionConfig(strategy=better, trial=Trial(share=0.5, min_runs=1, against="previous"))
    task = Task("Say it.", criteria=[EXACT], reflect=config)
    ensemble = Ensemble(model, [task], InMemoryReflectionStore(), keep=MemoryStore())
    runs = (ensemble.run_sync(run_id=f"run-{number}").results[0] for number in range(50))
    given = {(run.arm, run.note) for run in runs}
    assert {arm for arm, _ in given} >= {"note", "control"}
    assert ("none", None) in given  # the first
    assert all(note is not None for arm, note in given if arm == "note")
    assert any(note is not None for arm, note in given if arm == "control")


def test_once_notes_are_shown_to_help_only_a_quarter_of_the_share_goes_without():
    store = InMemoryReflectionStore()
    model = ScriptedModel(
        lambda request: "good" if "Improvement Notes" in request.messages[-1].content else "bad"
    )
    task = Task("Say it.", criteria=[EXACT], reflect=ReflectionConfig(strategy=better))
    ensemble = Ensemble(model, [task], store, keep=MemoryStore())
    results = [ensemble.run_sync(run_id=f"run-{number}").results[0] for number in range(100)]
    arms = [result.arm for result in results]
    assert 4 <= arms[:40].count("control") <= 20
    assert 0 < arms[50:].count("control") / 50 < 0.08
    noted = asyncio.run(store.noted(TaskIdentity.of(task)))
    assert (noted.is_shown, noted.since) == (True, 1)


def test_after_a_rollback_every_run_gets_the_version_until_it_writes_the_next():
    store, identity = InMemoryReflectionStore(), TaskIdentity.of("Say it.")
    config = ReflectionConfig(strategy=better, trial=Trial(share=0.9, min_runs=3))
    task = Task("Say it.", criteria=[EXACT], reflect=config)
    ensemble = Ensemble(thinking("good"), [task], store, keep=MemoryStore())

    def run(number):
        result = ensemble.run_sync(run_id=f"run-{number}").results[0]
        return result.note, result.arm, asyncio.run(store.noted(identity)).in_force

    before = [run(number) for number in range(12)]
    assert ("control", 1) in [one[1:] for one in before]
    asyncio.run(store.rollback(identity, 1))
    assert [run(number) for number in range(12, 15)] == [(1, "note", 1), (1, "note", 1), (1, "note", 15)]
    asyncio.run(store.pin(identity, 2))
    assert {run(number) for number in range(15, 30)} == {(2, "note", 2)}
    asyncio.run(store.unpin(identity))
    assert run(30) == (2, "note", 31)
    assert "control" in [run(number)[1] for number in range(31, 41)]


def test_a_resumed_run_from_before_a_rollback_does_not_undo_it():
    store, journal, identity = InMemoryReflectionStore(), MemoryStore(), TaskIdentity.of("Say it.")
    is_down = []

    def answer(request):
        if is_down:
            raise ModelError("down")
        return "good"

    task = Task("Say it.", criteria=[EXACT], reflect=ReflectionConfig(strategy=better))
    ensemble = Ensemble(ScriptedModel(answer), [task], store, keep=journal)
    ensemble.run_sync(run_id="first")
    is_down.append("the model")
    with pytest.raises(EnsembleError):
        ensemble.run_sync(run_id="stopped")  # it was given version 1
    is_down.clear()
    ensemble.run_sync(run_id="second")
    asyncio.run(store.rollback(identity, 1))
    resumed = ensemble.run_sync(run_id="stopped").results[0]
    assert (resumed.note, asyncio.run(store.noted(identity)).in_force) == (1, 1)
    assert ensemble.run_sync(run_id="third").results[0].note == 1
    assert asyncio.run(store.noted(identity)).in_force == 4


def test_a_control_run_is_marked_in_its_result_and_its_record():
    journal = MemoryStore()
    task = Task("Say it.", criteria=[EXACT], reflect=ReflectionConfig(strategy=better))
    ensemble = Ensemble(thinking("good"), [task], InMemoryReflectionStore(), keep=journal)
    results = [ensemble.run_sync(run_id=f"run-{number}").results[0] for number in range(20)]
    control = next(result for result in results if result.arm == "control")
    expected = (
        "This is a control run of the trial of this task's notes: it was given no note instead of version "
        f"{results.index(control)}, to see whether the notes help."
    )
    assert control.result.diagnostics["trial"] == expected
    assert asyncio.run(Runs(journal).get(control.result.run_id)).diagnostics["trial"] == expected
    assert not any("trial" in result.result.diagnostics for result in results if result.arm != "control")


def test_a_first_note_without_content_is_replaced_although_no_run_gets_it():
    replies = iter(["good"])
    model = ScriptedModel(
        lambda request: "good" if "Be good." in request.messages[-1].content else next(replies, "bad")
    )

    def on_failure(given):
        failed = given.first_evaluation is not None and not given.first_evaluation.satisfactory
        kept = given.prior_reflection.suggestions if given.prior_reflection else ()
        return TaskReflection("Say it.", "", (), ("Be good.",) if failed else kept)

    task = Task("Say it.", criteria=[EXACT], reflect=ReflectionConfig(strategy=on_failure))
    ensemble = Ensemble(model, [task], InMemoryReflectionStore(), keep=MemoryStore())
    runs = [ensemble.run_sync(run_id=f"run-{number}").results[0] for number in range(3)]
    assert [(run.note, run.output) for run in runs] == [(None, "good"), (None, "bad"), (2, "good")]
