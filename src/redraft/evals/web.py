"""The dashboard's pages of evaluations, with the cases that flipped, and of judges and their calibration."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft._texts import as_text, counted
from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.evals.calibration import (
    Calibration,
    Calibrations,
    Costs,
    CriterionReport,
    JudgeSummary,
    StabilityReport,
)
from redraft.evals.report import (
    EVALUATION,
    TRY,
    Difference,
    Evaluated,
    EvaluationReport,
    Evaluations,
    GradedAnswer,
    evaluated_in,
    row,
)
from redraft.loop.labels import FEWEST_LABELS
from redraft.loop.record import Process
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import TextChange, text_change

if TYPE_CHECKING:
    from redraft.evals.report import Side, Try
    from redraft.web.project import Project

FLIPS = 10
"""How many flipped cases of a difference are shown with their answers."""


async def evaluations(request: PageRequest) -> tuple[Evaluated, ...]:
    """Read the newest evaluations."""
    found = await Evaluations(request.project.store).list()
    return tuple(await request.project.redacted(found, full=request.full, spared=(Process,)))


def _list_document(found: tuple[Evaluated, ...]) -> dict[str, Any]:
    return {"evaluations": [{**to_json(one), "state": one.state} for one in found]}


@dataclass(frozen=True, slots=True)
class Flip:
    """A case that one side passes and the other does not: the first try in which they differ."""

    case: str
    is_gain: bool
    ours: GradedAnswer
    theirs: GradedAnswer
    our_run: str
    their_run: str

    @property
    def change(self) -> TextChange:
        """How the answers differ, from theirs to ours."""
        return text_change(as_text(self.theirs.output), as_text(self.ours.output))


@dataclass(frozen=True, slots=True)
class Compared:
    """A difference between two sides, and the cases that flipped; `more` counts those not shown."""

    difference: Difference
    flips: tuple[Flip, ...]
    more: int


@dataclass(frozen=True)  # without slots, for the cached properties
class EvaluationView:
    """One evaluation; `linked` are the runs of its tries that have a page."""

    report: EvaluationReport
    linked: frozenset[str]

    @cached_property
    def arms(self) -> list[dict[str, str]]:
        """The cells of the table of arms, by the heads of its columns."""
        return [row(one) for one in self.report.figures]

    @cached_property
    def compared(self) -> list[Compared]:
        """Each difference, with the cases that flipped."""
        ours, *others = self.report.sides
        found: list[Compared] = []
        for difference, theirs in zip(self.report.differences, others, strict=True):
            cases = (*difference.lost, *difference.gained)
            flips = [self._flip(case, ours, theirs, difference) for case in cases[:FLIPS]]
            shown = tuple(one for one in flips if one is not None)
            found.append(Compared(difference, shown, len(cases) - len(shown)))
        return found

    def _flip(self, case: str, ours: Side, theirs: Side, difference: Difference) -> Flip | None:
        """Return the first try at a case whose answers one side passes alone; None if there is none."""
        is_gain = case in difference.gained
        mine, others = self._of(case, ours), self._of(case, theirs)
        for number in mine.keys() & others.keys():
            our_answer = ours.answer(mine[number], difference.calls)
            their_answer = theirs.answer(others[number], difference.calls)
            if our_answer is None or their_answer is None:
                continue
            if (our_answer.passed, their_answer.passed) == (is_gain, not is_gain):
                runs = mine[number].run_id, others[number].run_id
                return Flip(case, is_gain, our_answer, their_answer, *runs)
        return None

    def _of(self, case: str, side: Side) -> dict[int, Try]:
        return {one.number: one for one in self.report.tries if (one.case, one.arm) == (case, side.arm)}


async def evaluation(request: PageRequest) -> EvaluationView:
    """Read one evaluation; raises `NotFoundError` if there is none."""
    try:
        report = await Evaluations(request.project.store).report(request.path["run_id"])
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    linked = await request.project.stored_runs(one.run_id for one in report.tries)
    shown = await request.project.redacted(
        (report.evaluated, report.tries), full=request.full, spared=(Process,)
    )
    return EvaluationView(EvaluationReport(*shown), linked)


async def _fingerprint(request: PageRequest) -> str:
    """Return a text that changes with each try that ends; empty once the evaluation has."""
    store, run_id = request.project.store, request.path["run_id"]
    evaluated = await evaluated_in(store, run_id)
    if evaluated is None or evaluated.finished_at is not None:
        return ""
    newest = await store.find(TRY, prefix=f"{run_id}/", newest_first=True, limit=1)
    return newest[0].key if newest else "begun"


def _document(view: EvaluationView) -> dict[str, Any]:
    return view.report.document() | {
        "flips": [
            {
                "ours": one.difference.ours,
                "theirs": one.difference.theirs,
                "cases": [to_json(flip) for flip in one.flips],
            }
            for one in view.compared
        ]
    }


# --- judges ------------------------------------------------------------------------------------------------

JUDGES, SECTION = "/judges", "/evaluations"
ANSWERS = {"yes": True, "no": False, "skip": None}


async def judges(request: PageRequest) -> tuple[JudgeSummary, ...]:
    """Read the judges of the newest runs."""
    found = [one.summary for one in await Calibrations(request.project.store).list()]
    return await request.project.redacted(tuple(found), full=request.full)


def _judges_document(found: tuple[JudgeSummary, ...]) -> dict[str, Any]:
    return {"judges": [one.document() for one in found]}


@dataclass(frozen=True, slots=True)
class CalibrationView:
    """A judge, and the figures of all criteria and of each, by what wrong verdicts cost.

    `stability` is None if it has not been asked again.
    """

    summary: JudgeSummary
    costs: Costs
    report: tuple[CriterionReport, ...]
    stability: StabilityReport | None

    @property
    def rows(self) -> list[dict[str, str]]:
        """The cells of the table of criteria, by the heads of its columns."""
        return [one.row() for one in self.report]

    @property
    def suggestions(self) -> list[str]:
        """What the labels suggest, a sentence each."""
        return [sentence for one in self.report for sentence in one.suggestions()]


async def judge(request: PageRequest) -> CalibrationView:
    """Read how far a judge agrees with its labels; raises `ConfigError` for costs that are no numbers."""
    costs = Costs(*(_cost(request, name) for name in ("false_accept", "false_reject")))
    found = await _calibration(request.project, request.path["judge"])
    report = await asyncio.to_thread(found.report, costs)
    steady = await StabilityReport.stored(request.project.store, found.judge)
    view = CalibrationView(found.summary, costs, report, steady)
    return await request.project.redacted(view, full=request.full)


def _cost(request: PageRequest, name: str) -> float:
    value = request.query.get(name, "") or "1"
    try:
        return float(value)
    except ValueError as error:
        raise ConfigError(f"{name} must be a number of at least 0, got {value!r}.") from error


def _judge_document(view: CalibrationView) -> dict[str, Any]:
    return {
        **view.summary.document(),
        "costs": to_json(view.costs),
        "report": [to_json(one) for one in view.report],
        "stability": to_json(view.stability),
    }


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
    counts = total - left + 1, total, len(found.told)
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
    return "Skipped." if said == "skip" else f"Labelled: {said}. {counted(len(found.told), 'label')} so far."


async def _calibration(project: Project, key: str) -> Calibration:
    found = [one for one in await Calibrations(project.store).list() if one.judge.key == key]
    if not found:
        raise NotFoundError(f"No stored run here was judged by {key!r}.")
    return found[0]


SLICE = Slice(
    pages=(
        Page(JUDGES, "evals/templates/judges.html", judges, _judges_document, section=SECTION),
        Page(f"{JUDGES}/{{judge}}", "evals/templates/judge.html", judge, _judge_document, section=SECTION),
        Page(f"{JUDGES}/{{judge}}/label", "evals/templates/label.html", label, section=SECTION),
        Page(SECTION, "evals/templates/evaluations.html", evaluations, _list_document),
        Page(
            f"{SECTION}/{{run_id}}",
            "evals/templates/evaluation.html",
            evaluation,
            _document,
            fingerprint=_fingerprint,
            kinds=(EVALUATION,),
        ),
    ),
    changes=(Change(f"{JUDGES}/{{judge}}/label", answer),),
)
