"""StoreFinding: whether what is kept here can be read, and more can be kept."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError, StoreError
from redraft.loop.record import RUN
from redraft.stores.place import project_place

if TYPE_CHECKING:
    from redraft.stores.place import Place


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """Say of the place of a project's store whether it answers, and why (not)."""

    place: str
    answers: bool
    why: str


def store_finding() -> StoreFinding | None:
    """Ask the project's store for a run; None where the settings keep nothing."""
    place = project_place()
    if place is None:
        return None
    started = perf_counter()
    try:
        asyncio.run(_read(place))
    except (ConfigError, StoreError) as error:
        return StoreFinding(str(place), answers=False, why=str(error))
    if isinstance(place.database, Path) and not os.access(there := _nearest(place.database), os.W_OK):
        return StoreFinding(str(place), answers=False, why=f"nothing can be kept: {there} is not writable")
    return StoreFinding(str(place), answers=True, why=f"answered within {perf_counter() - started:.2f} s")


def _nearest(path: Path) -> Path:
    """Return a path, or as much of it as is there."""
    return next(one for one in (path, *path.parents) if one.exists())


async def _read(place: Place) -> None:
    store = place.open()
    try:
        await store.find(RUN, limit=1)
    finally:
        await store.aclose()
