"""The learn substage: what can be learnt of the cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.core.errors import OutputError
from redraft.cycles.asking import asked
from redraft.cycles.memory import PATTERNS, STANDARD_KEYS
from redraft.cycles.next_memory import INSIGHTS
from redraft.cycles.parts import keys_read
from redraft.text.json_reply import json_of

if TYPE_CHECKING:
    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec_reflect import Learn


async def learn(substage: Learn, cycle: Cycle) -> None:
    """Ask the model what can be learnt; it stands in `derivedData.learnings`, several merged key by key.

    The memory stays as it is: `update-state` takes it in. A text that is no JSON is an insight. Raises what
    `asked` raises, for a reply that does not follow `outputSchema` twice, too.
    """
    reply = await asked(
        cycle, f"reflect/{substage.name}", substage.prompt, substage.output_schema, substage.model
    )
    learnt = _fields(reply)
    cycle.learnt.append((target_of(substage), learnt))
    cycle.state.derived_data["learnings"] = _merged(cycle.state.derived_data.get("learnings") or {}, learnt)


def target_of(substage: Learn) -> str:
    """Return the memory key that new patterns go to.

    It is `target`, else the only key of the user's own that the prompt names, else `patterns`.
    """
    if substage.config.target is not None:
        return substage.config.target.removeprefix("memory.")
    own = [key for key in keys_read(substage.prompt) if key not in (*STANDARD_KEYS, INSIGHTS)]
    return own[0] if len(own) == 1 else PATTERNS


def _fields(reply: Any) -> dict[str, Any]:
    if isinstance(reply, str):
        try:
            reply = json_of(reply)
        except OutputError:
            return {INSIGHTS: [reply]}
    if isinstance(reply, Mapping):
        return dict(cast("Mapping[str, Any]", reply))
    return {INSIGHTS: reply if isinstance(reply, list) else [reply]}


def _merged(before: Mapping[str, Any], learnt: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, the lists of one key joined."""
    merged = {**before, **learnt}
    for key in before.keys() & learnt.keys():
        if isinstance(before[key], list) and isinstance(learnt[key], list):
            merged[key] = [*before[key], *learnt[key]]
    return merged
