"""reflection.correct: its table of parameters, and what it returns."""

import pytest

from redraft import ModelError, ScriptedModel, WorkflowError
from workflows import act, making

STATE = {"reflection_output": "bad", "reflection_errors": [{"message": "not good"}]}


def corrected(state=STATE, reply=None, actions=None, **params):
    model = ScriptedModel([reply])
    return act("reflection.correct", state, actions, {"gpt-4": model}, **params), model.requests


@pytest.mark.parametrize(
    ("params", "output"),
    [
        ({"run": "return output + '!'"}, "bad!"),
        ({"run": "result = reflection_output + reflection_errors[0]['message']"}, "badnot good"),
        ({"run": "return state['reflection_output'].upper()"}, "BAD"),
        ({"run": "return {'corrected_output': [1]}"}, [1]),
        ({"run": "return {'a': 1}"}, {"a": 1}),
        ({"run": "return output .. '!'", "language": "lua"}, "bad!"),
        ({"run": "return output", "data": {"x": 1}}, {"x": 1}),
        ({"run": "return output", "data": "{{ state.reflection_errors }}"}, [{"message": "not good"}]),
        ({"run": "return reflection_errors", "errors": ["e"]}, ["e"]),
        ({"run": "return reflection_iteration"}, 2),
        ({"corrector_action": "mend"}, "mended"),
        ({"corrector_action": "mend", "prompt": "p {{ state.reflection_output }}"}, "mended"),
    ],
)
def test_what_corrects(params, output):
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
def test_a_model_corrects_what_the_prompt_shows(data, reply, output):
    prompt = "Mend {{ state.reflection_output | tojson }}: {{ state.reflection_errors[0].message }}"
    value, asked = corrected(reply=reply, data=data, prompt=prompt, model="gpt-4")
    assert value == {"corrected_output": output, "success": True}
    assert asked[0].messages[0].content.endswith(": not good")


def test_without_a_loop_before_it_it_is_the_first_iteration():
    value, _ = corrected(run="return reflection_iteration")
    assert value == {"corrected_output": 1, "success": True}


def test_own_actions_get_the_prompt_and_the_state():
    mend = making("mended")
    corrected(actions={"mend": mend}, corrector_action="mend", prompt="p {{ state.reflection_output }}")
    [(state, params)] = mend.seen
    assert params == {"prompt": "p bad"}
    assert state["reflection_output"] == "bad"


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ("raise ValueError('x')", "ValueError: x"),
        ("return None", "The corrector gave nothing"),
        ("return {'corrected_output': None}", "The corrector gave nothing"),
        ("result = nothing", "nothing"),
    ],
)
def test_what_can_t_be_corrected_stays_as_it_was_and_says_why(run, why):
    value, _ = corrected(run=run)
    assert why in value.pop("error")
    assert value == {"corrected_output": "bad", "success": False}


def test_an_empty_reply_says_why_nothing_was_corrected():
    value, _ = corrected(reply=" ", prompt="p", model="gpt-4")
    assert value == {
        "corrected_output": "bad",
        "success": False,
        "error": "The model 'scripted' returned an empty reply.",
    }


def test_a_provider_that_fails_is_raised():
    with pytest.raises(ModelError, match="refused"):
        corrected(reply=ModelError("refused"), prompt="p", model="gpt-4")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "give one of"),
        ({"run": "x", "prompt": "p"}, "give one of"),
        ({"run": "x", "corrector_action": "mend"}, "give one of"),
        ({"corrector_action": "mendd"}, "did you mean 'mend'"),
        ({"corrector_action": "reflection.loop"}, "can't stand inside"),
        ({"prompt": "{{ state."}, "template"),
        ({"prompt": "p", "error": []}, "did you mean 'errors'"),
    ],
)
def test_wrong_parameters_are_refused(params, said):
    with pytest.raises(WorkflowError, match=said):
        corrected(actions={"mend": making("mended")}, **params)
