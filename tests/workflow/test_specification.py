"""Every YAML and Python block of the specification, as printed but for imports and `graph.invoke`."""

import contextlib
import io
import json

import pytest

from redraft import ModelError
from support.workflow_specification import (
    COMPLETE_EXAMPLE,
    CORRECT_EXAMPLE,
    CORRECTOR,
    CUSTOM_EVALUATOR,
    EVALUATE_EXAMPLE,
    FAILED_ERROR,
    GENERATOR_BY_ACTION,
    GENERATOR_BY_CODE,
    GRACEFUL_DEGRADATION,
    LLM_EVALUATOR,
    SCHEMA_EVALUATOR,
)
from support.workflows import loop_file, run, under, workflow

USER = '{"name": "test", "email": "test@example.com"}'
NOBODY = '{"name": "", "email": "test@example.com"}'
ADA = {"name": "Ada", "email": "ada@example.com", "age": 36}
RETURNED = {
    "success", "valid", "reflection_iteration", "reflection_output", "reflection_errors",
    "reflection_history", "reflection_best", "reflection_best_score",
}  # fmt: skip


def node_file(text):
    """A file around a list of nodes."""
    return f"name: test\nmodel: gpt-4\nnodes:\n{under(text, 2)}\n"


def test_the_complete_example_corrects_itself_and_ends_with_the_profile():
    state, asked = run(
        COMPLETE_EXAMPLE, '{"name": "Ada", "email": "nowhere"}', json.dumps(ADA), state={"request": "a user"}
    )
    assert state["message"] == "Created profile for Ada"
    assert state["profile"]["reflection_output"] == ADA
    assert "User request: a user" in asked[0].messages[0].content
    corrected = asked[1].messages[0].content
    assert 'Original: {"name": "Ada", "email": "nowhere"}' in corrected
    assert "- Path: email, Message: " in corrected
    assert "age" in corrected


def test_the_complete_example_reads_fences_and_coerces():
    reply = '```json\n{"name": "Ada", "email": "ada@example.com", "age": "36"}\n```'
    state, _ = run(COMPLETE_EXAMPLE, reply, state={"request": "a user"})
    assert state["profile"]["reflection_output"] == ADA
    assert state["age"] == 36


def test_the_complete_example_reports_failure():
    state, asked = run(COMPLETE_EXAMPLE, *['{"name": "Ada"}'] * 3, state={"request": "a user"})
    assert state["message"] == "Failed to generate valid profile"
    assert state["best_attempt"] == {"name": "Ada"}
    assert len(asked) == 3


@pytest.mark.parametrize("generator", [GENERATOR_BY_ACTION, GENERATOR_BY_CODE], ids=["action", "run"])
@pytest.mark.parametrize(
    ("evaluator", "verdicts"),
    [(SCHEMA_EVALUATOR, []), (LLM_EVALUATOR, ['{"valid": true}']), (CUSTOM_EVALUATOR, [])],
    ids=["schema", "llm", "custom"],
)
def test_each_generator_works_with_each_evaluator(generator, evaluator, verdicts):
    drafts = [USER] if generator == GENERATOR_BY_ACTION else []
    state, asked = run(loop_file(generator, evaluator), *drafts, *verdicts)
    assert state["success"] is True
    assert state["reflection_iteration"] == 1
    if verdicts:
        assert "Requirements:" in asked[-1].messages[-1].content
        assert r"test@example.com" in asked[-1].messages[-1].content
        assert [message.role for message in asked[-1].messages] == [
            "system",
            *["user", "assistant"] * 2,
            "user",
        ]


def test_the_corrector_gets_the_errors_of_the_evaluator():
    file = loop_file(GENERATOR_BY_ACTION, CUSTOM_EVALUATOR, CORRECTOR)
    state, asked = run(file, NOBODY, USER)
    assert state["success"] is True
    assert state["result"] == USER
    assert "- Missing required fields" in asked[1].messages[0].content
    assert "Return only the corrected JSON, no explanation." in asked[1].messages[0].content
    assert state["reflection_history"][0]["suggestions"] == ["Add name field"]
    assert state["reflection_history"][0]["score"] == 0.5


def test_the_custom_evaluator_reports_invalid_json():
    state, _ = run(loop_file(GENERATOR_BY_ACTION, CUSTOM_EVALUATOR, max_iterations=1), "nothing")
    assert state["reflection_errors"] == [{"message": "Invalid JSON"}]


def test_a_loop_returns_the_documented_keys():
    good, _ = run(loop_file(GENERATOR_BY_ACTION, SCHEMA_EVALUATOR, CORRECTOR), NOBODY, USER)
    assert set(good) == RETURNED | {"name", "email"}
    assert (good["reflection_iteration"], good["reflection_errors"]) == (2, [])
    assert good["reflection_best"] == good["reflection_output"] == json.loads(USER)
    assert good["reflection_best_score"] == 1.0
    bad, _ = run(loop_file(GENERATOR_BY_ACTION, SCHEMA_EVALUATOR, CORRECTOR), NOBODY, NOBODY, "{}")
    assert set(bad) >= RETURNED | {"exhausted"}
    assert (bad["success"], bad["valid"], bad["exhausted"]) == (False, False, True)
    assert bad["reflection_iteration"] == 3
    assert 0 < bad["reflection_best_score"] < 1


@pytest.mark.parametrize(
    ("data", "checked"),
    [
        ('{"status": "ok", "data": 1}', {"status": "valid"}),
        ({"status": "ok", "data": 1}, {"status": "valid"}),
        ({"status": "ok"}, {"status": "invalid"}),
    ],
)
def test_the_example_of_evaluate(data, checked):
    state, _ = run(node_file(EVALUATE_EXAMPLE.removeprefix("\nnodes:\n")), state={"generated_json": data})
    assert state["status"] == checked["status"]
    assert set(state["validation"]) == {"success", "valid", "score", "errors", "suggestions"}
    assert ("errors" in state) == (checked["status"] == "invalid")


def test_the_example_of_correct():
    state, asked = run(
        node_file(CORRECT_EXAMPLE.removeprefix("\nnodes:\n")),
        '{"a": 1}',
        state={"invalid_json": {"a": "x"}, "validation_errors": [{"message": "no number"}]},
    )
    assert state["corrected"] == {"corrected_output": {"a": 1}, "success": True}
    assert "no number" in asked[0].messages[0].content


@pytest.mark.parametrize(
    ("replies", "content"),
    [
        (['{"content": "hello"}'], "hello"),
        (["{}", '{"content": "second"}'], "second"),
        (["{}"] * 3, "Default content"),
        (["I can't write that."] * 3, "Default content"),
        (['{"content": "cut o'] * 3, "Default content"),
        (['["hello"]'] * 3, "Default content"),
        (["null"] * 3, "Default content"),
        ([ModelError("refused")] * 3, "Default content"),
        (["I can't write that.", "{}", ModelError("refused")], "Default content"),
    ],
)
def test_the_default_content_is_used_only_without_a_valid_output(replies, content):
    state, _ = run(node_file(GRACEFUL_DEGRADATION), *replies)
    assert state["content"] == content


def test_the_python_example_of_a_loop_that_raises():
    file = loop_file(GENERATOR_BY_ACTION, SCHEMA_EVALUATOR, on_failure="raise", max_iterations=2)
    graph, _ = workflow(file, "{}", NOBODY)
    graph.invoke = graph.run_sync
    source = FAILED_ERROR.replace("from the_edge_agent.actions import", "from redraft import")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "specification", "exec"), {"graph": graph})  # noqa: S102 (the specification's own)
    summary, listed = printed.getvalue().splitlines()
    assert summary.startswith("Reflection failed: ")
    history = eval(listed.removeprefix("History: "))  # noqa: S307 (what the line above printed)
    assert [(entry["iteration"], entry["valid"]) for entry in history] == [(1, False), (2, False)]
    for entry in history:
        assert isinstance(entry["score"], float)
        assert {"iteration", "output", "score", "valid", "errors"} <= set(entry)
        assert isinstance(entry["errors"], list)
