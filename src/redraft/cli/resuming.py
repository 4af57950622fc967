"""Resuming: carry out a recorded command again, or say which call does it for a run of a program."""

from __future__ import annotations

import os
import re
from socket import gethostname
from typing import TYPE_CHECKING

from redraft.cli.keeping import Resumed, resumed
from redraft.core.errors import ConfigError
from redraft.core.task import Task
from redraft.loop.keep import project_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.loop.record import Process, RunRecord

SHORT = 200


def check_idle(record: RunRecord, *, force: bool = False) -> None:
    """Raise `ConfigError` for a run inside another one, and one that a process here is at work on.

    With `force` a run is taken up where this machine can't tell whether its process is still there. Of a
    process elsewhere nothing is known; two that work on one run end with the same results.
    """
    if record.parent:
        raise ConfigError(f"The run {record.run_id!r} ran inside {record.parent!r}: resume that one.")
    if record.status == "running":
        check_gone(record.process, record.run_id, force=force)


def check_gone(process: Process, run_id: str, *, force: bool = False) -> None:
    """Raise `ConfigError` where a process of this machine is still at work on a run, or may be."""
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


def resume_command(record: RunRecord, *, as_json: bool) -> int:
    """Carry out the command that began a run, in its folder, and return its exit code."""
    origin, store = record.origin, project_store()
    if store is None:
        raise AssertionError("the record was read from a store")
    token = resumed.set(Resumed(record, store))
    try:
        return command_again(origin.arguments, origin.folder, as_json=as_json)
    finally:
        resumed.reset(token)


def command_again(arguments: Sequence[str], folder: str, *, as_json: bool) -> int:
    """Carry out a command again, in the folder of the first time, and return its exit code."""
    from redraft.cli.app import app

    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"The run began in {folder!r}, which can't be gone to: {error.strerror}."
        ) from error
    json = ["--json"] if as_json and "--json" not in arguments else []
    return int(app([*arguments, *json], standalone_mode=False) or 0)


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
