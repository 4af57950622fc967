"""Govern: constraints on each action and on the plan, and what a violation does."""

import pytest

from cycling import cycle_of, run, spec_of
from redraft.cycles.govern import govern
from redraft.cycles.governance import refusal

CHEAP = {"name": "cheap", "require": "action.params.cost < 10", "message": "{{ action.name }} is dear"}
NO_STOP = {"name": "goes on", "require": "action.name != 'stop'"}
FEW = {"name": "few", "require": "derivedData.plan.actions | length < 2"}
ALERT = {"type": "alert", "name": "tell", "message": "!", "when": "derivedData.governance.violations"}


def action(name, number, **params):
    return {"action": name, "params": params, "reason": "", "id": f"7-{number}"}


BUY, STOP = action("buy", 1, cost=20), action("stop", 2, cost=0)


def governed(*constraints, actions=(BUY, STOP), more=(), again=()):
    declared = [{"type": "log", "name": name, "message": "x"} for name in ("buy", "stop")]
    reason = [{"type": "plan", "name": "p", "config": {"rules": []}}]
    reason += [
        {"type": "govern", "name": f"g{at}", "config": {"constraints": given}}
        for at, given in enumerate([list(constraints), *([list(again)] if again else [])])
    ]
    spec = spec_of(
        reason=reason, actuate=[{"type": "execute", "name": "e", "config": {"actions": [*declared, *more]}}]
    )
    cycle, _ = cycle_of(spec, derived={"plan": {"actions": [dict(one) for one in actions]}})
    for substage in spec.stages.reason.substages[1:]:
        run(govern(substage, cycle))
    return cycle


def violation(constraint, action, message, *, blocked=True):
    return {
        "constraint": constraint,
        "action": action and action["action"],
        "actionId": action and action["id"],
        "message": message,
        "blocked": blocked,
    }


@pytest.mark.parametrize(
    ("constraints", "violations", "approved"),
    [
        ([], [], ["7-1", "7-2"]),
        ([CHEAP], [violation("cheap", BUY, "buy is dear")], ["7-2"]),
        (
            [{**CHEAP, "enforce": "record"}],
            [violation("cheap", BUY, "buy is dear", blocked=False)],
            ["7-1", "7-2"],
        ),
        (
            [CHEAP, NO_STOP],
            [
                violation("cheap", BUY, "buy is dear"),
                violation("goes on", STOP, "action.name != 'stop' does not hold"),
            ],
            [],
        ),
        ([FEW], [violation("few", None, "derivedData.plan.actions | length < 2 does not hold")], []),
        (
            [{**FEW, "enforce": "record", "message": "many"}],
            [violation("few", None, "many", blocked=False)],
            ["7-1", "7-2"],
        ),
    ],
)
def test_what_constraints_leave(constraints, violations, approved):
    governance = governed(*constraints).state.derived_data["governance"]
    assert governance == {"violations": violations, "approved": approved}


def test_what_cannot_be_judged_is_not_approved():
    cycle = governed({"name": "odd", "require": "action.params.colour == 'red'"})
    governance = cycle.state.derived_data["governance"]
    assert governance["approved"] == []
    assert all("can't be judged" in one["message"] for one in governance["violations"])


def test_what_is_due_by_its_condition_is_governed_too():
    cycle = governed(CHEAP, more=[ALERT], again=[{"name": "quiet", "require": "action.type != 'alert'"}])
    governance = cycle.state.derived_data["governance"]
    assert [one["action"] for one in cycle.state.derived_data["plan"]["actions"]] == ["buy", "stop", "tell"]
    assert governance["approved"] == ["7-2"]
    found = [(one["constraint"], one["action"]) for one in governance["violations"]]
    assert found == [("cheap", "buy"), ("cheap", "tell"), ("quiet", "tell")]  # `tell` has no cost to judge


@pytest.mark.parametrize(
    ("constraints", "why"),
    [
        ([CHEAP], ["The constraint 'cheap': buy is dear", ""]),
        ([{**FEW, "message": "many"}], ["The constraint 'few': many"] * 2),
    ],
)
def test_why_an_action_is_refused(constraints, why):
    cycle = governed(*constraints)
    assert [refusal(one, cycle) for one in (BUY, STOP)] == why


def test_data_in_a_message_stay_data():
    told = {**CHEAP, "message": "{{ action.params.note }}"}
    cycle = governed(told, actions=[action("buy", 1, cost=99, note="{{ 1 }}")])
    assert cycle.state.derived_data["governance"]["violations"][0]["message"] == "{{ 1 }}"
