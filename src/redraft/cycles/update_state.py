"""The update-state substage: the one place where the memory changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.cycles.next_memory import next_memory
from redraft.cycles.spec_reflect import UpdateState

if TYPE_CHECKING:
    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec import AgentSpec
    from redraft.cycles.spec_reflect import Retention


async def update_state(substage: UpdateState, cycle: Cycle) -> None:
    """Make the next memory of the cycle; it is written when the cycle ends, with its record, or not at all.

    What was not taken of what a model learnt is among the cycle's failures. Where a file has several of
    these, each keeps to the retention of all.
    """
    made = next_memory(cycle, retention_of(cycle.spec), cycle.means.clock())
    cycle.next_memory, cycle.changes = made.memory, made.changes
    cycle.failures += [f"reflect/{substage.name}: {refusal}" for refusal in made.refusals]


def retention_of(spec: AgentSpec) -> dict[str, Retention]:
    """Return how long each key of the memory keeps what, as the agent's file has it."""
    reflect = spec.stages.reflect
    return {
        key.removeprefix("memory."): policy
        for substage in (reflect.substages if reflect is not None else ())
        if isinstance(substage, UpdateState)
        for key, policy in substage.config.retention.items()
    }
