"""reflection.loop and reflection.correct."""

import json

import pytest

from redraft import Agent, ConfigError, ModelError, ScriptedModel
from redraft.errors import ReflectionFailedError, StoreError, WorkflowError
from redraft.workflow import Workflow
from support.workflows import SCHEMA, act, loop, making, scoring

ALWAYS, NEVER = scoring("True"), scoring("False")
BY_SCORE = scoring("{'valid': output['s'] >= 1, 'score': output['s']}")


def scored(*scores):
    return making(*({"s": score, "n": n} for n, score in enumerate(scores, 1)))


def ran(make, evaluator, correct=None, corrector=None, state=None, **params):
    """Run a loop whose generator is the action `make`, and its corrector, if any, the action `correct`."""
    if correct is not None:
        corrector = {"action": "correct", **(corrector or {})}
    if corrector is not None:
        params["corrector"] = corrector
    actions = {"make": make} | ({"correct": correct} if correct else {})
    return loop(state, actions, generator={"action": "make"}, evaluator=evaluator, **params)


@pytest.mark.parametrize(
    ("params", "attempts"),
    [
        ({}, 3),
        ({"max_iterations": 1}, 1),
        ({"max_iterations": 5}, 5),
        ({"max_iterations": "{{ state.n }}"}, 2),
    ],
)
def test_max_iterations_counts_attempts(params, attempts):
    make = making(*range(9))
    value = ran(make, NEVER, state={"n": 2}, **params)
    assert len(make.seen) == len(value["reflection_history"]) == value["reflection_iteration"] == attempts
    assert value["exhausted"] is True
    assert (value["success"], value["valid"]) == (False, False)


def test_a_valid_first_attempt_is_the_only_one():
    make = making("good", "never made")
    value = ran(make, ALWAYS, correct=making("never"))
    assert len(make.seen) == 1
    assert value == {
        "result": "good",
        "success": True,
        "valid": True,
        "reflection_iteration": 1,
        "reflection_output": "good",
        "reflection_errors": [],
        "reflection_history": [
            {"iteration": 1, "output": "good", "score": 1.0, "valid": True, "errors": [], "suggestions": []}
        ],
        "reflection_best": "good",
        "reflection_best_score": 1.0,
    }


@pytest.mark.parametrize(
    ("on_failure", "n"), [({}, 2), ({"on_failure": "return_best"}, 2), ({"on_failure": "return_last"}, 3)]
)
def test_on_failure_chooses_the_returned_attempt(on_failure, n):
    value = ran(scored(0.2, 0.7, 0.5), BY_SCORE, **on_failure)
    assert value["n"] == value["reflection_output"]["n"] == n
    assert value["reflection_best"] == {"s": 0.7, "n": 2}
    assert value["reflection_best_score"] == 0.7
    assert value["reflection_errors"] == value["reflection_history"][n - 1]["errors"]


def test_the_earliest_of_equal_attempts_is_the_best():
    value = ran(scored(0.4, 0.6, 0.6), BY_SCORE)
    assert value["reflection_best"]["n"] == value["n"] == 2


def test_the_message_counts_one_attempt_in_the_singular():
    with pytest.raises(ReflectionFailedError, match=r"No valid output in 1 attempt\."):
        ran(scored(0.2), BY_SCORE, on_failure="raise", max_iterations=1)


def test_on_failure_raise_carries_the_history():
    with pytest.raises(ReflectionFailedError, match="No valid output in 2 attempts") as caught:
        ran(scored(0.2, 0.7), BY_SCORE, on_failure="raise", max_iterations=2)
    history = caught.value.history
    assert [sorted(entry) for entry in history] == [
        ["errors", "iteration", "output", "score", "suggestions", "valid"]
    ] * 2
    assert [(entry["iteration"], entry["score"]) for entry in history] == [(1, 0.2), (2, 0.7)]


def test_a_generator_that_raises_is_an_attempt_with_score_0():
    value = ran(making(ValueError("boom"), "good"), scoring("output == 'good'"))
    first = value["reflection_history"][0]
    assert (first["score"], first["valid"], first["output"]) == (0.0, False, None)
    assert first["errors"] == [{"message": "The generator failed: ValueError: boom"}]
    assert value["success"] is True


@pytest.mark.parametrize("on_failure", ["return_best", "return_last"])
def test_keys_without_a_value_are_left_out(on_failure):
    value = ran(making(ValueError("boom")), ALWAYS, on_failure=on_failure)
    assert set(value) == {
        "success", "valid", "exhausted", "reflection_iteration", "reflection_errors", "reflection_history",
    }  # fmt: skip
    assert (value["success"], value["reflection_iteration"]) == (False, 3)
    assert [entry["output"] for entry in value["reflection_history"]] == [None] * 3


OBJECT = {"type": "schema", "schema": SCHEMA}


@pytest.mark.parametrize("text", ["no JSON at all", '{"name": "Ada", "age"', "[1]", '"Ada"'])
@pytest.mark.parametrize("on_failure", ["return_best", "return_last"])
def test_text_is_never_the_best_where_the_schema_expects_an_object(text, on_failure):
    correct = making(text)
    value = ran(making(text), OBJECT, correct=correct, on_failure=on_failure, max_iterations=2)
    shown = value["reflection_output"]  # still there to be looked at, and to be corrected
    assert [state["reflection_output"] for state, _ in correct.seen] == [shown]
    assert [entry["output"] for entry in value["reflection_history"]] == [shown, shown]
    assert not {"reflection_best", "reflection_best_score", "result"} & set(value)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_only_attempt_with_json_is_the_best(at):
    made: list = ["no JSON at all"] * 3
    made[at] = {"age": "many"}
    value = ran(making(*made), OBJECT)
    assert value["reflection_best"] == value["reflection_output"] == {"age": "many"}
    assert 0 <= value["reflection_best_score"] < 1


@pytest.mark.parametrize(
    "schema", [{"type": "string", "minLength": 99}, {"anyOf": [{"type": "object"}, {"minLength": 99}]}]
)
def test_text_can_be_the_best_where_the_schema_allows_it(schema):
    value = ran(making("short"), {"type": "schema", "schema": schema}, max_iterations=1)
    assert value["reflection_best"] == value["result"] == "short"


OR_NULL = {"type": ["object", "null"], "required": ["a"]}
NULLS = {
    "a model's": (
        {"action": "llm.call", "model": "gpt-4", "prompt": "p"},
        {"type": "schema", "schema": OR_NULL},
    ),
    "an action's": ({"action": "make"}, {"type": "schema", "schema": OR_NULL}),
    "code's": ({"run": "return None"}, {"type": "schema", "schema": OR_NULL}),
    "of the call's schema": (
        {"action": "llm.call", "model": "gpt-4", "prompt": "p", "schema": OR_NULL},
        scoring("output is None"),
    ),
}


@pytest.mark.parametrize(("generator", "evaluator"), NULLS.values(), ids=NULLS)
def test_null_is_an_output_where_a_schema_allows_it(generator, evaluator):
    value = loop(None, {"make": making(None)}, ["null"], generator=generator, evaluator=evaluator)
    assert value["success"] is True
    assert (value["result"], value["reflection_output"], value["reflection_best"]) == (None, None, None)
    [attempt] = value["reflection_history"]
    assert (attempt["output"], attempt["valid"], attempt["errors"]) == (None, True, [])


def test_null_is_judged_and_corrected_like_any_other_output():
    judge = scoring("{'valid': state['reflection_output'] == {'a': 1}, 'errors': ['it is null']}")
    replies = ['{"a": 0}', "null", '{"a": 1}']
    generator = {"action": "llm.call", "model": "gpt-4", "prompt": "p", "schema": OR_NULL}
    value = loop(None, {}, replies, generator=generator, evaluator=judge)
    assert [entry["output"] for entry in value["reflection_history"]] == [{"a": 0}, None, {"a": 1}]
    assert [entry["valid"] for entry in value["reflection_history"]] == [False, False, True]
    correct = making(None)
    value = ran(
        making({"a": 0}), {"type": "schema", "schema": OR_NULL | {"minProperties": 2}}, correct=correct
    )
    assert value["result"] is None


@pytest.mark.parametrize("evaluator", [{"type": "schema", "schema": {"type": "object"}}, ALWAYS])
def test_nothing_is_no_output(evaluator):
    value = ran(making(None), evaluator, max_iterations=1)
    assert value["reflection_history"][0]["errors"] == [{"message": "The generator returned nothing."}]
    assert "reflection_output" not in value


@pytest.mark.parametrize("evaluator", [scoring("0.0"), scoring("5")], ids=["scored 0", "failed"])
def test_an_attempt_without_output_is_never_the_best(evaluator):
    value = ran(making(ValueError("boom"), "something"), evaluator, max_iterations=2)
    assert value["reflection_best"] == value["reflection_output"] == value["result"] == "something"


@pytest.mark.parametrize(
    ("nothing", "why"),
    [
        (None, "The corrector returned nothing."),
        (ValueError("boom"), "The corrector failed: ValueError: boom"),
        (ModelError("down"), "The corrector failed: down"),
    ],
)
def test_if_the_corrector_fails_the_generator_is_shown_the_error(nothing, why, caplog):
    make, correct = making("draft", "again"), making(nothing, "good")
    value = ran(make, scoring("{'valid': output == 'good', 'errors': ['low']}"), correct=correct)
    assert [entry["output"] for entry in value["reflection_history"]] == ["draft", "again", "good"]
    state, _ = make.seen[1]
    assert state["reflection_feedback"].startswith(why)
    assert "low" in state["reflection_feedback"]
    assert state["reflection_errors"] == [{"message": "low"}, {"message": why}]
    assert f"{why} The generator runs again." in caplog.text


def test_an_attempt_in_which_corrector_and_generator_fail_has_both_errors():
    make = making("draft", ValueError("boom"), "good")
    value = ran(make, scoring("output == 'good'"), correct=making(ModelError("down")), max_iterations=2)
    assert value["reflection_history"][1]["errors"] == [
        {"message": "The corrector failed: down The generator failed: ValueError: boom"}
    ]
    assert value["reflection_history"][1]["score"] == 0.0


@pytest.mark.parametrize("on_failure", ["return_best", "return_last", "raise"])
def test_a_model_that_cannot_be_reached_gives_attempts_without_a_score(on_failure):
    def run():
        generator = {**PROMPTED, "prompt": "Write."}
        down = [ModelError("down", status=503)] * 3
        return loop(generator=generator, evaluator=ALWAYS, replies=down, on_failure=on_failure)

    if on_failure == "raise":
        with pytest.raises(ReflectionFailedError, match="No valid output in 3 attempts") as caught:
            run()
        history = caught.value.history
    else:
        value = run()
        assert (value["success"], value["exhausted"]) == (False, True)
        assert not value.keys() & {"reflection_best", "reflection_best_score", "result"}
        history = value["reflection_history"]
    assert [(entry["score"], entry["valid"]) for entry in history] == [(None, False)] * 3
    assert [entry["errors"] for entry in history] == [[{"message": "The generator failed: down"}]] * 3


def test_after_a_failed_generator_the_generator_runs_again():
    make, correct = making(ValueError("boom"), "draft"), making("good")
    value = ran(make, scoring("output == 'good'"), correct=correct)
    assert [entry["output"] for entry in value["reflection_history"]] == [None, "draft", "good"]


@pytest.mark.parametrize(
    "error",
    [ConfigError("no such thing"), WorkflowError("no such thing")],
)
def test_a_configuration_error_is_raised_at_once(error):
    make = making(error)
    with pytest.raises(WorkflowError, match="no such thing"):
        ran(make, ALWAYS)
    assert len(make.seen) == 1


def test_the_state_of_each_attempt():
    make = making({"a": 1}, {"a": 2}, {"a": 3})
    ran(make, scoring("{'valid': output['a'] == 3, 'score': output['a'] / 3, 'errors': ['low']}"))
    first, second, third = (state for state, _ in make.seen)
    assert {key: first[key] for key in first if key != "reflection_feedback"} == {
        "reflection_requirements": "",
        "reflection_iteration": 1,
        "reflection_output": None,
        "reflection_errors": [],
        "reflection_history": [],
        "reflection_best": None,
        "reflection_best_score": 0.0,
    }
    assert second["reflection_iteration"] == 2
    assert second["reflection_output"] == second["reflection_best"] == {"a": 1}
    assert second["reflection_errors"] == [{"message": "low"}]
    assert "low" in second["reflection_feedback"]
    assert third["reflection_best_score"] == pytest.approx(2 / 3)
    assert [entry["iteration"] for entry in third["reflection_history"]] == [1, 2]


def test_the_names_of_a_custom_evaluator():
    run = (
        "result = {'valid': False, 'score': 0, 'errors': ["
        "[output, reflection_output, reflection_errors, reflection_iteration,"
        " state['reflection_iteration'], state['who']]]}"
    )
    value = ran(
        making("a", "b"),
        {"type": "custom", "run": run},
        state={"who": "me"},
        max_iterations=2,
    )
    first, second = (entry["errors"][0]["message"] for entry in value["reflection_history"])
    assert first == "['a', 'a', [], 1, 1, 'me']"
    assert second.startswith("['b', 'b', [{'message': ")
    assert second.endswith(", 2, 2, 'me']")


@pytest.mark.parametrize("by", ["run", "action"])
@pytest.mark.parametrize(
    ("corrected", "apply", "outputs"),
    [
        ("text", "auto", [{"a": 1}, "text"]),
        ([9], "auto", [{"a": 1}, [9]]),
        ({"hint": "more"}, "auto", [{"a": 1}, {"a": 2, "hint": "more"}]),
        ({"a": 9}, "auto", [{"a": 1}, {"a": 2}]),
        ({"corrected_output": {"b": 9}}, "auto", [{"a": 1}, {"b": 9}]),
        ({"hint": "more"}, "replace", [{"a": 1}, {"hint": "more"}]),
        ({"a": 9}, "replace", [{"a": 1}, {"a": 9}]),
        ({"corrected_output": {"b": 9}}, "replace", [{"a": 1}, {"corrected_output": {"b": 9}}]),
        ({"reflection_output": "b"}, "replace", [{"a": 1}, {"reflection_output": "b"}]),
        ({"output": None}, "replace", [{"a": 1}, {"output": None}]),
        ({"output": 1, "b": [None]}, "replace", [{"a": 1}, {"output": 1, "b": [None]}]),
        ({}, "replace", [{"a": 1}, {}]),
        ([{"output": 1}], "replace", [{"a": 1}, [{"output": 1}]]),
        ("", "replace", [{"a": 1}, ""]),
        (0, "replace", [{"a": 1}, 0]),
        (False, "replace", [{"a": 1}, False]),
        ({"a": 9}, "feedback", [{"a": 1}, {"a": 2}]),
        ("do more", "feedback", [{"a": 1}, {"a": 2, "told": "do more"}]),
    ],
)
def test_apply_decides_between_feedback_and_the_next_output(corrected, apply, outputs, by):
    def make(state):
        made = {"a": state["reflection_iteration"]}
        if "hint" in state:
            made["hint"] = state["hint"]
        if "do more" in state["reflection_feedback"]:
            made["told"] = "do more"
        return made

    correct, corrector = None, {"run": f"return {corrected!r}", "apply": apply}
    if by == "action":
        correct, corrector = making(corrected), {"apply": apply}
    value = ran(make, NEVER, correct=correct, corrector=corrector, max_iterations=2)
    assert [entry["output"] for entry in value["reflection_history"]] == outputs


@pytest.mark.parametrize(
    ("corrected", "warned"), [({"a": 9}, True), ({"a": 9, "b": 1}, True), ({"hint": "more"}, False)]
)
def test_ambiguous_feedback_warns_once(corrected, warned, caplog):
    ran(making({"a": 1}), NEVER, correct=making(corrected), max_iterations=4)
    assert caplog.text.count("apply: replace") == warned


NEEDS_OUTPUT = {
    "type": "schema",
    "schema": {
        "type": "object",
        "required": ["output"],
        "properties": {"output": {"enum": ["fixed", "better"]}},
    },
}
TEXT = {"type": "schema", "schema": {"enum": ["fixed"]}}


@pytest.mark.parametrize(
    ("draft", "evaluator", "apply", "output"),
    [
        ({"output": "x"}, NEEDS_OUTPUT, "replace", {"output": "fixed"}),
        ({"output": "x"}, NEEDS_OUTPUT, "auto", {"output": "fixed"}),
        ({}, NEEDS_OUTPUT, "replace", {"output": "fixed"}),
        ("x", NEEDS_OUTPUT, "auto", {"output": "fixed"}),
        ("x", TEXT, "auto", "fixed"),
        ("x", TEXT, "replace", {"output": "fixed"}),
        ({"output": "x"}, NEVER, "auto", {"output": "fixed"}),
        ({"output": "x"}, NEVER, "replace", {"output": "fixed"}),
        ("x", NEVER, "replace", {"output": "fixed"}),
        ("x", NEVER, "auto", "fixed"),
    ],
)
def test_a_lone_key_output_is_a_wrapper_only_where_the_output_has_no_such_key(
    draft, evaluator, apply, output
):
    corrector = {"run": "return {'output': 'fixed'}", "apply": apply}
    value = ran(making(draft), evaluator, corrector=corrector, max_iterations=2)
    assert value["reflection_history"][1]["output"] == output


def test_an_object_from_a_model_is_feedback():
    params = {"generator": {"action": "make"}, "evaluator": scoring("output == 'told more'")}
    corrector = {**PROMPTED, "prompt": "What is wrong?", "schema": {"type": "object"}}
    models = {"gpt-4": ScriptedModel(['{"hint": "more"}'])}
    value = act(
        "reflection.loop",
        None,
        {"make": lambda state: f"told {state.get('hint', 'nothing')}"},
        models,
        **params,
        corrector=corrector,
    )
    assert [entry["output"] for entry in value["reflection_history"]] == ["told nothing", "told more"]


def test_feedback_stays_for_later_attempts():
    heard = []

    def make(state):
        heard.append(state.get("hint"))
        return {"a": len(heard)}

    corrector = {"run": "return {'hint': 'h'} if reflection_iteration == 2 else {'other': 1}"}
    ran(make, NEVER, corrector=corrector)
    assert heard == [None, "h", "h"]


PROMPTED = {"action": "llm.call", "model": "gpt-4"}


@pytest.mark.parametrize(
    ("asks", "appended"),
    [
        ({"prompt": "Write."}, True),
        ({"messages": [{"role": "user", "content": "Write."}]}, True),
        ({"prompt": "Write. {{ state.reflection_errors | length }}"}, False),
        ({"prompt": "Write. {{ state.reflection_feedback }}"}, True),
        ({"prompt": "Write.", "system": "Mind {{ state.reflection_errors | length }}"}, False),
        ({"messages": [{"role": "user", "content": "{{ state.reflection_history | length }}"}]}, False),
    ],
)
def test_without_a_corrector_the_generator_runs_again_with_the_errors(asks, appended):
    model = ScriptedModel(["bad {{ 7 * 7 }} {% endraw %}", "good"])
    evaluator = scoring("{'valid': output == 'good', 'score': 0, 'errors': ['not ' + output]}")
    value = act(
        "reflection.loop", None, None, {"gpt-4": model}, generator={**PROMPTED, **asks}, evaluator=evaluator
    )
    assert value["success"] is True
    first, second = (request.messages for request in model.requests)
    assert "What is wrong" not in first[-1].content
    assert ("not bad {{ 7 * 7 }} {% endraw %}" in second[-1].content) is appended


FORM = {"type": "schema", "schema": {"type": "object", "required": ["name"]}}
ASKED = 'Your answer must meet these requirements:\n- One JSON object.\n- The key "name" is required.'
CODE = {
    "type": "custom",
    "run": "errors = []\nif ',' in output:\n    errors.append({'message': 'Use no commas.'})\n"
    "result = {'valid': not errors, 'score': 0.5, 'errors': errors}",
}


@pytest.mark.parametrize(
    ("asks", "evaluator", "expected"),
    [
        ({"prompt": "Write."}, FORM, ["Write.\n\n" + ASKED]),
        ({"messages": [{"role": "user", "content": "Write."}]}, FORM, ["Write.", ASKED]),
        ({"prompt": "{{ state.reflection_requirements }} Write."}, FORM, [f"{ASKED} Write."]),
        ({"prompt": "Write."}, CODE,
         ["Write.\n\nYour answer must meet these requirements:\n- Use no commas."]),
        ({"prompt": "Write."}, ALWAYS, ["Write."]),
    ],
    ids=["schema", "messages", "own place", "code", "nothing to say"],
)  # fmt: skip
def test_the_first_attempt_knows_what_the_evaluator_asks_for(asks, evaluator, expected):
    model = ScriptedModel(["a, b", '{"name": "Ada"}'])
    act("reflection.loop", None, None, {"gpt-4": model}, generator={**PROMPTED, **asks}, evaluator=evaluator)
    first = [message.content for message in model.requests[0].messages]
    assert first == expected
    for request in model.requests[1:]:
        again = "\n\n".join(message.content for message in request.messages)
        assert again.startswith("\n\n".join(expected))


@pytest.mark.parametrize(("apply", "is_stated"), [("replace", True), ("auto", True), ("feedback", False)])
def test_a_model_that_corrects_knows_it_too(apply, is_stated):
    model = ScriptedModel(["a", '{"name": "Ada"}', '{"name": "Bo"}'])
    corrector = {**PROMPTED, "prompt": "Correct.", "apply": apply}
    generator = {**PROMPTED, "prompt": "Write."}
    act(
        "reflection.loop",
        None,
        None,
        {"gpt-4": model},
        generator=generator,
        evaluator=FORM,
        corrector=corrector,
    )
    assert (ASKED in model.requests[1].messages[-1].content) is is_stated


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "secret = 'canary4711'\nresult = state['reflection_output'] == secret"),
        ("lua", "local secret = 'canary4711'\nreturn reflection_output == secret"),
    ],
)
def test_the_code_of_an_evaluator_never_reaches_a_prompt(language, code):
    model = ScriptedModel(["a", "b", "c"])
    evaluator = {"type": "custom", "language": language, "run": code}
    act(
        "reflection.loop",
        None,
        None,
        {"gpt-4": model},
        generator={**PROMPTED, "prompt": "Write."},
        evaluator=evaluator,
    )
    assert len(model.requests) == 3
    texts = [message.content for request in model.requests for message in request.messages]
    assert not any("canary4711" in text for text in texts)


def test_keys_of_the_output_never_replace_documented_ones():
    output = {"name": "Ada", "success": "mine", "valid": 3, "reflection_best": 1, "exhausted": 2}
    value = ran(making(output), ALWAYS)
    assert value["name"] == "Ada"
    assert (value["success"], value["valid"], value["reflection_best"]) == (True, True, output)
    assert "exhausted" not in value
    assert "result" not in value
    assert value["reflection_output"] == output


@pytest.mark.parametrize("output", ["text", [1, 2], 5, 1.5, True])
def test_an_output_other_than_an_object_goes_under_result(output):
    value = ran(making(output), ALWAYS)
    assert value["result"] == value["reflection_output"] == output


def test_the_output_has_the_coerced_values():
    value = ran(making('{"name": "Ada", "age": "36"}'), {"type": "schema", "schema": SCHEMA})
    assert (value["success"], value["age"]) == (True, 36)


def test_errors_of_a_schema_have_paths_and_suggestions():
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    value = ran(making({"a": [1, "x"]}), {"type": "schema", "schema": schema}, max_iterations=1)
    [error] = value["reflection_errors"]
    assert set(error) >= {"path", "message", "schema_path", "expected", "got"}
    assert error["path"] == "a.1"
    assert value["reflection_history"][0]["suggestions"]


def test_a_permanent_model_error_is_a_failed_attempt():
    value = loop(
        generator={**PROMPTED, "prompt": "Write."},
        evaluator=ALWAYS,
        replies=[ModelError("refused"), "good"],
    )
    assert value["success"] is True
    assert "refused" in value["reflection_history"][0]["errors"][0]["message"]


def test_a_loop_in_lua_and_prolog():
    value = loop(
        generator={"language": "lua", "run": "return {n = reflection_iteration}"},
        evaluator={
            "type": "custom",
            "language": "prolog",
            "run": "valid :- output(O), json_get(O, n, N), N >= 2.",
        },
    )
    assert (value["success"], value["reflection_iteration"]) == (True, 2)


def judged_by(prompt):
    return {"type": "llm", "model": "gpt-4", "prompt": prompt}


FEEDING = {"run": "return {'hint': 'more'}"}
FIXING = {"action": "llm.call", "model": "gpt-3", "prompt": "Mend it."}
HINTING = {**FIXING, "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("evaluator", "corrector", "asked"),
    [
        (judged_by("Is it good?"), None, 1),
        (judged_by("Is {{ state.reflection_output }} good for {{ state.n }}?"), None, 1),
        (judged_by("Is {{ state.reflection_output }} good?"), FEEDING, 1),
        (judged_by("Is it good for {{ state.n }}?"), {**FEEDING, "apply": "replace"}, 2),
        (judged_by("Is it good for {{ state.hint or '' }}?"), FEEDING, 3),
        (judged_by("Is it good for {{ state.hint or '' }}?"), HINTING, 3),
        (judged_by("Is it good for {{ state.hint or '' }}?"), FIXING, 1),
        (judged_by("Attempt {{ state.reflection_iteration }}: is it good?"), None, 3),
        (judged_by("Is it better than {{ state.reflection_best }}?"), None, 3),
        (judged_by("All of {{ state | tojson }}"), None, 3),
    ],
)
def test_a_judge_is_asked_again_about_the_same_output_if_its_prompt_reads_more(evaluator, corrector, asked):
    model = ScriptedModel(['{"valid": false, "score": 0.1}'] * 3)
    params = {"generator": {"action": "make"}, "evaluator": evaluator}
    if corrector is not None:
        params["corrector"] = corrector
    state = {"n": 2, "hint": None}
    corrects = ScriptedModel(['{"hint": "more"}' if corrector is HINTING else "same"] * 2)
    models = {"gpt-4": model, "gpt-3": corrects}
    value = act("reflection.loop", state, {"make": making("same")}, models, **params)
    assert len(value["reflection_history"]) == 3
    assert len(model.requests) == asked


@pytest.mark.parametrize("name", ["reflection_iteration", "state['reflection_iteration']"])
def test_evaluator_code_runs_again_for_the_same_output(name):
    value = ran(making("same"), scoring(f"{name} == 3"))
    assert [entry["valid"] for entry in value["reflection_history"]] == [False, False, True]


JUDGE = {"type": "llm", "model": "gpt-4", "prompt": "Judge it."}
MIDDLING = '{"valid": false, "score": 0.6, "errors": ["flat"]}'
WEAK = '{"valid": false, "score": 0.2}'


def cut_short(*verdicts, **params):
    """Run a loop whose judge gives these verdicts, the last of which is an error."""
    models = {"gpt-4": ScriptedModel([*verdicts])}
    params = {"generator": {"action": "make"}, "evaluator": JUDGE, "max_iterations": 5, **params}
    return act("reflection.loop", None, {"make": making("a", "b", "c")}, models, **params)


@pytest.mark.parametrize(
    ("verdicts", "on_failure", "output", "score"),
    [
        ([MIDDLING, WEAK], "return_best", "a", 0.6),
        ([WEAK, MIDDLING], "return_best", "b", 0.6),
        ([WEAK, MIDDLING], "return_last", "c", 0.6),
        ([], "return_best", "a", None),
        ([], "return_last", "a", None),
    ],
)
def test_a_failing_judge_ends_the_loop_with_the_attempts_so_far(verdicts, on_failure, output, score, caplog):
    value = cut_short(*verdicts, ModelError("refused"), on_failure=on_failure)
    assert (value["success"], value["valid"], "exhausted" in value) == (False, False, False)
    assert value["reflection_output"] == value["result"] == output
    assert value.get("reflection_best_score") == score
    assert value["reflection_reason"] == "The evaluator failed: refused"
    history = value["reflection_history"]
    assert len(history) == value["reflection_iteration"] == len(verdicts) + 1
    assert (history[-1]["score"], history[-1]["valid"]) == (None, False)
    assert "refused" in history[-1]["errors"][0]["message"]
    assert "refused" in caplog.text


def test_a_failing_judge_raises_with_on_failure_raise():
    with pytest.raises(ReflectionFailedError, match=r"No valid output in 2 attempts\. .*refused") as caught:
        cut_short(MIDDLING, ModelError("refused"), on_failure="raise")
    assert [entry["score"] for entry in caught.value.history] == [0.6, None]
    assert isinstance(caught.value.__cause__, ModelError)


@pytest.mark.parametrize("error", [ConfigError("no such model"), StoreError("the disk is full")])
def test_other_errors_of_a_judge_are_raised(error):
    with pytest.raises((WorkflowError, StoreError), match=str(error)):
        cut_short(MIDDLING, error)


CRASHING = {"type": "custom", "run": 'return {"valid": output["lable"] == "x"}'}


@pytest.mark.parametrize("on_failure", ["return_best", "return_last"])
def test_code_that_crashes_ends_the_loop_unjudged(on_failure):
    value = ran(making({"label": "Bug"}), CRASHING, on_failure=on_failure)
    assert (value["success"], value["valid"], "exhausted" in value) == (False, False, False)
    assert (value["label"], value["reflection_output"]) == ("Bug", {"label": "Bug"})
    assert "reflection_best_score" not in value
    reason = value["reflection_reason"]
    assert reason.startswith("Version 1 could not be judged (the evaluator failed: ")
    assert "lable" in reason
    (entry,) = value["reflection_history"]
    assert (entry["score"], entry["valid"]) == (None, False)


def test_code_that_crashes_raises_with_on_failure_raise():
    with pytest.raises(ReflectionFailedError, match=r"No valid output in 1 attempt\. .*lable"):
        ran(making({"label": "Bug"}), CRASHING, on_failure="raise")


def test_code_that_crashes_once_does_not_end_the_loop():
    code = "return output / (2 - reflection_iteration) > 0 if reflection_iteration < 3 else True"
    value = ran(making(-1), {"type": "custom", "run": code})
    assert [entry["score"] for entry in value["reflection_history"]] == [0.0, None, 1.0]
    assert value["success"] is True


@pytest.mark.parametrize(
    ("replies", "version"),
    [(["fine"] * 2, 1), ([WEAK, *["fine"] * 4], 3)],  # each unreadable reply is asked for again
)
def test_a_judge_whose_replies_cannot_be_read_ends_the_loop_unjudged(replies, version):
    model = ScriptedModel(replies)
    params = {"generator": {"action": "make"}, "evaluator": JUDGE, "max_iterations": 5}
    value = act("reflection.loop", None, {"make": making("a", "b", "c")}, {"gpt-4": model}, **params)
    assert value["success"] is False
    assert value["reflection_reason"].startswith(f"Version {version} could not be judged")


STATE = {"reflection_output": "bad", "reflection_errors": [{"message": "not good"}]}


def corrected(state=STATE, reply=None, actions=None, **params):
    model = ScriptedModel(lambda _request: reply)
    return act("reflection.correct", state, actions, {"gpt-4": model}, **params), model.requests


@pytest.mark.parametrize(
    ("params", "output"),
    [
        ({"run": "return output + '!'"}, "bad!"),
        ({"run": "result = reflection_output + reflection_errors[0]['message']"}, "badnot good"),
        ({"run": "return state['reflection_output'].upper()"}, "BAD"),
        ({"run": "return {'corrected_output': [1]}"}, {"corrected_output": [1]}),
        ({"run": "return {'output': 'fixed'}"}, {"output": "fixed"}),
        ({"run": "return {'output': 'fixed'}", "data": {"output": "x"}}, {"output": "fixed"}),
        ({"run": "return {'corrected_output': 1}", "data": {"corrected_output": 0}}, {"corrected_output": 1}),
        ({"run": "return {'a': 1}"}, {"a": 1}),
        ({"run": "return {'corrected_output': None}"}, {"corrected_output": None}),
        ({"run": "return output .. '!'", "language": "lua"}, "bad!"),
        ({"run": "return output", "data": {"x": 1}}, {"x": 1}),
        ({"run": "return output", "data": "{{ state.reflection_errors }}"}, [{"message": "not good"}]),
        ({"run": "return reflection_errors", "errors": ["e"]}, ["e"]),
        ({"run": "return reflection_iteration"}, 2),
        ({"corrector_action": "mend"}, "mended"),
        ({"corrector_action": "mend", "prompt": "p {{ state.reflection_output }}"}, "mended"),
    ],
)
def test_correct_returns_the_corrected_output(params, output):
    value, _ = corrected(STATE | {"reflection_iteration": 2}, actions={"mend": making("mended")}, **params)
    assert value == {"corrected_output": output, "success": True}


@pytest.mark.parametrize(
    ("data", "reply", "output"),
    [
        ("bad", "good", "good"),
        ("bad", '{"a": 1}', '{"a": 1}'),
        ({"a": 0}, '```json\n{"a": 1}\n```', {"a": 1}),
        ({"a": 0}, "no JSON at all", "no JSON at all"),
    ],
)
def test_a_prompt_is_answered_by_a_model(data, reply, output):
    prompt = "Mend {{ state.reflection_output | tojson }}: {{ state.reflection_errors[0].message }}"
    value, asked = corrected(reply=reply, data=data, prompt=prompt, model="gpt-4")
    assert value == {"corrected_output": output, "success": True}
    assert asked[0].messages[0].content.endswith(": not good")


BY_MODEL = {"prompt": "p {{ state.reflection_output }}", "model": "gpt-4"}
NO_DATA = {
    "a model corrects": ("reflection.correct", BY_MODEL),
    "a model corrects null": ("reflection.correct", BY_MODEL | {"data": None}),
    "an action corrects": ("reflection.correct", {"corrector_action": "act", "prompt": BY_MODEL["prompt"]}),
    "a model judges": ("reflection.evaluate", {"evaluator_type": "llm", "prompt": "p", "model": "gpt-4"}),
    "a model judges by a template": ("reflection.evaluate", {"evaluator_type": "llm", **BY_MODEL}),
    "a schema judges": ("reflection.evaluate", {"schema": {"type": "object"}}),
}


@pytest.mark.parametrize(("action", "params"), NO_DATA.values(), ids=NO_DATA)
def test_without_data_nothing_is_sent(action, params):
    model, own = ScriptedModel(lambda _request: "spent"), making("spent")
    with pytest.raises(WorkflowError, match="reflection_output"):
        act(action, {}, {"act": own}, {"gpt-4": model}, **params)
    assert (model.requests, own.seen) == ([], [])
    document = {"name": "t", "nodes": [{"name": "n", "uses": action, "with": params}]}
    workflow = Workflow.from_text(json.dumps(document), actions={"act": own}, models={"gpt-4": model})
    with pytest.raises(WorkflowError, match=r"state\.reflection_output is read here, but"):
        workflow.check()
    workflow.check({"reflection_output": None})
    act(
        action,
        {"reflection_output": None},
        {"act": own},
        {"gpt-4": ScriptedModel(['{"valid": true}'])},
        **params,
    )


def test_outside_a_loop_the_iteration_is_1():
    value, _ = corrected(run="return reflection_iteration")
    assert value == {"corrected_output": 1, "success": True}


def test_a_corrector_action_gets_the_prompt_and_the_state():
    mend = making("mended")
    corrected(actions={"mend": mend}, corrector_action="mend", prompt="p {{ state.reflection_output }}")
    [(state, params)] = mend.seen
    assert params == {"prompt": "p bad"}
    assert state["reflection_output"] == "bad"


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ("raise ValueError('x')", "ValueError: x"),
        ("return None", "The corrector returned nothing"),
        ("result = state['nothing']", "nothing"),
    ],
)
def test_a_failed_correction_returns_the_unchanged_data_and_the_error(run, why):
    value, _ = corrected(run=run)
    assert why in value.pop("error")
    assert value == {"corrected_output": "bad", "success": False}


def test_an_empty_reply_is_a_failed_correction():
    value, _ = corrected(reply=" ", prompt="p", model="gpt-4")
    assert value == {
        "corrected_output": "bad",
        "success": False,
        "error": "The model 'scripted' returned an empty reply.",
    }


def test_correct_raises_permanent_model_errors():
    with pytest.raises(ModelError, match="refused"):
        corrected(reply=ModelError("refused"), prompt="p", model="gpt-4")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "give one of"),
        ({"run": "x", "prompt": "p"}, "give one of"),
        ({"run": "x", "corrector_action": "mend"}, "give one of"),
        ({"corrector_action": "mendd"}, "did you mean 'mend'"),
        ({"corrector_action": "reflection.loop"}, "can't be called by another"),
        ({"prompt": "{{ state."}, "template"),
        ({"prompt": "p", "error": []}, "did you mean 'errors'"),
    ],
)
def test_correct_rejects_invalid_parameters(params, message):
    with pytest.raises(WorkflowError, match=message):
        corrected(actions={"mend": making("mended")}, **params)


def test_the_best_of_several_first_outputs_goes_on():
    make = scored(0.2, 0.7, 0.5, 1.0)
    value = ran(make, BY_SCORE, candidates=3)
    assert len(make.seen) == 4
    assert [entry["output"]["s"] for entry in value["reflection_history"]] == [0.7, 1.0]
    assert value["reflection_iteration"] == 2


def test_candidates_are_judged_by_a_model_only_if_nothing_else_decides():
    model = ScriptedModel([WEAK, MIDDLING])
    params = {"generator": {"action": "make"}, "evaluator": JUDGE, "max_iterations": 1, "candidates": 2}
    make = making("a", "b")
    value = act("reflection.loop", None, {"make": make}, {"gpt-4": model}, **params)
    assert value["result"] == "b"
    assert [request.role for request in model.requests] == ["evaluation", "evaluation"]


def test_a_candidate_that_failed_is_not_better_than_one_that_is_not_judged_yet():
    params = {"generator": {"action": "make"}, "evaluator": JUDGE, "max_iterations": 1, "candidates": 2}
    make = making(ValueError("boom"), "b")
    models = {"gpt-4": ScriptedModel([MIDDLING])}
    assert act("reflection.loop", None, {"make": make}, models, **params)["result"] == "b"


def test_candidates_of_a_model_differ_by_temperature():
    model = ScriptedModel(["text 1", "text 2", WEAK, MIDDLING])
    generator = {"action": "llm.call", "prompt": "Write.", "model": "gpt-4"}
    params = {"generator": generator, "evaluator": JUDGE, "max_iterations": 1}
    value = act("reflection.loop", None, {}, {"gpt-4": model}, **params, candidates=2)
    assert value["result"] == "text 2"
    assert [request.temperature for request in model.requests[:2]] == [None, 0.7]


def test_an_attempt_is_accepted_if_a_model_prefers_it():
    def answer(request):
        text = request.messages[-1].content
        if request.schema is None:
            return WEAK if "first" in text else MIDDLING
        return {"reason": "so", "winner": "A" if text.index("first") < text.index("second") else "B"}

    model = ScriptedModel(answer)
    params = {"generator": {"action": "make"}, "evaluator": JUDGE, "max_iterations": 2, "accept": "pairwise"}
    make = making("first", "second")
    value = act("reflection.loop", None, {"make": make}, {"gpt-4": model}, **params)
    assert value["result"] == "first", "whatever their scores"
    assert [entry["score"] for entry in value["reflection_history"]] == [0.2, 0.6]
    make = making(ValueError("boom"), "second", ValueError("boom"))
    value = act("reflection.loop", None, {"make": make}, {"gpt-4": model}, **{**params, "max_iterations": 3})
    assert value["result"] == "second", "a failed attempt is compared with nothing"


@pytest.mark.parametrize(
    ("verdicts", "score", "valid"),
    [
        ([(False, 0.2), (False, 0.6), (True, 1.0), (False, 0.6)], 0.6, False),
        ([(False, 0.3), (False, 0.3), (False, 0.3), (True, 0.9), (True, 0.95)], 0.55, False),
        ([(True, 0.9), (False, 0.5)], 0.7, False),
        ([(True, 0.9)] * 3 + [(False, 0.1)] * 2, 0.58, True),
    ],
)
def test_a_judgement_of_several_samples_is_their_mean_and_their_majority(verdicts, score, valid):
    replies = [
        json.dumps({"valid": valid, "score": score, "errors": [f"{score}"]}) for valid, score in verdicts
    ]
    model = ScriptedModel(replies)
    value = act(
        "reflection.evaluate", None, None, {"gpt-4": model},
        data="x", evaluator_type="llm", model="gpt-4", prompt="Judge it.", judge_samples=len(replies),
    )  # fmt: skip
    assert (value["score"], value["valid"]) == (pytest.approx(score), valid)
    majority = [score for verdict, score in verdicts if verdict is valid]
    assert value["errors"][0]["message"] == str(min(majority, key=lambda one: abs(one - score)))
    assert {request.temperature for request in model.requests} == {0.7}


def test_a_model_that_refuses_a_temperature_is_asked_without_one():
    def answer(request):
        if request.temperature is not None:
            raise ModelError("temperature is not supported", status=400)
        return MIDDLING

    evaluator = {**JUDGE, "judge_samples": 2}
    params = {"generator": {"action": "make"}, "evaluator": evaluator, "max_iterations": 1}
    model = ScriptedModel(answer)
    value = act("reflection.loop", None, {"make": making("a")}, {"gpt-4": model}, **params)
    assert value["reflection_best_score"] == 0.6
    assert len(model.requests) == 4


@pytest.mark.parametrize(("margin", "best"), [(0.1, "b"), (9, "a")])
def test_a_gain_within_the_judges_noise_is_none(margin, best):
    scores = iter([0.4, 0.5, 0.6, 0.7])
    model = ScriptedModel(lambda _request: f'{{"score": {next(scores)}}}')
    evaluator = {**JUDGE, "judge_samples": 2, "judge_margin": margin}
    params = {"generator": {"action": "make"}, "evaluator": evaluator, "max_iterations": 2}
    value = act("reflection.loop", None, {"make": making("a", "b")}, {"gpt-4": model}, **params)
    assert value["reflection_best"] == best


def test_the_spent_budget_of_a_run_inside_an_action_is_an_error_of_the_attempt():
    def make(state):
        return (
            Agent(ScriptedModel(["never"]), criteria=["Is clear."], budget_tokens=1)
            .run_sync("Q?")
            .best_output
        )

    value = ran(make, NEVER, max_iterations=2, on_failure="return_last")
    assert len(value["reflection_history"]) == 2
    assert "budget_tokens=1 leaves 1 tokens" in value["reflection_errors"][0]["message"]
