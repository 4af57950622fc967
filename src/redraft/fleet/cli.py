"""`redraft worker`, `submit`, `fleet` and `cancel`."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from redraft._codec import to_json
from redraft._texts import ago, as_text, clipped, counted
from redraft.errors import ConfigError
from redraft.fleet.fleet import cancel_job, load_fleet, project_queue
from redraft.fleet.overview import FleetOverview, limit_document
from redraft.fleet.queue import FleetJob
from redraft.redact.redactor import withheld
from redraft.stores.location import required_project_store
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors
from redraft.terminal.console import (
    BAD,
    GOOD,
    QUIET,
    CalmConsole,
    Warnings,
    deliver,
    emit,
    emit_json,
)
from redraft.terminal.exits import continued_by
from redraft.terminal.input import read_stdin
from redraft.terminal.tables import PlainTable
from redraft.text.characters import visible
from redraft.text.json import load_json
from redraft.types import render_usd

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from rich.console import RenderableType

    from redraft.fleet.programs import Program
    from redraft.fleet.queue import Queue

App = Annotated[
    str,
    typer.Argument(metavar="APP", help="The fleet, as MODULE:OBJECT, such as app:fleet.", show_default=False),
]
JobId = Annotated[str, typer.Argument(metavar="RUN", help="The id of the run.", show_default=False)]
STYLES = {"finished": GOOD, "failed": BAD, "poisoned": BAD, "running": "bold", "cancelled": QUIET}
LONGEST_ERROR = 200


@handles_errors
async def worker(
    app: App,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="Most jobs to run in parallel.")
    ] = 10,
    grace: Annotated[
        float,
        typer.Option(metavar="S", min=0, help="Seconds that jobs have to finish after SIGTERM or Ctrl-C."),
    ] = 30.0,
    any_program: Annotated[
        bool, typer.Option("--any-program", help="Also continue jobs that another version of the code began.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="[HOST:]PORT",
            help="Answer supervisors at /health and /ready and Prometheus at /metrics; on loopback without a "
            "host.",
        ),
    ] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when no job is due.")] = False,
) -> None:
    """Run a worker until SIGTERM or Ctrl-C; a second signal stops it immediately.

    Another worker continues unfinished jobs after their last step.
    """
    from redraft.fleet.worker import FleetWorker

    fleet = load_fleet(app)
    console = CalmConsole(stderr=True)
    running = FleetWorker(fleet, concurrency=concurrency, grace=grace, any_version=any_program, listen=listen)

    # The pool logs each attempt to reconnect; the worker itself says that the queue can't be reached.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)

    names = ", ".join(fleet.programs)
    console.say(f"Worker {running.card.name} runs {names}, version {fleet.version}, {concurrency} at once.")
    with Warnings(console):
        done = await running.run(until_idle=until_idle)
    console.say(f"Done: {counted(done, 'job')}.")


@handles_errors
async def submit(
    app: App,
    program: Annotated[
        str, typer.Argument(metavar="NAME", help="The agent, workflow or cycle.", show_default=False)
    ],
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="An agent's task, or a workflow's initial state as a JSON object; '-' reads stdin.",
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--id", metavar="RUN", help="The id of the run; the same id is the same job."),
    ] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", help="-1000 to 1000; jobs with a higher priority go first.")
    ] = 0,
    delay: Annotated[float, typer.Option(metavar="S", help="Seconds to wait before it may begin.")] = 0.0,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result, and print it.")] = False,
    as_json: options.Json = False,
) -> None:
    """Queue a task for the workers of a fleet, and print its id."""
    fleet = load_fleet(app)
    task_data = _task_of(fleet.programs.get(program), read_stdin() if task == "-" else task)
    try:
        handle = await fleet.submit(program, task_data, priority=priority, delay=delay, run_id=run_id)
        with continued_by(f"The job goes on; the same command with --id {handle.run_id} waits for it."):
            result = await handle.result() if wait else None
        job = await handle.job()
    finally:
        await fleet.aclose()
    if as_json:
        emit_json({"job": to_json(job), **({"result": to_json(result)} if wait else {})})
    elif wait:
        emit(as_text(getattr(result, "best_output", getattr(result, "state", ""))))
    else:
        emit(job.run_id)
        if job.has_ended:
            CalmConsole(stderr=True).say(f"The job {visible(job.run_id)} had already ended: {job.state}.")


@handles_errors
async def cancel(run_id: JobId, as_json: options.Json = False) -> None:
    """Cancel a job: immediately if it waits, within seconds if it runs.

    Finished steps stay stored.
    """
    async with _queue() as queue:
        job = await cancel_job(queue, required_project_store("jobs"), run_id)
        _print_job(run_id, job, as_json=as_json)


fleet = command_group(default="show", help="Show workers and jobs, and retry jobs that failed.")


@fleet.command("show")
@handles_errors
async def show_fleet(
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of jobs.")] = 20,
    as_json: options.Json = False,
) -> None:
    """Show the workers, the queue, what is late, and what failed (the default)."""
    async with _queue() as queue:
        overview = await FleetOverview.of(queue, required_project_store("jobs"), limit=limit)
    deliver(_overview(overview), withheld(overview.document()), as_json=as_json)


@fleet.command("retry")
@handles_errors
async def retry_job(run_id: JobId, as_json: options.Json = False) -> None:
    """Requeue a job that failed, was poisoned or was cancelled; it continues after its last step."""
    async with _queue() as queue:
        _print_job(run_id, await queue.retry(run_id), as_json=as_json)


@asynccontextmanager
async def _queue() -> AsyncGenerator[Queue]:
    queue = project_queue()
    try:
        await queue.open()
        yield queue
    finally:
        await queue.leave()


def _print_job(run_id: str, job: FleetJob | None, *, as_json: bool) -> None:
    if job is None:
        raise ConfigError(f"There is no job {run_id!r}; `redraft fleet` lists them.")
    if as_json:
        emit_json({"job": withheld(to_json(job))})
        return
    state = "being cancelled" if job.is_cancelling else job.state
    emit(f"{visible(run_id)} is {state}.")


def _task_of(program: Program | None, text: str | None) -> Any:
    if text is None or program is None or not program.takes_object:
        return text
    try:
        return load_json(text)
    except ValueError as error:
        raise ConfigError(f"The initial state of a workflow must be a JSON object: {error}.") from error


def _overview(overview: FleetOverview) -> RenderableType:
    jobs = overview.depth.jobs
    counts = ", ".join(f"{count:,} {state}" for state, count in jobs.items() if count) or "none"
    lines: list[RenderableType] = [Text.assemble(("Jobs     ", QUIET), counts)]
    oldest = overview.depth.oldest_seconds
    if oldest is not None:
        lines.append(Text.assemble(("Waiting  ", QUIET), f"the oldest for {_seconds(oldest)}"))
    for version, count in overview.stranded.items():
        text = f"{counted(count, 'job')} for version {visible(version)}, which no worker has"
        lines.append(Text.assemble(("Stranded ", QUIET), (text, BAD)))
    for models, state in overview.limits.items():
        limit = limit_document(state)
        text = f"{visible(models)}: the next call in {limit['wait_seconds']:.1f} s"
        if limit["blocked_seconds"]:
            text += f", blocked by the provider for {_seconds(limit['blocked_seconds'])}"
        lines.append(Text.assemble(("Limit    ", QUIET), text))
    if (spending := overview.spending) is not None:
        day = f"{spending.day} ({spending.zone})"
        text = f"{render_usd(spending.spent)} of {render_usd(spending.budget)} on {day}"
        text += f", {render_usd(spending.left)} left"
        if spending.unpriced:
            text += f", and {counted(spending.unpriced, 'call')} at an unknown price"
        if spending.is_reached:
            text += "; jobs wait for the next day"
        lines.append(Text.assemble(("Spent    ", QUIET), (text, BAD if spending.is_reached else "")))
    lines += [
        Text(),
        _workers(overview)
        if overview.workers
        else Text("There are no workers: start one with redraft worker APP", BAD),
    ]
    if overview.jobs:
        lines += [Text(), _jobs(overview, overview.jobs)]
    if overview.failed:
        lines += [Text(), Text("Failed", "bold")]
        for job in overview.failed:
            reason = clipped(withheld(job.error), LONGEST_ERROR)
            lines.append(Text(f"{visible(job.run_id)}  {job.state}: {visible(reason)}"))
    return Group(*lines)


def _workers(overview: FleetOverview) -> RenderableType:
    rows: list[dict[str, str | Text]] = []
    for worker in overview.workers:
        since, style = f"{_seconds(worker.seconds_silent)} ago", BAD if worker.is_gone else ""
        rows.append(
            {
                "worker": Text(visible(worker.card.name), style),
                "version": worker.card.version,
                "jobs": f"{worker.running}/{worker.card.concurrency}",
                "last heard from": Text(f"gone, {since}" if worker.is_gone else since, style),
                "runs": ", ".join(worker.card.programs),
            }
        )
    return PlainTable(rows, right=("jobs",), wrap=("worker",), drop=("runs", "version"), fill="runs")


def _jobs(overview: FleetOverview, jobs: Sequence[FleetJob]) -> RenderableType:
    rows = [
        {
            "job": job.run_id,
            "program": job.program,
            "state": Text(visible(overview.state_of(job)), STYLES.get(job.state, "")),
            "prio": str(job.priority),
            "submitted": ago(job.submitted_at) if job.submitted_at else "",
            "worker": job.worker if job.state == "running" else "",
        }
        for job in jobs
    ]
    return PlainTable(rows, right=("prio",), wrap=("job",), drop=("prio", "worker", "submitted"))


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"  # noqa: PLR2004 (two minutes)
