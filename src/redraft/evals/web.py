"""The dashboard's pages of evaluations, with the cases that flipped, and of judges and their calibration."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text, counted
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.evals.calibration import Calibration, Calibrations, Costs, StabilityReport, judge_document
from redraft.evals.report import (
    EVALUATION,
    TRY,
    Difference,
    EvaluationReport,
    Evaluations,
    GradedAnswer,
    evaluated_in,
    row,
)
from redraft.loop.labels import FEWEST_LABELS
from redraft.loop.record import Process
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import text_change

if TYPE_CHECKING:
    from redraft.evals.report import Side
    from redraft.web.project import Project

FLIPS = 10
"""How many flipped cases of a difference are shown with their answers."""


async def evaluations(request: PageRequest) -> dict[str, Any]:
    """The newest evaluations."""
    newest_evaluations = await Evaluations(request.project.store).list()
    redacted_evaluations = await request.project.redacted(
        newest_evaluations, full=request.full, spared=(Process,)
    )
    return {"evaluations": [evaluated.document() for evaluated in redacted_evaluations]}


async def evaluation(request: PageRequest) -> dict[str, Any]:
    """An evaluation, with the cases that flipped in each difference.

    `stored_runs` are the runs of its tries that have a page. Raises `NotFoundError` if the evaluation does
    not exist.
    """
    try:
        report = await Evaluations(request.project.store).report(request.path["run_id"])
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    stored = await request.project.stored_runs(made.run_id for made in report.tries)
    report = EvaluationReport(
        *await request.project.redacted(
            (report.evaluated, report.tries), full=request.full, spared=(Process,)
        )
    )
    ours, *others = report.sides
    flips = [
        {
            "ours": difference.ours,
            "theirs": difference.theirs,
            # The first flipped cases, each with a try that only one side passes.
            "cases": [
                flip
                for case in (*difference.lost, *difference.gained)[:FLIPS]
                if (flip := _flip(report, difference, case, ours, theirs)) is not None
            ],
        }
        for difference, theirs in zip(report.differences, others, strict=True)
    ]
    return {"report": report, "flips": flips, "stored_runs": stored}


def _flip(
    report: EvaluationReport, difference: Difference, case: str, ours: Side, theirs: Side
) -> Flip | None:
    """The first try at a case that only one side passes; None if there is none."""
    mine, others = (
        {made.number: made for made in report.tries if (made.case, made.arm) == (case, side.arm)}
        for side in (ours, theirs)
    )
    is_gain = case in difference.gained
    for number in mine.keys() & others.keys():
        our_answer = ours.answer(mine[number], difference.calls)
        their_answer = theirs.answer(others[number], difference.calls)
        if our_answer is None or their_answer is None:
            continue
        if (our_answer.passed, their_answer.passed) == (is_gain, not is_gain):
            return Flip(case, is_gain, our_answer, their_answer, mine[number].run_id, others[number].run_id)
    return None


@dataclass(frozen=True, slots=True)
class Flip:
    """A case that only one side passes, with the answers of the first try in which the sides differ."""

    case: str
    is_gain: bool
    ours: GradedAnswer
    theirs: GradedAnswer
    our_run: str
    their_run: str


def _document(page: dict[str, Any]) -> dict[str, Any]:
    report: EvaluationReport = page["report"]
    return {**report.document(), "flips": page["flips"]}


async def _fingerprint(request: PageRequest) -> str:
    """A text that changes with each finished try; empty when the evaluation has finished."""
    store, run_id = request.project.store, request.path["run_id"]
    evaluated = await evaluated_in(store, run_id)
    if evaluated is None or evaluated.finished_at is not None:
        return ""
    newest = await store.find(TRY, prefix=f"{run_id}/", newest_first=True, limit=1)
    return newest[0].key if newest else "begun"


# --- judges ------------------------------------------------------------------------------------------------

JUDGES, SECTION = "/judges", "/evaluations"
ANSWERS = {"yes": True, "no": False, "skip": None}


async def judges(request: PageRequest) -> dict[str, Any]:
    """The judges of the newest runs."""
    summaries = [calibration.summary for calibration in await Calibrations(request.project.store).list()]
    redacted_summaries = await request.project.redacted(summaries, full=request.full)
    return {"judges": [judge.document() for judge in redacted_summaries]}


async def judge(request: PageRequest) -> dict[str, Any]:
    """How far a judge agrees with its labels; raises `ConfigError` for a cost that is not a number."""
    costs = Costs(*(_cost(request, name) for name in ("false_accept", "false_reject")))
    calibration = await _calibration(request.project, request.path["judge"])
    report = await asyncio.to_thread(calibration.report, costs)
    stability = await StabilityReport.stored(request.project.store, calibration.judge)
    shown = (calibration.summary, costs, report, stability)
    return judge_document(*await request.project.redacted(shown, full=request.full))


def _cost(request: PageRequest, name: str) -> float:
    value = request.query.get(name, "") or "1"
    try:
        return float(value)
    except ValueError as error:
        raise ConfigError(f"{name} must be a number of at least 0, got {value!r}.") from error


@dataclass(frozen=True, slots=True)
class LabelView:
    """The next judgement to label, without the judge's score; its fields are empty if none is left."""

    key: str
    model: str
    judgement: str
    task: str
    output: str
    criterion: str
    description: str
    number: int
    total: int
    labels: int
    needed: int = FEWEST_LABELS


async def label(request: PageRequest) -> LabelView:
    """The next judgement to label."""
    calibration = await _calibration(request.project, request.path["judge"])
    model = await request.project.redacted_text(calibration.judge.model)
    total, left = len(calibration.judgements), len(calibration.left)
    counts = total - left + 1, total, len(calibration.answers)
    if not left:
        return LabelView(calibration.judge.key, model, "", "", "", "", "", *counts)
    judgement = calibration.left[0]
    redacted_judgement = await request.project.redacted(judgement, full=request.full)
    return LabelView(
        calibration.judge.key,
        model,
        judgement.key,
        redacted_judgement.task.description,
        as_text(redacted_judgement.output),
        redacted_judgement.criterion.name,
        redacted_judgement.criterion.description,
        *counts,
    )


async def answer(form: Form) -> str:
    """Store a person's label of a judgement, or undo their last label."""
    calibrations = Calibrations(form.project.store)
    calibration, choice = await _calibration(form.project, form.path["judge"]), form.text("answer")
    if choice == "undo":
        if not calibration.labels:
            return "There is no label to undo."
        await calibrations.undo(calibration)
        return "The last label was undone."
    if choice not in ANSWERS:
        raise ConfigError(f"Unknown answer {choice!r}; {nearest(choice, (*ANSWERS, 'undo'))}")
    key = form.text("judgement")
    judgement = next((judgement for judgement in calibration.judgements if judgement.key == key), None)
    if judgement is None:
        raise NotFoundError(f"The judge {calibration.judge.key!r} has made no judgement {key!r} here.")
    calibration = await calibrations.label(calibration, judgement, ANSWERS[choice])
    # The agreement so far is left out: it would reveal the judge's verdict.
    return (
        "Skipped."
        if choice == "skip"
        else f"Labelled: {choice}. {counted(len(calibration.answers), 'label')} so far."
    )


async def _calibration(project: Project, key: str) -> Calibration:
    for calibration in await Calibrations(project.store).list():
        if calibration.judge.key == key:
            return calibration
    raise NotFoundError(f"No stored run here was judged by {key!r}.")


SLICE = Slice(
    pages=(
        Page(JUDGES, "evals/templates/judges.html", judges, section=SECTION),
        Page(f"{JUDGES}/{{judge}}", "evals/templates/judge.html", judge, section=SECTION),
        Page(f"{JUDGES}/{{judge}}/label", "evals/templates/label.html", label, section=SECTION),
        Page(SECTION, "evals/templates/evaluations.html", evaluations),
        Page(
            f"{SECTION}/{{run_id}}",
            "evals/templates/evaluation.html",
            evaluation,
            _document,
            functions={"row": row, "text_change": text_change},
            fingerprint=_fingerprint,
            kinds=(EVALUATION,),
        ),
    ),
    changes=(Change(f"{JUDGES}/{{judge}}/label", answer),),
)
