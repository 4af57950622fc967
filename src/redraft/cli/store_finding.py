"""StoreFinding: whether what is kept here can be read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
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
    return StoreFinding(str(place), answers=True, why=f"answered within {perf_counter() - started:.2f} s")


async def _read(place: Place) -> None:
    store = place.open()
    try:
        await store.find(RUN, limit=1)
    finally:
        await store.aclose()
