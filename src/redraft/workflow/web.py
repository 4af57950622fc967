"""The dashboard's page of a workflow: its nodes in their order, their outcomes, and the runs of its loops."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from redraft._texts import as_text
from redraft.approvals import Approvals
from redraft.errors import ConfigError
from redraft.loop.record import Process, RunRecord
from redraft.loop.runs import AT_WORK, Runs, state_of
from redraft.stores.run_index import RunQuery, run_index
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.people import who_decides
from redraft.web.rendering import clipped
from redraft.workflow.history import (
    INNER_WORKFLOW,
    WORKFLOW,
    NodeOutcome,
    StoredWorkflow,
    WorkflowHistory,
    Workflows,
)


async def workflow(request: PageRequest) -> WorkflowHistory:
    """Read a workflow with its nodes, and the runs of its loops without their texts."""
    history = await Workflows(request.project.store).history(await _kept(request))
    nodes = tuple(replace(node, runs=tuple(map(_without_texts, node.runs))) for node in history.nodes)
    return await request.project.redacted(replace(history, nodes=nodes), full=request.full, spared=(Process,))


def _without_texts(run: RunRecord) -> RunRecord:
    """Remove the texts of a run's versions: searching megabytes for secrets would take long."""
    versions = tuple(replace(version, output="", conversation=None, choice=None) for version in run.versions)
    return replace(run, versions=versions, draft=None)


async def _kept(request: PageRequest) -> StoredWorkflow:
    run_id = request.path["run_id"]
    try:
        kept = await Workflows(request.project.store).get(run_id)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    if kept is None:
        raise NotFoundError(f"There is no workflow {run_id!r} here; the page of runs lists all.")
    return kept


async def answer(form: Form) -> str:
    """Answer a question of a workflow."""
    approvals = Approvals(form.project.store)
    name, verdict, value = form.path["approval"], form.text("verdict"), form.text("value", "").strip()
    approval = await approvals.get(name)
    if approval is None or approval.id != name:
        raise NotFoundError(f"There is no open question {name!r}.")
    if verdict not in ("approve", "reject"):
        raise ConfigError(f"The verdict must be 'approve' or 'reject', got {verdict!r}.")
    try:
        changed = json.loads(value) if value else ...
    except ValueError as error:
        raise ConfigError(f"The value is not JSON: {error}") from error
    approved = verdict == "approve"
    comment, by = form.text("comment", ""), await who_decides(form) or "dashboard"
    await approvals.answer(approval, approved=approved, value=changed, comment=comment, by=by)
    kept = await Workflows(form.project.store).get(approval.run_id)
    return f"{'Approved' if approved else 'Rejected'}. {'' if kept is None else kept.continuation}".rstrip()


def value_text(value: Any) -> str:
    """A value as text; empty for none."""
    return "" if value is None or value == {} else clipped(as_text(value))


async def _fingerprint(request: PageRequest) -> str:
    """Return a text that changes as nodes end and loops go on; empty once the workflow has ended."""
    kept, project = await _kept(request), request.project
    run_id = kept.record.run_id
    if kept.state == "waiting":
        return f"{len(await Approvals(project.store).waiting(run_id))} waiting"
    if kept.state not in AT_WORK:
        return ""
    loops = await run_index(project.store).find(RunQuery(prefixes=(f"{run_id}.",)))
    at_work = [row.run_id for row in reversed(loops) if state_of(row) in AT_WORK]
    runs = Runs(project.store)
    progress = [await runs.latest_step(one) for one in (run_id, *at_work)]
    return "; ".join([*progress, f"{len(loops)} loops"])


SLICE = Slice(
    pages=(
        Page(
            "/workflows/{run_id}",
            "workflow/templates/workflow.html",
            workflow,
            WorkflowHistory.document,
            functions={"outcome_of": NodeOutcome.of, "value_text": value_text},
            section="/runs",
            fingerprint=_fingerprint,
            kinds=(WORKFLOW, INNER_WORKFLOW),
        ),
    ),
    changes=(Change("/approvals/{approval}", answer),),
)
