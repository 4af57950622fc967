"""Moving: how far runs at work are, without reading all that they have done."""

from __future__ import annotations

from dataclasses import dataclass, field

from redraft.loop.journal import STEP
from redraft.stores.base import Record, Store


@dataclass(frozen=True, slots=True)
class Moving:
    """Remember of each run that is watched its last finished step: only what came later is read again."""

    store: Store
    _last: dict[str, str] = field(default_factory=dict[str, str])

    async def how_far(self, run_id: str) -> str:
        """Return a text that differs when a run has done more: its last step, and how many are inside it."""
        last = self._last.get(run_id, "")
        after = Record(STEP, last, {}) if last else None
        records = await self.store.find(STEP, prefix=f"{run_id}/", after=after)
        # Those within a step have a second slash; they sort behind the step that they are in.
        last = max((record.key for record in records if record.key.count("/") == 1), default=last)
        self._last[run_id] = last
        return f"{last}+{sum(record.key > last for record in records)}"
