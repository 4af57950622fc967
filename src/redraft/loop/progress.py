"""Progress: how far runs under way are, without reading all that they have done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from redraft.loop.journal import STEP
from redraft.stores.base import Record, Store

if TYPE_CHECKING:
    from redraft.web.project import Project


@dataclass(frozen=True, slots=True)
class Progress:
    """Remember of each run that is watched its last finished step: only what came later is read again."""

    store: Store
    _last: dict[str, Record] = field(default_factory=dict[str, Record])

    @classmethod
    def of(cls, project: Project) -> Progress:
        """Return one for a project."""
        return cls(project.store)

    async def how_far(self, run_id: str) -> str:
        """Return a text that differs when a run has done more: its last step, and how many are inside it."""
        last = self._last.get(run_id)
        records = await self.store.find(STEP, prefix=f"{run_id}/", after=last)
        # Those within a step have a second slash; they sort behind the step that they are in.
        outer = [record for record in records if record.key.count("/") == 1]
        if outer:
            self._last[run_id] = last = replace(outer[-1], data={})  # what it came to may be long
        done = last.key if last else ""
        return f"{done}+{sum(record.key > done for record in records)}"
