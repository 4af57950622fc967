"""Stability: a judge is asked again, and in other words."""

import asyncio
import re

import pytest

from redraft import ConfigError, MemoryStore, QualityCriterion
from redraft.evals.calibration import Calibrations
from redraft.evals.stability import AS_IT_IS, REVERSED, REWORDED, StabilityReport, StabilityTest
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


class Fickle:
    """A judge that says what was said before, but the reverse where it is asked in other words."""

    name = "ScriptedModel"

    def __init__(self):
        self.calls = 0
        self._usual = judging_model(lambda output, _: 0.9 if number_in(output) % 3 else 0.4)
        self._turned = judging_model(lambda output, _: 0.4 if number_in(output) % 3 else 0.9)

    async def __call__(self, request):
        self.calls += 1
        is_reworded = "what somebody made of it" in request.messages[-1].content
        return await (self._turned if is_reworded else self._usual)(request)


def test_a_steady_judge_that_hangs_on_words():
    async def main():
        store, calibration = await stored()
        model = Fickle()
        report = await StabilityTest(calibration, store, model=model, outputs=8, repeats=3).run()
        assert model.calls == 8 * (3 + 2)
        again = await StabilityTest(calibration, store, model=model, outputs=8, repeats=3).run()
        assert model.calls == 8 * (3 + 2)  # no judgement is paid for twice
        assert (again.rows, await StabilityReport.stored(store, calibration.judge)) == (report.rows, again)
        assert len((await Calibrations(store).get()).judgements) == 24  # those made again are none to label
        return report

    as_it_is, reversed_, reworded = asyncio.run(main()).rows
    assert (as_it_is.wording, reversed_.wording, reworded.wording) == (AS_IT_IS, REVERSED, REWORDED)
    assert (as_it_is.verdicts, as_it_is.flipped, as_it_is.difference) == (48, 0, 0.0)  # 8 drafts, 2 criteria
    assert (reversed_.verdicts, reversed_.flipped) == (16, 0)
    assert (reworded.verdicts, reworded.flipped) == (16, 16)
    # Labelled were those that are no multiple of 3, as the judge has it.
    assert (as_it_is.agreement.kappa, reworded.agreement.kappa) == (1.0, pytest.approx(-1.0, abs=0.4))


def test_what_was_close_flips_most():
    async def main():
        store, calibration = await stored(score=lambda output, _: 0.72 if number_in(output) % 2 else 0.95)
        model = judging_model(lambda output, _: 0.68 if number_in(output) % 2 else 0.95)
        return await StabilityTest(calibration, store, model=model, outputs=12, repeats=1).run()

    row = asyncio.run(main()).rows[0]
    assert (row.verdicts, row.flipped, row.near, row.near_flipped) == (24, 12, 12, 12)
    assert row.difference == pytest.approx(0.02)


def test_other_wordings_are_compared_with_the_labels():
    async def main():
        store, calibration = await stored()
        other = {"plainer": [QualityCriterion("short", "Brief?"), QualityCriterion("clear", "Plain?")]}
        model = judging_model(lambda *_: 0.9)
        with pytest.raises(ConfigError, match="The wording 'half' has no criterion 'short'"):
            StabilityTest(calibration, store, model=model, wordings={"half": [CLEAR]})
        with pytest.raises(ConfigError, match=r"The judge can't be asked again.*--model"):
            StabilityTest(calibration, store)
        return await StabilityTest(calibration, store, model=model, wordings=other, outputs=4).run()

    report = asyncio.run(main())
    assert [one.wording for one in report.rows] == [AS_IT_IS, "plainer", REVERSED, REWORDED]
    assert report.table()[1]["wording"] == "plainer"


def test_the_judge_is_asked_by_the_very_rubric():
    async def main():
        store, calibration = await stored(
            4, criteria=(CLEAR, QualityCriterion("secret", "Hidden?", shown=False), SHORT)
        )
        model = judging_model(lambda *_: 0.9)
        await StabilityTest(calibration, store, model=model, outputs=1, repeats=1).run()
        runs = [record.data for record in await store.find("run", prefix="steady-")]
        return calibration, [one["options"]["judge_id"]["rubric"] for one in runs]

    calibration, rubrics = asyncio.run(main())
    assert rubrics.count(calibration.judge.rubric) == 1
    assert len(set(rubrics)) == 3


def test_a_budget_ends_it_and_the_rest_is_made_later():
    async def main():
        store, calibration = await stored()
        model = judging_model(lambda *_: 0.9)
        few = StabilityTest(calibration, store, model=model, outputs=6, budget_tokens=1, at_once=1)
        first = await few.run()
        rest = await StabilityTest(calibration, store, model=model, outputs=6).run()
        return first, rest

    first, rest = asyncio.run(main())
    assert first.note == "1 judgement of 24: the budget was spent"
    assert (rest.note, rest.rows[0].verdicts) == ("", 24)


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", str(tmp_path / ".redraft"))
    from redraft.stores.location import project_store

    asyncio.run(judged_runs(project_store(), 4))
    model = judging_model(lambda *_: 0.9)
    monkeypatch.setattr("redraft.evals.stability.model_of", lambda *_args: model)
    (tmp_path / "plainer.yaml").write_text("- {name: clear, description: Plain?}\n- {name: short}\n", "utf-8")
    words = ["calibrate", "stability", "--outputs", "3", "--repeats", "1", "--wording", "plainer.yaml"]
    result = redraft(*words)
    assert result.exit_code == 0, result.stderr
    assert "ScriptedModel, 3 outputs judged again" in result.stdout
    assert "plainer" in result.stdout
    assert len(document(redraft(*words, "--json"))["rows"]) == 4
    assert "3 outputs judged again" in redraft("calibrate", "show").stdout
    page = f"/compare/judges/{document(redraft('calibrate', 'show', '--json'))['key']}"
    assert "3 outputs judged again" in pages(project_store()).get(page).text
    assert redraft(*words[:2], "--outputs", "3", "--budget-tokens", "1", "--repeats", "3").exit_code == 3
