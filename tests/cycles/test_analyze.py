"""Analyze: rules, a function and a model, and what comes of them together."""

import pytest

from cycling import cycle_of, run, spec_of
from redraft.core.errors import OutputError
from redraft.cycles.analyze import analyze
from redraft.loop.journal import Journalled
from redraft.stores.memory import MemoryStore

SCHEMA = {"type": "object", "properties": {"trend": {"type": "string"}}, "required": ["trend"]}
HIGH = {"name": "high", "when": "environmentalData.payload.rate > 5", "severity": "critical"}


def analyzed(given, functions=None, replies=(), **state):
    spec = spec_of(reason=[{"type": "analyze", "name": "look", **given}])
    cycle, _ = cycle_of(spec, functions=functions, replies=replies, **{"payload": {"rate": 6}, **state})
    run(analyze(spec.stages.reason.substages[0], cycle))
    return cycle


def anomaly(rule, message, severity="warning"):
    return {"rule": rule, "severity": severity, "message": message}


def rules(*given):
    return {"config": {"rules": list(given)}}


@pytest.mark.parametrize(
    ("given", "replies", "analysis"),
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
    ],
)
def test_an_analysis(given, replies, analysis):
    functions = {
        "scored": lambda state: {"score": state["environmentalData"]["payload"]["rate"]},
        "listed": lambda: [1],
        "silent": lambda: None,
    }
    cycle = analyzed(given, functions, replies)
    assert cycle.state.derived_data["analysis"] == analysis
    assert cycle.failures == []


def test_a_rule_that_cannot_be_judged_is_a_failure_and_the_others_are_judged():
    cycle = analyzed(rules({"name": "gone", "when": "environmentalData.payload.none.at > 1"}, HIGH))
    assert [one["rule"] for one in cycle.state.derived_data["analysis"]["anomalies"]] == ["high"]
    [failure] = cycle.failures
    assert failure.startswith("reason/look: the rule 'gone' can't be judged: ")


def test_templates_in_data_are_not_rendered():
    told = rules({**HIGH, "when": "true", "message": "{{ environmentalData.payload.text }}"})
    cycle = analyzed(told, payload={"text": "{{ memory }}"})
    assert cycle.state.derived_data["analysis"]["anomalies"][0]["message"] == "{{ memory }}"


def test_what_a_model_cannot_say_is_raised_and_paid_for():
    spec = spec_of(reason=[{"type": "analyze", "name": "look", "prompt": "?", "outputSchema": SCHEMA}])
    cycle, _ = cycle_of(spec, replies=["no", "no"])
    with pytest.raises(OutputError, match="reply can't be used"):
        run(analyze(spec.stages.reason.substages[0], cycle))
    assert cycle.usage.requests == 2


def test_the_prompt_of_reason_notes_what_it_showed():
    patterns = [{"id": "p1", "description": "x"}]
    cycle = analyzed(
        {"prompt": "{{ memory.patterns | json }}"}, replies=["fine"], memory={"patterns": patterns}
    )
    assert cycle.rendered == {"p1"}


@pytest.mark.parametrize("value", [{"score": 1.5}, [1, "x"], "text", None, 4])
def test_a_function_is_not_called_again_when_the_cycle_is_resumed(value):
    async def main():
        calls, store, seen = [], MemoryStore(), []

        def scored():
            calls.append(1)
            return value

        spec = spec_of(reason=[{"type": "analyze", "name": "look", "config": {"function": "scored"}}])
        for _ in range(2):
            cycle, _ = cycle_of(spec, functions={"scored": scored}, step=Journalled(store, "monitor-7"))
            await analyze(spec.stages.reason.substages[0], cycle)
            seen.append(cycle.state.derived_data)
        assert seen[0] == seen[1]
        assert len(calls) == 1

    run(main())
