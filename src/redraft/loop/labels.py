"""Labels of judgements by people: how far a judge agrees with them, and so what it may decide."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from redraft._codec import to_record
from redraft.errors import StoreError
from redraft.evaluate.judge import JudgeId
from redraft.loop.journal import enclosing_step
from redraft.redact.log import logger
from redraft.stats import FEWEST_CASES, Agreement, Rating, agreement_of
from redraft.stores.base import Record, values_of
from redraft.stores.location import project_place, project_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redraft.loop.journal import Journalled
    from redraft.stores.base import Store
    from redraft.types import QualityCriterion

LABEL = "label"
"""The kind of a label's record; its key begins with the key of the judge."""
FEWEST_LABELS = 20
"""The fewest labels for a calibration."""


@dataclass(frozen=True, slots=True)
class Label:
    """A person's answer to whether an output meets a criterion, for a stored judgement."""

    key: str
    """Identifies the output and the criterion."""
    model: str
    rubric: str
    run: str
    version: str
    """The version of the run that was judged."""
    task: str
    """The digest of the task."""
    criterion: str
    score: float
    """The judge's score, which the person did not see."""
    met: bool | None
    """The person's answer; None if they skipped the judgement."""
    at: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a judge agrees with the labels of people."""

    judge: JudgeId
    agreement: Agreement
    problem: str = ""
    """Why the labels could not be read; empty if they were."""

    @property
    def labels(self) -> int:
        """The number of labels that say yes or no."""
        return self.agreement.count

    @property
    def kappa(self) -> float | None:
        """The kappa, if it is defined and there are enough labels for a calibration."""
        return self.agreement.kappa if self.labels >= FEWEST_LABELS else None

    def reaches(self, floor: float) -> bool:
        """Whether the judge is calibrated, and its kappa is at least this."""
        return self.kappa is not None and self.kappa >= floor

    def diagnostics(self, floor: float) -> dict[str, str]:
        """Why the judge of a run with a `calibrated_floor` only advised; empty if it decided."""
        only_advises = f" With calibrated_floor={floor:g}, it only advised."
        name = f"The judge {self.judge.model}"
        if self.problem:
            return {
                "uncalibrated_judge": f"{name} can't be compared with people: {self.problem}{only_advises}"
            }
        if self.kappa is not None:
            if self.kappa >= floor:
                return {}
            below = f"{name} agrees too little with people, {self.agreement}, {self.labels} labels."
            return {"judge_below_floor": below + only_advises}
        if not self.labels:
            why = "has not been compared with a person's judgement by these criteria"
        elif self.labels < FEWEST_LABELS:
            why = f"needs {FEWEST_LABELS} labels to be compared with a person, and has {self.labels}"
        else:
            why = (
                f"has {self.labels} labels, but its verdicts and the person's are all the same, so more are "
                "needed to measure their agreement"
            )
        return {"uncalibrated_judge": f"{name} {why}. `redraft calibrate` does that.{only_advises}"}


def answers(labels: Iterable[Label], criteria: Iterable[QualityCriterion]) -> list[Label]:
    """The yes and no labels of required criteria: those with a threshold above 0."""
    required = {criterion.name for criterion in criteria if criterion.threshold > 0}
    return [label for label in labels if label.met is not None and label.criterion in required]


def grouped(labels: Sequence[Label]) -> dict[str, list[Label]]:
    """Group labels that depend on one another: by task or, where there are too few tasks, by run."""
    by_task = len({label.task for label in labels}) >= FEWEST_CASES
    groups: defaultdict[str, list[Label]] = defaultdict(list)
    for label in labels:
        groups[label.task if by_task else label.run].append(label)
    return groups


def agreement_with(labels: Iterable[Label], criteria: Sequence[QualityCriterion]) -> Agreement:
    """How far scores, at the thresholds of `criteria`, agree with the answers among the labels."""
    thresholds = {criterion.name: criterion.threshold for criterion in criteria}
    return agreement_of(
        [
            Rating(label.score >= thresholds[label.criterion], bool(label.met), group)
            for group, members in grouped(answers(labels, criteria)).items()
            for label in members
        ]
    )


async def labels_of(store: Store, judge: JudgeId) -> list[Label]:
    """The labels of a judge's judgements, skipped ones included."""
    return values_of(await store.find(LABEL, prefix=f"{judge.key}/"), Label)


async def store_label(store: Store, judge: JudgeId, label: Label) -> None:
    """Store a label, in place of an earlier label of the same judgement."""
    await store.put(Record(LABEL, f"{judge.key}/{label.key}", to_record(label)))


async def standing_of(
    judge: JudgeId,
    criteria: Sequence[QualityCriterion],
    journal: Journalled | None = None,
    *,
    is_required: bool = False,
) -> Standing:
    """How far a judge agrees with the labels in the store of the current run, or of the project.

    A run that stores nothing connects to a database server only if it `is_required`. A store that can't be
    read is a warning, and a `problem` of the standing.
    """
    try:
        store = _store_in(journal, is_required)
        labels = [] if store is None else await labels_of(store, judge)
    except StoreError as error:
        logger.warning("The labels of the judge %s can't be read: %s", judge.model, error)
        return Standing(judge, Agreement(), str(error))
    judged = [criterion for criterion in criteria if criterion.evaluator == "llm"]
    return Standing(judge, agreement_with(labels, judged))


def _store_in(journal: Journalled | None, is_required: bool) -> Store | None:
    """The store to read; None if there is none, or if nothing was ever stored there."""
    if journal is not None:
        return journal.store
    if (outer_step := enclosing_step()) is not None:
        return outer_step.outer.store
    place = project_place()
    if place is None:
        return None
    if isinstance(place.database, str):
        return project_store() if is_required else None
    return project_store() if place.database.exists() else None
