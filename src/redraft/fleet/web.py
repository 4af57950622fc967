"""The dashboard's page of the fleet: workers, jobs, limits; cancel and retry."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError
from redraft.fleet.fleet import cancel_job, queue_for
from redraft.fleet.overview import FleetOverview, limit_document
from redraft.web.page import Change, NotFoundError, Page, Slice

if TYPE_CHECKING:
    from redraft.fleet.queue import Queue
    from redraft.web.page import Form, PageRequest
    from redraft.web.project import Project

JOBS = 100
RETRIED = ("failed", "poisoned", "cancelled")
"""The states in which a job can be retried."""


async def fleet(request: PageRequest) -> dict[str, Any]:
    """The overview of the project's fleet, or the `problem` that prevents it.

    `stored_runs` are the runs that have a page.
    """
    project = request.project
    try:
        overview = await FleetOverview.of(project.shared(_queue), project.store, limit=JOBS)
    except ConfigError as error:  # this project can't have a fleet
        return {"problem": await project.redacted_text(str(error))}
    stored = await project.stored_runs(job.run_id for job in (*overview.jobs, *overview.failed))
    redacted = await project.redacted(overview, full=request.full)
    return {"problem": "", "overview": redacted, "stored_runs": stored}


async def _fingerprint(request: PageRequest) -> str:
    try:
        overview = await FleetOverview.of(request.project.shared(_queue), request.project.store, limit=JOBS)
    except ConfigError as error:
        return str(error)
    workers = [(worker.card.name, worker.running, worker.is_gone) for worker in overview.workers]
    jobs = [(job.run_id, overview.state_of(job), job.claim) for job in (*overview.jobs, *overview.failed)]
    spent = (
        None
        if overview.spending is None
        else (round(overview.spending.spent, 2), overview.spending.is_reached)
    )
    return sha256(repr((dict(overview.depth.jobs), workers, jobs, spent)).encode()).hexdigest()


async def _cancel(form: Form) -> str:
    run_id = form.path["run_id"]
    job = await cancel_job(form.project.shared(_queue), form.project.store, run_id)
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
    return queue_for(project.store)


SLICE = Slice(
    pages=(
        Page(
            "/fleet",
            "fleet/templates/fleet.html",
            fleet,
            lambda page: page if page["problem"] else page["overview"].document(),
            functions={"RETRIED": RETRIED, "limit_document": limit_document},
            fingerprint=_fingerprint,
        ),
    ),
    changes=(
        Change("/fleet/jobs/{run_id}/cancel", _cancel),
        Change("/fleet/jobs/{run_id}/retry", _retry),
    ),
)
