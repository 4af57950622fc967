"""The dashboard's pages of evaluations, with the cases that flipped, and of judges and their calibration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text, counted
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.evals.calibration import Calibration, Calibrations, Costs, StabilityReport
from redraft.evals.report import (
    EVALUATION,
    TRY,
    Difference,
    EvaluationReport,
    Evaluations,
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
) -> dict[str, Any] | None:
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
            return {
                "case": case,
                "is_gain": is_gain,
                "ours": our_answer,
                "theirs": their_answer,
                "our_run": mine[number].run_id,
                "their_run": others[number].run_id,
            }
    return None


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
    calibrations = await Calibrations(request.project.store).list()
    documents = [calibration.document() for calibration in calibrations]
    return {"judges": await request.project.redacted(documents, full=request.full)}


async def judge(request: PageRequest) -> dict[str, Any]:
    """How far a judge agrees with its labels; raises `ConfigError` for a cost that is not a number."""
    costs = Costs(*(_cost(request, name) for name in ("false_accept", "false_reject")))
    calibration = await _calibration(request.project, request.path["judge"])
    stability = await StabilityReport.stored(request.project.store, calibration.judge)
    document = await asyncio.to_thread(calibration.document_with, costs, stability)
    return await request.project.redacted(document, full=request.full)


def _cost(request: PageRequest, name: str) -> float:
    value = request.query.get(name, "") or "1"
    try:
        return float(value)
    except ValueError as error:
        raise ConfigError(f"{name} must be a number of at least 0, got {value!r}.") from error


async def label(request: PageRequest) -> dict[str, Any]:
    """The next judgement to label, without the judge's score; its fields are empty if none is left."""
    calibration = await _calibration(request.project, request.path["judge"])
    total, left = len(calibration.judgements), calibration.left
    page: dict[str, Any] = {
        "key": calibration.judge.key,
        "model": await request.project.redacted_text(calibration.judge.model),
        **dict.fromkeys(("judgement", "task", "output", "criterion", "description"), ""),
        "number": total - len(left) + 1,
        "total": total,
        "labels": len(calibration.answers),
        "needed": FEWEST_LABELS,
    }
    if left:
        judgement = await request.project.redacted(left[0], full=request.full)
        page |= {
            "judgement": left[0].key,
            "task": judgement.task.description,
            "output": as_text(judgement.output),
            "criterion": judgement.criterion.name,
            "description": judgement.criterion.description,
        }
    return page


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
