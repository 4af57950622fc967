import pytest

from cycles_made import at, ids, item, pattern, reflecting
from cycling import NOON
from redraft.cycles.feedback import Feedback
from redraft.cycles.memory import MemoryChange
from redraft.cycles.next_memory import next_memory
from redraft.cycles.spec_reflect import Retention
from redraft.cycles.stamp import stamp_of
from redraft.redact.redactor import Redactor

DONE = {
    "id": "7-1",
    "action": "stop",
    "type": "function",
    "status": "succeeded",
    "result": {"stopped": True},
    "error": None,
    "idempotencyKey": "k" * 64,
    "startedAt": stamp_of(at(-500)),
    "durationMs": 2.5,
}
FAILED = {**DONE, "id": "7-2", "status": "failed", "result": None, "error": "no such line"}
VIOLATION = {"constraint": "slowly", "action": "stop", "message": "Too fast.", "blocked": True}
SAID = Feedback("f1", "reject", "Too hot.", stamp_of(at(-900)), cycle=6, action="stop", by="Ada")
EARLIER = {
    "recentActions": [item("6-1", -2_000, action="stop")],
    "patterns": [pattern("p1-1", "Drift at night")],
}


def test_all_that_a_cycle_leaves_is_remembered():
    cycle = reflecting(memory={**EARLIER, "ownKey": []})
    cycle.state.derived_data |= {
        "plan": {"actions": [{"id": "7-1", "action": "stop", "params": {"line": 4}, "reason": "hot"}]},
        "governance": {"violations": [VIOLATION]},
        "execution": {"actions": [DONE, FAILED]},
        "evaluation": {"success": False},
    }
    cycle.pending = (SAID,)
    cycle.learnt = [("patterns", {"reinforcedPatterns": ["p1-1"], "newPatterns": ["Noise at noon"]})]
    made = next_memory(cycle, {"thresholds": Retention(max_items=3)}, NOON)
    acted, failed = made.memory.of("recentActions")[1:]
    assert acted == {
        "id": "7-1",
        "timestamp": stamp_of(at(-500)),
        "cycle": 7,
        "params": {"line": 4},
        "reason": "hot",
        "action": "stop",
        "type": "function",
        "status": "succeeded",
        "result": {"stopped": True},
        "durationMs": 2.5,
        "success": False,
    }
    assert (failed["status"], failed["error"], "result" in failed) == ("failed", "no such line", False)
    assert made.memory.of("constraints") == [
        {"id": "v7-1", "timestamp": stamp_of(NOON), "cycle": 7, **VIOLATION}
    ]
    assert made.memory.of("feedbackHistory") == [
        {
            "id": "f1",
            "timestamp": stamp_of(at(-900)),
            "cycle": 6,
            "verdict": "reject",
            "message": "Too hot.",
            "action": "stop",
            "by": "Ada",
        }
    ]
    assert ids(made.memory.of("patterns")) == ["p1-1", "p7-1"]
    assert made.memory.items["ownKey"] == made.memory.items["thresholds"] == []
    assert made.memory.cycle == 7
    assert [(change.key, change.id, change.before is None) for change in made.changes] == [
        ("recentActions", "7-1", True),
        ("recentActions", "7-2", True),
        ("patterns", "p1-1", False),
        ("patterns", "p7-1", True),
        ("constraints", "v7-1", True),
        ("feedbackHistory", "f1", True),
    ]
    assert cycle.memory.of("patterns") == EARLIER["patterns"], "the memory before is as it was"


def test_a_cycle_in_which_nothing_happened_changes_nothing():
    cycle = reflecting(memory=EARLIER)
    made = next_memory(cycle, {}, NOON)
    assert (made.changes, made.refusals) == ((), ())
    assert made.memory.of("patterns") == EARLIER["patterns"]
    assert set(made.memory.items) == {"recentActions", "patterns", "constraints", "feedbackHistory"}


def test_retention_drops_what_is_old_and_says_so():
    cycle = reflecting(memory=EARLIER)
    cycle.state.derived_data["execution"] = {"actions": [DONE, FAILED]}
    cycle.learnt = [("patterns", {"deprecatedPatterns": ["p1-1"], "newPatterns": ["a", "noise", "b", "c"]})]
    made = next_memory(
        cycle, {"recentActions": Retention(max_items=1), "patterns": Retention(max_items=2)}, NOON
    )
    assert ids(made.memory.of("recentActions")) == ["7-2"]
    assert ids(made.memory.of("patterns")) == ["p7-3", "p7-4"]
    assert [(change.id, change.after is None, change.at) for change in made.changes] == [
        ("6-1", True, 0),
        ("7-2", False, None),
        ("p1-1", True, 0),
        ("p7-3", False, None),
        ("p7-4", False, None),
    ]
    assert made.changes[0] == MemoryChange("recentActions", "6-1", EARLIER["recentActions"][0], None, 0)


@pytest.mark.parametrize(
    ("named", "kept"), [({"insights": []}, ["Nights are quiet"]), ({}, [])], ids=["named", "not named"]
)
def test_insights_are_kept_where_the_file_has_a_key_for_them(named, kept):
    cycle = reflecting(memory=named)
    cycle.learnt = [("patterns", {"insights": ["Nights are quiet", "nights are quiet."]})]
    made = next_memory(cycle, {}, NOON)
    assert [one["description"] for one in made.memory.of("insights")] == kept
    assert [one["count"] for one in made.memory.of("insights")] == [2] * len(kept)


def test_ids_are_of_one_pattern_whatever_the_key():
    cycle = reflecting(memory={"insights": []})
    cycle.learnt = [
        ("own", {"newPatterns": ["a1"], "insights": ["i1"]}),
        ("patterns", {"newPatterns": ["b1"]}),
    ]
    items = next_memory(cycle, {}, NOON).memory.items
    assert [ids(items[key]) for key in ("own", "insights", "patterns")] == [["p7-1"], ["p7-2"], ["p7-3"]]


def test_what_a_pattern_says_of_people_and_constraints_stays_theirs():
    feedback = item("f1", message="Too hot.")
    cycle = reflecting(memory={"feedbackHistory": [feedback], "patterns": []})
    cycle.learnt = [("patterns", {"deprecatedPatterns": ["f1", "Too hot."], "confidenceAdjustment": 0.1})]
    cycle.rendered = {"f1"}
    assert next_memory(cycle, {}, NOON).memory.of("feedbackHistory") == [feedback]


@pytest.mark.parametrize(
    "derived",
    [
        {},
        {"execution": None, "governance": [], "evaluation": "good", "plan": 3},
        {"execution": {"actions": "all"}, "governance": {"violations": {"a": 1}}},
        {"execution": {"actions": [None, 3]}, "plan": {"actions": [[], None]}},
    ],
)
def test_what_stages_left_out_is_no_mistake(derived):
    cycle = reflecting()
    cycle.state.derived_data = derived
    assert next_memory(cycle, {}, NOON).changes == ()


def test_items_are_small_and_without_secrets():
    secret = "sk-" + "a1B2c3D4e5F6g7H8" * 3
    cycle = reflecting(redacted=Redactor([secret]).redact_json)
    done = {**DONE, "result": {"body": "word " * 100_000, "key": secret}, "error": secret}
    cycle.state.derived_data |= {
        "execution": {"actions": [done]},
        "governance": {"violations": [{**VIOLATION, "message": f"{secret} {'x ' * 90_000}"}]},
    }
    cycle.pending = (Feedback("f1", "approve", f"use {secret}", "no time at all"),)
    made = next_memory(cycle, {}, NOON)
    text = repr(made)
    assert "a1B2" not in text
    assert len(text) < 20_000
    assert made.memory.of("feedbackHistory")[0]["timestamp"] == stamp_of(NOON)
