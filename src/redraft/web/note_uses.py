"""NoteUses: what the runs of each task were given and scored, ready to be asked for."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING
from urllib.parse import unquote

from redraft._codec import from_record
from redraft.notes.history import FEW, MANY
from redraft.notes.note import NoteUse
from redraft.notes.store import NOTE_USE
from redraft.web.chronicle import Chronicle

if TYPE_CHECKING:
    from redraft.stores.base import Record, Store


@dataclass(slots=True)
class _Latest:
    """Hold a task's latest uses, the earliest first, and apart from them those before any note."""

    runs: int = 0
    uses: list[NoteUse] = field(default_factory=list[NoteUse])
    bare: list[NoteUse] = field(default_factory=list[NoteUse])

    def add(self, use: NoteUse) -> None:
        self.runs += 1
        _keep(self.uses, use, MANY)
        if use.arm == "none":
            _keep(self.bare, use, FEW)


class NoteUses:
    """Remember of each task its latest runs; those of a task with 100,000 take long to sort in a store."""

    def __init__(self, store: Store) -> None:
        self._tasks: dict[str, _Latest] = {}
        self.chronicle = Chronicle(store, NOTE_USE, self._note)

    def runs(self, identity: str) -> int:
        """Return how many runs of a task are known of."""
        return self._of(identity).runs

    def latest(self, identity: str, most: int = MANY) -> tuple[NoteUse, ...]:
        """Return a task's latest uses, the earliest first, behind those before any note."""
        found = self._of(identity)
        uses = found.uses[-most:]
        earlier = (use for use in found.bare if uses and use.at < uses[0].at)
        return (*earlier, *uses)

    def _of(self, identity: str) -> _Latest:
        return self._tasks.get(identity) or _Latest()

    def _note(self, record: Record) -> None:
        identity = unquote(record.key.partition("/")[0], errors="surrogatepass")
        self._tasks.setdefault(identity, _Latest()).add(from_record(NoteUse, record.data))


def _keep(uses: list[NoteUse], use: NoteUse, most: int) -> None:
    """Put a use in its place, unless there are enough later ones."""
    if len(uses) < most or use.at > uses[0].at:
        insort(uses, use, key=attrgetter("at"))
        del uses[:-most]
