"""Governance: what of a plan may be done, as constraints and people have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.cycles.data import said
from redraft.cycles.planned import declared, planned, put_due_into_plan, shown
from redraft.cycles.rendering import render_text, scopes_of
from redraft.cycles.spec_reason import Authorize, Constraint, Govern
from redraft.text.condition import braced, holds, template
from redraft.text.templates import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redraft.cycles.cycle import Cycle

AUTONOMOUS = "autonomous"


def governance_of(cycle: Cycle) -> dict[str, Any]:
    """Return `derivedData.governance`: its `violations`, and the ids that are `approved`, at first all."""
    governance: dict[str, Any] = cycle.state.derived_data["governance"]
    governance.setdefault("violations", [])
    governance.setdefault("approved", [one["id"] for one in planned(cycle)])
    return governance


def is_governed(cycle: Cycle) -> bool:
    """Say whether anything decides on the plan."""
    return any(isinstance(substage, Govern | Authorize) for substage in _reasoning(cycle))


def constraints_of(cycle: Cycle) -> list[Constraint]:
    """Return all constraints of the file."""
    governs = (substage for substage in _reasoning(cycle) if isinstance(substage, Govern))
    return [constraint for govern in governs for constraint in govern.config.constraints]


def admit(cycle: Cycle) -> None:
    """Plan what is due by its condition, and approve of it what keeps to the constraints.

    Once a person was asked about the plan, nothing that comes later is approved: nobody has seen it.
    """
    entered = put_due_into_plan(cycle)
    if not is_governed(cycle):
        return
    governance = governance_of(cycle)
    if governance.get("authority", {}).get("mode", AUTONOMOUS) == AUTONOMOUS:
        governance["approved"] += [one["id"] for one in entered if one["id"] not in governance["approved"]]
        judge(entered, constraints_of(cycle), cycle)


def judge(actions: Sequence[dict[str, Any]], constraints: Iterable[Constraint], cycle: Cycle) -> None:
    """Hold actions against the constraints that speak of an `action`; what breaks one that blocks is out."""
    about_actions = [constraint for constraint in constraints if _speaks_of_action(constraint)]
    for action in actions:
        breaking = [constraint for constraint in about_actions if _is_broken(constraint, action, cycle)]
        if any(constraint.enforce == "block" for constraint in breaking):
            disapprove(action["id"], cycle)


def judge_plan(constraints: Iterable[Constraint], cycle: Cycle) -> None:
    """Hold the plan as a whole against the other constraints; one that blocks, blocks all of it."""
    about_plan = [constraint for constraint in constraints if not _speaks_of_action(constraint)]
    breaking = [constraint for constraint in about_plan if _is_broken(constraint, None, cycle)]
    if any(constraint.enforce == "block" for constraint in breaking):
        governance_of(cycle)["approved"] = []


def disapprove(action_id: str, cycle: Cycle) -> None:
    """Take an action from those that are approved."""
    governance = governance_of(cycle)
    governance["approved"] = [one for one in governance["approved"] if one != action_id]


def refusal(action: dict[str, Any], cycle: Cycle) -> str:
    """Say why a planned action may not be done; nothing where it may."""
    governance = governance_of(cycle)
    if not is_governed(cycle) or action["id"] in governance["approved"]:
        return ""
    for violation in governance["violations"]:
        if violation["blocked"] and violation["actionId"] in (action["id"], None):
            return f"The constraint {violation['constraint']!r}: {violation['message']}"
    authority = governance.get("authority", {})
    who, message = authority.get("by") or "nobody", authority.get("message", "")
    return f"Not approved ({who}{f': {message}' if message else ''})."


def _is_broken(constraint: Constraint, action: dict[str, Any] | None, cycle: Cycle) -> bool:
    """Say whether a constraint does not hold, and record it, once.

    One that can't be judged counts as broken: nobody knows that it holds.
    """
    seen = None if action is None else shown(action, declared(cycle)[action["action"]])
    scopes = scopes_of(cycle, seen)
    try:
        if holds(constraint.require, scopes):
            return False
        message = render_text(constraint.message, scopes) if constraint.message else ""
        message = message or f"{constraint.require} does not hold"
    except TemplateError as error:
        message = f"it can't be judged: {said(error)}"
    violation = {
        "constraint": constraint.name,
        "action": action and action["action"],
        "actionId": action and action["id"],
        "message": message,
        "blocked": constraint.enforce == "block",
    }
    violations = governance_of(cycle)["violations"]
    if violation not in violations:
        violations.append(violation)
    return True


def _speaks_of_action(constraint: Constraint) -> bool:
    texts = (braced(constraint.require), constraint.message)
    return any("action" in template(text).scopes for text in texts)


def _reasoning(cycle: Cycle) -> Sequence[Any]:
    reason = cycle.spec.stages.reason
    return () if reason is None else reason.substages
