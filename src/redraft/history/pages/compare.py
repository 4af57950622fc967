"""Compare: groups of runs, or single ones, against a baseline, and whether chance alone could do that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from redraft.history.contrast import Contrast, Sample
from redraft.history.entry import task_key
from redraft.history.groups import BY, IN_TIME, LATEST, WITHOUT, Group, Grouped
from redraft.history.intervals import Intervals, intervals
from redraft.history.ledger import Ledger
from redraft.history.task_words import task_words
from redraft.history.wanted_groups import WantedGroups
from redraft.stats import FEWEST
from redraft.web.page import NotFoundError, Page, PageRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redraft.history.contrast import Unit
    from redraft.history.entry import Entry
    from redraft.history.tally import Tally
    from redraft.web.project import Project

MOST = 12
"""Groups that are shown; more than these can't be told apart."""
CHOICES = 20
"""Agents and tasks that the form offers."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Hold a group as the table has it; `best` compares its best versions with those of the baseline.

    `label` is its key as it may be shown, `ref` what an address calls it.
    """

    group: Group
    label: str
    ref: str
    first: Sample
    best: Sample
    satisfactory: Sample
    versions: Sample
    cost: Sample
    contrast: Contrast | None


@dataclass(frozen=True, slots=True)
class Detail:
    """Compare one group with the baseline in each measure, the scores over all criteria first."""

    baseline: str
    group: str
    first: tuple[Contrast, ...]
    best: tuple[Contrast, ...]
    effort: tuple[Contrast, ...]
    common_tasks: int
    tasks: int


@dataclass(frozen=True, slots=True)
class CompareView:
    """Hold groups of runs, one of them the `baseline`, and another beside it measure by measure."""

    wanted: WantedGroups
    rows: tuple[GroupRow, ...]
    others: int
    baseline: GroupRow | None
    against: GroupRow | None
    detail: Detail | None
    names: tuple[str, ...]
    tasks: tuple[tuple[str, str], ...]
    read: int | None
    """How many runs were looked through until now, where not all were yet."""
    bys: tuple[str, ...] = tuple(BY)
    latest: int = LATEST
    fewest: int = FEWEST

    @property
    def spans(self) -> Intervals:
        """The scale of the groups' intervals."""
        return intervals(row.contrast for row in self.rows)

    @property
    def scores(self) -> Intervals:
        """The scale of the intervals of one group."""
        return intervals([] if self.detail is None else (*self.detail.first, *self.detail.best))


async def compare(request: PageRequest) -> CompareView:
    """Compare groups `by` something with the `baseline`, and one of them, `with`, in each measure."""
    wanted, ledger, project = (
        await WantedGroups.of_query(request),
        request.project.shared(Ledger.of),
        request.project,
    )
    entries = await ledger.entries()
    # In threads: to go through 100,000 runs, and to draw resamples, takes tens of milliseconds.
    found = await asyncio.to_thread(
        project.shared(Grouped.of).groups,
        entries,
        wanted.by,
        name=wanted.name,
        task=wanted.task,
        of=wanted.of,
    )
    groups = [group for group in found if wanted.admits(group)]
    baseline, against = _pair(groups, wanted)
    chosen = _fitting(groups, (baseline, against))
    labels = await _labels(project, wanted.by, chosen)
    rows = await asyncio.to_thread(_rows, chosen, labels, baseline)
    by_group = {id(row.group): row for row in rows}
    detail = None
    if baseline is not None and against is not None:
        names = _criteria(baseline, against)
        words = dict(zip(names, await project.redacted(names), strict=True))
        detail = await asyncio.to_thread(_detail, by_group[id(baseline)], by_group[id(against)], words)
    ended = ledger.spending.total()
    shown_agents = await project.redacted([name for name in _commonest(ended.names) if name])
    return CompareView(
        wanted,
        rows,
        len(groups) - len(chosen),
        by_group.get(id(baseline)),
        by_group.get(id(against)),
        detail,
        tuple(dict.fromkeys([*([wanted.name] if wanted.name else ()), *shown_agents])),
        await _tasks(project, wanted.task, ended.tasks),
        None if ledger.is_whole else len(entries),
    )


def _pair(groups: Sequence[Group], wanted: WantedGroups) -> tuple[Group | None, Group | None]:
    """Return the baseline and the group to look at beside it: those asked for, else what is natural."""
    if not groups:
        return None, None
    baseline = _named(groups, wanted.baseline) if wanted.baseline else _usual(groups, wanted)
    others = [group for group in groups if group is not baseline]
    against = _named(groups, wanted.against) if wanted.against else baseline
    if against is baseline:
        against = others[0] if others else None
    return baseline, against


def _usual(groups: Sequence[Group], wanted: WantedGroups) -> Group:
    """Return what the others are best compared with: what was named first, what was before, the largest."""
    if wanted.of:
        return next(group for of in wanted.of for group in groups if wanted.is_named(group, of))
    if wanted.by == "run" and any(group.key == wanted.like for group in groups):
        return _named(groups, wanted.like)
    if wanted.by == "advice":
        return next((group for group in groups if group.value == WITHOUT), groups[0])
    # The groups of days and single runs come the newest first: that one is what is compared.
    earlier = groups[1:MOST] if wanted.by in IN_TIME else groups
    return max(earlier or groups, key=attrgetter("runs"))


def _named(groups: Sequence[Group], ref: str) -> Group:
    for group in groups:
        if ref in (group.key, task_key(group.key)):
            return group
    raise NotFoundError(f"There are no runs of {ref!r} here to compare.")


def _fitting(groups: Sequence[Group], always: tuple[Group | None, Group | None]) -> list[Group]:
    """Return the groups that have room, those among them that must be there."""
    chosen = list(groups[:MOST])
    return chosen + [
        group for group in always if group is not None and all(group is not one for one in chosen)
    ]


async def _labels(project: Project, by: str, groups: Sequence[Group]) -> list[str]:
    if by != "task":
        return await project.redacted([group.key for group in groups])
    words = await task_words(project, [group.newest[0].run_id for group in groups])
    return [words.get(group.newest[0].run_id, group.key) for group in groups]


def _rows(groups: Sequence[Group], labels: Sequence[str], baseline: Group | None) -> tuple[GroupRow, ...]:
    usual = Sample.of(entry.best_score for entry in baseline.newest) if baseline else None
    return tuple(
        _row(group, label, None if group is baseline else usual)
        for group, label in zip(groups, labels, strict=True)
    )


def _row(group: Group, label: str, usual: Sample | None) -> GroupRow:
    entries = group.newest
    best = Sample.of(entry.best_score for entry in entries)
    return GroupRow(
        group,
        label,
        group.key if label == group.key else task_key(group.key),
        Sample.of(entry.first_score for entry in entries),
        best,
        Sample.of(entry.satisfactory for entry in entries if entry.best_score is not None),
        Sample.of(entry.versions for entry in entries if entry.versions),
        Sample.of(entry.cost_usd for entry in entries),
        None if usual is None else Contrast.of("overall", "score", usual, best),
    )


def _criteria(*groups: Group) -> list[str]:
    """Return the criteria by which any of these were judged, in the order of their own."""
    names = (name for group in groups for entry in group.newest for name in entry.criteria)
    return list(dict.fromkeys(names))


def _detail(baseline: GroupRow, against: GroupRow, criteria: Mapping[str, str]) -> Detail:
    theirs, ours = baseline.group.newest, against.group.newest

    def contrast(name: str, unit: Unit, measure: Callable[[Entry], float | None]) -> Contrast:
        return Contrast.of(name, unit, Sample.of(map(measure, theirs)), Sample.of(map(measure, ours)))

    def scored(name: str, *, first: bool) -> Contrast:
        return contrast(criteria[name], "score", lambda entry: _score(entry, name, first=first))

    return Detail(
        baseline.label,
        against.label,
        (
            contrast("all criteria", "score", attrgetter("first_score")),
            *(scored(name, first=True) for name in criteria),
        ),
        (
            contrast("all criteria", "score", attrgetter("best_score")),
            *(scored(name, first=False) for name in criteria),
        ),
        (
            contrast("versions", "versions", lambda entry: entry.versions or None),
            contrast("cost", "usd", attrgetter("cost_usd")),
            contrast("time", "seconds", attrgetter("seconds")),
        ),
        len(baseline.group.tasks & against.group.tasks),
        len(baseline.group.tasks | against.group.tasks),
    )


def _score(entry: Entry, name: str, *, first: bool) -> float | None:
    scores = entry.first if first else entry.best
    return scores[entry.criteria.index(name)] if name in entry.criteria else None


async def _tasks(project: Project, task: str, tallies: Mapping[str, Tally]) -> tuple[tuple[str, str], ...]:
    """Return the tasks with the most runs, and the one that was chosen, with their words."""
    often = [key for key in _commonest(tallies) if tallies[key].runs > 1]
    latest = {key: tallies[key].latest for key in dict.fromkeys([task, *often]) if key in tallies}
    words = await task_words(project, latest.values())
    return tuple((key, words.get(run_id, key)) for key, run_id in latest.items())


def _commonest(tallies: Mapping[str, Tally]) -> list[str]:
    return nlargest(CHOICES, tallies, key=lambda key: tallies[key].runs)


def _document(view: CompareView) -> dict[str, Any]:
    detail = view.detail
    return {
        "by": view.wanted.by,
        "baseline": None if view.baseline is None else view.baseline.label,
        "groups": [_told(row) for row in view.rows],
        "others": view.others,
        "detail": None
        if detail is None
        else {
            "baseline": detail.baseline,
            "group": detail.group,
            "common_tasks": detail.common_tasks,
            "tasks": detail.tasks,
            "first_version": [_contrast(one) for one in detail.first],
            "best_version": [_contrast(one) for one in detail.best],
            "effort": [_contrast(one) for one in detail.effort],
        },
        "read": view.read,
    }


def _told(row: GroupRow) -> dict[str, Any]:
    return {
        "name": row.label,
        "runs": row.group.runs,
        "compared": len(row.group.newest),
        "judged": row.best.count,
        "first_score": row.first.mean,
        "best_score": row.best.mean,
        "satisfactory": row.satisfactory.mean,
        "versions": row.versions.mean,
        "cost_usd": row.cost.mean,
        "cost_known": row.cost.count,
        "against_baseline": None if row.contrast is None else _contrast(row.contrast),
    }


def _contrast(one: Contrast) -> dict[str, Any]:
    return {
        "name": one.name,
        "unit": one.unit,
        "baseline": {"mean": one.baseline.mean, "runs": one.baseline.count},
        "group": {"mean": one.group.mean, "runs": one.group.count},
        "difference": one.difference,
        "interval": None if one.effect is None else [one.effect.low, one.effect.high],
        "verdict": one.verdict,
    }


PAGE = Page("/compare", "history/templates/compare.html", compare, _document)
