import pytest

from redraft.cycles.mail import Feedback
from redraft.cycles.reason import admit_due_actions, analyze, authorize, govern, plan, refusal_reason
from redraft.errors import OutputError
from redraft.redact.redactor import redactor_of_environment
from redraft.stores.sqlite import MemoryStore
from support.cycles import ScriptedBus, begun, cycle_of, run, spec_of

SCHEMA = {"type": "object", "properties": {"trend": {"type": "string"}}, "required": ["trend"]}
HIGH = {"name": "high", "when": "environmentalData.payload.rate > 5", "severity": "critical"}


def analyzed(part, functions=None, replies=(), **state):
    spec = spec_of(reason=[{"type": "analyze", "name": "look", **part}])
    cycle, _ = cycle_of(spec, functions=functions, replies=replies, **{"payload": {"rate": 6}, **state})
    run(analyze(spec.stages.reason.substages[0], cycle))
    return cycle


def anomaly(rule, message, severity="warning"):
    return {"rule": rule, "severity": severity, "message": message}


def rules(*entries):
    return {"config": {"rules": list(entries)}}


@pytest.mark.parametrize(
    ("part", "replies", "analysis"),
    [
        (rules(HIGH), (), {"anomalies": [anomaly("high", HIGH["when"], "critical")]}),
        (rules({**HIGH, "when": "{{ environmentalData.payload.rate > 6 }}"}), (), {"anomalies": []}),
        (
            rules({**HIGH, "message": "{{ environmentalData.payload.rate }} % of {{ agent.name }}"}),
            (),
            {"anomalies": [anomaly("high", "6 % of monitor", "critical")]},
        ),
        (
            {"prompt": "?", "outputSchema": SCHEMA, **rules(HIGH)},
            [{"trend": "up", "anomalies": ["odd", {"message": "hot", "line": 3}]}],
            {
                "anomalies": [
                    anomaly("high", HIGH["when"], "critical"),
                    anomaly("look", "odd"),
                    {**anomaly("look", "hot"), "line": 3},
                ],
                "trend": "up",
            },
        ),
        ({"prompt": "?"}, ["all is well"], {"anomalies": [], "look": "all is well"}),
        ({"config": {"function": "scored"}}, (), {"anomalies": [], "score": 6}),
        ({"config": {"function": "listed"}}, (), {"anomalies": [], "look": [1]}),
        ({"config": {"function": "silent"}}, (), {"anomalies": []}),
        ({"config": {"function": "calm"}}, (), {"anomalies": []}),
        ({"config": {"function": "calmer"}}, (), {"anomalies": []}),
    ],
)
def test_analyze_combines_rules_functions_and_models(part, replies, analysis):
    functions = {
        "scored": lambda state: {"score": state["environmentalData"]["payload"]["rate"]},
        "listed": lambda: [1],
        "silent": lambda: None,
        "calm": lambda: {"anomalies": None},
        "calmer": lambda: {"anomalies": [None]},
    }
    cycle = analyzed(part, functions, replies)
    assert cycle.state.derived_data["analysis"] == analysis
    assert cycle.failures == []


def test_a_rule_that_cannot_be_evaluated_does_not_stop_the_others():
    cycle = analyzed(rules({"name": "gone", "when": "environmentalData.payload.none.at > 1"}, HIGH))
    assert [one["rule"] for one in cycle.state.derived_data["analysis"]["anomalies"]] == ["high"]
    [failure] = cycle.failures
    assert failure.startswith("reason/look: the rule 'gone' can't be evaluated: ")


def test_templates_in_data_are_not_rendered():
    rule = rules({**HIGH, "when": "true", "message": "{{ environmentalData.payload.text }}"})
    cycle = analyzed(rule, payload={"text": "{{ memory }}"})
    assert cycle.state.derived_data["analysis"]["anomalies"][0]["message"] == "{{ memory }}"


def test_an_unusable_reply_raises_and_counts_as_usage():
    spec = spec_of(reason=[{"type": "analyze", "name": "look", "prompt": "?", "outputSchema": SCHEMA}])
    cycle, _ = cycle_of(spec, replies=["no", "no"])
    with pytest.raises(OutputError, match="reply can't be used"):
        run(analyze(spec.stages.reason.substages[0], cycle))
    assert cycle.usage.requests == 2


def test_prompts_record_the_memory_items_they_showed():
    patterns = [{"id": "p1", "description": "x"}]
    cycle = analyzed(
        {"prompt": "{{ memory.patterns | json }}"}, replies=["fine"], memory={"patterns": patterns}
    )
    assert cycle.rendered == {"p1"}


@pytest.mark.parametrize("value", [{"score": 1.5}, [1, "x"], "text", None, 4])
async def test_a_resumed_cycle_does_not_call_functions_again(value):
    calls, store, seen = [], MemoryStore(), []

    def scored():
        calls.append(1)
        return value

    spec = spec_of(reason=[{"type": "analyze", "name": "look", "config": {"function": "scored"}}])
    for _ in range(2):
        cycle, _ = cycle_of(spec, functions={"scored": scored}, step=begun(store, "monitor-7"))
        await analyze(spec.stages.reason.substages[0], cycle)
        seen.append(cycle.state.derived_data)
    assert seen[0] == seen[1]
    assert len(calls) == 1


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
    plan_actions = [action("buy", 1, cost=5), action("stop", 2, force=True)] if actions is None else actions
    bus = ScriptedBus(verdicts=[*verdicts, None])
    cycle, _ = cycle_of(
        spec, derived={"plan": {"actions": plan_actions}}, bus=bus, **({} if step is None else {"step": step})
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
NONE_CAME = "nobody decided within 5 s, so the default applies: "


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
            "because",
        ),
        (
            CONTROLLED,
            [verdict("approve", "buy"), verdict("reject", name="f2")],
            ["7-1"],
            "approved",
            "because",
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
    ],
)
def test_who_decides_and_what_stays_approved(config, verdicts, approved, decision, message):
    cycle, _ = authorized(config, verdicts)
    governance = cycle.state.derived_data["governance"]
    assert governance["approved"] == approved
    assert (governance["authority"]["decision"], governance["authority"]["message"]) == (
        decision,
        message,
    )


def test_modify_replaces_planned_parameters():
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
def test_modify_with_an_unknown_parameter_runs_nothing(about):
    cycle, _ = authorized(SUPERVISED, [verdict("modify", about, {"cots": 7})])
    governance = cycle.state.derived_data["governance"]
    assert "7-1" not in governance["approved"]
    assert [action["params"] for action in cycle.state.derived_data["plan"]["actions"]] == [
        {"cost": 5},
        {"force": True},
    ]
    assert "'cots', which it does not take" in cycle.failures[0]


@pytest.mark.parametrize("constraint", [CHEAP, TOTAL])
@pytest.mark.parametrize(("cost", "approved"), [(7, True), (70, False)])
def test_modified_actions_are_checked_against_the_constraints(cost, approved, constraint):
    buy = action("buy", 1, cost=5)
    cycle, _ = authorized(
        SUPERVISED, [verdict("modify", "buy", {"cost": cost})], constraints=[constraint], actions=[buy]
    )
    assert ("7-1" in cycle.state.derived_data["governance"]["approved"]) is approved


def test_waits_until_every_action_is_decided():
    _, bus = authorized(CONTROLLED, [verdict("approve", "buy"), verdict("approve", "stop", name="f2")])
    assert bus.waits == [(None, BOTH)]
    _, bus = authorized(SUPERVISED, [verdict("approve")])
    [(within, _)] = bus.waits
    assert 4 < within <= 5


@pytest.mark.parametrize(("actions", "constraints"), [([], ()), ([action("buy", 1, cost=50)], [CHEAP])])
def test_an_empty_plan_needs_no_decision(actions, constraints):
    cycle, bus = authorized(CONTROLLED, actions=actions, constraints=constraints)
    assert bus.waits == []
    assert cycle.state.derived_data["governance"]["authority"]["message"] == "nothing to decide on"


@pytest.mark.parametrize(("config", "refused"), [(CONTROLLED, True), ({}, False)])
def test_actions_added_after_the_decision_are_not_approved(config, refused):
    late = {"type": "alert", "name": "tell", "message": "!", "when": "derivedData.execution.actions"}
    cycle, _ = authorized(config, [verdict("approve")], more=[late])
    cycle.state.derived_data["execution"]["actions"] = [{"id": "7-1"}]
    admit_due_actions(cycle)
    entered = cycle.state.derived_data["plan"]["actions"][2]
    assert entered["action"] == "tell"
    assert refusal_reason(entered, cycle) == ("Not approved (Ada: because)." if refused else "")


def test_conditional_actions_are_part_of_the_decision():
    due = {"type": "alert", "name": "tell", "message": "!", "when": "true"}
    cycle, _ = authorized(CONTROLLED, [verdict("reject", "tell"), verdict("approve", name="f2")], more=[due])
    assert cycle.state.derived_data["governance"]["approved"] == BOTH


def test_a_resumed_cycle_does_not_ask_again():
    store = MemoryStore()
    first, _ = authorized(SUPERVISED, [verdict("modify", None, {"cost": 7})], step=begun(store, "m-7"))
    second, bus = authorized(SUPERVISED, [], step=begun(store, "m-7"))
    assert bus.waits == []
    assert first.state.derived_data == second.state.derived_data


def test_the_authority_is_recorded():
    authority = {"mode": "autonomous", "decision": "approved", "by": "", "message": ""}
    governance = {"governance": {"violations": [], "approved": ["7-1"], "authority": authority}}
    assert redactor_of_environment().redact_json(governance) == governance


CHEAP_govern = {"name": "cheap", "require": "action.params.cost < 10", "message": "{{ action.name }} is dear"}
NO_STOP = {"name": "goes on", "require": "action.name != 'stop'"}
FEW = {"name": "few", "require": "derivedData.plan.actions | length < 2"}
ALERT = {"type": "alert", "name": "tell", "message": "!", "when": "derivedData.governance.violations"}


BUY, STOP = action("buy", 1, cost=20), action("stop", 2, cost=0)


def governed(*constraints, actions=(BUY, STOP), more=(), again=()):
    declared = [{"type": "log", "name": name, "message": "x"} for name in ("buy", "stop")]
    reason = [{"type": "plan", "name": "p", "config": {"rules": []}}]
    reason += [
        {"type": "govern", "name": f"g{at}", "config": {"constraints": checks}}
        for at, checks in enumerate([list(constraints), *([list(again)] if again else [])])
    ]
    spec = spec_of(
        reason=reason, actuate=[{"type": "execute", "name": "e", "config": {"actions": [*declared, *more]}}]
    )
    cycle, _ = cycle_of(spec, derived={"plan": {"actions": [dict(action) for action in actions]}})
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
        ([CHEAP_govern], [violation("cheap", BUY, "buy is dear")], ["7-2"]),
        (
            [{**CHEAP_govern, "enforce": "record"}],
            [violation("cheap", BUY, "buy is dear", blocked=False)],
            ["7-1", "7-2"],
        ),
        (
            [CHEAP_govern, NO_STOP],
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
def test_govern_approves_what_satisfies_the_constraints(constraints, violations, approved):
    governance = governed(*constraints).state.derived_data["governance"]
    assert governance == {"violations": violations, "approved": approved}


def test_a_constraint_that_cannot_be_evaluated_blocks():
    cycle = governed({"name": "odd", "require": "action.params.colour == 'red'"})
    governance = cycle.state.derived_data["governance"]
    assert governance["approved"] == []
    assert all("can't be evaluated" in violation["message"] for violation in governance["violations"])


def test_conditional_actions_are_governed():
    cycle = governed(
        CHEAP_govern, more=[ALERT], again=[{"name": "quiet", "require": "action.type != 'alert'"}]
    )
    governance = cycle.state.derived_data["governance"]
    assert [action["action"] for action in cycle.state.derived_data["plan"]["actions"]] == [
        "buy",
        "stop",
        "tell",
    ]
    assert governance["approved"] == ["7-2"]
    found = [(violation["constraint"], violation["action"]) for violation in governance["violations"]]
    assert found == [("cheap", "buy"), ("cheap", "tell"), ("quiet", "tell")]  # `tell` has no cost


@pytest.mark.parametrize(
    ("constraints", "why"),
    [
        ([CHEAP_govern], ["The constraint 'cheap': buy is dear", ""]),
        ([{**FEW, "message": "many"}], ["The constraint 'few': many"] * 2),
    ],
)
def test_refusal_reasons(constraints, why):
    cycle = governed(*constraints)
    assert [refusal_reason(one, cycle) for one in (BUY, STOP)] == why


def test_templates_in_messages_are_not_rendered_twice():
    constraint = {**CHEAP_govern, "message": "{{ action.params.note }}"}
    cycle = governed(constraint, actions=[action("buy", 1, cost=99, note="{{ 1 }}")])
    assert cycle.state.derived_data["governance"]["violations"][0]["message"] == "{{ 1 }}"


ACTIONS = [
    {"type": "log", "name": "note", "message": "{{ params.text }}"},
    {"type": "function", "name": "stop", "function": "stop"},
]


def planned(part, functions=None, replies=(), **state):
    spec = spec_of(
        reason=[{"type": "plan", "name": "think", **part}],
        actuate=[{"type": "execute", "name": "act", "config": {"actions": ACTIONS}}],
    )
    cycle, model = cycle_of(spec, functions=functions, replies=replies, **{"payload": {"rate": 6}, **state})
    run(plan(spec.stages.reason.substages[0], cycle))
    return cycle, model


def action_plan(name, number=1, params=None, reason=""):
    return {"action": name, "params": params or {}, "reason": reason, "id": f"7-{number}"}


@pytest.mark.parametrize(
    ("part", "replies", "plan"),
    [
        (rules({"action": "stop"}), (), {"actions": [action_plan("stop")]}),
        (rules({"action": "stop", "when": "environmentalData.payload.rate < 6"}), (), {"actions": []}),
        (
            rules(
                {"action": "stop", "when": "environmentalData.payload.rate > 5"},
                {"action": "note", "params": {"text": "{{ environmentalData.payload.rate }}"}, "reason": "a"},
            ),
            (),
            {
                "actions": [
                    action_plan("stop", reason="environmentalData.payload.rate > 5"),
                    action_plan("note", 2, {"text": 6}, "a"),
                ]
            },
        ),
        ({"prompt": "?"}, [{"actions": []}], {"actions": []}),
        (
            {"prompt": "?"},
            [{"actions": [{"action": "note", "params": {"text": "{{ memory }}"}}], "why": "so"}],
            {"actions": [action_plan("note", 1, {"text": "{{ memory }}"})], "why": "so"},
        ),
        (
            {"prompt": "?", "outputSchema": {"type": "object"}},
            [{"actions": ["stop", {"name": "note", "reason": "b"}, None]}],
            {"actions": [action_plan("stop"), action_plan("note", 2, reason="b")]},
        ),
        (
            {"prompt": "?", "outputSchema": {"type": "array"}},
            ['["stop"]'],
            {"actions": [action_plan("stop")]},
        ),
        ({"config": {"function": "chosen"}}, (), {"actions": [action_plan("stop")]}),
        ({"config": {"function": "nothing"}}, (), {"actions": []}),
        (
            {"prompt": "?", "config": {"rules": [{"action": "stop"}], "function": "chosen"}},
            [{"actions": [{"action": "note"}]}],
            {"actions": [action_plan("stop"), action_plan("stop", 2), action_plan("note", 3)]},
        ),
    ],
)
def test_plan_combines_rules_functions_and_models(part, replies, plan):
    cycle, _ = planned(part, {"chosen": lambda: "stop", "nothing": lambda: None}, replies)
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
        (7, "7 is not an action"),
        ([["stop"]], "is not an action"),
        ({"action": "note", "params": "text"}, "the params of 'note' are 'text'; expected an object"),
    ],
)
def test_an_invalid_entry_does_not_stop_the_rest_of_a_plan(wrong, message):
    part = {"prompt": "?", "outputSchema": {"type": "object"}}
    cycle, _ = planned(part, replies=[{"actions": [wrong, "stop"]}])
    assert cycle.state.derived_data["plan"]["actions"] == [action_plan("stop")]
    [failure] = cycle.failures
    assert failure.startswith("reason/think: not planned: ")
    assert message in failure


def test_a_plan_is_bounded():
    cycle, _ = planned({"config": {"function": "chosen"}}, {"chosen": lambda: ["stop"] * 105})
    assert len(cycle.state.derived_data["plan"]["actions"]) == 100
    assert len(cycle.failures) == 5


def test_a_rule_that_cannot_be_evaluated_plans_nothing():
    cycle, _ = planned(rules({"action": "stop", "when": "environmentalData.payload.none.at"}))
    assert cycle.state.derived_data["plan"] == {"actions": []}
    assert "the rule for 'stop' can't be evaluated" in cycle.failures[0]


def test_the_prompt_lists_the_actions_that_can_be_planned():
    cycle, model = planned(
        {"prompt": "Choose."}, replies=[{"actions": [{"action": "fly"}]}, {"actions": [{"action": "stop"}]}]
    )
    first, second = model.requests
    assert first.messages[0].content.endswith("by their names:\n- note (log)\n- stop (function)")
    assert "fly" in second.messages[1].content
    assert cycle.state.derived_data["plan"]["actions"] == [action_plan("stop")]
    assert cycle.usage.requests == 2
