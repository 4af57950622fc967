"""The dashboard's page of the fleet: workers, jobs, limits; cancel and retry."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError
from redraft.fleet.fleet import queue_beside
from redraft.fleet.overview import FleetOverview, limit_document
from redraft.web.page import Change, NotFoundError, Page, Slice

if TYPE_CHECKING:
    from redraft.fleet.queue import Queue
    from redraft.web.page import Form, PageRequest
    from redraft.web.project import Project

JOBS = 100
RETRIED = ("failed", "poisoned", "cancelled")


@dataclass(frozen=True, slots=True)
class FleetView:
    """What the page shows: an overview, or the `problem` why there is none."""

    overview: FleetOverview | None
    problem: str = ""
    stored: frozenset[str] = frozenset()


async def fleet(request: PageRequest) -> FleetView:
    """Read the overview of the project's fleet."""
    project = request.project
    try:
        found = await FleetOverview.of(project.shared(_queue), project.store, limit=JOBS)
    except ConfigError as error:  # no fleet can run here, which is no fault of the page
        return FleetView(None, await project.redacted_text(str(error)))
    ids = [job.run_id for job in (*found.jobs, *found.failed)]
    return FleetView(await project.redacted(found, full=request.full), stored=await project.stored_runs(ids))


def fleet_page(view: FleetView) -> dict[str, Any]:
    """Return what the template shows."""
    found = view.overview
    if found is None:
        return {"problem": view.problem, "workers": [], "jobs": [], "failed": [], "counts": {}}

    def job_row(job: Any) -> dict[str, Any]:
        return {
            "job": job,
            "state": found.state_of(job),
            "is_stored": job.run_id in view.stored,
            "can_cancel": not job.has_ended and not job.is_cancelling,
            "can_retry": job.state in RETRIED,
        }

    return {
        "problem": "",
        "counts": {state: count for state, count in found.depth.jobs.items() if count},
        "oldest": found.depth.oldest_seconds,
        "stranded": found.stranded,
        "workers": [{"state": one, "is_gone": one.is_gone} for one in found.workers],
        "jobs": [job_row(job) for job in found.jobs if job.state not in ("failed", "poisoned")],
        "failed": [job_row(job) for job in found.failed],
        "limits": {models: limit_document(state) for models, state in found.limits.items()},
        "spending": found.spending,
    }


def _document(view: FleetView) -> dict[str, Any]:
    return {"problem": view.problem} if view.overview is None else view.overview.document()


async def _fingerprint(request: PageRequest) -> str:
    try:
        found = await FleetOverview.of(request.project.shared(_queue), request.project.store, limit=JOBS)
    except ConfigError as error:
        return str(error)
    workers = [(one.card.name, one.running, one.is_gone) for one in found.workers]
    jobs = [(job.run_id, found.state_of(job), job.claim) for job in (*found.jobs, *found.failed)]
    spent = None if found.spending is None else (round(found.spending.spent, 2), found.spending.is_reached)
    return sha256(repr((dict(found.depth.jobs), workers, jobs, spent)).encode()).hexdigest()


async def _cancel(form: Form) -> str:
    run_id = form.path["run_id"]
    job = await form.project.shared(_queue).cancel(run_id)
    if job is None:
        raise NotFoundError(f"There is no job {run_id!r}.")
    return f"{run_id} is {'being cancelled' if job.is_cancelling else job.state}."


async def _retry(form: Form) -> str:
    run_id = form.path["run_id"]
    job = await form.project.shared(_queue).retry(run_id)
    if job is None:
        raise NotFoundError(f"There is no job {run_id!r}.")
    return f"{run_id} is {job.state}."


def _queue(project: Project) -> Queue:
    return queue_beside(project.store)


SLICE = Slice(
    pages=(
        Page(
            "/fleet",
            "fleet/templates/fleet.html",
            fleet,
            _document,
            present=fleet_page,
            fingerprint=_fingerprint,
        ),
    ),
    changes=(
        Change("/fleet/jobs/{run_id}/cancel", _cancel),
        Change("/fleet/jobs/{run_id}/retry", _retry),
    ),
)
