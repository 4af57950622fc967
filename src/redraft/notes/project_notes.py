"""project_notes: where the notes of this project are kept."""

from __future__ import annotations

from redraft.notes.in_memory import InMemoryReflectionStore
from redraft.notes.note_store import NoteStore
from redraft.stores.place import project_store


def project_notes() -> NoteStore:
    """Return the notes of the project that this process works in, in the database of its runs.

    Where the settings keep nothing they are new ones, which live as long as this object.
    """
    store = project_store()
    return InMemoryReflectionStore() if store is None else NoteStore(store)
