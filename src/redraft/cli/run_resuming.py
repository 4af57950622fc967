"""Resuming workflows: with the command that began one, or the Python call for one of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.cli.console import CalmConsole, emit, emit_json
from redraft.cli.exits import ExitCode
from redraft.cli.kept_runs import read_steps
from redraft.cli.resuming import check_gone, command_again
from redraft.cli.run_kept import taken_up
from redraft.cli.run_outcome import deliver_workflow, workflow_ending
from redraft.workflow.result import WorkflowResult

if TYPE_CHECKING:
    from redraft.workflow.keep import WorkflowRecord
    from redraft.workflow.kept_workflow import KeptWorkflow


def resume_kept_workflow(kept: KeptWorkflow, *, as_json: bool, force: bool = False) -> int:
    """Go on with a kept workflow, or give its result again; return the exit code.

    Raises `ConfigError` for one that another process is at work on, and where its folder can't be gone to.
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
            return command_again(began.arguments, began.folder, as_json=as_json)
        finally:
            taken_up.reset(token)
    call = _call(record)
    if as_json:
        emit_json({"run_id": record.run_id, "call": call})
    else:
        told = f"The workflow {record.run_id} belongs to a program of yours, which resumes it with this call:"
        CalmConsole(stderr=True).say(told)
        emit(call)
    return ExitCode.USAGE


def _last_value(record: WorkflowRecord) -> Any:
    """Return what the last node gave that did not fail, as its journal has it."""
    nodes = [step for step in read_steps(record.run_id) if not step.is_inner and not step.void]
    given = [step.result for step in nodes if step.error is None]
    return given[-1].get("value") if given else None


def _call(record: WorkflowRecord) -> str:
    given = f"{dict(record.given)!r}, " if record.given else ""
    return (
        "from redraft.workflow import Workflow\n\n"
        f"await Workflow.from_file({record.file!r}).run({given}run_id={record.run_id!r})"
    )
