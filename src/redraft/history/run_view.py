"""RunView: all that a run's page shows, worked out before the template has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft._texts import as_text
from redraft.history.comparison import Comparison, comparison
from redraft.history.excerpt import whole_versions
from redraft.loop.record import RunRecord
from redraft.loop.runs import AfterBest, Exchange, KeptRun, Stretch, Why, after_best, exchange, timeline, why
from redraft.web.charts import HeatRow, ScoreCurve, Scored, heat_row, score_curve
from redraft.web.rendering import is_cut

if TYPE_CHECKING:
    from collections.abc import Collection

    from redraft.types import ReflectionVersion

OF_A_VERSION = re.compile(r"(?:^|(?<=\s))Version (\d+): ")
"""Where what a note says of one version begins."""
VERSION_STEPS = {"generate", "evaluate", "revise", "wait", "recall", "observe"}


@dataclass(frozen=True, slots=True)
class VersionView:
    """Hold one version: its output as text, and how it differs from the one that it was made from.

    Where that is not worked out, because there are so many, `base` is the one it was made from.
    """

    number: int
    score: str
    how: str
    is_best: bool
    output: str
    is_cut: bool
    issues: tuple[str, ...]
    suggestions: tuple[str, ...]
    is_whole: bool
    base: int | None
    change: Comparison | None


@dataclass(frozen=True, slots=True)
class Bar:
    """Hold one step of the timeline; `start` and `length` are in percent of the run's time."""

    name: str
    kind: str
    version: int | None
    began: float
    seconds: float
    start: float
    length: float
    failed: str


@dataclass(frozen=True, slots=True)
class Talk:
    """Hold what was said within one step of the loop."""

    step: str
    version: int | None
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """Hold a run and the parts of its page, in their order."""

    run: KeptRun
    record: RunRecord
    why: Why
    notes: list[str]
    after_best: AfterBest | None
    chart: ScoreCurve
    heat: list[HeatRow]
    first_to_best: Comparison | None
    versions: list[VersionView]
    bars: list[Bar]
    talks: list[Talk]


def run_view(run: KeptRun) -> RunView:
    """Work out what the page of a run shows."""
    record = run.record
    best = record.version(record.best)
    first = record.versions[0] if record.versions else None
    improved = best is not None and first is not None and best.iteration > first.iteration
    stretches, whole = timeline(run), whole_versions(record)
    return RunView(
        run,
        record,
        why(run),
        [line for note in record.diagnostics.values() for line in folded(note)],
        after_best(run),
        _chart(run),
        _heat(run),
        comparison(first, best) if improved and first and best else None,
        [_version(version, run, whole) for version in record.versions],
        _bars(stretches),
        [Talk(one.step.name, one.version, tuple(map(exchange, one.inner))) for one in stretches if one.inner],
    )


def _chart(run: KeptRun) -> ScoreCurve:
    record = run.record
    scored = [
        Scored(
            one.iteration,
            one.evaluation.overall_score,
            one.evaluation.spread,
            "best" if one.iteration == record.best else "repeat" if one.repeats is not None else "",
        )
        for one in record.versions
    ]
    return score_curve(scored, record.options.get("quality_threshold"))


def _heat(run: KeptRun) -> list[HeatRow]:
    """Return how each version did, the overall score first, then the criteria."""
    evaluations = [one.evaluation for one in run.record.versions]
    overall = heat_row(
        "score", run.record.options.get("quality_threshold"), [one.overall_score for one in evaluations]
    )
    scores = [one.criteria_scores for one in evaluations]
    return [overall, *(heat_row(name, run.thresholds.get(name), scores) for name in run.criteria)]


def folded(note: str) -> list[str]:
    """Return a note in lines, what it says of several versions in one: `Versions 2 to 4 and 9: ...`."""
    before, *told = OF_A_VERSION.split(note)
    versions: dict[str, list[int]] = {}
    for number, said in zip(told[::2], told[1::2], strict=True):
        versions.setdefault(said.strip(), []).append(int(number))
    lines = [f"{_numbered(numbers)}: {said}" for said, numbers in versions.items()]
    return [before.strip(), *lines] if before.strip() else lines


def _numbered(numbers: list[int]) -> str:
    """Name versions: three and more that follow one another by the first and the last."""
    if len(numbers) == 1:
        return f"Version {numbers[0]}"
    stretches: list[list[int]] = []
    for number in numbers:
        if stretches and number == stretches[-1][-1] + 1:
            stretches[-1].append(number)
        else:
            stretches.append([number])
    named: list[str] = []
    for one in stretches:
        named += [f"{one[0]} to {one[-1]}"] if len(one) > 2 else map(str, one)  # noqa: PLR2004 (a pair is two)
    listed = ", ".join(named[:-1])
    return f"Versions {listed} and {named[-1]}" if listed else f"Versions {named[-1]}"


def _version(version: ReflectionVersion, run: KeptRun, whole: Collection[int]) -> VersionView:
    record, evaluation, output = run.record, version.evaluation, as_text(version.output)
    base = record.version(version.base) or record.version(version.iteration - 1)
    best, first = record.version(record.best), record.versions[0]
    # What is shown at length above needs not be worked out twice.
    shown_above = version is best and base is first
    differs = base is not None and version.repeats is None and not shown_above
    are_whole = version.iteration in whole and base is not None and base.iteration in whole
    change = comparison(base, version) if base is not None and differs and are_whole else None
    return VersionView(
        version.iteration,
        "not judged" if evaluation.overall_score is None else f"{evaluation.overall_score:.2f}",
        _how(version),
        version is best,
        output,
        is_cut(output),
        tuple(_placed(issue.message, issue.path, issue.line) for issue in evaluation.issues),
        evaluation.suggestions,
        version.iteration in whole,
        base.iteration if base is not None and differs and change is None else None,
        change,
    )


def _how(version: ReflectionVersion) -> str:
    if version.repeats is not None:
        return f"the same as version {version.repeats}"
    base = "" if version.base is None else f" of version {version.base}"
    return f"{version.strategy.replace('_', ' ')}{base}"


def _placed(message: str, path: str | None, line: int | None) -> str:
    place = path or ("" if line is None else f"line {line}")
    return f"{place}: {message}" if place else message


def _bars(stretches: list[Stretch]) -> list[Bar]:
    whole = max((one.step.elapsed for one in stretches), default=0.0) or 1.0
    return [
        Bar(
            one.step.name,
            one.step.name if one.step.name in VERSION_STEPS else "other",
            one.version,
            one.began,
            one.seconds,
            100 * one.began / whole,
            max(0.4, 100 * one.seconds / whole),
            "" if one.step.error is None else str(one.step.error.get("message", "it failed")),
        )
        for one in stretches
    ]
