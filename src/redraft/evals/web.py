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
    found = await Evaluations(request.project.store).list()
    shown = await request.project.redacted(found, full=request.full, spared=(Process,))
    return {"evaluations": [evaluated.document() for evaluated in shown]}


async def evaluation(request: PageRequest) -> dict[str, Any]:
    """One evaluation with the cases that flipped in each difference; `NotFoundError` if there is none.

    `stored_runs` are the runs of its tries that have a page.
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
            "cases": _flips(report, difference, ours, theirs),
        }
        for difference, theirs in zip(report.differences, others, strict=True)
    ]
    return {"report": report, "flips": flips, "stored_runs": stored}


def _flips(report: EvaluationReport, difference: Difference, ours: Side, theirs: Side) -> list[Flip]:
    """The first of the cases that flipped, each with a try whose answers one side passes alone."""
    flipped = (*difference.lost, *difference.gained)[:FLIPS]
    flips = (_flip(report, difference, case, ours, theirs) for case in flipped)
    return [flip for flip in flips if flip is not None]


def _flip(
    report: EvaluationReport, difference: Difference, case: str, ours: Side, theirs: Side
) -> Flip | None:
    """The first try at a case whose answers one side passes alone; None if there is none."""
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
    """A case that one side passes and the other does not: the first try in which they differ."""

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
    """Return a text that changes with each try that ends; empty once the evaluation has."""
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
    found = [calibration.summary for calibration in await Calibrations(request.project.store).list()]
    shown = await request.project.redacted(found, full=request.full)
    return {"judges": [judge.document() for judge in shown]}


async def judge(request: PageRequest) -> dict[str, Any]:
    """How far a judge agrees with its labels; raises `ConfigError` for costs that are no numbers."""
    costs = Costs(*(_cost(request, name) for name in ("false_accept", "false_reject")))
    found = await _calibration(request.project, request.path["judge"])
    report = await asyncio.to_thread(found.report, costs)
    steady = await StabilityReport.stored(request.project.store, found.judge)
    shown = (found.summary, costs, report, steady)
    return judge_document(*await request.project.redacted(shown, full=request.full))


def _cost(request: PageRequest, name: str) -> float:
    value = request.query.get(name, "") or "1"
    try:
        return float(value)
    except ValueError as error:
        raise ConfigError(f"{name} must be a number of at least 0, got {value!r}.") from error


@dataclass(frozen=True, slots=True)
class LabelView:
    """What is labelled next, None if nothing is left; nothing in it says what the judge thinks."""

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
    """Read what is labelled next."""
    found = await _calibration(request.project, request.path["judge"])
    model = await request.project.redacted_text(found.judge.model)
    total, left = len(found.judgements), len(found.left)
    counts = total - left + 1, total, len(found.answers)
    if not left:
        return LabelView(found.judge.key, model, "", "", "", "", "", *counts)
    judgement = found.left[0]
    shown = await request.project.redacted(judgement, full=request.full)
    return LabelView(
        found.judge.key,
        model,
        judgement.key,
        shown.task.description,
        as_text(shown.output),
        shown.criterion.name,
        shown.criterion.description,
        *counts,
    )


async def answer(form: Form) -> str:
    """Store what a person says of a judgement, or take back what they said last."""
    calibrations = Calibrations(form.project.store)
    found, said = await _calibration(form.project, form.path["judge"]), form.text("answer")
    if said == "undo":
        if not found.labels:
            return "There is no label to undo."
        await calibrations.undo(found)
        return "The last label was undone."
    if said not in ANSWERS:
        raise ConfigError(f"Unknown answer {said!r}; {nearest(said, (*ANSWERS, 'undo'))}")
    key = form.text("judgement")
    judgement = next((one for one in found.judgements if one.key == key), None)
    if judgement is None:
        raise NotFoundError(f"The judge {found.judge.key!r} has made no judgement {key!r} here.")
    found = await calibrations.label(found, judgement, ANSWERS[said])
    # Not how far they agree by now: that would tell what the judge said.
    return (
        "Skipped." if said == "skip" else f"Labelled: {said}. {counted(len(found.answers), 'label')} so far."
    )


async def _calibration(project: Project, key: str) -> Calibration:
    found = [one for one in await Calibrations(project.store).list() if one.judge.key == key]
    if not found:
        raise NotFoundError(f"No stored run here was judged by {key!r}.")
    return found[0]


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
