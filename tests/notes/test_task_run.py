"""Resuming an ensemble under its run id."""

import asyncio

import pytest

from redraft import (
    Agent,
    ConfigError,
    Ensemble,
    MemoryStore,
    QualityCriterion,
    ReflectionPattern,
    Runs,
    ScriptedModel,
    Task,
    reflect,
)
from redraft.errors import ChangedRunError, EnsembleError, StoreError
from redraft.loop import Journalled
from redraft.notes import InMemoryReflectionStore, TaskIdentity
from redraft.notes.learner import note_cost
from redraft.stores.run_index import NOTE_COST, run_index
from support.ensembles import BETTER, asked, reflections, thinking, warnings

FINE = QualityCriterion("fine", evaluator="regex", evaluator_config={"pattern": "fine"})


def test_repeating_a_finished_run_returns_its_outputs_without_calls():
    model, events, reviews = thinking("said", "OBSERVATIONS:\n- It went well"), [], []
    store, notes = MemoryStore(), InMemoryReflectionStore()
    first = Task("Say {it}.", reflect=True, review=reviews.append)
    ensemble = Ensemble(model, [first, Task("B")], notes, events.append, keep=store)
    once = ensemble.run_sync({"it": "x"}, run_id="mine")
    again = ensemble.run_sync({"it": "x"}, run_id="mine")
    assert (once.output, again.output) == ("said", "said")
    assert (len(asked(model)), len(reflections(model)), len(reviews), len(events)) == (2, 1, 1, 1)
    assert again[first].reflection == once[first].reflection
    assert (once.run_id, [result.run_id for result in once.results]) == ("mine", ["mine.1", "mine.2"])
    assert len(asyncio.run(notes.revisions(TaskIdentity.of(first)))) == 1
    assert sorted(run.run_id for run in asyncio.run(Runs(store).find())) == ["mine.1", "mine.2"]
    with pytest.raises(EnsembleError, match="was for another task") as caught:
        ensemble.run_sync({"it": "other"}, run_id="mine")
    assert isinstance(caught.value.errors[first], ChangedRunError)


def test_a_run_inside_a_review_belongs_to_the_run_of_the_task():
    asked, dies = [], [1]
    critic = Agent(ScriptedModel(["fine"]), pattern=ReflectionPattern(0, [FINE]))

    async def review(output):
        asked.append((await critic.run(f"Is this fine: {output}?")).run_id)
        if dies:
            raise RuntimeError("killed here")

    store, task = MemoryStore(), Task("Say it.", review=review)
    ensemble = Ensemble(thinking("said"), [task], InMemoryReflectionStore(), keep=store)
    with pytest.raises(EnsembleError, match="killed here"):
        ensemble.run_sync(run_id="mine")
    dies.clear()
    ensemble.run_sync(run_id="mine")  # the critic's model has no second reply
    assert len(set(asked)) == 1
    inner = asyncio.run(Runs(store).get(asked[0]))
    assert (inner.parent, inner.is_inner) == ("mine.1", True)


def test_what_a_note_cost_is_in_the_index():
    store = MemoryStore()
    ensemble = Ensemble(thinking("said"), [Task("A", reflect=True)], InMemoryReflectionStore(), keep=store)
    for _ in range(2):
        ensemble.run_sync(run_id="mine")
    [(_, spent)] = asyncio.run(run_index(store).expenses(NOTE_COST)).items()
    assert (spent.runs, spent.requests) == (1, 1)
    assert asyncio.run(note_cost(store, "mine.1")).requests == 1


def test_a_failed_run_resumes_where_it_failed():
    model, store, works = thinking("said"), MemoryStore(), []

    def handler(ctx):
        if not works:
            raise ValueError("not yet")
        return "works"

    first, second = Task("First", reflect=BETTER), Task("Second", handler=handler)
    ensemble = Ensemble(model, [first, second], InMemoryReflectionStore(), keep=store)
    with pytest.raises(EnsembleError, match="not yet"):
        ensemble.run_sync(run_id="mine")
    works.append(1)
    result = ensemble.run_sync(run_id="mine")
    assert list(result.outputs.values()) == ["said", "works"]
    assert len(asked(model)) == 1
    assert result[first].reflection.run_count == 1


def test_a_resumed_run_gets_the_same_note():
    model, store, fails = thinking("said"), MemoryStore(), [1]

    def guard(output):
        if fails:
            raise RuntimeError("killed here")

    task = Task("Say it.", reflect=BETTER, guardrails=[guard])
    ensemble = Ensemble(model, [task], InMemoryReflectionStore(), keep=store)
    with pytest.raises(EnsembleError):
        ensemble.run_sync(run_id="first")
    fails.clear()
    ensemble.run_sync(run_id="second")
    resumed = ensemble.run_sync(run_id="first")
    assert resumed[task].note is None
    assert resumed[task].reflection.run_count == 2
    assert len(asked(model)) == 2


def test_each_retry_has_its_own_run_id_and_is_not_repeated():
    answers = iter(["no", "yes"])
    model, task = (
        thinking(lambda _request: next(answers)),
        Task("A", guardrails=[lambda output: output == "yes"]),
    )
    ensemble = Ensemble(model, [task], InMemoryReflectionStore(), keep=MemoryStore())
    for _ in range(2):
        result = ensemble.run_sync(run_id="mine")
        assert (result.output, result.results[0].attempts) == ("yes", 2)
        assert result.results[0].result.run_id == "mine.1-2"
    assert len(model.requests) == 2


def test_a_run_id_needs_a_store():
    ensemble = Ensemble(thinking(), [Task("A")], InMemoryReflectionStore(), keep=False)
    with pytest.raises(ConfigError, match="can't be resumed"):
        ensemble.run_sync(run_id="mine")


def test_an_ensemble_inside_a_journalled_step_resumes_with_it():
    model, store, fails = thinking("said"), MemoryStore(), [1]
    ensemble = Ensemble(model, [Task("A", reflect=BETTER)], InMemoryReflectionStore())

    async def generate(prompt):
        result = await ensemble.run()
        if fails:
            fails.clear()
            raise ValueError("killed after the ensemble")
        return result.output

    async def main():
        return await reflect(
            "Outer", generate=generate, evaluate=lambda output: True, step=Journalled(store, "outer")
        )

    with pytest.raises(ValueError, match="killed"):
        asyncio.run(main())
    result = asyncio.run(main())
    assert (result.best_output, len(asked(model))) == ("said", 1)


def test_a_failing_store_costs_the_answer_only_if_a_run_id_was_given(caplog):
    async def fails(self, *_, **__):
        raise StoreError("the disk is full")

    down = type("Down", (MemoryStore,), dict.fromkeys(("get", "find", "put", "put_if_absent"), fails))()
    task = Task("A", guardrails=[lambda output: True], reflect=BETTER)
    ensemble = Ensemble(thinking("said"), [task], InMemoryReflectionStore(), keep=down)
    assert ensemble.run_sync().output == "said"
    assert all("the disk is full" in warning for warning in warnings(caplog))
    with pytest.raises(EnsembleError, match="StoreError: the disk is full"):
        ensemble.run_sync(run_id="mine")
