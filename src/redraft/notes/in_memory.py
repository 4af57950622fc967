"""InMemoryReflectionStore: notes in this process."""

from __future__ import annotations

from redraft.notes.note_store import NoteStore
from redraft.stores.memory import MemoryStore


class InMemoryReflectionStore(NoteStore):
    """Keep notes for as long as this object lives: for tests, and to try things out."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
