"""The page of a run, on the dashboard or as a self-contained HTML file."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup

from redraft._texts import as_text, scored
from redraft.errors import ConfigError
from redraft.history import changes
from redraft.history.changes import strip_versions
from redraft.loop.record import RUN, Process, RunRecord
from redraft.loop.runs import ACTIVE, Runs, StoredRun, state_of
from redraft.notes.learner import note_cost
from redraft.redact.data import redact_object
from redraft.types import NOTHING_USED, preference
from redraft.web.charts import ScoreCurve, Scored, score_curve
from redraft.web.page import NotFoundError, Page, PageRequest, PlainText
from redraft.web.rendering import clipped, is_cut, policy_hash, render, static_text

if TYPE_CHECKING:
    from redraft.loop.runs import StoredStep
    from redraft.types import Issue, ReflectionVersion


BEFORE_VERSIONS = re.compile(r"\s+(?=Versions? \d[\d, and]*: )")
"""The white space before a note's part about versions."""
VERSION_STEPS = {"generate", "evaluate", "revise", "wait", "recall", "observe"}
MOST = 20
"""Most versions that a page shows in full. The texts of 200 versions are megabytes, and comparing each with
its predecessor takes as long as the run."""
TEXT_FIELDS = ("output", "conversation")
"""The text fields of a step's result."""


async def run(request: PageRequest) -> StoredRun:
    """Read a run with its steps; for a page, without the texts of versions that it does not show in full."""
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
    learning = [entry for entry in stored.timeline if entry.step.name.startswith(("observe", "lesson "))]
    calls = (call.exchange for entry in learning for call in entry.inner)
    roles = {"lesson": sum((call.usage for call in calls if call.usage is not None), NOTHING_USED)}
    roles["note"] = await note_cost(request.project.store, stored.record.run_id)
    added = {role: usage for role, usage in roles.items() if usage != NOTHING_USED}
    if not added:
        return stored
    return replace(
        stored, record=replace(stored.record, usage_by_role={**stored.record.usage_by_role, **added})
    )


async def _output(request: PageRequest) -> str:
    stored = await _stored(request)
    try:
        version: ReflectionVersion = stored.version(request.path["version"])
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    return as_text(version.output)


async def _fingerprint(request: PageRequest) -> str:
    """A value that changes whenever an active run makes progress; empty once the run has ended."""
    run_id = request.path["run_id"]
    runs = Runs(request.project.store)
    row = await runs.row(run_id)
    if row is None:
        raise NotFoundError(f"There is no run {run_id!r} here.")
    # The prefix is needed because a new run has no step yet, and an empty text means "no more changes".
    return f"at work {await runs.latest_step(run_id)}" if state_of(row) in ACTIVE else ""


def _document(run: StoredRun) -> dict[str, Any]:
    process = run.record.process
    return run.document() | {"process": {"pid": process.pid, "started": process.started}}


def run_page(run: StoredRun) -> str:
    """Render a run as a self-contained HTML file, without scripts and with all text escaped.

    Its content security policy allows only the embedded style sheet.
    """
    style = static_text("redraft.css")
    policy = f"default-src 'none'; style-src {policy_hash(style)}; base-uri 'none'; form-action 'none'"
    return render(
        "history/templates/run.html",
        page=redact_object(run, clipped, (Process,)),
        site=None,
        style=Markup(style),  # noqa: S704 (our own file, without data of the run)
        policy=policy,
        **FUNCTIONS,
    )


def score_chart(record: RunRecord) -> ScoreCurve:
    """The scores of all versions, for a chart."""
    scored = [
        Scored(
            str(version.iteration),
            version.evaluation.overall_score,
            version.evaluation.spread,
            "best" if version.iteration == record.best else "filled" if version.repeats is None else "hollow",
        )
        for version in record.versions
    ]
    return score_curve(scored, record.options.get("quality_threshold"))


def notes_of(record: RunRecord) -> list[str]:
    """The diagnostics of a run as lines; each part about versions begins a line."""
    return [line for note in record.diagnostics.values() for line in BEFORE_VERSIONS.split(note)]


def how(version: ReflectionVersion, writer: str) -> str:
    """The strategy and the base of a version; `writer` is its model, if the run had several."""
    if version.repeats is not None:
        return f"the same as version {version.repeats}"
    by = f" by {writer}" if writer else ""
    base = "" if version.base is None else f" from version {version.base}"
    preferred = f", {words}" if (words := preference(version)) else ""
    return f"{version.strategy.replace('_', ' ')}{base}{by}{preferred}"


def placed(issue: Issue) -> str:
    """The message of an issue, with its place in the output first."""
    place = issue.path or ("" if issue.line is None else f"line {issue.line}")
    is_missing = place and not issue.message.startswith(f"{place}: ")
    return f"{place}: {issue.message}" if is_missing else issue.message


def versions_in_full(record: RunRecord) -> frozenset[int]:
    """The numbers of the versions to show in full: the first, the best, and the newest."""
    numbers = [version.iteration for version in record.versions]
    if len(numbers) <= MOST:
        return frozenset(numbers)
    best = {record.best} if record.best is not None else set[int]()
    return frozenset({numbers[0], *best, *numbers[len(best) + 1 - MOST :]})


def excerpt(run: StoredRun) -> StoredRun:
    """Remove the texts of the versions that are not shown in full."""
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
    """The result of a step without its texts; the usage stays."""
    if not isinstance(result, dict):
        return result
    return {
        name: "" if name in TEXT_FIELDS else value for name, value in cast("dict[str, Any]", result).items()
    }


FUNCTIONS: dict[str, Any] = {
    **changes.FUNCTIONS,
    "VERSION_STEPS": VERSION_STEPS,
    "how": how,
    "is_cut": is_cut,
    "notes_of": notes_of,
    "placed": placed,
    "score_chart": score_chart,
    "scored": scored,
    "versions_in_full": versions_in_full,
}
PAGE = Page(
    "/runs/{run_id}",
    "history/templates/run.html",
    run,
    _document,
    functions=FUNCTIONS,
    fingerprint=_fingerprint,
    kinds=(RUN,),
    redirects=True,
)
OUTPUT = PlainText("/runs/{run_id}/versions/{version}.txt", _output)
