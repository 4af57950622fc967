"""The page of one run, on the dashboard or as a self-contained HTML file."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup

from redraft._texts import as_text, scored
from redraft.errors import ConfigError
from redraft.history.changes import Comparison, comparison, strip_versions
from redraft.loop.keeper import RunKey
from redraft.loop.record import RUN, Process, RunRecord
from redraft.loop.runs import (
    AT_WORK,
    AfterBest,
    Exchange,
    Runs,
    StoredRun,
    TimelineStep,
    Why,
    state_of,
)
from redraft.notes import checkpoint
from redraft.notes.learner import Learned
from redraft.redact.data import redact_object
from redraft.types import NOTHING_USED, preference
from redraft.web.charts import ScoreCurve, Scored, score_curve
from redraft.web.page import NotFoundError, Page, PageRequest, PlainText
from redraft.web.rendering import clipped, is_cut, policy_hash, render, static_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from redraft.loop.runs import StoredStep
    from redraft.types import ReflectionEvaluation, ReflectionVersion


OF_A_VERSION = re.compile(r"(?:^|(?<=\s))Version (\d+): ")
"""Where the part of a note about one version begins."""
VERSION_STEPS = {"generate", "evaluate", "revise", "wait", "recall", "observe"}
MOST = 20
"""How many versions a page shows in full. The texts of 200 versions are megabytes, and comparing each with
the one before takes as long as the run."""
TEXT_FIELDS = ("output", "conversation")
"""The fields of a step's result that hold text."""


async def run(request: PageRequest) -> StoredRun:
    """Read a run with its steps; for a page, only the versions it shows in full keep their text."""
    stored = await _stored(request)
    if not request.full:
        stored = await asyncio.to_thread(excerpt, stored)
    return await request.project.redacted(
        stored, full=request.full, spared=(Process,), allow=stored.criteria_texts
    )


async def _stored(request: PageRequest) -> StoredRun:
    try:
        stored = await Runs(request.project.store).stored(request.path["run_id"])
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    return await _with_reflections(request, stored)


async def _with_reflections(request: PageRequest, stored: StoredRun) -> StoredRun:
    """Add what was spent on learning from the run, which happened after its record was written."""
    learning = [one for one in stored.timeline if one.step.name.startswith(("observe", "lesson "))]
    calls = (call.exchange for one in learning for call in one.inner)
    roles = {"lesson": sum((call.usage for call in calls if call.usage is not None), NOTHING_USED)}
    key = RunKey(stored.record.run_id, request.project.store, resumes=True)
    if (learned := await checkpoint.load(key, "reflection", Learned)) is not None:
        roles["note"] = learned.usage
    spent = {role: used for role, used in roles.items() if used != NOTHING_USED}
    if not spent:
        return stored
    return replace(
        stored, record=replace(stored.record, usage_by_role={**stored.record.usage_by_role, **spent})
    )


async def _output(request: PageRequest) -> str:
    stored = await _stored(request)
    try:
        version: ReflectionVersion = stored.version(request.path["version"])
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    return as_text(version.output)


async def _fingerprint(request: PageRequest) -> str:
    """Return a value that changes whenever an active run makes progress."""
    run_id = request.path["run_id"]
    runs = Runs(request.project.store)
    row = await runs.row(run_id)
    if row is None:
        raise NotFoundError(f"There is no run {run_id!r} here.")
    # An empty text would say that nothing changes any more, and a run that has begun has no step yet.
    return f"at work {await runs.latest_step(run_id)}" if state_of(row) in AT_WORK else ""


def _document(run: StoredRun) -> dict[str, Any]:
    process = run.record.process
    return run.document() | {"process": {"pid": process.pid, "started": process.started}}


def run_page(run: StoredRun) -> str:
    """Return the page of a run as one self-contained HTML file, without scripts and with all text escaped.

    Its content security policy allows the embedded style sheet and nothing else.
    """
    style = static_text("redraft.css")
    policy = f"default-src 'none'; style-src {policy_hash(style)}; base-uri 'none'; form-action 'none'"
    return render(
        "history/templates/run.html",
        page=run_view(redact_object(run, clipped, (Process,))),
        site=None,
        style=Markup(style),  # noqa: S704 (a file of ours, with nothing of the run in it)
        policy=policy,
    )


def run_view(run: StoredRun) -> RunView:
    """Prepare what the page of a run shows."""
    record = run.record
    best = record.version(record.best)
    first = record.versions[0] if record.versions else None
    improved = best is not None and first is not None and best.iteration > first.iteration
    steps, in_full = run.timeline, versions_in_full(record)
    return RunView(
        run,
        record,
        run.why,
        [line for note in record.diagnostics.values() for line in note_lines(note)],
        run.after_best,
        _chart(run),
        _criteria_rows(run),
        comparison(first, best) if improved and first and best else None,
        [_version(version, run, in_full) for version in record.versions],
        _bars(steps),
        [
            StepCalls(one.step.name, one.version, tuple(step.exchange for step in one.inner))
            for one in steps
            if one.inner
        ],
    )


@dataclass(frozen=True, slots=True)
class RunView:
    """A run and the parts of its page, in order."""

    run: StoredRun
    record: RunRecord
    why: Why
    notes: list[str]
    after_best: AfterBest | None
    chart: ScoreCurve
    criteria: list[CriterionRow]
    first_to_best: Comparison | None
    versions: list[VersionView]
    bars: list[StepBar]
    calls: list[StepCalls]


@dataclass(frozen=True, slots=True)
class CriterionCell:
    """A score in the table of criteria; `title` says what its text means."""

    text: str
    below: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class CriterionRow:
    """A row of the table of criteria: its name, the score that it needs, and a cell for each version."""

    name: str
    needs: str
    cells: tuple[CriterionCell, ...]


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version: its output as text, and what changed since the version it was made from.

    `base` is the number of that version if there were too many versions to compare them all.
    """

    number: int
    score: str
    how: str
    is_best: bool
    output: str
    is_cut: bool
    issues: tuple[str, ...]
    suggestions: tuple[str, ...]
    is_in_full: bool
    base: int | None
    change: Comparison | None
    choice: str = ""
    rejected: tuple[RejectedView, ...] = ()


@dataclass(frozen=True, slots=True)
class RejectedView:
    """A candidate that was not chosen: its name, such as `1.3`, its score, its issues and its output."""

    name: str
    score: str
    issues: tuple[str, ...]
    output: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class StepBar:
    """One bar of the timeline; `start` and `length` are in percent of the run's duration."""

    name: str
    kind: str
    version: int | None
    began: float
    seconds: float
    start: float
    length: float
    failed: str


@dataclass(frozen=True, slots=True)
class StepCalls:
    """The model calls within one step of the loop."""

    step: str
    version: int | None
    exchanges: tuple[Exchange, ...]


def _chart(run: StoredRun) -> ScoreCurve:
    record = run.record
    scored = [
        Scored(
            str(one.iteration),
            one.evaluation.overall_score,
            one.evaluation.spread,
            "best" if one.iteration == record.best else "filled" if one.repeats is None else "hollow",
        )
        for one in record.versions
    ]
    return score_curve(scored, record.options.get("quality_threshold"))


def _criteria_rows(run: StoredRun) -> list[CriterionRow]:
    """Return the scores of all versions: the overall score first, then each criterion."""
    evaluations = [one.evaluation for one in run.record.versions]
    threshold = run.record.options.get("quality_threshold")
    rows = [_criterion_row("score", threshold, [{"score": one.overall_score} for one in evaluations])]
    scores = [one.criteria_scores for one in evaluations]
    return rows + [_criterion_row(name, run.thresholds.get(name), scores) for name in run.criteria]


def _criterion_row(
    name: str, threshold: float | None, versions: Sequence[Mapping[str, float | None]]
) -> CriterionRow:
    cells: list[CriterionCell] = []
    for scores in versions:
        score = scores.get(name)
        if name not in scores:
            cells.append(CriterionCell("", title="does not apply"))
        elif score is None:
            cells.append(CriterionCell("?", title="could not be judged"))
        else:
            below = threshold is not None and score < threshold
            cells.append(CriterionCell(f"{score:.2f}", below, "below its threshold" if below else ""))
    return CriterionRow(name, "" if threshold is None else f"{threshold:.2f}", tuple(cells))


def note_lines(note: str) -> list[str]:
    """Split a note into lines, merging what it repeats for several versions: `Versions 2 to 4 and 9: ...`."""
    before, *parts = OF_A_VERSION.split(note)
    versions: dict[str, list[int]] = {}
    for number, text in zip(parts[::2], parts[1::2], strict=True):
        versions.setdefault(text.strip(), []).append(int(number))
    lines = [f"{_numbered(numbers)}: {text}" for text, numbers in versions.items()]
    return [before.strip(), *lines] if before.strip() else lines


def _numbered(numbers: list[int]) -> str:
    """Name versions; three or more in a row are given as a range."""
    if len(numbers) == 1:
        return f"Version {numbers[0]}"
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    named: list[str] = []
    for one in ranges:
        named += [f"{one[0]} to {one[-1]}"] if len(one) > 2 else map(str, one)  # noqa: PLR2004 (a pair is two)
    listed = ", ".join(named[:-1])
    return f"Versions {listed} and {named[-1]}" if listed else f"Versions {named[-1]}"


def _version(version: ReflectionVersion, run: StoredRun, in_full: Collection[int]) -> VersionView:
    record, evaluation, output = run.record, version.evaluation, as_text(version.output)
    base = record.version(version.base) or record.version(version.iteration - 1)
    best, first = record.version(record.best), record.versions[0]
    # The page shows that comparison above already.
    shown_above = version is best and base is first
    differs = base is not None and version.repeats is None and not shown_above
    both_in_full = version.iteration in in_full and base is not None and base.iteration in in_full
    change = comparison(base, version) if base is not None and differs and both_in_full else None
    return VersionView(
        version.iteration,
        scored(version),
        _how(version, run.writer(version)),
        version is best,
        output,
        is_cut(output),
        _issues(evaluation),
        evaluation.suggestions,
        version.iteration in in_full,
        base.iteration if base is not None and differs and change is None else None,
        change,
        "" if version.choice is None else version.choice.detail,
        tuple(map(_rejected, version.rejected)),
    )


def _rejected(version: ReflectionVersion) -> RejectedView:
    output = as_text(version.output)
    return RejectedView(version.name, scored(version), _issues(version.evaluation), output, is_cut(output))


def _issues(evaluation: ReflectionEvaluation) -> tuple[str, ...]:
    return tuple(_placed(issue.message, issue.path, issue.line) for issue in evaluation.issues)


def _how(version: ReflectionVersion, writer: str) -> str:
    if version.repeats is not None:
        return f"the same as version {version.repeats}"
    by = f" by {writer}" if writer else ""
    base = "" if version.base is None else f" from version {version.base}"
    preferred = f", {words}" if (words := preference(version)) else ""
    return f"{version.strategy.replace('_', ' ')}{base}{by}{preferred}"


def _placed(message: str, path: str | None, line: int | None) -> str:
    place = path or ("" if line is None else f"line {line}")
    return f"{place}: {message}" if place and not message.startswith(f"{place}: ") else message


def _bars(steps: list[TimelineStep]) -> list[StepBar]:
    duration = max((one.step.elapsed for one in steps), default=0.0) or 1.0
    return [
        StepBar(
            one.step.name,
            one.step.name if one.step.name in VERSION_STEPS else "other",
            one.version,
            one.began,
            one.seconds,
            100 * one.began / duration,
            max(0.4, 100 * one.seconds / duration),
            "" if one.step.error is None else str(one.step.error.get("message", "it failed")),
        )
        for one in steps
    ]


def versions_in_full(record: RunRecord) -> frozenset[int]:
    """Return the numbers of the versions to show in full: the first, the best, and the newest."""
    numbers = [version.iteration for version in record.versions]
    if len(numbers) <= MOST:
        return frozenset(numbers)
    best = {record.best} if record.best is not None else set[int]()
    return frozenset({numbers[0], *best, *numbers[len(best) + 1 - MOST :]})


def excerpt(run: StoredRun) -> StoredRun:
    """Return a run without the text of the versions that are not shown in full."""
    record = run.record
    in_full = versions_in_full(record)
    if len(in_full) == len(record.versions):
        return run
    steps: list[StoredStep] = []
    for entry in run.timeline:
        if entry.version is None or entry.version in in_full or entry.version > len(record.versions):
            steps += [*entry.inner, entry.step]
        else:
            steps.append(replace(entry.step, result=_strip_result(entry.step.result)))
    return replace(run, record=strip_versions(record, in_full), steps=tuple(steps))


def _strip_result(result: Any) -> Any:
    """Return the result of a step without its text; its usage still counts."""
    if not isinstance(result, dict):
        return result
    return {
        name: "" if name in TEXT_FIELDS else value for name, value in cast("dict[str, Any]", result).items()
    }


PAGE = Page(
    "/runs/{run_id}",
    "history/templates/run.html",
    run,
    _document,
    fingerprint=_fingerprint,
    present=run_view,
    kinds=(RUN,),
    redirects=True,
)
OUTPUT = PlainText("/runs/{run_id}/versions/{version}.txt", _output)
