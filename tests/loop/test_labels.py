"""What labels say of a run's judge: in its diagnostics, and what it may decide."""

import asyncio
import re

import pytest

from redraft import Agent, ConfigError, MemoryStore, QualityCriterion, ReflectionPattern, reflect
from redraft.errors import StoreError
from redraft.evals.calibration import Calibrations
from support.judged import CLEAR, SHORT, judged_runs, judging_model

ENDS = QualityCriterion("ends", evaluator="regex", evaluator_config={"pattern": r"\.$"})


async def calibrated(store, *, agreeing, count=24, criteria=(CLEAR, SHORT)):
    """Store runs, and label them so that kappa is 1, or about 0."""
    await judged_runs(store, count, criteria=criteria)
    calibrations = Calibrations(store)
    calibration = await calibrations.get()
    for at, judgement in enumerate(calibration.left):
        met = judgement.score >= 0.7 if agreeing else at % 2 == 0
        calibration = await calibrations.label(calibration, judgement, met)
    return calibration


async def judged(store, *criteria, **options):
    return (await judged_runs(store, 1, criteria=criteria or (CLEAR, SHORT), **options))[0]


def run(work):
    return asyncio.run(work)


def test_a_judge_without_a_floor_needs_no_calibration():
    assert "uncalibrated_judge" not in run(judged(MemoryStore())).diagnostics


def test_a_judge_that_was_not_compared_with_a_person_says_so():
    result = run(judged(MemoryStore(), calibrated_floor=0.6))
    assert "has not been compared with a person's judgement" in result.diagnostics["uncalibrated_judge"]


def test_a_calibrated_judge_says_nothing_and_some_labels_are_counted():
    async def main():
        store = MemoryStore()
        few = await calibrated(store, agreeing=True, count=5)
        assert len(few.answers) == 10
        begun = await judged(store, calibrated_floor=0.6)
        assert (
            "needs 20 labels to be compared with a person, and has 10."
            in begun.diagnostics["uncalibrated_judge"]
        )
        await calibrated(store, agreeing=True)
        return await judged(store, calibrated_floor=0.6)

    result = run(main())
    assert "uncalibrated_judge" not in result.diagnostics
    assert "judge_below_floor" not in result.diagnostics


def test_runs_without_a_judge_have_no_new_diagnostics(monkeypatch):
    def fail(*_args, **_options):
        raise AssertionError("labels were looked up")

    monkeypatch.setattr("redraft.loop.labels.standing_of", fail)

    async def main():
        store = MemoryStore()
        checked = await Agent(
            judging_model(None), pattern=ReflectionPattern(0, [ENDS]), keep=store, name="w"
        ).run("Task.")
        plain = await reflect("Task.", generate=lambda _prompt: "It is.", evaluate=lambda _text: 0.9)
        return checked.diagnostics, plain.diagnostics

    assert run(main()) == ({}, {})


@pytest.mark.parametrize("agreeing", [True, False])
def test_a_floor_keeps_a_judge_from_deciding(agreeing):
    """Without other criteria nothing is satisfactory then; with a check, that alone decides."""

    async def labelled():
        store = MemoryStore()
        for criteria in ((CLEAR, SHORT), (CLEAR,)):
            await judged_runs(store, 24, criteria=criteria)
        calibrations = Calibrations(store)
        for one in await calibrations.list():
            calibration = one
            for at, judgement in enumerate(one.left):
                met = judgement.score >= 0.7 if agreeing else at % 2 == 0
                calibration = await calibrations.label(calibration, judgement, met)
        alone = await judged(store, score=lambda *_: 0.95, calibrated_floor=0.6)
        with_check = await judged(store, CLEAR, ENDS, score=lambda *_: 0.2, calibrated_floor=0.6)
        return alone, with_check

    alone, with_check = run(labelled())
    assert alone.final_evaluation.overall_score == pytest.approx(0.95)  # what it says is there all the same
    assert alone.success is agreeing
    assert with_check.success is not agreeing
    assert with_check.final_evaluation.criteria_scores == {"clear": pytest.approx(0.2), "ends": 1.0}
    for result in (alone, with_check):
        assert ("judge_below_floor" in result.diagnostics) is not agreeing
    if not agreeing:
        assert "With calibrated_floor=0.6, it only advised." in alone.diagnostics["judge_below_floor"]
        assert with_check.final_evaluation.overall_score == 1.0


def test_a_floor_without_a_calibration_lets_the_judge_advise():
    result = run(judged(MemoryStore(), score=lambda *_: 0.95, calibrated_floor=0.1))
    assert result.success is False
    assert result.diagnostics["uncalibrated_judge"].endswith("it only advised.")


def test_what_only_advises_need_not_answer():
    """An unusable verdict of a judge that decides nothing does not keep an output from passing its checks."""

    def score(_output, _name):
        return "no number"

    result = run(judged(MemoryStore(), CLEAR, ENDS, score=score, calibrated_floor=0.6))
    assert result.success is True
    assert result.final_evaluation.criteria_scores["clear"] is None


def test_labels_that_cannot_be_read_are_no_reason_to_fail(monkeypatch, caplog):
    store = MemoryStore()
    find = store.find

    async def broken(kind, /, **where):
        if kind == "label":
            raise StoreError("The disk is full.")
        return await find(kind, **where)

    monkeypatch.setattr(store, "find", broken)
    result = run(judged(store, CLEAR, ENDS, score=lambda *_: 0.95, calibrated_floor=0.6))
    assert result.success is True
    assert "can't be compared with people: The disk is full." in result.diagnostics["uncalibrated_judge"]
    assert "can't be read: The disk is full." in caplog.text


@pytest.mark.parametrize("floor", [-0.1, 1.5, "high"])
def test_an_impossible_floor(floor):
    with pytest.raises(ConfigError, match=re.escape("calibrated_floor must be a number in 0..1")):
        ReflectionPattern(calibrated_floor=floor)


def test_a_run_that_keeps_nothing_creates_no_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    result = run(judged(False, calibrated_floor=0.5))
    assert "uncalibrated_judge" in result.diagnostics
    assert list(tmp_path.iterdir()) == []
