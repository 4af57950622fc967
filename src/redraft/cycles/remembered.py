"""What is remembered of a cycle: its actions, its violations of constraints, what people said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.cycles.bounded import fit_to_keep
from redraft.cycles.stamp import moment_of, stamp_of

if TYPE_CHECKING:
    from datetime import datetime

    from redraft.cycles.feedback import Feedback
    from redraft.cycles.memory import Item

LARGEST = 2_000
"""Characters of an item, about."""
_OF_AN_ACTION = ("action", "type", "status", "params", "reason", "result", "error", "durationMs")
_OF_A_PLAN = ("params", "reason")
_OF_A_VIOLATION = ("constraint", "action", "message", "blocked")

Redacted = Callable[[Any], Any]


def action_items(number: int, derived: Mapping[str, Any], redacted: Redacted, now: datetime) -> list[Item]:
    """Return what became of each action: with what and why it was planned, and whether the cycle worked."""
    planned = {one.get("id"): one for one in _objects(derived, "plan", "actions")}
    worked = _object(derived.get("evaluation")).get("success")
    items: list[Item] = []
    for count, done in enumerate(_objects(derived, "execution", "actions"), 1):
        plan = _chosen(planned.get(done.get("id"), {}), _OF_A_PLAN)
        said = _kept(_chosen({**plan, **done}, _OF_AN_ACTION), redacted)
        if isinstance(worked, bool):
            said["success"] = worked
        stamp = moment_of(str(done.get("startedAt"))) or now
        items.append(_item(str(done.get("id") or f"{number}-{count}"), stamp, number, said))
    return items


def violation_items(number: int, derived: Mapping[str, Any], redacted: Redacted, now: datetime) -> list[Item]:
    """Return the constraints that the plan did not keep to."""
    return [
        _item(f"v{number}-{count}", now, number, _kept(_chosen(violation, _OF_A_VIOLATION), redacted))
        for count, violation in enumerate(_objects(derived, "governance", "violations"), 1)
    ]


def feedback_item(feedback: Feedback, redacted: Redacted, now: datetime) -> Item:
    """Return what a person said, as prompts see it, pending or remembered."""
    said = {
        "verdict": feedback.verdict,
        "message": feedback.message,
        "action": feedback.action,
        "changes": feedback.changes,
        "by": feedback.by or None,
    }
    given = {name: value for name, value in said.items() if value is not None}
    return _item(feedback.id, moment_of(feedback.timestamp) or now, feedback.cycle, _kept(given, redacted))


def _item(key: str, moment: datetime, cycle: int | None, said: Mapping[str, Any]) -> Item:
    return {"id": key, "timestamp": stamp_of(moment), "cycle": cycle, **said}


def _kept(said: Mapping[str, Any], redacted: Redacted) -> dict[str, Any]:
    return fit_to_keep(said, redacted, LARGEST)


def _chosen(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _objects(derived: Mapping[str, Any], stage: str, name: str) -> list[Mapping[str, Any]]:
    listed = _object(derived.get(stage)).get(name)
    if not isinstance(listed, list):
        return []
    return [_object(one) for one in cast("list[Any]", listed) if isinstance(one, Mapping)]


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
