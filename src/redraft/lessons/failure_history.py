"""Failure history: recurring failures in an agent's stored runs, and checks that would have caught them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._codec import from_record
from redraft._texts import shortened
from redraft._words import overlap, words_in
from redraft.lessons.impact import SCORED_RUN
from redraft.loop.labels import LABEL, Label
from redraft.loop.runs import Runs
from redraft.proposals.proposals import FEWEST_RUNS, Proposal, RecurringFailure, proposals_for, verdicts
from redraft.proposals.separation import Sample
from redraft.stores.base import intact
from redraft.types import EVALUATORS, NOT_JUDGED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from redraft.lessons.lesson import Lesson
    from redraft.loop.record import RunRecord
    from redraft.stores.base import Store
    from redraft.types import QualityCriterion, ReflectionEvaluation

NEWEST = 300
"""Number of the newest runs of an agent that are examined."""
CHECKED = frozenset(EVALUATORS) - {"llm", "function"}
"""Evaluators for whose failures no check is proposed: they are checks, or test what a text does not show."""
SIMILAR = 0.5
"""Two issues with at least this overlap are about the same problem."""
ABOUT = 0.6
"""Minimum share of an issue's words in a lesson about it."""
LONGEST_TITLE = 120
MOST_ISSUES = 20


Labels: TypeAlias = "Mapping[tuple[str, str], Mapping[str, bool]]"
"""People's labels of outputs, by run and version: whether each meets a criterion."""


async def runs_of(store: Store, folder: str, names: Collection[str] = ()) -> list[RunRecord]:
    """The newest runs that an agent learned from, or that ran under one of its names, oldest first."""
    runs = Runs(store)
    scored = await store.find(SCORED_RUN, where={"agent": folder}, newest_first=True, limit=NEWEST)
    ids = {str(record.data["run_id"]) for record in intact(scored)}
    for name in {folder, *names}:
        ids |= {row.run_id for row in await runs.rows(name=name, inner=True, limit=NEWEST)}
    rows = [row for run_id in ids if (row := await runs.row(run_id)) is not None]
    rows.sort(key=lambda row: (row.created_at, row.run_id), reverse=True)
    records = await runs.read_rows(rows[:NEWEST])
    return sorted(records, key=lambda record: (record.started_at, record.run_id))


async def labels_of(store: Store, records: Sequence[RunRecord]) -> Labels:
    """People's labels of the outputs of runs, from calibrations of a judge."""
    labels: dict[tuple[str, str], dict[str, bool]] = {}
    ids = tuple(record.run_id for record in records)
    for record in intact(await store.find(LABEL, where={"run": ids})) if ids else ():
        label = from_record(Label, record.data)
        if label.met is not None:
            labels.setdefault((label.run, label.version), {})[label.criterion] = label.met
    return labels


async def proposals_of_runs(
    records: Sequence[RunRecord],
    lessons: Sequence[Lesson] = (),
    labels: Labels = MappingProxyType({}),
    *,
    draft: Callable[[RecurringFailure], Awaitable[Sequence[QualityCriterion]]] | None = None,
    weaker: bool = False,
) -> list[Proposal]:
    """The checks that runs suggest, each tried on all their outputs.

    Failures are grouped by similar issues, then by criteria, then all together; an output that a check
    catches needs no other check. A person's label overrules the verdict of the run. `draft` has a model draft
    further checks.
    """
    outputs = _Outputs(records, labels)
    proposals: dict[str, Proposal] = {}
    caught: set[int] = set()
    for group in outputs.groups():
        left = [sample for sample in group.bad if id(sample) not in caught]
        failure = outputs.failure(replace(group, bad=left), lessons)
        if failure.runs < FEWEST_RUNS:
            continue
        drafts = () if draft is None else await draft(failure)
        for proposal in await proposals_for(failure, drafts, weaker=weaker):
            proposals.setdefault(proposal.id, proposal)
            if not proposal.trial.weakness:
                passed = await verdicts(proposal.criterion, left)
                caught |= {id(sample) for sample, is_met in zip(left, passed, strict=True) if is_met is False}
    strong = [proposal for proposal in proposals.values() if not proposal.trial.weakness]
    return sorted(strong, key=lambda proposal: -proposal.trial.bad_runs) + [
        proposal for proposal in proposals.values() if proposal.trial.weakness
    ]


@dataclass(frozen=True)
class _Group:
    """Failed outputs with similar issues."""

    title: str
    criterion: str = ""
    words: frozenset[str] = frozenset()
    bad: list[Sample] = field(default_factory=list[Sample])
    issues: list[str] = field(default_factory=list[str])


class _Outputs:
    """The outputs of runs, with their issues."""

    def __init__(self, records: Sequence[RunRecord], labels: Labels) -> None:
        self.good: list[Sample] = []
        self.met: dict[str, list[Sample]] = {}
        """The outputs that met each criterion, but missed others."""
        self.advised: dict[str, set[str]] = {}
        """The sources of the advice that each run received."""
        self.descriptions: dict[str, str] = {}
        self._issues: list[tuple[Sample, str, str]] = []
        for record in records:
            self.advised[record.run_id] = {piece.source for piece in record.advice}
            self._read(record, labels)

    def _read(self, record: RunRecord, labels: Labels) -> None:
        criteria = cast("Sequence[Mapping[str, Any]]", record.options.get("criteria", ()))
        checked = {
            criterion["name"] for criterion in criteria if criterion.get("evaluator", "llm") in CHECKED
        }
        thresholds = {criterion["name"]: criterion.get("threshold", 0.7) for criterion in criteria}
        self.descriptions |= {criterion["name"]: criterion.get("description", "") for criterion in criteria}
        for version in record.all_versions:
            if version.repeats is not None:
                continue
            sample = Sample(version.output, record.run_id, record.task.description)
            labelled = labels.get((record.run_id, version.name), {})
            denied = [name for name, met in labelled.items() if not met]
            judged_good = version.evaluation.satisfactory and version.evaluation.overall_score is not None
            if (version.accepted or judged_good) and not denied:
                self.good.append(sample)
                continue
            # A check for a criterion that is hidden from the writer would disclose it.
            left_out = checked.union(version.evaluation.shown or ())
            issues = [*_issues(version.evaluation, thresholds), *((name, name) for name in denied)]
            left_out |= {name for name, met in labelled.items() if met}
            for criterion, text in dict.fromkeys(issues):
                if criterion not in left_out:
                    self._issues.append((sample, criterion, text))
            for name, score in version.evaluation.criteria_scores.items():
                if score is not None and score >= thresholds.get(name, 1.0):
                    self.met.setdefault(name, []).append(sample)

    def groups(self) -> Iterator[_Group]:
        """Yield failures from specific to general: by issue, by criterion, and all together."""
        similar: list[_Group] = []
        criteria: dict[str, _Group] = {}
        every = _Group("The output was not satisfactory.")
        for sample, criterion, text in self._issues:
            words = _general_words(text)
            group = next(
                (
                    other
                    for other in similar
                    if other.criterion == criterion and overlap(other.words, words) >= SIMILAR
                ),
                None,
            )
            if group is None:
                group = _Group(_title(criterion, text), criterion, words)
                similar.append(group)
            own = criteria.setdefault(criterion, _Group(criterion or every.title, criterion))
            for each in (group, own, every):
                if not any(sample is other for other in each.bad):
                    each.bad.append(sample)
                each.issues.append(text)
        similar.sort(key=lambda group: -len(group.bad))
        yield from similar
        yield from (group for name, group in criteria.items() if name)
        yield every

    def failure(self, group: _Group, lessons: Sequence[Lesson]) -> RecurringFailure:
        """A group as a failure, with the good outputs and the lessons about it."""
        good = self.good
        if len({sample.run for sample in good}) < FEWEST_RUNS:
            good = [*good, *self.met.get(group.criterion, ())]
        runs = {sample.run for sample in group.bad}
        about = [lesson for lesson in lessons if _is_about(lesson, group, runs)]
        ids = tuple(lesson.id for lesson in about)
        advised_runs = sum(not self.advised[run].isdisjoint(ids) for run in runs)
        issues = [text for text, _ in Counter(group.issues).most_common(MOST_ISSUES)]
        title = _title(group.criterion, issues[0]) if group.words else group.title
        fields = ("do_differently", "rule", "strategy")
        advice = [
            "\n".join(text for name, text in lesson.content.texts.items() if name in fields)
            for lesson in about
        ]
        # Numbers in the tasks of most failed outputs, such as a limit.
        counts = Counter(number for sample in group.bad for number in set(re.findall(r"\d+", sample.task)))
        texts = (
            *issues,
            self.descriptions.get(group.criterion, ""),
            *advice,
            " ".join(number for number, count in counts.items() if count * 2 > len(group.bad)),
        )
        return RecurringFailure(title, group.bad, good, texts, ids, advised_runs)


def _issues(evaluation: ReflectionEvaluation, thresholds: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield the issues of an output that is not satisfactory, each with its criterion, if any."""
    scores = evaluation.criteria_scores
    named: set[str] = set()
    for issue in evaluation.issues:
        name = issue.criterion or ""
        score = scores.get(name)
        is_met = score is not None and score >= thresholds.get(name, 1.0)
        if not issue.startswith(NOT_JUDGED) and not is_met:
            named.add(name)
            yield name, issue.message
    for name, score in scores.items():
        if score is not None and score < thresholds.get(name, 0.0) and name not in named:
            yield name, name
    if not scores and not evaluation.issues and evaluation.overall_score is not None:
        yield "", "The output was not satisfactory."


_QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]{2,}'|`[^`\n]*`|\u201c[^\u201d\n]*\u201d|\d+")


def _general_words(text: str) -> frozenset[str]:
    """The words of an issue without quotations from an output."""
    return words_in(_QUOTED.sub(" ", text)) or words_in(text)


def _title(criterion: str, text: str) -> str:
    if not criterion or criterion.rstrip(".") in text:
        return shortened(text, LONGEST_TITLE)
    return shortened(f"{criterion.rstrip('.')}: {text}", LONGEST_TITLE)


def _is_about(lesson: Lesson, group: _Group, runs: set[str]) -> bool:
    """Whether a lesson is about a failure: it has most of its words, or its run failed in this way."""
    words = words_in(" ".join((*lesson.content.texts.values(), lesson.error, lesson.title)))
    issue_words = group.words or _general_words(group.title)
    if len(issue_words & words) >= ABOUT * len(issue_words):
        return True
    return lesson.source in runs and bool(group.criterion) and words_in(group.criterion) <= words
