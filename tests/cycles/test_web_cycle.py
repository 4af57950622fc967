from datetime import UTC, datetime

import pytest

from redraft.cycles.mail import Feedback
from redraft.cycles.records import CycleRecord
from redraft.cycles.web import cycle_view, deprecated, without_keys

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
PLAN = {"actions": [{"id": "7-1", "action": "lower", "params": {"level": 1}, "reason": "high"}]}
DONE = {
    "id": "7-1",
    "action": "lower",
    "status": "succeeded",
    "result": {"ok": 1},
    "idempotencyKey": "k" * 32,
}
BLOCKED = {
    "approved": [],
    "violations": [
        {"constraint": "c", "action": "lower", "actionId": "7-1", "message": "too low", "blocked": True}
    ],
}


def cycle(status="finished", **derived):
    return CycleRecord(7, NOON, status=status, derived_data=derived)


def said(verdict, action=None, number=7):
    return Feedback("f1", verdict, "", "2026-11-22T12:00:00.000Z", number, action)


@pytest.mark.parametrize(
    ("record", "pending", "status", "told"),
    [
        (cycle(plan=PLAN), [], "planned", ""),
        (cycle(plan=PLAN, execution={"actions": [DONE]}), [], "succeeded", '{"ok": 1}'),
        (cycle(plan=PLAN, execution={"actions": [DONE | {"error": "no"}]}), [], "succeeded", "no"),
        (cycle("waiting", plan=PLAN, governance={"approved": ["7-1"]}), [], "waits for you", ""),
        (cycle("waiting", plan=PLAN, governance={"approved": ["7-1"]}), [said("reject")], "rejected", ""),
        (
            cycle("waiting", plan=PLAN, governance={"approved": ["7-1"]}),
            [said("modify", "lower")],
            "modified",
            "",
        ),
        (
            cycle("waiting", plan=PLAN, governance={"approved": ["7-1"]}),
            [said("approve", "other"), said("approve", number=6)],
            "waits for you",
            "",
        ),
        (cycle("waiting", plan=PLAN, governance=BLOCKED), [], "blocked", "too low"),
        (cycle(plan=PLAN, governance={"approved": ["7-1"]}), [], "planned", ""),
    ],
)
def test_what_became_of_an_action(record, pending, status, told):
    view = cycle_view(record, pending)
    [action] = view.actions
    assert (action.status, action.said, action.params) == (status, told, '{"level": 1}')
    assert bool(view.undecided) == (status == "waits for you")


@pytest.mark.parametrize(
    "derived",
    [
        {},
        {"plan": {"leftOut": "60,000 characters"}, "execution": [], "governance": None},
        {"plan": {"actions": "all"}, "analysis": {"anomalies": [3, None]}, "governance": {"violations": 4}},
        {"plan": {"actions": [{}]}, "governance": {"approved": 3, "authority": "yes"}},
        {"learnings": {"deprecatedPatterns": {"a": 1}}},
    ],
)
def test_what_has_no_such_shape_is_left_out(derived):
    view = cycle_view(cycle("waiting", **derived))
    assert (view.undecided, view.decision, view.anomalies, view.violations) == ((), "", (), ())
    assert list(deprecated(cycle(**derived))) == []


@pytest.mark.parametrize(
    ("authorization", "decision"),
    [
        ({"mode": "autonomous", "decision": "approved"}, ""),
        ({"mode": "controlled", "decision": "rejected", "by": "Ada", "message": "no"}, "rejected by Ada: no"),
        ({"mode": "supervised", "decision": "approved", "by": ""}, "approved by nobody who gave a name"),
        (
            {"mode": "supervised", "decision": "default", "message": "nobody decided"},
            "by its default: nobody decided",
        ),
    ],
)
def test_who_decided_is_said(authorization, decision):
    assert cycle_view(cycle(governance={"authority": authorization})).decision == decision


def test_keys_of_actions_are_left_out():
    bare = without_keys(cycle(plan=PLAN, execution={"actions": [DONE], "more": 1}))
    assert "idempotencyKey" not in str(bare.derived_data)
    assert bare.derived_data["execution"]["more"] == 1


def test_what_a_cycle_retired_is_named_by_id_or_description():
    found = {"deprecatedPatterns": ["p1-1 ", {"id": "p2-1"}, {"description": "old"}, 3, {}]}
    assert list(deprecated(cycle(learnings=found))) == ["p1-1", "p2-1", "old"]
