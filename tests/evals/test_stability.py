"""Stability: a judge judges outputs again."""

import asyncio
import re
from dataclasses import replace

import pytest

from redraft import ConfigError, MemoryStore, QualityCriterion
from redraft._codec import to_record
from redraft.evals.calibration import STABILITY, Calibrations, StabilityReport, StabilityTest
from redraft.stores.base import Record
from support.commands import document, redraft
from support.dashboards import pages
from support.judged import CLEAR, SHORT, judged_runs, judging_model


def number_in(output):
    return int(re.search(r"Draft (\d+)", output)[1])


async def stored(count=12, **options):
    store = MemoryStore()
    await judged_runs(store, count, **options)
    calibrations = Calibrations(store)
    calibration = await calibrations.get()
    for judgement in calibration.left[:count]:
        met = number_in(judgement.output) % 3 > 0
        calibration = await calibrations.label(calibration, judgement, met)
    return store, calibration


@pytest.mark.parametrize(
    ("again", "flipped", "kappa"), [((0.9, 0.4), 0, 1.0), ((0.4, 0.9), 48, -1.0)], ids=["steady", "fickle"]
)
def test_a_judge_is_compared_with_itself_and_with_the_labels(again, flipped, kappa):
    """At first the judge gave 0.9 to outputs whose number is no multiple of 3, as labelled, else 0.4."""

    async def main():
        store, calibration = await stored()
        model = judging_model(lambda output, _: again[number_in(output) % 3 == 0])
        report = await StabilityTest(calibration, store, model=model, outputs=8, repeats=3).run()
        assert len(model.requests) == 8 * 3
        repeated = await StabilityTest(calibration, store, model=model, outputs=8, repeats=3).run()
        assert len(model.requests) == 8 * 3  # no judgement is paid for twice
        assert repeated == replace(report, usage=repeated.usage)
        assert await StabilityReport.stored(store, calibration.judge) == repeated
        assert len((await Calibrations(store).get()).judgements) == 24  # new judgements are none to label
        return report

    report = asyncio.run(main())
    assert (report.verdicts, report.flipped) == (48, flipped)  # 8 drafts, 2 criteria, 3 times
    assert report.difference == pytest.approx(0.5 if flipped else 0.0)
    assert report.agreement.kappa == pytest.approx(kappa, abs=0.4)


def test_what_was_close_flips_most():
    async def main():
        store, calibration = await stored(score=lambda output, _: 0.72 if number_in(output) % 2 else 0.95)
        model = judging_model(lambda output, _: 0.68 if number_in(output) % 2 else 0.95)
        return await StabilityTest(calibration, store, model=model, outputs=12, repeats=1).run()

    report = asyncio.run(main())
    assert (report.verdicts, report.flipped, report.near, report.near_flipped) == (24, 12, 12, 12)
    assert report.difference == pytest.approx(0.02)


def test_a_judge_that_cannot_be_asked_again_is_refused():
    store, calibration = asyncio.run(stored(1))
    with pytest.raises(ConfigError, match=r"The judge can't be asked again.*--model"):
        StabilityTest(calibration, store)


def test_a_report_of_an_earlier_version_is_read():
    """It had a row for each wording of the rubric, the first for the rubric as it is."""

    async def main():
        store, calibration = await stored(4)
        report = await StabilityTest(calibration, store, model=judging_model(lambda *_: 0.9), outputs=4).run()
        record = to_record(report)
        of_row = ("verdicts", "flipped", "near", "near_flipped", "difference", "agreement")
        row = {"wording": "as it is", **{name: record.pop(name) for name in of_row}}
        rows = [row, row | {"wording": "other words", "flipped": 99}]
        await store.put(Record(STABILITY, calibration.judge.key, record | {"rows": rows}))
        assert await StabilityReport.stored(store, calibration.judge) == report

    asyncio.run(main())


def test_the_judge_is_asked_by_the_very_rubric():
    async def main():
        store, calibration = await stored(
            4, criteria=(CLEAR, QualityCriterion("secret", "Hidden?", shown=False), SHORT)
        )
        model = judging_model(lambda *_: 0.9)
        await StabilityTest(calibration, store, model=model, outputs=1, repeats=1).run()
        runs = [record.data for record in await store.find("run", prefix="steady-")]
        return calibration, [run["options"]["judge_id"]["rubric"] for run in runs]

    calibration, rubrics = asyncio.run(main())
    assert rubrics == [calibration.judge.rubric]


def test_a_budget_ends_it_and_the_rest_is_made_later():
    async def main():
        store, calibration = await stored()
        model = judging_model(lambda *_: 0.9)
        few = StabilityTest(calibration, store, model=model, outputs=6, budget_tokens=1_000, concurrency=1)
        first = await few.run()
        rest = await StabilityTest(calibration, store, model=model, outputs=6).run()
        return first, rest

    first, rest = asyncio.run(main())
    assert first.note.startswith("1 judgement of 12: the budget was spent. 474 of 1,000 tokens were used")
    assert (rest.note, rest.verdicts) == ("", 24)


async def interrupted(_):
    raise KeyboardInterrupt


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    from redraft.stores.location import project_store

    asyncio.run(judged_runs(project_store(), 4))
    model = judging_model(lambda *_: 0.9)
    monkeypatch.setattr("redraft.evals.calibration.model_of", lambda *_args: model)
    words = ["calibrate", "stability", "--outputs", "3", "--repeats", "1"]
    with monkeypatch.context() as patched:
        patched.setattr("redraft.evals.calibration.StabilityTest.run", interrupted)
        assert redraft(*words).stderr.endswith(
            " To continue: the same command, which repeats no judgement.\n"
        )
    result = redraft(*words)
    assert result.exit_code == 0, result.stderr
    assert "ScriptedModel, 3 outputs judged again" in result.stdout
    assert document(redraft(*words, "--json"))["verdicts"] == 6
    assert "3 outputs judged again" in redraft("calibrate", "show").stdout
    assert document(redraft("calibrate", "show", "--json"))["stability"]["verdicts"] == 6
    page = f"/judges/{document(redraft('calibrate', 'show', '--json'))['key']}"
    assert "3 outputs judged again" in pages(project_store()).get(page).text
    assert redraft(*words[:2], "--outputs", "3", "--budget-tokens", "1", "--repeats", "3").exit_code == 3
