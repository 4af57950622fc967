"""Diff: any two versions of a run, and which points of the critique the newer one dealt with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.history.comparison import CONTEXT, Comparison, comparison
from redraft.history.excerpt import saying_only
from redraft.history.sides import Pair, folded, pairs
from redraft.loop.record import Process, RunRecord
from redraft.loop.runs import KeptRun, Runs
from redraft.loop.version_diff import diff_document, version_diff
from redraft.text.diff import word_diff
from redraft.types import ReflectionVersion
from redraft.web.page import NotFoundError, Page, PageRequest

VIEWS = ("inline", "side")


@dataclass(frozen=True, slots=True)
class DiffView:
    """Hold what differs from version `older` to version `newer`, with lines in `sides` where wanted so."""

    record: RunRecord
    older: ReflectionVersion
    newer: ReflectionVersion
    change: Comparison
    view: str
    sides: tuple[list[Pair] | int, ...] = ()

    @property
    def others(self) -> list[tuple[str, ReflectionVersion, ReflectionVersion]]:
        """Comparisons one may want next: of each version with the one that it was made from."""
        made = (
            (self.record.version(one.base) or self.record.version(one.iteration - 1), one)
            for one in self.record.versions
        )
        return [(f"{base.iteration} to {one.iteration}", base, one) for base, one in made if base is not None]


async def diff(request: PageRequest) -> DiffView:
    """Compare version `a` (default: first) with `b` (default: best), in one text or side by side."""
    view = request.query.get("view", VIEWS[0])
    if view not in VIEWS:
        raise ConfigError(f"view must be one of {', '.join(VIEWS)}, got {view!r}.")
    try:
        record = await Runs(request.project.store).get(request.path["run_id"])
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    kept = KeptRun(record)
    try:
        older = kept.version(request.query.get("a") or "first").iteration
        newer = kept.version(request.query.get("b") or "best").iteration
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    record = await request.project.redacted(
        saying_only(record, {older, newer}), full=request.full, spared=(Process,)
    )
    return await asyncio.to_thread(_compared, record, older, newer, view)


def _compared(record: RunRecord, older: int, newer: int, view: str) -> DiffView:
    """Compare two versions: in a thread, since long texts take a while."""
    before, after = KeptRun(record).version(str(older)), KeptRun(record).version(str(newer))
    change = comparison(before, after)
    rows: tuple[list[Pair] | int, ...] = ()
    if view == "side" and change.hunks:
        rows = tuple(folded(pairs(word_diff(as_text(before.output), as_text(after.output))), CONTEXT))
    return DiffView(record, before, after, change, view, rows)


def _document(view: DiffView) -> dict[str, Any]:
    return {"run_id": view.record.run_id, **diff_document(version_diff(view.older, view.newer))}


PAGE = Page("/runs/{run_id}/diff", "history/templates/diff.html", diff, _document)
