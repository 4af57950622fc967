"""CycleView: what one cycle of an agent planned, was allowed, did and learnt, as a page shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from redraft.cycles.records import CycleRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.cycles.mail import Feedback

UNDECIDED = "waits for you"
REFUSED = "blocked"
PLANNED = "planned"
DECISIONS = {"approve": "approved", "reject": "rejected", "modify": "modified"}


@dataclass(frozen=True, slots=True)
class ActionView:
    """Hold an action of the plan, and what became of it; `params` is JSON, `said` a result or refusal."""

    id: str
    name: str
    params: str
    reason: str
    status: str
    said: str


@dataclass(frozen=True, slots=True)
class CycleView:
    """Hold a cycle: `actions` are those of its plan, `undecided` those of them that wait for a person."""

    record: CycleRecord
    actions: tuple[ActionView, ...]
    undecided: tuple[ActionView, ...]
    decision: str
    violations: tuple[str, ...]
    anomalies: tuple[str, ...]
    derived: tuple[tuple[str, str], ...]


def cycle_view(record: CycleRecord, pending: Sequence[Feedback] = ()) -> CycleView:
    """Take a record apart; `pending` is the feedback that no cycle has taken yet.

    What functions and models of the agent left out is left out here, too.
    """
    heard = [one for one in pending if one.cycle == record.number]
    derived = record.derived_data
    violations = objects(derived, "governance", "violations")
    actions = tuple(
        _action(planned, record, violations, heard) for planned in objects(derived, "plan", "actions")
    )
    return CycleView(
        record,
        actions,
        tuple(one for one in actions if one.status == UNDECIDED),
        _decision(part(derived.get("governance")).get("authority")),
        tuple(_violation(one) for one in violations),
        tuple(text_of(one.get("message") or one.get("description") or one) for one in _anomalies(derived)),
        tuple((name, text_of(value, 2)) for name, value in derived.items() if value),
    )


def without_keys(record: CycleRecord) -> CycleRecord:
    """Return a record without the keys of its actions: they tell nobody anything, and look like secrets."""
    execution = part(record.derived_data.get("execution"))
    bare = [
        {name: value for name, value in one.items() if name != "idempotencyKey"}
        for one in objects(record.derived_data, "execution", "actions")
    ]
    if not bare:
        return record
    return replace(record, derived_data={**record.derived_data, "execution": {**execution, "actions": bare}})


def deprecated(record: CycleRecord) -> Iterator[str]:
    """Return the ids and descriptions of the patterns that a cycle retired, as its `learn` named them."""
    listed = part(record.derived_data.get("learnings")).get("deprecatedPatterns")
    for one in cast("list[Any]", listed) if isinstance(listed, list) else []:
        fields = part(one)
        name = fields.get("id") or fields.get("description") if fields else one
        if isinstance(name, str):
            yield name.strip()


def part(value: Any) -> Mapping[str, Any]:
    """Return a value where it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def objects(derived: Mapping[str, Any], stage: str, name: str) -> list[Mapping[str, Any]]:
    """Return the objects that a stage left in an array."""
    listed = part(derived.get(stage)).get(name)
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return []
    return [part(one) for one in cast("Sequence[Any]", listed) if isinstance(one, Mapping)]


def text_of(value: Any, indent: int | None = None) -> str:
    """Return a text as it is, and other data as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def _action(
    planned: Mapping[str, Any],
    record: CycleRecord,
    violations: Sequence[Mapping[str, Any]],
    heard: Sequence[Feedback],
) -> ActionView:
    derived, own = record.derived_data, planned.get("id")
    done = next((one for one in objects(derived, "execution", "actions") if one.get("id") == own), None)
    params = planned.get("params")
    view = ActionView(
        str(own),
        str(planned.get("action", "")),
        text_of(params) if params else "",
        str(planned.get("reason") or ""),
        PLANNED,
        "",
    )
    if done is not None:
        said = done.get("error") or done.get("result")
        return replace(view, status=str(done.get("status")), said=text_of(said) if said else "")
    approved = part(derived.get("governance")).get("approved")
    if not isinstance(approved, Sequence):
        return view
    if own not in approved:
        why = (one.get("message") for one in violations if one.get("actionId") in (own, None))
        return replace(view, status=REFUSED, said=str(next(why, None) or ""))
    if record.status != "waiting":
        return view
    verdict = next((one.verdict for one in heard if one.action in (None, own, view.name)), None)
    return replace(view, status=UNDECIDED if verdict is None else DECISIONS[verdict])


def _decision(authorization: Any) -> str:
    """Say who decided on the plan, and how."""
    decided = part(authorization)
    if not decided or decided.get("mode") == "autonomous":
        return ""
    said = f"{decided.get('decision')} by {decided.get('by') or 'nobody who gave a name'}"
    if decided.get("decision") == "default":
        said = "by its default"
    return f"{said}: {decided['message']}" if decided.get("message") else said


def _violation(one: Mapping[str, Any]) -> str:
    about = f" ({one['action']})" if one.get("action") else ""
    ended = "" if one.get("blocked") else ", recorded only"
    return f"{one.get('constraint')}{about}: {one.get('message')}{ended}"


def _anomalies(derived: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return objects(derived, "analysis", "anomalies")
