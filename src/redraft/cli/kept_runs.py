"""The kept runs, as commands read them: whatever a command shows or exports of a run comes through here."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.core.errors import ConfigError
from redraft.loop.kept_run import KeptRun
from redraft.loop.record import RUN, Process
from redraft.loop.run_document import run_document
from redraft.loop.runs import LAST, Runs
from redraft.redact.environment import EVERY_CATEGORY, redactor_of_environment
from redraft.stores.place import project_place, project_store
from redraft.workflow.kept_workflow import found_workflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.loop.record import RunRecord
    from redraft.loop.runs import KeptStep

T = TypeVar("T")


def read_run(run_id: str, *, to_export: bool = False) -> KeptRun:
    """Read a run by its id, the beginning of one, or `last`, with its secrets and personal data withheld.

    What is read `to_export` may leave this machine, so it loses the names of hosts, too. Of a workflow it
    is its loop. Raises `ConfigError` where there is none, or several.
    """

    async def read(runs: Runs) -> KeptRun:
        record = await runs.get(await _loop_of_workflow(run_id) or run_id)
        return KeptRun(record, tuple(await runs.steps(record.run_id)))

    # Whether a run was killed is known by its process, which no view shows.
    redactor = redactor_of_environment(also=EVERY_CATEGORY) if to_export else redactor_of_environment()
    return redactor.redact_object(_reading(read), spared=(Process,))


async def _loop_of_workflow(run_id: str) -> str | None:
    """Return the id of the loop of a workflow, of the `last` one its last loop; None for what is a run."""
    store = project_store()
    workflow = None if store is None else await found_workflow(store, run_id)
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
    """Describe a whole run as plain data that may leave this machine."""
    document = run_document(run, steps=steps)
    return document | {"process": redactor_of_environment().redact_json(document["process"])}


def read_record(run_id: str) -> RunRecord:
    """Read the record of a run, as it is stored: to go on with, not to be shown."""
    return _reading(lambda runs: runs.get(run_id))


def read_steps(run_id: str) -> list[KeptStep]:
    """Read the steps of a run or workflow, in the order in which they ended."""
    return _reading(lambda runs: runs.steps(run_id))


def read_runs(
    *, status: str | None, name: str | None, reason: str | None, inner: bool, limit: int
) -> list[RunRecord]:
    """Read the newest runs that fit, with what a list shows of them withheld where it is secret."""
    found = _reading(
        lambda runs: runs.find(status=status, name=name, reason=reason, inner=inner, limit=limit)
    )
    redactor = redactor_of_environment()
    return [
        replace(
            record,
            task=redactor.redact_object(record.task),
            origin=redactor.redact_object(record.origin),
        )
        for record in found
    ]


def place() -> str:
    """Say where the runs of this project are kept."""
    return str(project_place())


def _reading(read: Callable[[Runs], Awaitable[T]]) -> T:
    async def reading() -> T:
        runs = Runs()
        try:
            return await read(runs)
        finally:
            if store := project_store():
                await store.aclose()

    return asyncio.run(reading())
