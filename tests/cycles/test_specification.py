"""The examples of specification 004, run as printed in a complete agent."""

import json
from textwrap import indent

import pytest

from redraft import ScriptedModel
from redraft.cycles import CycleAgent
from redraft.cycles.spec import AgentFile, parse_agent_file
from support.agent_files import CAPTURE_METRICS, FULL_REFLECT, LEARN, UPDATE_STATE, whole
from support.monitor import Clock, World

BEFORE = """\
sense:
  substages: [{type: function, name: line, config: {function: look}}]
reason:
  substages:
    - type: analyze
      name: limits
      config: {rules: [{name: high, when: environmentalData.payload.rate > 5, message: too high}]}
    - type: plan
      name: response
      prompt: "Known: {{memory.patterns | json}} {{memory.qualityPatterns | json}}"
"""
ACTUATE = """\
actuate:
  substages:
    - type: execute
      name: act
      config:
        actions:
          - {name: lower, type: function, function: lower, with: {level: 1}}
          - {name: tell, type: alert, message: It is high.}
    - {type: evaluate, name: seen, config: {checks: [{name: done, require: derivedData.execution.actions}]}}
"""


def joined(*stages):
    """Join the substages of several printed examples under one stage."""
    first, *others = stages
    return first + "".join(stage.partition("  substages:\n")[2] for stage in others)


def agent_of(reflect, answer, clock):
    world = World(rate=9)
    source = AgentFile(whole(BEFORE, ACTUATE, reflect))
    return CycleAgent(
        parse_agent_file(source),
        functions={"look": world.look, "lower": lambda level: {"level": level}},
        models={"scripted-for-tests": ScriptedModel(answer)},
        clock=clock,
        source=source,
    )


async def test_learn_update_state_and_capture_metrics_as_printed():
    clock, prompts = Clock(), []

    def answer(request):
        prompt = request.messages[-1].content
        if prompt.startswith("Known:"):
            return '{"actions": [{"action": "lower"}, {"action": "tell"}]}'
        prompts.append(prompt)
        learned = {"newPatterns": [{"description": "Lowering helps", "type": "success", "confidence": 0.6}]}
        return json.dumps([learned, {"reinforcedPatterns": ["Lowering helps"]}, {}][len(prompts) - 1])

    async with agent_of(joined(LEARN, UPDATE_STATE, CAPTURE_METRICS), answer, clock) as agent:
        first = await agent.run_cycle()
        await agent.send_feedback("reject", "too low")
        second = await agent.run_cycle()
        confidence = agent.memory.of("patterns")[0]["confidence"]
        clock.passes(days=7, milliseconds=1)
        third = await agent.run_cycle()
    assert [result.status for result in (first, second, third)] == ["finished"] * 3, first.error
    assert (first.metrics.anomalies, first.metrics.alerts) == (1, 1)
    assert min(first.metrics.tokens, first.metrics.duration_ms) > 0
    assert '"too low"' not in prompts[0]
    assert '"too low"' in prompts[1]
    assert '"Lowering helps"' in prompts[1]
    assert confidence == pytest.approx(0.7)
    assert third.state["memory"]["patterns"] == []
    assert len(third.state["memory"]["recentActions"]) == 6
    assert [item["verdict"] for item in third.state["memory"]["feedbackHistory"]] == ["reject"]


@pytest.mark.parametrize("printed", [LEARN, UPDATE_STATE, CAPTURE_METRICS, FULL_REFLECT])
def test_each_reflect_block_runs_as_printed_in_a_minimal_agent(printed):
    source = AgentFile("name: minimal\nmodel: scripted-for-tests\nstages:\n" + indent(printed, "  "))
    model = ScriptedModel(lambda request: '{"newPatterns": [{"description": "x", "confidence": 0.5}]}')
    agent = CycleAgent(parse_agent_file(source), models={"scripted-for-tests": model}, source=source)
    result = agent.run_cycle_sync()
    assert (result.status, result.metrics.failures) == ("finished", ()), result.error


async def test_the_full_reflect_example_as_printed():
    seen = []

    def answer(request):
        prompt = request.messages[-1].content
        if prompt.startswith("Known:"):
            seen.append(prompt)
            return '{"actions": [{"action": "lower"}]}'
        if "false alarm" in prompt and len(seen) == 2:
            pattern = {"description": "High at noon is normal", "type": "false-positive", "confidence": 0.5}
            return json.dumps({"newPatterns": [{**pattern, "source": "operator-feedback"}]})
        return '{"newPatterns": [], "confidenceAdjustment": 0.2}'

    async with agent_of(FULL_REFLECT, answer, Clock()) as agent:
        await agent.run_cycle()
        await agent.send_feedback("reject", "a false alarm")
        await agent.run_cycle()
        result = await agent.run_cycle()
    assert "High at noon" in seen[2]
    [pattern] = result.state["memory"]["qualityPatterns"]
    assert (pattern["type"], pattern["source"]) == ("false-positive", "operator-feedback")
    assert pattern["confidence"] == pytest.approx(0.7)
    assert result.state["memory"]["patterns"] == []
