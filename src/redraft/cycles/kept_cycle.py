"""Cycles as they are kept: their records, without secrets and bounded, and what they are found by."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft.core.codec import from_record, to_record
from redraft.cycles.record import CYCLE, CycleRecord
from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Callable

UNFINISHED = ("running", "waiting", "abandoned")
"""The statuses of a cycle that goes on when the agent is started again."""
MOST_DERIVED = 50_000
"""Characters of JSON that each key of the derived data has in the record of a cycle."""


def cycle_key(number: int) -> str:
    """Return the key of a cycle's record."""
    return f"{number:010d}"


def stored_cycle(cycle: CycleRecord) -> Record:
    """Return a cycle as the record that keeps it."""
    # What cycles are searched by is there whatever it is.
    return Record(CYCLE, cycle.key, to_record(cycle) | {"status": cycle.status})


def cycle_of(record: Record) -> CycleRecord:
    """Return the cycle that a record keeps."""
    return from_record(CycleRecord, record.data)


def fit_to_keep(cycle: CycleRecord, withheld: Callable[[Any], Any]) -> CycleRecord:
    """Return a cycle as it may be written down or shown: without secrets, and bounded."""
    return replace(
        cycle,
        derived_data={key: _bounded(withheld(value)) for key, value in cycle.derived_data.items()},
        sense_errors=tuple(withheld(list(cycle.sense_errors))),
        metrics=replace(cycle.metrics, failures=tuple(withheld(list(cycle.metrics.failures)))),
        error=withheld(cycle.error),
    )


def _bounded(value: Any) -> Any:
    size = len(json.dumps(value, ensure_ascii=False))
    return value if size <= MOST_DERIVED else {"leftOut": f"{size:,} characters, more than {MOST_DERIVED:,}"}
