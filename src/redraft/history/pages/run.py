"""Run: all that is known of one run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft._codec import from_record
from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.history.beside import OF_A_NOTE
from redraft.history.excerpt import excerpt
from redraft.history.run_view import run_view
from redraft.loop.keeper import NOTED
from redraft.loop.progress import Progress
from redraft.loop.record import Process
from redraft.loop.runs import AT_WORK, KeptRun, Runs, exchange, run_document, state_of, timeline
from redraft.notes.learning import Learned
from redraft.types import NOTHING_USED
from redraft.web.page import NotFoundError, Page, PageRequest, PlainText

if TYPE_CHECKING:
    from redraft.types import ReflectionVersion


async def run(request: PageRequest) -> KeptRun:
    """Read a run with its steps; for a page, no more of many versions than it shows."""
    kept = await _kept(request)
    if not request.full:
        kept = await asyncio.to_thread(excerpt, kept)
    return await request.project.redacted(kept, full=request.full, spared=(Process,))


async def _kept(request: PageRequest) -> KeptRun:
    try:
        kept = await Runs(request.project.store).kept(request.path["run_id"])
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    return await _with_reflections(request, kept)


async def _with_reflections(request: PageRequest, kept: KeptRun) -> KeptRun:
    """Return a run with what was spent on learning from it, which came after what its record counts."""
    said = (exchange(one) for step in timeline(kept) if step.step.name == "observe" for one in step.inner)
    roles = {"lesson": sum((one.usage for one in said if one.usage is not None), NOTHING_USED)}
    noted = await request.project.store.get(NOTED, f"{kept.record.run_id}{OF_A_NOTE}")
    if noted is not None:
        roles["note"] = from_record(Learned, noted.data["value"]).usage
    spent = {role: used for role, used in roles.items() if used != NOTHING_USED}
    if not spent:
        return kept
    return replace(kept, record=replace(kept.record, usage_by_role={**kept.record.usage_by_role, **spent}))


async def _output(request: PageRequest) -> str:
    kept = await _kept(request)
    try:
        version: ReflectionVersion = kept.version(request.path["version"])
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    return as_text(version.output)


async def _fingerprint(request: PageRequest) -> str:
    """Return what tells one state of a run from another."""
    run_id = request.path["run_id"]
    row = await Runs(request.project.store).row(run_id)
    if row is None:
        raise NotFoundError(f"There is no run {run_id!r} here.")
    return await request.project.shared(Progress.of).how_far(run_id) if state_of(row) in AT_WORK else ""


def _document(run: KeptRun) -> dict[str, Any]:
    process = run.record.process
    return run_document(run) | {"process": {"pid": process.pid, "started": process.started}}


PAGE = Page(
    "/runs/{run_id}", "history/templates/run.html", run, _document, fingerprint=_fingerprint, present=run_view
)
OUTPUT = PlainText("/runs/{run_id}/versions/{version}.txt", _output)
