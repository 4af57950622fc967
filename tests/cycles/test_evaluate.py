"""Evaluate: checks, a function and a model, and an unknown that is no success."""

import pytest

from cycling import cycle_of, run, spec_of
from redraft.core.errors import OutputError
from redraft.cycles.evaluate import evaluate

DONE = {"name": "done", "require": "derivedData.execution.actions[0].status == 'succeeded'"}
COOL = {
    "name": "cool",
    "require": "environmentalData.payload.rate < 5",
    "message": "still {{ environmentalData.payload.rate }}",
}
GONE = {"name": "gone", "require": "environmentalData.payload.none.x"}
SCHEMA = {"type": "object", "properties": {"success": {"type": ["boolean", "null"]}}}
PASSED = {"name": "done", "passed": True, "message": ""}
FAILED = {"name": "cool", "passed": False, "message": "still 6"}


def evaluated(given, replies=(), statuses=("succeeded",), functions=None):
    spec = spec_of(actuate=[{"type": "evaluate", "name": "see", **given}])
    execution = {"actions": [{"status": status} for status in statuses]}
    cycle, _ = cycle_of(
        spec, payload={"rate": 6}, derived={"execution": execution}, replies=replies, functions=functions
    )
    run(evaluate(spec.stages.actuate.substages[0], cycle))
    return cycle.state.derived_data["evaluation"]


def checks(*given):
    return {"config": {"checks": list(given)}}


@pytest.mark.parametrize(
    ("given", "replies", "evaluation"),
    [
        (checks(DONE), (), {"success": True, "checks": [PASSED]}),
        (checks(DONE, COOL), (), {"success": False, "checks": [PASSED, FAILED]}),
        (
            {"prompt": "?", "outputSchema": SCHEMA},
            [{"success": True, "why": "x"}],
            {"success": True, "checks": [], "why": "x"},
        ),
        ({"prompt": "?", "outputSchema": SCHEMA}, [{"success": None}], {"success": None, "checks": []}),
        (
            {"prompt": "?", "outputSchema": SCHEMA},
            [{"why": "x"}],
            {"success": True, "checks": [], "why": "x"},
        ),
        (
            {"prompt": "?", **checks(COOL)},
            ["it went well"],
            {"success": False, "checks": [FAILED], "see": "it went well"},
        ),
        (
            {"prompt": "?", "outputSchema": SCHEMA, **checks(DONE)},
            [{"success": False}],
            {"success": False, "checks": [PASSED]},
        ),
        (
            {"prompt": "?", "outputSchema": SCHEMA, **checks(DONE)},
            [{"checks": [{"name": "mine"}]}],
            {"success": True, "checks": [{"name": "mine"}, PASSED]},
        ),
        ({"config": {"function": "yes"}}, (), {"success": True, "checks": []}),
        ({"config": {"function": "unknown"}}, (), {"success": None, "checks": []}),
        ({"config": {"function": "scored"}}, (), {"success": True, "checks": [], "score": 1}),
    ],
)
def test_an_evaluation(given, replies, evaluation):
    functions = {"yes": lambda: True, "unknown": lambda: None, "scored": lambda: {"score": 1}}
    assert evaluated(given, replies, functions=functions) == evaluation


def test_what_cannot_be_judged_is_unknown():
    found = evaluated(checks(DONE, GONE))
    assert found["success"] is None
    assert found["checks"][1]["passed"] is None
    assert "can't be judged" in found["checks"][1]["message"]
    assert evaluated(checks(GONE, COOL))["success"] is False


@pytest.mark.parametrize(
    ("statuses", "success"),
    [
        (["succeeded", "succeeded"], True),
        (["succeeded", "failed"], False),
        (["blocked", "succeeded", "skipped"], True),
        (["blocked"], None),
        ([], None),
    ],
)
def test_without_a_word_on_it_the_outcomes_say(statuses, success):
    found = evaluated({"config": {"function": "scored"}}, (), statuses, {"scored": lambda: {"score": 1}})
    assert found["success"] is success


def test_a_success_that_is_none_is_refused():
    with pytest.raises(OutputError, match="'success' is 'rather'"):
        evaluated({"config": {"function": "odd"}}, functions={"odd": lambda: {"success": "rather"}})
