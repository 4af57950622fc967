"""A kept run as plain data: what `--json` prints and `export` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.codec import to_json
from redraft.loop.after_best import after_best
from redraft.loop.why import why

if TYPE_CHECKING:
    from redraft.loop.kept_run import KeptRun
    from redraft.loop.record import RunRecord


def row_document(record: RunRecord) -> dict[str, Any]:
    """Describe a run in a few fields, as a list of runs has them."""
    best = record.version(record.best)
    scores = [version.evaluation.overall_score for version in record.versions]
    return {
        "run_id": record.run_id,
        "name": record.origin.name,
        "task": record.task.description,
        "status": record.state,
        "reason": record.reason,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "versions": record.revisions + 1 if record.versions else 0,
        "scores": scores,
        "first_score": scores[0] if scores else None,
        "best_score": None if best is None else best.evaluation.overall_score,
        "best_version": record.best,
        "satisfactory": best is not None and best.evaluation.satisfactory,
        "usage": record.usage,
        "execution_time": record.execution_time,
        "parent": record.parent,
        "error": record.error,
    }


def run_document(run: KeptRun, *, steps: bool = True) -> dict[str, Any]:
    """Describe a whole run: its record, why it stopped, what came after the best, and the steps if wanted."""
    record: dict[str, Any] = to_json(run.record)
    document = {
        **record,
        "status": run.record.state,
        "why": why(run),
        "after_best": after_best(run),
        "usage": run.record.usage,
    }
    if steps:
        document["steps"] = [{**to_json(step), "seconds": step.seconds} for step in run.steps]
    return document
