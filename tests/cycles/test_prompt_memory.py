import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redraft.core.steps import direct
from redraft.core.tokens import estimate_tokens
from redraft.cycles.cycle import Cycle, Means
from redraft.cycles.prompt_memory import prompt_scopes
from redraft.cycles.spec import AgentSpec
from redraft.cycles.state import CycleState
from redraft.text.templates import Template


def cycle_with(memory, prompt_tokens):
    spec = AgentSpec.model_validate(
        {
            "name": "watcher",
            "description": "Watches",
            "memory": {"promptTokens": prompt_tokens},
            "stages": {},
        }
    )
    means = Means({}, lambda name: None, None, Path(), lambda: datetime.now(UTC), lambda value: value)
    state = CycleState(memory=memory)
    return Cycle(spec, 7, datetime.now(UTC), state, means, direct)


def item(number, confidence=None, text="x"):
    stamp = f"2026-11-22T10:00:{number:02d}.000Z"
    sure = {} if confidence is None else {"confidence": confidence}
    return {"id": f"i{number}", "timestamp": stamp, "description": text, **sure}


ONE = estimate_tokens(json.dumps(item(1, 0.5)))
MEMORY = {
    "patterns": [item(1, 0.9), item(2, 0.1), item(3, 0.5), item(4, 0.5)],
    "recentActions": [item(5), item(6), item(7)],
    "feedbackHistory": [item(8)],
}
PATTERNS, ALL = "{{ memory.patterns | json }}", "{{ memory | json }}"
ACTIONS = "{{ memory.recentActions | json }}"


@pytest.mark.parametrize(
    ("prompt", "tokens", "shown", "left_out"),
    [
        pytest.param(PATTERNS, 4 * ONE + 10, {"patterns": [1, 2, 3, 4]}, "", id="all of it"),
        pytest.param(
            PATTERNS, 2 * ONE, {"patterns": [1, 4]}, "2 of 4 of memory.patterns", id="sure, then recent"
        ),
        pytest.param(PATTERNS, 0, {"patterns": []}, "4 of 4 of memory.patterns", id="none"),
        pytest.param(ACTIONS, ONE, {"recentActions": [7]}, "2 of 3 of memory.recentActions", id="recent"),
        pytest.param(
            PATTERNS + ACTIONS,
            3 * ONE,
            {"patterns": [1], "recentActions": [6, 7]},
            "3 of 4 of memory.patterns, 1 of 3 of memory.recentActions",
            id="keys in turn",
        ),
        pytest.param(
            ALL,
            3 * ONE,
            {"patterns": [1], "recentActions": [7], "feedbackHistory": [8]},
            "3 of 4 of memory.patterns, 2 of 3 of memory.recentActions",
            id="the memory as a whole",
        ),
        pytest.param("{{ memory.own | json }}", 0, {"own": []}, "", id="never written"),
    ],
)
def test_a_prompt_sees_the_best_of_the_memory_within_its_tokens(prompt, tokens, shown, left_out):
    scopes, note = prompt_scopes(cycle_with(MEMORY, tokens), Template(prompt))
    seen = {key: [one["id"] for one in scopes["memory"][key]] for key in shown}
    assert seen == {key: [f"i{number}" for number in numbers] for key, numbers in shown.items()}
    assert left_out in note
    assert bool(note) == bool(left_out)
    assert scopes["agent"] == {"name": "watcher", "description": "Watches"}
    assert scopes["cycle"] == 7


def test_an_item_that_is_too_long_makes_no_other_wait():
    memory = {"patterns": [item(1, 0.2), item(2, 1.0, "long " * 1_000)]}
    scopes, note = prompt_scopes(cycle_with(memory, 100), Template(PATTERNS))
    assert [one["id"] for one in scopes["memory"]["patterns"]] == ["i1"]
    assert "1 of 2" in note


def test_only_reason_says_what_it_showed():
    cycle = cycle_with(MEMORY, 2 * ONE)
    prompt_scopes(cycle, Template(PATTERNS))
    assert cycle.rendered == set()
    prompt_scopes(cycle, Template(PATTERNS), reasoning=True)
    assert cycle.rendered == {"i1", "i4"}
