"""The words of tasks, for pages that know tasks by their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.loop.record import RUN
from redraft.stores.base import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.web.project import Project

LONGEST = 200


async def task_words(project: Project, run_ids: Iterable[str]) -> dict[str, str]:
    """Return the beginning of what each of these runs was asked, as it may be shown, by the run.

    A secret is withheld before anything is cut off, since half of one is not known any more.
    """
    found: dict[str, str] = {}
    for run_id in run_ids:
        record = await listed(project.store, RUN, run_id)
        if record is not None:
            damaged = "(a damaged record)"
            found[run_id] = damaged if record.damage else record.data["task"]["description"]
    shown = await project.redacted(list(found.values()))
    return {run_id: words[:LONGEST] for run_id, words in zip(found, shown, strict=True)}
