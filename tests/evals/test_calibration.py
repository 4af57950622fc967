"""Calibration: what is labelled, what labels say of a judge, and what they suggest."""

import asyncio
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from redraft import ConfigError, MemoryStore, ScriptedModel, Workflow
from redraft.evals.calibration import Calibration, Calibrations, Costs, StabilityTest, threshold_advice
from redraft.loop.labels import LABEL, Label
from redraft.loop.runs import Runs
from redraft.stores.base import Record
from support.dashboards import Seen, pages
from support.judged import CLEAR, SHORT, judged_runs
from support.kappa import kappa


def run(work):
    return asyncio.run(work)


def label_of(number, score, met, criterion="clear"):
    return Label(
        f"key-{number}",
        "m",
        "r",
        f"run-{number}",
        "1",
        f"task-{number}",
        criterion,
        score,
        met,
        datetime.now(UTC),
    )


async def labelled(store, met, count=None, judge=""):
    """Label what a judge has judged as `met(judgement)` says; return the calibration."""
    calibrations = Calibrations(store)
    calibration = await calibrations.get(judge)
    for judgement in calibration.left[:count]:
        calibration = await calibrations.label(calibration, judgement, met(judgement))
    return calibration


def even(judgement):
    return int(re.search(r"Draft (\d+)", judgement.output)[1]) % 2 == 0


def test_labels_are_compared_with_scores():
    async def main():
        store = MemoryStore()
        await judged_runs(store, 24)
        await labelled(store, even, 30)
        return await Calibrations(store).get()  # read again, as the next process would

    found = run(main())
    assert (len(found.judgements), len(found.left), len(found.answers)) == (48, 18, 30)
    verdicts = [answer.score >= 0.7 for answer in found.answers]
    people = [answer.met for answer in found.answers]
    agreement = found.agreement
    assert agreement.kappa == pytest.approx(kappa(verdicts, people))
    pairs = Counter(zip(verdicts, people, strict=True))
    assert (agreement.both, agreement.neither) == (pairs[True, True], pairs[False, False])
    assert (agreement.judge_only, agreement.person_only) == (pairs[True, False], pairs[False, True])
    assert agreement.low < agreement.kappa < agreement.high
    everything, clear, short = found.report()
    assert (everything.agreement, clear.name, short.name) == (agreement, "clear", "short")
    assert clear.agreement.count + short.agreement.count == 30
    for row in (clear, short):
        own = [answer for answer in found.answers if answer.criterion == row.name]
        assert row.agreement.kappa == pytest.approx(
            kappa([one.score >= 0.7 for one in own], [one.met for one in own])
        )


def test_what_is_labelled_comes_in_an_order_that_tells_nothing():
    async def main():
        store = MemoryStore()
        await judged_runs(store, 20)
        first, again = await Calibrations(store).get(), await Calibrations(store).get()
        return first.judgements, again.judgements

    first, again = run(main())
    assert [one.key for one in first] == [one.key for one in again]
    # One judgement of each run before the second of any; the order is neither that of runs nor of scores.
    assert len({one.run for one in first[:20]}) == 20
    assert [one.run for one in first[:20]] not in (
        sorted(one.run for one in first[:20]),
        sorted((one.run for one in first[:20]), reverse=True),
    )
    scores = [one.score for one in first]
    assert scores not in (sorted(scores), sorted(scores, reverse=True))


def test_labels_are_resumed_taken_back_and_skipped():
    async def main():
        store = MemoryStore()
        await judged_runs(store, 6)
        calibrations = Calibrations(store)
        begun = await calibrations.get()
        first, second, third = begun.left[:3]
        one = await calibrations.label(begun, first, met=True)
        two = await calibrations.label(one, second, met=None)
        assert two.left[0] == third
        assert (await calibrations.get()).left[0] == third
        back = await calibrations.undo(two)
        assert back.left[0] == second
        assert (await calibrations.get()).labels.keys() == {first.key}
        assert (await calibrations.undo(await calibrations.undo(back))).labels == {}
        return two

    two = run(main())
    assert (len(two.answers), len(two.labels)) == (1, 2)  # what was skipped is no label


def test_a_label_holds_no_text_of_a_run():
    async def main():
        store = MemoryStore()
        await judged_runs(store, 3, draft=lambda number: f"Draft {number} by mia.berg@example.org.")
        await labelled(store, even, 2)
        return await store.find(LABEL)

    for record in run(main()):
        assert "mia.berg" not in str(record.data)
        assert "Task" not in str(record.data)


@pytest.mark.parametrize("name", ["judge_method", "judge_kind"])
def test_the_method_of_a_judge_is_read_under_its_former_name_too(name):
    async def main():
        store = MemoryStore()
        await judged_runs(store, 1)
        return await Runs(store).get()

    record = run(main())
    assert record.options["judge_method"] == "score"
    options = {key: value for key, value in record.options.items() if key != "judge_method"}
    record = replace(record, options=options | {name: "probability"})
    assert Calibration.of(record).options.method == "probability"


def test_another_model_or_rubric_is_another_judge():
    async def main():
        store = MemoryStore()
        await judged_runs(store, 4)
        await judged_runs(store, 3, criteria=(CLEAR, replace(SHORT, description="Is it shorter?")))
        await judged_runs(store, 2, structured_reflection=True, reflection_prompt="Judge {output} well.")
        # A threshold and a weight are no part of what the model sees.
        await judged_runs(store, 1, criteria=(replace(CLEAR, weight=3.0), replace(SHORT, threshold=0.5)))
        found = await Calibrations(store).list()
        with pytest.raises(ConfigError, match="There are several judges: choose one of"):
            await Calibrations(store).get()
        with pytest.raises(ConfigError, match="There is no judge 'nobody' here"):
            await Calibrations(store).get("nobody")
        assert (await Calibrations(store).get(found[1].judge.key[:8])).judge == found[1].judge
        return found

    found = run(main())
    # The same draft of the same task is judged once: that of the last run is among the first four.
    assert [len(one.judgements) for one in found] == [8, 6, 4]
    assert len({one.judge.rubric for one in found}) == 3
    assert found[0].criteria[1].threshold == 0.5  # as its newest run has it


def test_runs_of_earlier_code_are_left_out():
    async def main():
        store = MemoryStore()
        (result,) = await judged_runs(store, 1)
        record = await store.get("run", result.run_id)
        data = {
            **record.data,
            "options": {k: v for k, v in record.data["options"].items() if k != "judge_id"},
        }
        await store.put(Record("run", result.run_id, data))
        assert await Calibrations(store).list() == []
        with pytest.raises(ConfigError, match="an earlier version don't say which rubric"):
            await Calibrations(store).get()

    run(main())


def test_fewer_than_twenty_labels_are_no_calibration():
    async def main():
        store = MemoryStore()
        await judged_runs(store, 30)
        few = await labelled(store, even, 19)
        enough = await labelled(store, even, 1)
        return few, enough

    few, enough = run(main())
    assert (few.is_calibrated, enough.is_calibrated) == (False, True)
    assert few.sentence() == "19 of the 20 labels that a calibration needs."
    assert enough.sentence().startswith("20 labels: kappa ")


# --- what labels suggest -----------------------------------------------------------------------------------


def test_the_threshold_that_costs_least_follows_the_costs():
    # A person says yes from 0.55 on, except for two in ten between there and 0.8.
    labels = [
        label_of(number, score, score >= 0.55 and (score >= 0.8 or number % 5 > 0))
        for number, score in enumerate([round(0.2 + 0.05 * (n % 16), 2) for n in range(80)])
    ]
    same = threshold_advice(labels, 0.7, Costs())
    assert 0.5 < same.best <= 0.55
    assert same.is_better
    assert same.best_cost < same.cost
    strict = threshold_advice(labels, 0.7, Costs(false_accept=20))
    assert 0.75 < strict.best <= 0.8
    kind = threshold_advice(labels, 0.5, Costs(false_reject=20))
    assert 0.5 <= kind.best <= 0.55
    at_best = threshold_advice(labels, same.best, Costs())
    assert (at_best.best, at_best.is_better) == (same.best, False)
    assert at_best.sentence().endswith("a verdict.")
    assert "would cost least" in same.sentence()
    assert threshold_advice(labels[:19], 0.7, Costs()) is None


def test_a_threshold_that_fits_noise_is_reported_as_chance():
    alarms = 0
    for seed in range(100):
        chance = Random(seed)  # noqa: S311 (no secret)
        labels = [label_of(n, round(chance.random(), 2), chance.random() < 0.5) for n in range(40)]
        alarms += threshold_advice(labels, 0.5, Costs()).is_better
    assert alarms <= 8


@pytest.mark.parametrize("costs", [(-1, 1), (1, float("nan")), (0, 0), ("1", 1)])
def test_impossible_costs(costs):
    with pytest.raises(ConfigError, match="false_accept"):
        Costs(*costs) if costs[1] == 1 or costs == (0, 0) else Costs(*reversed(costs))


POEMS = """
name: poems
nodes:
  - name: write
    uses: reflection.loop
    with:
      max_iterations: 1
      generator: {action: llm.call, model: writer, prompt: "Write poem {{ state.number }}."}
      evaluator: {type: llm, model: judge, prompt: PROMPT, threshold: THRESHOLD}
"""


def poems(store, numbers, prompt="Does it rhyme?", threshold=0.6):
    """Run a workflow for each number; the model likes even ones, and says once that its score is wrong."""

    async def judge(request):
        number = int(re.search(r"Poem (\d+)", request.messages[-1].content)[1])
        if number == 0:
            return await ScriptedModel(['{"valid": false, "score": 0.9}'])(request)
        return await ScriptedModel([f'{{"score": {0.9 if number % 2 == 0 else 0.2}}}'])(request)

    writer = ScriptedModel(lambda request: "Poem" + request.messages[-1].content.partition("poem")[2])
    text = POEMS.replace("PROMPT", prompt).replace("THRESHOLD", str(threshold))
    workflow = Workflow.from_text(text, models={"writer": writer, "judge": judge}, keep=store)
    return [workflow.run_sync({"number": number}) for number in numbers]


def newest_run(store):
    return run(Runs(store).find(inner=True, limit=1))[0]


def test_the_judge_of_a_workflow_is_calibrated_like_any_other():
    store = MemoryStore()
    poems(store, range(24))
    newest = newest_run(store)
    assert run(Runs(store).stored(newest.run_id)).criteria == ()  # its score is that of the whole

    calibration = run(labelled(store, lambda one: int(re.search(r"\d+", one.output)[0]) % 2 == 0))
    (criterion,) = calibration.criteria
    assert (criterion.name, criterion.description, criterion.threshold) == (
        "poems/write",
        "Does it rhyme?",
        0.6,
    )
    # `valid` decides against its score of poem 0.
    agreement = calibration.agreement
    assert (agreement.both, agreement.neither, agreement.person_only, agreement.judge_only) == (11, 12, 1, 0)
    assert agreement.kappa == pytest.approx(kappa([0] * 13 + [1] * 11, [0] * 12 + [1] * 12))

    (result,) = poems(store, [30], threshold=0.7)
    again = run(Calibrations(store).get())
    assert (again.judge, len(again.judgements), len(again.answers)) == (calibration.judge, 25, 24)
    assert result.state["success"]

    poems(store, [31], prompt="Does it scan?")
    assert len(run(Calibrations(store).list())) == 2
    with pytest.raises(ConfigError, match="is that of a workflow, which fills in its prompt"):
        StabilityTest(again, store)
    page = pages(store).get(f"/judges/{again.judge.key}").text
    assert "it can't be asked again here" in Seen(page).words
