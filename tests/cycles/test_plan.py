"""Plan: actions by rules, a function and a model; only what the file declares is planned."""

import pytest

from cycling import cycle_of, run, spec_of
from redraft.cycles.plan import plan

ACTIONS = [
    {"type": "log", "name": "note", "message": "{{ params.text }}"},
    {"type": "function", "name": "stop", "function": "stop"},
]


def planned(given, functions=None, replies=(), **state):
    spec = spec_of(
        reason=[{"type": "plan", "name": "think", **given}],
        actuate=[{"type": "execute", "name": "act", "config": {"actions": ACTIONS}}],
    )
    cycle, model = cycle_of(spec, functions=functions, replies=replies, **{"payload": {"rate": 6}, **state})
    run(plan(spec.stages.reason.substages[0], cycle))
    return cycle, model


def action(name, number=1, params=None, reason=""):
    return {"action": name, "params": params or {}, "reason": reason, "id": f"7-{number}"}


def rules(*given):
    return {"config": {"rules": list(given)}}


@pytest.mark.parametrize(
    ("given", "replies", "plan"),
    [
        (rules({"action": "stop"}), (), {"actions": [action("stop")]}),
        (rules({"action": "stop", "when": "environmentalData.payload.rate < 6"}), (), {"actions": []}),
        (
            rules(
                {"action": "stop", "when": "environmentalData.payload.rate > 5"},
                {"action": "note", "params": {"text": "{{ environmentalData.payload.rate }}"}, "reason": "a"},
            ),
            (),
            {
                "actions": [
                    action("stop", reason="environmentalData.payload.rate > 5"),
                    action("note", 2, {"text": 6}, "a"),
                ]
            },
        ),
        ({"prompt": "?"}, [{"actions": []}], {"actions": []}),
        (
            {"prompt": "?"},
            [{"actions": [{"action": "note", "params": {"text": "{{ memory }}"}}], "why": "so"}],
            {"actions": [action("note", 1, {"text": "{{ memory }}"})], "why": "so"},
        ),
        (
            {"prompt": "?", "outputSchema": {"type": "object"}},
            [{"actions": ["stop", {"name": "note", "reason": "b"}, None]}],
            {"actions": [action("stop"), action("note", 2, reason="b")]},
        ),
        ({"prompt": "?", "outputSchema": {"type": "array"}}, ['["stop"]'], {"actions": [action("stop")]}),
        ({"config": {"function": "chosen"}}, (), {"actions": [action("stop")]}),
        ({"config": {"function": "nothing"}}, (), {"actions": []}),
        (
            {"prompt": "?", "config": {"rules": [{"action": "stop"}], "function": "chosen"}},
            [{"actions": [{"action": "note"}]}],
            {"actions": [action("stop"), action("stop", 2), action("note", 3)]},
        ),
    ],
)
def test_a_plan(given, replies, plan):
    cycle, _ = planned(given, {"chosen": lambda: "stop", "nothing": lambda: None}, replies)
    assert cycle.state.derived_data["plan"] == plan
    assert cycle.failures == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("stpo", "there is no action 'stpo'; did you mean 'stop'?"),
        ({"action": "rm -rf /"}, "there is no action 'rm -rf /'"),
        ({"action": None}, "there is no action None"),
        ({"action": ["stop"]}, "there is no action ['stop']"),
        ({}, "there is no action None"),
        (7, "7 is no action"),
        ([["stop"]], "is no action"),
        ({"action": "note", "params": "text"}, "the params of 'note' are 'text'; expected an object"),
    ],
)
def test_what_cannot_be_planned_is_a_failure_and_the_rest_is_planned(wrong, message):
    given = {"prompt": "?", "outputSchema": {"type": "object"}}
    cycle, _ = planned(given, replies=[{"actions": [wrong, "stop"]}])
    assert cycle.state.derived_data["plan"]["actions"] == [action("stop")]
    [failure] = cycle.failures
    assert failure.startswith("reason/think: not planned: ")
    assert message in failure


def test_a_plan_has_an_end():
    cycle, _ = planned({"config": {"function": "chosen"}}, {"chosen": lambda: ["stop"] * 105})
    assert len(cycle.state.derived_data["plan"]["actions"]) == 100
    assert len(cycle.failures) == 5


def test_a_rule_that_cannot_be_judged_plans_nothing():
    cycle, _ = planned(rules({"action": "stop", "when": "environmentalData.payload.none.at"}))
    assert cycle.state.derived_data["plan"] == {"actions": []}
    assert "the rule for 'stop' can't be judged" in cycle.failures[0]


def test_the_model_is_told_what_it_can_plan_and_told_again():
    cycle, model = planned(
        {"prompt": "Choose."}, replies=[{"actions": [{"action": "fly"}]}, {"actions": [{"action": "stop"}]}]
    )
    first, second = model.requests
    assert first.messages[0].content.endswith("by their names:\n- note (log)\n- stop (function)")
    assert "fly" in second.messages[1].content
    assert cycle.state.derived_data["plan"]["actions"] == [action("stop")]
    assert cycle.usage.requests == 2
