"""Numbered SQL scripts, forward only: each brings a database from one version to the next."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache
def scripts(backend: str) -> tuple[str, ...]:
    """Return the SQL of a backend's migrations in their order; the version of a database is how many it has.

    They are the files `migrations/BACKEND/0001_what.sql` and so on; a number that is missing or there twice
    is a mistake of ours.
    """
    folder = Path(__file__).parent / "migrations" / backend
    found = sorted((file.name, file.read_text("utf-8")) for file in folder.iterdir())
    if [name[:5] for name, _ in found] != [f"{number:04}_" for number in range(1, len(found) + 1)]:
        raise AssertionError(f"the migrations of {backend} are not numbered 1, 2, 3: {found}")
    return tuple(sql for _, sql in found)
