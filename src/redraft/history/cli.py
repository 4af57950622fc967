"""`redraft runs`, `show`, `why`, `diff`, `export` and `resume`."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.loop.cli import Resumed, check_output, deliver, resumed, write_output
from redraft.loop.record import RUN, Process
from redraft.loop.run_text import (
    Row,
    check_filters,
    cost,
    diff_view,
    ending,
    no_runs,
    prompts_view,
    run_row,
    run_table,
    run_view,
    state_text,
    why_view,
)
from redraft.loop.runs import LAST, KeptRun, Runs, after_best, row_document, run_document
from redraft.loop.runs import why as why_of
from redraft.loop.version_diff import diff_document
from redraft.redact.redactor import EVERY_CATEGORY, redactor_of_environment
from redraft.stores.location import open_project_store, project_place, project_store
from redraft.terminal import options
from redraft.terminal.console import CalmConsole, emit, emit_json, emit_untrusted
from redraft.terminal.exits import ExitCode, code_of, surface
from redraft.types import Task
from redraft.workflow.cli import (
    check_workflow_options,
    deliver_workflow,
    kept_workflow,
    read_history,
    read_workflows,
    taken_up,
    workflow_ending,
    workflow_view,
)
from redraft.workflow.history import WorkflowRow, Workflows
from redraft.workflow.run import WorkflowResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redraft.loop.record import RunRecord
    from redraft.loop.runs import KeptStep
    from redraft.workflow.history import KeptWorkflow, WorkflowRecord


SHORT = 200
VERSION = "2 or v2, first, best, last."
T = TypeVar("T")


def runs(
    status: Annotated[
        str | None,
        typer.Option(
            metavar="S", help="Filter by state: running, killed, unknown, finished, failed, cancelled."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Filter by agent or workflow, or by command ('redraft revise')."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="R", help="Filter by why they stopped: quality_met, plateau, ...")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of runs.")] = 20,
    inner: Annotated[bool, typer.Option("--inner", help="Include runs inside other runs.")] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the stored runs and workflows, newest first."""
    with surface(debug=debug):
        check_filters(status, reason)
        found = read_runs(status=status, name=name, reason=reason, inner=inner, limit=limit)
        # Only loops have a reason for stopping.
        workflows = [] if reason else read_workflows(status=status, name=name, limit=limit)
        newest = sorted([*found, *workflows], key=lambda one: one.started_at, reverse=True)[:limit]
        if as_json:
            rows = [
                one.document() if isinstance(one, WorkflowRow) else {"kind": "run", **row_document(one)}
                for one in newest
            ]
            emit_json({"database": str(place()), "runs": rows})
            return
        console = CalmConsole()
        if newest:
            rows = [workflow_row(one) if isinstance(one, WorkflowRow) else run_row(one) for one in newest]
            console.show(run_table(rows, console.width, is_utf8=console.is_utf8))
            if len(newest) == limit:
                CalmConsole(stderr=True).say(f"At most {limit} are listed; --limit N shows more.")
        else:
            console.show(no_runs(place(), filtered=any((status, name, reason))))


def show(
    run: options.Run,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Show the verbatim prompts and replies.")
    ] = False,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="V", help="Print the output of a version: 2, first, best or last."),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show a stored run. Its versions, their scores, what failed, and what it used.

    For a workflow: its nodes, their results, and the runs of its loops.
    """
    with surface(debug=debug):
        console = CalmConsole()
        if (workflow := read_history(run)) is not None:
            check_workflow_options(workflow, version=version, prompts=prompts)
            if as_json:
                emit_json(workflow.document())
            else:
                console.show(workflow_view(workflow))
            return
        kept = read_run(run)
        if version is not None:
            chosen = kept.version(version)
            if as_json:
                emit_json({"run_id": kept.record.run_id, "version": chosen})
            else:
                emit_untrusted(as_text(chosen.output))
        elif as_json:
            emit_json(shown_document(kept, steps=prompts))
        else:
            console.show(run_view(kept, console.width, is_utf8=console.is_utf8))
            if prompts:
                console.show(prompts_view(kept), soft_wrap=True)


def why(run: options.Run, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Explain why a run stopped. The rule, its numbers, and what was spent after the best version."""
    with surface(debug=debug):
        kept = read_run(run)
        if as_json:
            found = {"run_id": kept.record.run_id, "why": why_of(kept), "after_best": after_best(kept)}
            emit_json(found)
        else:
            CalmConsole().show(why_view(kept))


def diff(
    run: options.Run,
    older: Annotated[str, typer.Argument(metavar="V1", help=VERSION)] = "first",
    newer: Annotated[str, typer.Argument(metavar="V2", help=VERSION)] = "best",
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Compare two versions of a run. Word by word, or field by field if they are JSON."""
    with surface(debug=debug):
        kept = read_run(run)
        found = kept.diff(older, newer)
        if as_json:
            emit_json({"run_id": kept.record.run_id, **diff_document(found)})
        else:
            console = CalmConsole()
            console.show(diff_view(found, coloured=console.is_coloured))


def export(
    run: options.Run,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write one self-contained HTML file; '-' is stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run as one JSON document.")] = False,
    debug: options.Debug = False,
) -> None:
    """Export a stored run. --html FILE is for people, --json for programs; read it before you share it."""
    with surface(debug=debug):
        from redraft.history.run_page import run_page

        if (html is None) != as_json:
            raise ConfigError("export takes one of --html FILE and --json.")
        to_file = html is not None and str(html) != "-"
        if html is not None and to_file:
            check_output(html, force=force, option="--html")
        kept = read_run(run, to_export=True)
        if html is None:
            emit_json(shown_document(kept))
        elif to_file:
            write_output(html, run_page(kept), force=force)
            message = (
                f"Wrote {html}. Secrets, personal data and names of hosts that were recognised are withheld; "
                "all else is there word for word: read it before you share it."
            )
            CalmConsole(stderr=True).say(message)
        else:
            emit(run_page(kept))


def resume(
    context: typer.Context,
    run: options.Run,
    force: Annotated[
        bool, typer.Option("--force", help="Resume even if its process may still be running.")
    ] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Resume a run after its last finished step. A finished run prints its result again.

    A run started by a command resumes with its recorded arguments, draft and criteria. A workflow resumes
    with its recorded values and its current file, so that a mistake in the file can be fixed. For any other
    run, the Python call that resumes it is printed, with exit code 2.
    """
    with surface(debug=debug):
        if (workflow := kept_workflow(run)) is not None:
            raise typer.Exit(resume_kept_workflow(workflow, context, as_json=as_json, force=force))
        record = read_record(run)
        if record.status == "finished":
            result = record.result()
            CalmConsole(stderr=True).show(ending(result))
            deliver(result, None, force=False, as_json=as_json)
            raise typer.Exit(code_of(result))
        check_idle(record, force=force)
        if record.origin.surface == "command":
            raise typer.Exit(resume_command(record, context, as_json=as_json))
        raise typer.Exit(print_call("run", record.run_id, resuming_call(record), as_json=as_json))


def check_idle(record: RunRecord, *, force: bool = False) -> None:
    """Raise `ConfigError` for a run inside another one, and one that a process on this machine is running.

    `force` allows a run if this machine can't tell whether its process still exists. Processes on other
    machines can't be checked; two that work on one run end with the same results.
    """
    if record.parent:
        raise ConfigError(f"The run {record.run_id!r} ran inside {record.parent!r}: resume that one.")
    if record.status == "running":
        check_gone(record.process, record.run_id, force=force)


def check_gone(process: Process, run_id: str, *, force: bool = False) -> None:
    """Raise `ConfigError` if a process on this machine is, or may be, still working on a run."""
    if process.host != gethostname():
        return
    gone = process.is_gone()
    if gone is False:
        raise ConfigError(f"The process {process.pid} is at work on the run {run_id!r}.")
    if gone is None and not force:
        raise ConfigError(
            f"This machine can't tell whether the process {process.pid} is still at work on the run "
            f"{run_id!r}. If it is not: redraft resume {run_id} --force"
        )


def resume_command(record: RunRecord, context: typer.Context, *, as_json: bool) -> int:
    """Repeat the command that started a run, in its folder; return the exit code."""
    origin, store = record.origin, project_store()
    if store is None:
        raise AssertionError("the record was read from a store")
    token = resumed.set(Resumed(record, store))
    try:
        return repeat_command(context, origin.arguments, origin.folder, as_json=as_json)
    finally:
        resumed.reset(token)


def repeat_command(context: typer.Context, arguments: Sequence[str], folder: str, *, as_json: bool) -> int:
    """Repeat a command in its original folder; return the exit code."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"The run started in {folder!r}, which can't be entered: {error.strerror}."
        ) from error
    json = ["--json"] if as_json and "--json" not in arguments else []
    redraft = context.find_root().command
    return int(redraft.main([*arguments, *json], standalone_mode=False) or 0)


def print_call(kind: str, run_id: str, call: str, *, as_json: bool) -> ExitCode:
    """Print the Python call that resumes a run or workflow of a program; return the exit code."""
    if as_json:
        emit_json({"run_id": run_id, "call": call})
    else:
        CalmConsole(stderr=True).say(
            f"The {kind} {run_id} belongs to a program of yours, which resumes it with this call:"
        )
        emit(call)
    return ExitCode.USAGE


def resuming_call(record: RunRecord) -> str:
    """Return the Python call that resumes a run of an agent or a function."""
    task, run_id = record.task, record.run_id
    short = task == Task(task.description) and len(task.description) <= SHORT
    query = repr(task.description) if short else f"(await Runs().get({run_id!r})).task"
    if record.origin.surface == "agent":
        call = f"await agent.run({query}, run_id={run_id!r})"
    elif record.origin.surface == "task":
        ensemble = re.sub(r"\.\d+(-\d+)?$", "", run_id)  # as `notes.keeping` makes the ids of its tasks
        call = f"await ensemble.run(..., run_id={ensemble!r})"
    elif record.origin.surface == "reflected":
        name = record.origin.name.rpartition(".")[2] or "function"
        call = f"await {name}.run_as({run_id!r}, ...)"
    else:
        call = f"await reflect({query}, ..., step=Journalled(store, {run_id!r}))"
    return f"from redraft import Runs\n\n{call}" if "Runs()" in call else call


def read_run(run_id: str, *, to_export: bool = False) -> KeptRun:
    """Read a run by its id, a prefix of it, or `last`, with secrets and personal data withheld.

    With `to_export`, names of hosts are withheld, too, since the run may leave this machine. For a workflow,
    the run of its loop is read. Raises `ConfigError` if there is none, or several.
    """

    async def read(runs: Runs) -> KeptRun:
        record = await runs.get(await _loop_of_workflow(run_id) or run_id)
        return KeptRun(record, tuple(await runs.steps(record.run_id)))

    # The process tells whether a run was killed; no view shows it.
    redactor = redactor_of_environment(also=EVERY_CATEGORY) if to_export else redactor_of_environment()
    return redactor.redact_object(_with_runs(read), spared=(Process,))


async def _loop_of_workflow(run_id: str) -> str | None:
    """Return the id of the run of a workflow's loop, for `last` its last loop; None if it is no workflow."""
    store = project_store()
    workflow = None if store is None else await Workflows(store).get(run_id)
    if store is None or workflow is None:
        return None
    found = workflow.record.run_id
    loops = [loop.key for loop in await store.find(RUN, where={"parent": found})]
    if not loops:
        raise ConfigError(f"No loop of the workflow {found!r} ran; `redraft show {found}` says what did.")
    if len(loops) > 1 and run_id != LAST:
        raise ConfigError(f"The workflow {found!r} has {len(loops)} loops: {', '.join(loops)}; say which.")
    return loops[-1]


def shown_document(run: KeptRun, *, steps: bool = True) -> dict[str, Any]:
    """Return a run as plain data that may leave this machine."""
    document = run_document(run, steps=steps)
    return document | {"process": redactor_of_environment().redact_json(document["process"])}


def read_record(run_id: str) -> RunRecord:
    """Read the record of a run as stored, to resume it; not for display."""
    return _with_runs(lambda runs: runs.get(run_id))


def read_steps(run_id: str) -> list[KeptStep]:
    """Read the steps of a run or workflow in the order they ended."""
    return _with_runs(lambda runs: runs.steps(run_id))


def read_runs(
    *, status: str | None, name: str | None, reason: str | None, inner: bool, limit: int
) -> list[RunRecord]:
    """Read the newest runs that match, with secrets withheld in what a list shows."""
    found = _with_runs(
        lambda runs: runs.find(status=status, name=name, reason=reason, inner=inner, limit=limit)
    )
    redactor = redactor_of_environment()
    return [
        replace(
            record,
            task=redactor.redact_object(record.task),
            origin=redactor.redact_object(record.origin),
            error=redactor.redact(record.error).text,
        )
        for record in found
    ]


def place() -> str:
    """Return where the runs of this project are kept."""
    return str(project_place())


def _with_runs(read: Callable[[Runs], Awaitable[T]]) -> T:
    async def reading() -> T:
        async with open_project_store() as store:
            return await read(Runs(store))

    return asyncio.run(reading())


def resume_kept_workflow(
    kept: KeptWorkflow, context: typer.Context, *, as_json: bool, force: bool = False
) -> int:
    """Resume a kept workflow, or print its result again; return the exit code.

    Raises `ConfigError` if another process is working on it, or its folder can't be entered.
    """
    record = kept.record
    if record.status == "finished" and record.state is not None:
        result = WorkflowResult(
            record.state, record.run_id, record.nodes, record.usage, record.execution_time
        )
        CalmConsole(stderr=True).say(workflow_ending(result))
        deliver_workflow(result, _last_value(record), as_json=as_json)
        return ExitCode.MET
    if (began := kept.began) is not None:
        if record.status == "running":
            check_gone(began.process, record.run_id, force=force)
        token = taken_up.set(kept)
        try:
            return repeat_command(context, began.arguments, began.folder, as_json=as_json)
        finally:
            taken_up.reset(token)
    return print_call("workflow", record.run_id, _workflow_call(record), as_json=as_json)


def _last_value(record: WorkflowRecord) -> Any:
    """Return the value of the last node that did not fail, from the journal."""
    nodes = [step for step in read_steps(record.run_id) if not step.is_inner and not step.void]
    given = [step.result for step in nodes if step.error is None]
    return given[-1].get("value") if given else None


def _workflow_call(record: WorkflowRecord) -> str:
    given = f"{dict(record.given)!r}, " if record.given else ""
    return (
        "from redraft.workflow import Workflow\n\n"
        f"await Workflow.from_file({record.file!r}).run({given}run_id={record.run_id!r})"
    )


def workflow_row(row: WorkflowRow) -> Row:
    """Return the row of a workflow."""
    return Row(
        row.run_id,
        row.started_at,
        row.name,
        f"{row.name}, a workflow of {row.nodes} node{'s' * (row.nodes != 1)}",
        state_text(row.status),
        row.nodes,
        "",
        "",
        cost(row.usage),
        row.execution_time,
    )
