"""Authorize: who decides, what comes of a verdict, and what of none."""

import pytest

from cycling import ScriptedBus, cycle_of, run, spec_of
from redraft.cycles.authorize import authorize
from redraft.cycles.feedback import Feedback
from redraft.cycles.govern import govern
from redraft.cycles.governance import admit, refusal
from redraft.loop.journal import Journalled
from redraft.redact.environment import redactor_of_environment
from redraft.stores.memory import MemoryStore

AT = "2026-11-22T12:00:00.000Z"
CHEAP = {"name": "cheap", "require": "action.params.cost < 10"}
TOTAL = {"name": "total", "require": "derivedData.plan.actions[0].params.cost < 10"}


def action(name, number, **params):
    return {"action": name, "params": params, "reason": "", "id": f"7-{number}"}


def verdict(kind, about=None, changes=None, name="f1"):
    return Feedback(name, kind, "because", AT, 7, about, changes, "Ada")


def authorized(config, verdicts=(), *, constraints=(), more=(), step=None, actions=None):
    reason = [{"type": "plan", "name": "p", "config": {"rules": []}}]
    if constraints:
        reason.append({"type": "govern", "name": "g", "config": {"constraints": list(constraints)}})
    reason.append({"type": "authorize", "name": "ask", "config": config})
    declared = [{"type": "log", "name": name, "message": "x"} for name in ("buy", "stop")]
    spec = spec_of(
        reason=reason, actuate=[{"type": "execute", "name": "e", "config": {"actions": [*declared, *more]}}]
    )
    given = [action("buy", 1, cost=5), action("stop", 2, force=True)] if actions is None else actions
    bus = ScriptedBus(verdicts=[*verdicts, None])
    cycle, _ = cycle_of(
        spec, derived={"plan": {"actions": given}}, bus=bus, **({} if step is None else {"step": step})
    )

    async def main():
        if constraints:
            await govern(spec.stages.reason.substages[1], cycle)
        await authorize(spec.stages.reason.substages[-1], cycle)

    run(main())
    return cycle, bus


SUPERVISED = {"mode": "supervised", "timeoutMs": 5_000}
CONTROLLED = {"mode": "controlled"}
BOTH = ["7-1", "7-2"]
NONE_CAME = "nobody decided within 5,000 ms, so: "


@pytest.mark.parametrize(
    ("config", "verdicts", "approved", "decision", "message"),
    [
        ({}, [], BOTH, "approved", ""),
        ({**CONTROLLED, "when": "derivedData.plan.actions | length > 2"}, [], BOTH, "approved", ""),
        (SUPERVISED, [verdict("approve")], BOTH, "approved", "because"),
        (SUPERVISED, [verdict("reject")], [], "rejected", "because"),
        (SUPERVISED, [], [], "default", NONE_CAME + "reject"),
        ({**SUPERVISED, "default": "approve"}, [], BOTH, "default", NONE_CAME + "approve"),
        ({**CONTROLLED, "default": "approve", "timeoutMs": 5_000}, [], [], "default", NONE_CAME + "reject"),
        (CONTROLLED, [verdict("approve")], BOTH, "approved", "because"),
        (
            CONTROLLED,
            [verdict("reject", "buy"), verdict("approve", "7-2", name="f2")],
            ["7-2"],
            "approved",
            "because; because",
        ),
        (
            CONTROLLED,
            [verdict("approve", "buy"), verdict("reject", name="f2")],
            ["7-1"],
            "approved",
            "because; because",
        ),
        (SUPERVISED, [verdict("approve", "buy")], ["7-1"], "approved", "because; " + NONE_CAME + "reject"),
        (
            SUPERVISED,
            [verdict("modify", "buy", {"cost": 7})],
            ["7-1"],
            "modified",
            "because; " + NONE_CAME + "reject",
        ),
        (SUPERVISED, [verdict("modify", None, {"cost": 7})], BOTH, "modified", "because"),
        (SUPERVISED, [verdict("modify", None, {"colour": "red"})], [], "modified", "because"),
        (SUPERVISED, [verdict("modify")], [], "modified", "because"),
    ],
)
def test_a_decision(config, verdicts, approved, decision, message):
    cycle, _ = authorized(config, verdicts)
    governance = cycle.state.derived_data["governance"]
    assert governance["approved"] == approved
    assert (governance["authority"]["decision"], governance["authority"]["message"]) == (
        decision,
        message,
    )


def test_modify_puts_its_parameters_in_place_of_the_planned_ones():
    cycle, _ = authorized(SUPERVISED, [verdict("modify", None, {"cost": 7})])
    assert [one["params"] for one in cycle.state.derived_data["plan"]["actions"]] == [
        {"cost": 7},
        {"force": True},
    ]
    cycle, _ = authorized(
        SUPERVISED,
        [verdict("modify", "pause", {"after": 3}), verdict("approve", name="f2")],
        more=[{"type": "log", "name": "pause", "message": "for {{ params.after }} s"}],
        actions=[action("buy", 1, cost=5), action("pause", 2, force=True)],
    )
    assert cycle.state.derived_data["plan"]["actions"][1]["params"] == {"force": True, "after": 3}


@pytest.mark.parametrize("about", [None, "buy"])
def test_a_parameter_that_no_action_has_a_use_for_does_not_run_what_was_planned(about):
    cycle, _ = authorized(SUPERVISED, [verdict("modify", about, {"cots": 7})])
    governance = cycle.state.derived_data["governance"]
    assert "7-1" not in governance["approved"]
    assert [one["params"] for one in cycle.state.derived_data["plan"]["actions"]] == [
        {"cost": 5},
        {"force": True},
    ]
    assert "'cots', which no planned action that it is about has a use for" in cycle.failures[0]


@pytest.mark.parametrize("constraint", [CHEAP, TOTAL])
@pytest.mark.parametrize(("cost", "approved"), [(7, True), (70, False)])
def test_what_was_modified_is_held_against_the_constraints_again(cost, approved, constraint):
    buy = action("buy", 1, cost=5)
    cycle, _ = authorized(
        SUPERVISED, [verdict("modify", "buy", {"cost": cost})], constraints=[constraint], actions=[buy]
    )
    assert ("7-1" in cycle.state.derived_data["governance"]["approved"]) is approved


def test_a_person_is_asked_as_long_as_something_is_undecided():
    _, bus = authorized(CONTROLLED, [verdict("approve", "buy"), verdict("approve", "stop", name="f2")])
    assert bus.waits == [(7, None, []), (7, None, ["f1"])]
    _, bus = authorized(SUPERVISED, [verdict("approve")])
    [(_, within, _)] = bus.waits
    assert 4 < within <= 5


@pytest.mark.parametrize(("actions", "constraints"), [([], ()), ([action("buy", 1, cost=50)], [CHEAP])])
def test_nobody_is_asked_about_nothing(actions, constraints):
    cycle, bus = authorized(CONTROLLED, actions=actions, constraints=constraints)
    assert bus.waits == []
    assert cycle.state.derived_data["governance"]["authority"]["message"] == "nothing to decide on"


def test_a_verdict_on_what_is_not_planned_is_said():
    cycle, _ = authorized(SUPERVISED, [verdict("approve", "fly"), verdict("approve", name="f2")])
    assert cycle.state.derived_data["governance"]["approved"] == BOTH
    assert "'fly'" in cycle.failures[0]


@pytest.mark.parametrize(("config", "refused"), [(CONTROLLED, True), ({}, False)])
def test_what_nobody_has_seen_is_not_approved_by_anybody(config, refused):
    late = {"type": "alert", "name": "tell", "message": "!", "when": "derivedData.execution.actions"}
    cycle, _ = authorized(config, [verdict("approve")], more=[late])
    cycle.state.derived_data["execution"]["actions"] = [{"id": "7-1"}]
    admit(cycle)
    entered = cycle.state.derived_data["plan"]["actions"][2]
    assert entered["action"] == "tell"
    assert refusal(entered, cycle) == ("Not approved (Ada: because)." if refused else "")


def test_what_is_due_by_its_condition_is_asked_about():
    due = {"type": "alert", "name": "tell", "message": "!", "when": "true"}
    cycle, _ = authorized(CONTROLLED, [verdict("reject", "tell"), verdict("approve", name="f2")], more=[due])
    assert cycle.state.derived_data["governance"]["approved"] == BOTH


def test_a_resumed_cycle_does_not_ask_again():
    store = MemoryStore()
    first, _ = authorized(SUPERVISED, [verdict("modify", None, {"cost": 7})], step=Journalled(store, "m-7"))
    second, bus = authorized(SUPERVISED, [], step=Journalled(store, "m-7"))
    assert bus.waits == []
    assert first.state.derived_data == second.state.derived_data


def test_who_decided_is_no_secret():
    authority = {"mode": "autonomous", "decision": "approved", "by": "", "message": ""}
    governance = {"governance": {"violations": [], "approved": ["7-1"], "authority": authority}}
    assert redactor_of_environment().redact_json(governance) == governance
