"""The dashboard's pages of evaluations: a list, and a page for each with the cases that flipped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.evals.report import (
    TRY,
    Difference,
    Evaluated,
    EvaluationReport,
    Evaluations,
    GradedAnswer,
    evaluated_in,
    row,
)
from redraft.loop.record import Process
from redraft.web.page import NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import TextChange, text_change

if TYPE_CHECKING:
    from redraft.evals.report import Side, Try

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


SLICE = Slice(
    pages=(
        Page("/compare/evaluations", "evals/templates/evaluations.html", evaluations, _list_document),
        Page(
            "/compare/evaluations/{run_id}",
            "evals/templates/evaluation.html",
            evaluation,
            _document,
            fingerprint=_fingerprint,
        ),
    )
)
