"""The dashboard's page of a workflow: its nodes in order, their outcomes, and the runs of its loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redraft._texts import as_text
from redraft.approvals import Approvals
from redraft.errors import ConfigError
from redraft.loop.record import Process, RunRecord
from redraft.loop.runs import ACTIVE, Runs, state_of
from redraft.stores.run_index import RunQuery, run_index
from redraft.text.json import load_json
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.people import who_decides
from redraft.web.rendering import clipped
from redraft.workflow.history import (
    INNER_WORKFLOW,
    WORKFLOW,
    StoredWorkflow,
    WorkflowHistory,
    Workflows,
    outcome_of,
)


async def workflow(request: PageRequest) -> WorkflowHistory:
    """Read a workflow with its nodes, and the runs of its loops without their texts."""
    history = await Workflows(request.project.store).history(await _stored_workflow(request))
    nodes = tuple(replace(node, runs=tuple(map(_without_texts, node.runs))) for node in history.nodes)
    return await request.project.redacted(replace(history, nodes=nodes), full=request.full, spared=(Process,))


def _without_texts(run: RunRecord) -> RunRecord:
    """Drop the texts of a run's versions: searching megabytes of text for secrets would be slow."""
    versions = tuple(replace(version, output="", conversation=None, choice=None) for version in run.versions)
    return replace(run, versions=versions, draft=None)


async def _stored_workflow(request: PageRequest) -> StoredWorkflow:
    run_id = request.path["run_id"]
    try:
        stored = await Workflows(request.project.store).get(run_id)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    if stored is None:
        raise NotFoundError(f"There is no workflow {run_id!r} here; the page of runs lists all.")
    return stored


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
        changed = load_json(value) if value else ...
    except ValueError as error:
        raise ConfigError(f"The value is not JSON: {error}") from error
    approved = verdict == "approve"
    comment, by = form.text("comment", ""), await who_decides(form) or "dashboard"
    await approvals.answer(approval, approved=approved, value=changed, comment=comment, by=by)
    stored = await Workflows(form.project.store).get(approval.run_id)
    continuation = "" if stored is None else stored.continuation
    return f"{'Approved' if approved else 'Rejected'}. {continuation}".rstrip()


def value_text(value: Any) -> str:
    """Render a value as text; empty if there is no value."""
    return "" if value is None or value == {} else clipped(as_text(value))


async def _fingerprint(request: PageRequest) -> str:
    """Text that changes whenever a node ends or a loop makes progress; empty once the workflow has ended."""
    stored, project = await _stored_workflow(request), request.project
    run_id = stored.record.run_id
    if stored.state == "waiting":
        return f"{len(await Approvals(project.store).waiting(run_id))} waiting"
    if stored.state not in ACTIVE:
        return ""
    loops = await run_index(project.store).find(RunQuery(prefixes=(f"{run_id}.",)))
    at_work = [loop.run_id for loop in reversed(loops) if state_of(loop) in ACTIVE]
    runs = Runs(project.store)
    progress = [await runs.latest_step(active_id) for active_id in (run_id, *at_work)]
    return "; ".join([*progress, f"{len(loops)} loops"])


SLICE = Slice(
    pages=(
        Page(
            "/workflows/{run_id}",
            "workflow/templates/workflow.html",
            workflow,
            WorkflowHistory.document,
            functions={"outcome_of": outcome_of, "value_text": value_text},
            section="/runs",
            fingerprint=_fingerprint,
            kinds=(WORKFLOW, INNER_WORKFLOW),
        ),
    ),
    changes=(Change("/approvals/{approval}", answer),),
)
