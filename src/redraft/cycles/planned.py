"""Planned actions: those of `derivedData.plan`, each one that the file declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.cycles.rendering import scopes_of
from redraft.cycles.spec_actuate import AnyAction, Execute
from redraft.cycles.spec_reason import Plan
from redraft.text.condition import holds
from redraft.text.templates import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redraft.cycles.cycle import Cycle


def declared(cycle: Cycle) -> dict[str, AnyAction]:
    """Return the actions that the file declares, by their names."""
    actuate = cycle.spec.stages.actuate
    return {
        action.name: action
        for substage in (actuate.substages if actuate is not None else ())
        if isinstance(substage, Execute)
        for action in substage.config.actions
    }


def planned(cycle: Cycle) -> list[dict[str, Any]]:
    """Return the actions of the plan as they stand in it: `action`, `params`, `reason`, `id`."""
    return cycle.state.derived_data["plan"].setdefault("actions", [])


def put_into_plan(
    cycle: Cycle, action: str, params: Mapping[str, Any] | None = None, reason: str = ""
) -> dict[str, Any]:
    """Plan a declared action, and return it as it stands in the plan."""
    actions = planned(cycle)
    one = {
        "action": action,
        "params": dict(params or {}),
        "reason": reason,
        "id": f"{cycle.number}-{len(actions) + 1}",
    }
    actions.append(one)
    return one


def shown(one: Mapping[str, Any], action: AnyAction) -> dict[str, Any]:
    """Return a planned action as templates and conditions see it."""
    return {**one, "name": action.name, "type": action.type}


def candidate(action: AnyAction) -> dict[str, Any]:
    """Return an action as it would stand in the plan, before it is known whether it will."""
    return {"action": action.name, "params": {}, "reason": action.when or "", "id": ""}


def is_due(one: Mapping[str, Any], action: AnyAction, cycle: Cycle) -> bool:
    """Say whether the condition of a planned action holds, if it has one. Raises `TemplateError`."""
    return action.when is None or holds(action.when, scopes_of(cycle, shown(one, action)))


def unplanned(cycle: Cycle) -> Iterator[AnyAction]:
    """Yield the actions that are done without being planned: by a condition, or for want of any plan."""
    names = {one["action"] for one in planned(cycle)}
    always = not _plans(cycle)
    for action in declared(cycle).values():
        if action.name not in names and (always or action.when is not None):
            yield action


def put_due_into_plan(cycle: Cycle) -> list[dict[str, Any]]:
    """Plan the unplanned actions that are due by now, and return them.

    So that what governs and authorizes a plan sees them, too. A condition on what is not known yet does not
    hold yet.
    """
    entered: list[dict[str, Any]] = []
    for action in tuple(unplanned(cycle)):
        try:
            due = is_due(candidate(action), action, cycle)
        except TemplateError:
            continue
        if due:
            entered.append(put_into_plan(cycle, action.name, reason=action.when or ""))
    return entered


def _plans(cycle: Cycle) -> bool:
    reason = cycle.spec.stages.reason
    return reason is not None and any(isinstance(substage, Plan) for substage in reason.substages)
