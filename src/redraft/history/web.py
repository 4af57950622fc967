"""The dashboard's pages of runs: the list of them, each one, comparisons, and what all spent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redraft.history.ledger import Ledger
from redraft.history.pages import compare, diff, run, runs, spend
from redraft.web.page import Slice

if TYPE_CHECKING:
    from redraft.web.project import Project

PAUSE = 0.1
"""Seconds between two portions of what is read ahead, in which pages are served."""


async def _warm_up(project: Project) -> None:
    ledger = project.shared(Ledger.of)
    while not ledger.is_whole:
        await ledger.entries()
        await asyncio.sleep(PAUSE)


SLICE = Slice(
    (runs.PAGE, run.PAGE, diff.PAGE, compare.PAGE, spend.PAGE), texts=(run.OUTPUT,), warm_up=_warm_up
)
