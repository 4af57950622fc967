"""Cycles as they are kept: their records, without secrets and bounded, and what they are found by."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redraft.core.codec import from_record, to_record
from redraft.cycles.record import CYCLE, CycleRecord
from redraft.stores.base import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXECUTION = "execution"
MOST_DERIVED = 50_000
"""Characters of JSON that each key of the derived data has in the record of a cycle."""


def stored_cycle(cycle: CycleRecord) -> Record:
    """Return a cycle as the record that keeps it."""
    # What cycles are searched by is there whatever it is.
    return Record(CYCLE, cycle.key, to_record(cycle) | {"status": cycle.status})


def cycle_of(record: Record) -> CycleRecord:
    """Return the cycle that a record keeps; raises `StoreError` for one that is damaged."""
    return from_record(CycleRecord, record.data)


def listed_cycle(record: Record) -> CycleRecord:
    """Return the cycle that a record keeps, for a list; one that is damaged has that as its status."""
    if not record.damage:
        return cycle_of(record)
    began = record.created_at or datetime.now(UTC)
    number = int(record.key) if record.key.isdecimal() else 0
    return CycleRecord(number, began, status="damaged", error=record.damage)


def fit_to_keep(cycle: CycleRecord, withheld: Callable[[Any], Any]) -> CycleRecord:
    """Return a cycle as it may be written down or shown: without secrets, and bounded."""
    return replace(
        cycle,
        derived_data=_fit_derived(cycle.derived_data, withheld),
        sense_errors=tuple(withheld(list(cycle.sense_errors))),
        metrics=replace(cycle.metrics, failures=tuple(withheld(list(cycle.metrics.failures)))),
        error=withheld(cycle.error),
    )


def _fit_derived(derived: Mapping[str, Any], withheld: Callable[[Any], Any]) -> dict[str, Any]:
    fit = {key: withheld(value) for key, value in derived.items() if key != EXECUTION}
    if EXECUTION in derived:
        # The keys are ours, new each time, and look so random that to redact them takes longer than all else.
        done: list[dict[str, Any]] = derived[EXECUTION].get("actions", [])
        keys = [one["idempotencyKey"] for one in done]
        bare = [{name: value for name, value in one.items() if name != "idempotencyKey"} for one in done]
        clean = withheld({**derived[EXECUTION], "actions": bare})
        clean["actions"] = [
            one | {"idempotencyKey": key} for one, key in zip(clean["actions"], keys, strict=True)
        ]
        fit[EXECUTION] = clean
    return {key: _bounded(fit[key]) for key in derived}


def _bounded(value: Any) -> Any:
    size = len(json.dumps(value, ensure_ascii=False))
    return value if size <= MOST_DERIVED else {"leftOut": f"{size:,} characters, more than {MOST_DERIVED:,}"}
