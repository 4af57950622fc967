"""The kept runs, as commands read them: whatever a command shows or exports of a run comes through here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from redraft.core.settings import load_settings, project_folder
from redraft.loop.keep import DATABASE, project_store
from redraft.loop.kept_run import KeptRun
from redraft.loop.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from redraft.loop.record import RunRecord

T = TypeVar("T")


def read_run(run_id: str) -> KeptRun:
    """Read a run by its id, the beginning of one, or `last`; raises `ConfigError` where there is none."""

    async def read(runs: Runs) -> KeptRun:
        record = await runs.get(run_id)
        return KeptRun(record, tuple(await runs.steps(record.run_id)))

    return _reading(read)


def read_record(run_id: str) -> RunRecord:
    """Read the record of a run, as it is stored: to go on with, not to be shown."""
    return _reading(lambda runs: runs.get(run_id))


def read_runs(
    *, status: str | None, name: str | None, reason: str | None, inner: bool, limit: int
) -> list[RunRecord]:
    """Read the newest runs that fit."""
    return _reading(lambda runs: runs.find(status=status, name=name, reason=reason, inner=inner, limit=limit))


def place() -> Path:
    """Return where the runs of this project are kept."""
    return project_folder() / load_settings().home / DATABASE


def _reading(read: Callable[[Runs], Awaitable[T]]) -> T:
    async def reading() -> T:
        runs = Runs()
        try:
            return await read(runs)
        finally:
            if store := project_store():
                await store.aclose()

    return asyncio.run(reading())
