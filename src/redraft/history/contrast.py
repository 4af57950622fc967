"""The compare page: groups of runs, or single runs, against a baseline, and whether it could be chance."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from redraft.history.spend import task_words
from redraft.loop.record import task_digest
from redraft.loop.runs import GROUPINGS, NEWEST_OF_GROUP, WITHOUT, RunGroup, Runs
from redraft.stats import FEWEST, Effect, effect_of
from redraft.web.page import NotFoundError, Page, PageRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from redraft.stores.run_index import RunRow
    from redraft.web.project import Project


MOST = 12
"""How many groups are shown: more would be hard to tell apart."""
CHOICES = 20
"""How many agents and tasks the form offers."""
NEITHER = (None, None)
"""First and best score by a criterion that a run was not judged by."""
REMEMBERED = 4_000
"""Effects in the cache: each takes milliseconds, and equal scores have equal effects."""
NOISE = 1e-9
"""Smaller differences are rounding errors."""
WIDTH, HEIGHT, EDGE = 180.0, 18.0, 6.0
STEPS = 20
"""The scale ends at a multiple of 1 / `STEPS`, a round number."""
Unit = Literal["score", "share", "versions", "usd", "seconds"]
Verdict = Literal["higher", "lower", "none", "few", "unknown"]


async def compare(request: PageRequest) -> CompareView:
    """Compare the groups with the `baseline`, and one of them (`with`) in every measure."""
    wanted, project, runs = await GroupFilter.of_query(request), request.project, Runs(request.project.store)
    found = await runs.groups(wanted.by, name=wanted.name, task=wanted.task, of=wanted.of)
    groups = [group for group in found if wanted.admits(group)]
    baseline, against = _chosen_pair(groups, wanted)
    chosen = _shown(groups, (baseline, against))
    await asyncio.gather(*map(runs.newest, chosen))
    labels = await _labels(project, wanted.by, chosen)
    # In threads: resampling takes tens of milliseconds.
    rows = await asyncio.to_thread(_rows, chosen, labels, baseline)
    by_group = {id(row.group): row for row in rows}
    detail = None
    if baseline is not None and against is not None:
        names = _criteria_names(baseline, against)
        words = dict(zip(names, await project.redacted(names), strict=True))
        detail = await asyncio.to_thread(_detail, by_group[id(baseline)], by_group[id(against)], words)
    agents = [name for name, _ in await runs.commonest("agent", CHOICES) if name]
    return CompareView(
        wanted,
        rows,
        len(groups) - len(chosen),
        by_group.get(id(baseline)),
        by_group.get(id(against)),
        detail,
        tuple(dict.fromkeys([*([wanted.name] if wanted.name else ()), *await project.redacted(agents)])),
        await _tasks(runs, project, wanted.task),
    )


@dataclass(frozen=True, slots=True)
class CompareView:
    """The page: groups of runs, one of them the `baseline`, and another compared with it in detail."""

    wanted: GroupFilter
    rows: tuple[GroupRow, ...]
    others: int
    baseline: GroupRow | None
    against: GroupRow | None
    detail: Detail | None
    names: tuple[str, ...]
    tasks: tuple[tuple[str, str], ...]
    bys: tuple[str, ...] = GROUPINGS
    latest: int = NEWEST_OF_GROUP
    fewest: int = FEWEST

    @property
    def spans(self) -> Intervals:
        """The scale for the intervals of the groups."""
        return intervals(row.contrast for row in self.rows)

    @property
    def scores(self) -> Intervals:
        """The scale for the intervals in the detail."""
        return intervals([] if self.detail is None else (*self.detail.first, *self.detail.best))


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """What to compare: the grouping, restricted to an agent, a task and the keys `of`, and the baseline.

    `against` is the group to compare in detail; `like` is the id of a run whose task is to be used.
    """

    by: str
    name: str
    task: str
    of: tuple[str, ...]
    baseline: str
    against: str
    like: str

    @classmethod
    async def of_query(cls, request: PageRequest) -> GroupFilter:
        """Parse the query; raises `NotFoundError` if the run in `like` does not exist."""
        query = request.query
        keys = tuple(key.strip() for key in query.get("of", "").split(",") if key.strip())
        like = query.get("like", "")
        return cls(
            query.get("by", "agent"),
            query.get("name", "").strip(),
            await _task_of(request, like) if like else query.get("task", ""),
            keys,
            query.get("baseline", ""),
            query.get("with", ""),
            like,
        )

    def admits(self, group: RunGroup) -> bool:
        """Whether the filter includes a group."""
        return not self.of or any(self.is_named(group, of) for of in self.of)

    def is_named(self, group: RunGroup, of: str) -> bool:
        """Whether a name refers to a group; a prefix of its id is enough for a single run."""
        return group.key == of or (self.by == "run" and group.key.startswith(of))


async def _task_of(request: PageRequest, run_id: str) -> str:
    row = await Runs(request.project.store).row(run_id)
    if row is None:
        raise NotFoundError(f"There is no run {run_id!r} here to take the task from.")
    return row.task


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the table; `contrast` compares its best versions with those of the baseline.

    `label` is its key with secrets withheld, `ref` identifies it in a URL.
    """

    group: RunGroup
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
    """One group compared with the baseline in every measure, the score over all criteria first."""

    baseline: str
    group: str
    first: tuple[Contrast, ...]
    best: tuple[Contrast, ...]
    effort: tuple[Contrast, ...]
    common_tasks: int
    tasks: int


def _chosen_pair(groups: Sequence[RunGroup], wanted: GroupFilter) -> tuple[RunGroup | None, RunGroup | None]:
    """Return the baseline and the group to compare in detail: those requested, else sensible defaults."""
    if not groups:
        return None, None
    baseline = _group_of(groups, wanted.baseline) if wanted.baseline else _default_baseline(groups, wanted)
    others = [group for group in groups if group is not baseline]
    against = _group_of(groups, wanted.against) if wanted.against else baseline
    if against is baseline:
        against = others[0] if others else None
    return baseline, against


def _default_baseline(groups: Sequence[RunGroup], wanted: GroupFilter) -> RunGroup:
    """Return the default baseline: the first group named, the run to compare, or the largest group."""
    if wanted.of:
        return next(group for of in wanted.of for group in groups if wanted.is_named(group, of))
    if wanted.by == "run" and any(group.key == wanted.like for group in groups):
        return _group_of(groups, wanted.like)
    if wanted.by == "advice":
        return next((group for group in groups if group.key == WITHOUT), groups[0])
    # Days and single runs come newest first; the newest is what gets compared, so it is no baseline.
    earlier = groups[1:MOST] if wanted.by in ("day", "run") else groups
    return max(earlier or groups, key=attrgetter("runs"))


def _group_of(groups: Sequence[RunGroup], ref: str) -> RunGroup:
    for group in groups:
        if ref in (group.key, task_digest(group.key)):
            return group
    raise NotFoundError(f"There are no runs of {ref!r} here to compare.")


def _shown(groups: Sequence[RunGroup], always: tuple[RunGroup | None, RunGroup | None]) -> list[RunGroup]:
    """Return the groups to show: the first few, and those that must be there."""
    chosen = list(groups[:MOST])
    return chosen + [
        group for group in always if group is not None and all(group is not one for one in chosen)
    ]


async def _labels(project: Project, by: str, groups: Sequence[RunGroup]) -> list[str]:
    if by != "task":
        return await project.redacted([group.key for group in groups])
    words = await task_words(project, [group.latest for group in groups])
    return [words.get(group.latest, group.key) for group in groups]


def _rows(
    groups: Sequence[RunGroup], labels: Sequence[str], baseline: RunGroup | None
) -> tuple[GroupRow, ...]:
    baseline_best = Sample.of(row.best_score for row in baseline.newest) if baseline else None
    return tuple(
        _row(group, label, None if group is baseline else baseline_best)
        for group, label in zip(groups, labels, strict=True)
    )


def _row(group: RunGroup, label: str, baseline_best: Sample | None) -> GroupRow:
    rows = group.newest
    best = Sample.of(row.best_score for row in rows)
    return GroupRow(
        group,
        label,
        group.key if label == group.key else task_digest(group.key),
        Sample.of(row.first_score for row in rows),
        best,
        Sample.of(row.satisfactory for row in rows if row.best_score is not None),
        Sample.of(row.versions for row in rows if row.versions),
        Sample.of(row.cost_usd for row in rows),
        None if baseline_best is None else Contrast.of("overall", "score", baseline_best, best),
    )


def _criteria_names(*groups: RunGroup) -> list[str]:
    """Return the names of all criteria by which runs of these groups were judged, in order."""
    names = (name for group in groups for row in group.newest for name in row.criteria)
    return list(dict.fromkeys(names))


def _detail(baseline: GroupRow, against: GroupRow, criteria: Mapping[str, str]) -> Detail:
    theirs, ours = baseline.group.newest, against.group.newest

    def contrast(name: str, unit: Unit, measure: Callable[[RunRow], float | None]) -> Contrast:
        return Contrast.of(name, unit, Sample.of(map(measure, theirs)), Sample.of(map(measure, ours)))

    def scored(name: str, *, first: bool) -> Contrast:
        return contrast(
            criteria[name], "score", lambda row: row.criteria.get(name, NEITHER)[0 if first else 1]
        )

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
            contrast("versions", "versions", lambda row: row.versions or None),
            contrast("cost", "usd", attrgetter("cost_usd")),
            contrast("time", "seconds", attrgetter("seconds")),
        ),
        len(baseline.group.tasks & against.group.tasks),
        len(baseline.group.tasks | against.group.tasks),
    )


async def _tasks(runs: Runs, project: Project, task: str) -> tuple[tuple[str, str], ...]:
    """Return digest and description of the selected task and of those with the most runs."""
    latest = await runs.newest_of_tasks([task] if task else [])
    often = [(key, count) for key, count in await runs.commonest("task", CHOICES) if count.runs > 1]
    latest |= {key: count.latest for key, count in often if key not in latest}
    words = await task_words(project, latest.values())
    return tuple((key, words.get(run_id, key)) for key, run_id in latest.items())


def _document(view: CompareView) -> dict[str, Any]:
    detail = view.detail
    return {
        "by": view.wanted.by,
        "baseline": None if view.baseline is None else view.baseline.label,
        "groups": [_group_document(row) for row in view.rows],
        "others": view.others,
        "detail": None
        if detail is None
        else {
            "baseline": detail.baseline,
            "group": detail.group,
            "common_tasks": detail.common_tasks,
            "tasks": detail.tasks,
            "first_version": [_contrast_document(one) for one in detail.first],
            "best_version": [_contrast_document(one) for one in detail.best],
            "effort": [_contrast_document(one) for one in detail.effort],
        },
    }


def _group_document(row: GroupRow) -> dict[str, Any]:
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
        "against_baseline": None if row.contrast is None else _contrast_document(row.contrast),
    }


def _contrast_document(one: Contrast) -> dict[str, Any]:
    return {
        "name": one.name,
        "unit": one.unit,
        "baseline": {"mean": one.baseline.mean, "runs": one.baseline.count},
        "group": {"mean": one.group.mean, "runs": one.group.count},
        "difference": one.difference,
        "interval": None if one.effect is None else [one.effect.low, one.effect.high],
        "verdict": one.verdict,
    }


@dataclass(frozen=True, slots=True)
class Sample:
    """The known values of a measure in a group of runs, newest run first."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Sample:
        """Return a sample of the values that are not None."""
        return cls(tuple(float(value) for value in values if value is not None))

    @property
    def count(self) -> int:
        """The number of runs with a known value."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        """The mean, or None for an empty sample."""
        return fmean(self.values) if self.values else None


@dataclass(frozen=True, slots=True)
class Contrast:
    """One measure of a group against the baseline; `effect` is None if there are too few runs."""

    name: str
    unit: Unit
    baseline: Sample
    group: Sample
    effect: Effect | None

    @classmethod
    def of(cls, name: str, unit: Unit, baseline: Sample, group: Sample) -> Contrast:
        """Compare two samples; the effect is computed only with at least `FEWEST` values on each side."""
        enough = min(baseline.count, group.count) >= FEWEST
        effect = _effect(group.values, baseline.values) if enough else None
        if effect is not None:
            effect = Effect(_snapped(effect.mean), _snapped(effect.low), _snapped(effect.high))
        return cls(name, unit, baseline, group, effect)

    @property
    def difference(self) -> float | None:
        """The group's mean minus the baseline's; None if either is unknown."""
        ours, theirs = self.group.mean, self.baseline.mean
        return None if ours is None or theirs is None else _snapped(ours - theirs)

    @property
    def verdict(self) -> Verdict:
        """The verdict: `none` if the interval includes zero, `few` with too few runs on a side."""
        if self.difference is None:
            return "unknown"
        if self.effect is None:
            return "few"
        if self.effect.low > 0:
            return "higher"
        return "lower" if self.effect.high < 0 else "none"


def _snapped(value: float) -> float:
    return 0.0 if abs(value) < NOISE else value


_effect = lru_cache(REMEMBERED)(effect_of)


@dataclass(frozen=True, slots=True)
class Span:
    """The position of a difference, and of its interval if there is one."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Intervals:
    """A scale from `-extent` to `extent`, for differences of scores or shares."""

    extent: float
    width: float = WIDTH
    height: float = HEIGHT
    zero: float = WIDTH / 2
    middle: float = HEIGHT / 2

    def span(self, contrast: Contrast | None) -> Span | None:
        """Place a contrast on the scale; None if its difference is unknown."""
        if contrast is None or contrast.difference is None:
            return None
        effect = contrast.effect
        if effect is None:
            return Span(self._x(contrast.difference), None, None)
        return Span(self._x(effect.mean), self._x(effect.low), self._x(effect.high))

    def _x(self, value: float) -> float:
        return self.zero + (WIDTH / 2 - EDGE) * max(-1.0, min(1.0, value / self.extent))


def intervals(contrasts: Iterable[Contrast | None]) -> Intervals:
    """Return a scale that fits all these intervals."""
    most = 0.0
    for one in contrasts:
        if one is not None and one.difference is not None:
            ends = (one.difference,) if one.effect is None else (one.effect.low, one.effect.high)
            most = max(most, *map(abs, ends))
    return Intervals(max(1, ceil(most * STEPS - 1e-9)) / STEPS)


PAGE = Page("/compare", "history/templates/compare.html", compare, _document)
