"""Running a workflow: results and state, conditions, gotos, errors, own actions, events."""

import asyncio
import logging
import math
from datetime import date
from pathlib import Path

import pytest

from redraft import ConfigError, ModelError, ScriptedModel, TokenUsage
from redraft.errors import WorkflowError
from redraft.events import TokenEvent, VersionEvaluated
from redraft.workflow import Workflow, action, run_action
from redraft.workflow.actions import _registered
from redraft.workflow.history import outcome_of
from redraft.workflow.loop import RESULT_KEYS
from redraft.workflow.run import NodeFinished, NodeStarted, WorkflowFinished
from support.workflows import making, under


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (None, (None, "")),
        ("a text", (None, "")),
        ({"count": 3}, (None, "")),
        ({"valid": True}, (True, "")),
        ({"valid": "yes"}, (False, "")),
        (
            {"valid": True, "reflection_iteration": 1, "reflection_best_score": 0.9},
            (True, "after 1 attempt, best score 0.90"),
        ),
        ({"valid": False, "reflection_iteration": 3}, (False, "after 3 attempts, best score -")),
    ],
)
def test_node_outcomes_in_words(result, outcome):
    assert outcome_of(result) == outcome


def made(text, actions=None, models=None, head=""):
    return Workflow.from_text(
        f"name: t\n{head}nodes:\n{under(text, 2)}\n", actions=actions, models=models, keep=False
    )


def ran(text, state=None, **options):
    return made(text, **options).run_sync(state)


def failing(state):
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("node", "state"),
    [
        ("{run: 'return {\"a\": 1}'}", {"a": 1}),
        ("{run: 'return {\"a\": 1}', output: o}", {"o": {"a": 1}}),
        ("{run: 'return 5', output: o}", {"o": 5}),
        ("{run: 'return 5'}", {"n": 5}),
        ("{run: 'result = 5'}", {"n": 5}),
        ("{run: 'return None'}", {}),
        ("{run: 'return None', output: o}", {"o": None}),
        ("{run: 'return {n = 1}', language: lua, output: o}", {"o": {"n": 1}}),
        ("{uses: give}", {"b": 2}),
        ("{uses: give, output: o}", {"o": {"b": 2}}),
    ],
)
def test_where_a_result_is_stored(node, state):
    actions = {"give": making({"b": 2})}
    assert ran(f"- {{name: n, {node[1:]}", actions=actions).state == state


LOOP_OF_CARS = (
    "- name: car\n  uses: reflection.loop\n  output: car\n  with:\n"
    "    generator: {action: llm.call, prompt: x}\n"
    "    evaluator: {type: schema, schema: {required: [make, model]}}\n"
)
CALL_FOR_A_CAR = "- {name: car, uses: llm.call, with: {prompt: x, schema: {required: [make]}}}\n"


@pytest.mark.parametrize("node", [LOOP_OF_CARS, CALL_FOR_A_CAR])
def test_a_models_reply_cannot_choose_the_model(node):
    script = ScriptedModel([{"make": "Borgward", "model": "Isabella"}, "done"])
    text = node + "- {name: tell, uses: llm.call, with: {prompt: x}}"
    state = ran(text, {"model": "mine"}, models={"mine": script}).state
    assert (state["make"], state["model"], state["tell"]) == ("Borgward", "mine", "done")
    assert state.get("car", {"model": "Isabella"})["model"] == "Isabella"


@pytest.mark.parametrize("node", ['{run: \'return {"model": "b"}\'}', "{uses: choose}"])
def test_code_and_own_actions_may_choose_the_model(node):
    text = f"- {{name: n, {node[1:]}\n- {{name: tell, uses: llm.call, with: {{prompt: x}}}}"
    models = {"a": ScriptedModel([]), "b": ScriptedModel(["done"])}
    state = ran(text, {"model": "a"}, models=models, actions={"choose": making({"model": "b"})}).state
    assert state == {"model": "b", "tell": "done"}


def test_a_failed_loop_clears_the_success_of_an_earlier_one():
    loop = (
        "- name: {0}\n  uses: reflection.loop\n  on_error: continue\n  with:\n    on_failure: raise\n"
        "    generator: {{run: return 5}}\n    evaluator: {{type: custom, run: return {1}}}\n"
    )
    assert ran(loop.format("a", True)).state["success"] is True
    state = ran(loop.format("a", True) + loop.format("b", False)).state
    assert (state["result"], state["error"]["node"]) == (5, "b")
    assert not set(state) - {"result", "error"}


def test_only_a_loop_adds_keys_in_addition_to_its_output():
    loop = (
        "- name: n\n  uses: reflection_loop\n  output: o\n  with:\n"
        '    generator: {run: \'return {"a": 1, "o": 2}\'}\n    evaluator: {type: custom, run: result = True}'
    )
    state = ran(loop).state
    assert state["a"] == state["o"]["a"] == 1
    assert state["success"] is state["o"]["success"] is True
    state = ran("- {name: n, uses: reflection_evaluate, output: o, with: {data: 1, schema: true}}").state
    assert list(state) == ["o"]


@pytest.mark.parametrize("name", RESULT_KEYS)
def test_the_output_of_a_loop_cannot_replace_a_key_that_the_loop_sets(name):
    loop = "- name: n\n  uses: reflection.loop\n  output: {}\n  with:\n    generator: {{run: return 1}}\n"
    text = loop.format(name) + "    evaluator: {type: custom, run: return True}\n"
    with pytest.raises(WorkflowError, match=f"line 4, node 'n', output: '{name}' would replace"):
        Workflow.from_text(f"nodes:\n{text}", keep=False)


TWO_LOOPS = """\
- name: first
  uses: reflection.loop
  with:
    max_iterations: 1
    generator: {run: 'return "a text"'}
    evaluator: {type: custom, run: return False}
- name: second
  uses: reflection.loop
  with:
    generator: {action: look}
    evaluator: {type: custom, run: return True}
"""


def test_a_second_loop_starts_without_the_verdict_of_the_first():
    look = making({"a": 1})
    state = ran(TWO_LOOPS, {"topic": "tea"}, actions={"look": look}).state
    (seen, _), *_ = look.seen
    assert (seen["topic"], seen["result"]) == ("tea", "a text")
    assert not seen.keys() & {"success", "valid", "exhausted", "reflection_reason"}
    assert (state["a"], state["success"]) == (1, True)
    assert not state.keys() & {"result", "exhausted"}


def test_another_visit_to_a_loop_replaces_all_keys_of_the_last_one():
    loop = (
        "- name: n\n  max_visits: 2\n  uses: reflection.loop\n  with:\n    generator: {action: look}\n"
        "    evaluator: {type: custom, run: return True}\n  goto: [{if: state.again, to: n}]\n"
    )
    look = making({"a": 1, "b": 2, "again": True}, {"a": 3, "again": False})
    state = ran(loop, {"topic": "tea"}, actions={"look": look}).state
    assert look.seen[1][0]["b"] == 2
    assert (state["a"], state["topic"], "b" in state) == (3, "tea", False)


def test_another_visit_to_a_loop_keeps_equal_values_of_other_nodes():
    loop = (
        "- name: n\n  max_visits: 2\n  uses: reflection.loop\n  with:\n    generator: {action: look}\n"
        "    evaluator: {type: custom, run: return True}\n"
        "- name: then\n  uses: note\n  goto: [{if: not state.last, to: n}]\n"
    )
    look, note = making({"flag": True}, {"other": 1}), making({"flag": True, "last": False}, {"last": True})
    assert ran(loop, actions={"look": look, "note": note}).state["flag"] is True


def test_a_listener_cannot_change_the_state():
    def spoil(event):
        if isinstance(event, NodeFinished):
            event.result.clear()

    workflow = made("- {name: n, uses: note, output: o}", {"note": making({"a": 1})})
    assert workflow.run_sync(on_event=spoil).state == {"o": {"a": 1}}


def test_a_second_loop_replaces_the_verdict_of_the_first():
    loop = (
        "- name: {}\n  uses: reflection.loop\n  with:\n    generator: {{run: 'return {{\"a\": 1}}'}}\n"
        "    evaluator: {{type: custom, run: result = {}}}\n    max_iterations: 1\n"
    )
    state = ran(loop.format("one", False) + loop.format("two", True)).state
    assert state["success"] is True
    assert "exhausted" not in state


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        ("state.x > 1", True),
        ("'{{ state.x > 1 }}'", True),
        ("state.x > 2", False),
        ("state.y is defined", False),
        ("state.empty", False),
        ("'{{ state.no }}'", False),
        ("'a {{ state.no }}'", True),
        ("true", True),
        ("false", False),
    ],
)
def test_when_skips_a_node(condition, runs):
    result = ran(f"- {{name: n, run: return 1, when: {condition}}}", {"x": 2, "empty": [], "no": "No"})
    assert (result.nodes == ("n",)) is runs


ABC = "- {{name: a, run: return 1{}}}\n- {{name: b, run: return 1{}}}\n- {{name: c, run: return 1{}}}"


@pytest.mark.parametrize(
    ("a", "b", "c", "nodes"),
    [
        ("", "", "", "abc"),
        (", goto: c", "", "", "ac"),
        (", goto: end", "", "", "a"),
        (", goto: [{if: state.x, to: c}]", "", "", "ac"),
        (", goto: [{if: state.y, to: c}]", "", "", "abc"),
        (", goto: [{if: state.y, to: end}, {to: c}]", "", "", "ac"),
        (", max_visits: 3", ", goto: a", "", "abababc"),
        (", max_visits: 3", "", ", goto: a", "abcabcabc"),
        (", max_visits: 2", ", max_visits: 3, goto: a", ", goto: b", "ababcbc"),
        (", max_visits: 2", "", ", goto: [{to: a}, {to: end}]", "abcabc"),
        (", when: false, max_visits: 2, goto: c", "", "", "bc"),
        (", when: false, max_visits: 3", ", goto: a", "", "bbbc"),
    ],
)
def test_goto_chooses_the_next_node(a, b, c, nodes):
    assert "".join(ran(ABC.format(a, b, c), {"x": True, "y": False}).nodes) == nodes


@pytest.mark.parametrize(
    ("on_error", "nodes"), [("continue", ["n", "m", "l"]), ("l", ["n", "l"]), ("end", ["n"])]
)
def test_on_error_chooses_the_next_node(on_error, nodes, caplog):
    text = f"- {{name: n, uses: fail, on_error: {on_error}, output: o}}\n- {{name: m, run: return 1}}\n"
    with caplog.at_level(logging.WARNING, "redraft"):
        result = ran(text + "- {name: l, run: return 1}", actions={"fail": failing})
    assert list(result.nodes) == nodes
    assert result.state["error"] == {"node": "n", "type": "ValueError", "message": "boom"}
    assert "o" not in result.state
    assert "boom" in caplog.text


def test_an_action_that_was_cancelled_has_failed():
    async def cancelled(state):
        raise asyncio.CancelledError

    text = "- {name: n, uses: cancelled, on_error: continue}\n- {name: m, run: return 1}\n"
    state = ran(text, actions={"cancelled": cancelled}).state
    message = "the action 'cancelled' was cancelled, and the workflow was not"
    assert state == {"error": {"node": "n", "type": "RuntimeError", "message": message}, "m": 1}


def test_on_error_goes_back_until_max_visits():
    text = "- {name: n, run: return 1, max_visits: 3}\n- {name: m, uses: fail, on_error: n}"
    with pytest.raises(ValueError, match="boom") as caught:
        ran(text, actions={"fail": failing})
    assert caught.value.__notes__ == ["workflow, line 4, node 'm'"]


def test_a_failing_condition_goes_back_until_max_visits():
    with pytest.raises(WorkflowError, match="'state' has no 'x'"):
        ran("- {name: n, run: return 1, when: state.x, max_visits: 3, on_error: n}")


def test_the_usage_of_a_failed_node_counts():
    error = ModelError("refused", usage=TokenUsage(5, requests=1))
    text = "- {name: n, uses: llm.call, on_error: continue, with: {model: m, prompt: p}}"
    result = ran(text, models={"m": ScriptedModel([error])})
    assert result.usage.input_tokens == 5


FAILING_LOOP = """
- name: n
  uses: reflection.loop
  on_error: continue
  with:
    generator: {action: llm.call, model: m, prompt: p}
    evaluator: %s
    on_failure: raise
    max_iterations: 2
"""


@pytest.mark.parametrize(
    "evaluator", ["{type: custom, run: result = False}", "{type: llm, model: bad, prompt: p}"]
)
def test_the_usage_of_a_failed_loop_counts(evaluator):
    refused = ModelError("refused", usage=TokenUsage(requests=1))
    models = {"m": ScriptedModel(["a", "b"]), "bad": ScriptedModel([refused])}
    result = ran(FAILING_LOOP % evaluator, models=models)
    assert result.state["error"]["type"] == "ReflectionFailedError"
    assert result.usage.requests == 2


def test_an_error_keeps_its_type_and_gets_a_note_with_its_place():
    with pytest.raises(ValueError, match="boom") as caught:
        ran("- {name: n, uses: fail}", actions={"fail": failing})
    assert caught.value.__notes__ == ["workflow, line 3, node 'n'"]


@pytest.mark.parametrize("state", ["tea", 5, ["tea"], [("topic", "tea")]])
def test_an_initial_state_that_is_no_object_is_refused(state):
    workflow = made("- {name: n, run: return 1}")
    message = "The initial state of a workflow must be an object, such as .*; got "
    for use in (workflow.check, workflow.run_sync):
        with pytest.raises(ConfigError, match=message):
            use(state)


@pytest.mark.parametrize("options", [{"approver": 5}, {"actions": {"look": 5}}, {"actions": ["look"]}])
def test_functions_that_cannot_be_called_are_refused_before_a_run(options):
    with pytest.raises(ConfigError, match="must be "):
        Workflow.from_text("nodes: [{name: n, run: return 1}]", **options)


def test_the_initial_state_is_not_mutated():
    initial = {"a": {"b": 1}}

    def change(state):
        state["a"]["b"] = 2
        return {"c": state["a"]["b"]}

    result = ran("- {name: n, uses: change}", initial, actions={"change": change})
    assert initial == {"a": {"b": 1}}
    assert result.state == {"a": {"b": 1}, "c": 2}


def test_what_templates_and_code_see(monkeypatch):
    monkeypatch.setenv("LISTED", "yes")
    monkeypatch.setenv("OTHER", "no")
    head = "variables: {a: 1, b: 2}\nenv: [LISTED, MISSING]\n"
    text = (
        "- name: n\n  uses: give\n  with:\n    kept: '{{ state.list }}'\n    text: 'x{{ variables.a }}'\n"
        "    env: '{{ env.LISTED }}'\n    deep: [{b: '{{ variables.b }}'}]\n"
        "- {name: m, run: 'return [variables, env]', output: o}"
    )
    give = making(None)
    state = ran(text, {"list": [1], "b": 3}, actions={"give": give}, head=head).state
    assert give.seen[0][1] == {"kept": [1], "text": "x1", "env": "yes", "deep": [{"b": 3}]}
    assert state["o"] == [{"a": 1, "b": 3, "list": [1]}, {"LISTED": "yes"}]


async def asynchronous(state, x, y=2):
    return {"sum": x + y + state["z"]}


def synchronous(state, x, **others):
    return {"sum": x + sum(others.values()) + state["z"]}


@pytest.mark.parametrize("fn", [asynchronous, synchronous])
def test_own_actions_may_be_async(fn):
    text = "- {name: n, uses: mine, with: {x: '{{ state.z }}', y: 5}}"
    assert ran(text, {"z": 1}, actions={"mine": fn}).state == {"z": 1, "sum": 7}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Path("/a"), "/a"),
        ({1: date(2026, 11, 22)}, {"1": "2026-11-22"}),
        (NodeStarted("r", "n"), {"run_id": "r", "node": "n", "visit": 1, "schema_version": 1}),
    ],
)
def test_the_value_of_an_action_becomes_plain_data(value, plain):
    text = "- {name: n, uses: mine, output: o}"
    assert ran(text, {"x": value}, actions={"mine": making(value)}).state == {"x": plain, "o": plain}


@pytest.mark.parametrize(
    "value", [object(), [lambda: 1], {"a": int}, {"a": [math.nan]}, math.inf, {1: 2, "1": 3}]
)
def test_values_that_are_not_json_never_reach_the_state(value):
    text = "- {name: n, uses: mine}"
    with pytest.raises(
        WorkflowError, match="line 3, node 'n': What the action 'mine' returned is not JSON data"
    ):
        ran(text, actions={"mine": making(value)})
    with pytest.raises(ConfigError, match="The initial state of the workflow is not JSON data"):
        ran(text, {"x": value}, actions={"mine": failing})


def test_registered_actions_and_the_actions_argument(monkeypatch):
    monkeypatch.setattr("redraft.workflow.actions._registered", dict(_registered))

    @action("mine")
    def mine(state):
        return {"from": "registered"}

    text = "- {name: n, uses: mine}"
    assert ran(text).state["from"] == "registered"
    assert ran(text, actions={"mine": making({"from": "given"})}).state["from"] == "given"
    with pytest.raises(Exception, match="built in"):
        action("llm_call")
    assert mine({}) == {"from": "registered"}


def test_a_custom_action_can_replace_a_built_in_action():
    fake = making('{"a": 1}')
    text = (
        "- name: n\n  uses: reflection.loop\n  with:\n    generator: {action: llm_call, prompt: p}\n"
        "    evaluator: {type: schema, schema: {required: [a]}}"
    )
    assert ran(text, actions={"llm.call": fake}).state["a"] == 1
    assert fake.seen[0][1]["prompt"].startswith("p\n\n")


def test_run_action():
    async def main():
        return await run_action(
            "reflection.loop",
            with_={
                "generator": {"action": "make"},
                "evaluator": {"type": "schema", "schema": {"required": ["a"]}},
            },
            state={"wanted": "a"},
            actions={"make": lambda state: {state["wanted"]: 1}},
            keep=False,
        )

    value = asyncio.run(main())
    assert (value["success"], value["a"]) == (True, 1)


@pytest.mark.parametrize(
    ("params", "messages"),
    [
        ({"prompt": "Hi {{ state.who }}"}, [("user", "Hi Ada")]),
        ({"prompt": "{{ state.data }}"}, [("user", '{"a": 1}')]),
        ({"prompt": "Hi", "system": "Be {{ state.who }}"}, [("system", "Be Ada"), ("user", "Hi")]),
        (
            {
                "messages": [
                    {"role": "assistant", "content": "A"},
                    {"role": "user", "content": "{{ state.who }}"},
                ]
            },
            [("assistant", "A"), ("user", "Ada")],
        ),
        ({"messages": "{{ state.said }}"}, [("user", "said")]),
        ({"messages": [{"role": "user", "content": "{{ state.data }}"}]}, [("user", '{"a": 1}')]),
    ],
)
def test_llm_call_renders_its_parameters(params, messages):
    model = ScriptedModel(["reply"])
    state = {"who": "Ada", "data": {"a": 1}, "said": [{"role": "user", "content": "said"}]}

    async def main():
        with_ = {"model": "m", "temperature": 0.5, "max_tokens": 9, **params}
        return await run_action("llm.call", with_=with_, state=state, models={"m": model}, keep=False)

    assert asyncio.run(main()) == "reply"
    [request] = model.requests
    assert [(message.role, message.content) for message in request.messages] == messages
    assert (request.temperature, request.max_tokens) == (0.5, 9)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"a": "1"}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("{}", None),
        ("text", None),
    ],
)
def test_llm_call_with_a_schema_returns_data(reply, value):
    schema = {"required": ["a"], "properties": {"a": {"type": "integer"}}}
    text = f"- {{name: n, uses: llm.call, output: o, with: {{model: m, prompt: p, schema: {schema}}}}}"
    models = {"m": ScriptedModel([reply])}
    if value is None:
        with pytest.raises(Exception, match=r"schema|empty") as caught:
            ran(text, models=models)
        assert caught.value.usage.requests == 1
    else:
        assert ran(text, models=models).state == {"o": value}


LOOP = """
- {name: skipped, run: return 1, when: false}
- name: n
  uses: reflection.loop
  with:
    generator: {action: make}
    evaluator: {type: custom, run: result = output == 2}
- {name: bad, uses: fail, on_error: continue}
"""


def names_of(events):
    kinds = (NodeStarted, NodeFinished, WorkflowFinished, VersionEvaluated)
    return [
        (type(event).__name__, event.node if isinstance(event, NodeStarted | NodeFinished) else "")
        for event in events
        if isinstance(event, kinds)
    ]


EVENTS = [
    ("NodeFinished", "skipped"),
    ("NodeStarted", "n"),
    ("VersionEvaluated", ""),
    ("VersionEvaluated", ""),
    ("NodeFinished", "n"),
    ("NodeStarted", "bad"),
    ("NodeFinished", "bad"),
    ("WorkflowFinished", ""),
]


def test_listeners_and_streams_get_the_same_events():
    heard = []
    actions = {"make": making(1, 2), "fail": failing}
    made(LOOP, actions).run_sync(on_event=heard.append)
    assert names_of(heard) == EVENTS
    skipped, bad = heard[0], heard[-2]
    assert (skipped.skipped, bad.error) == (True, "boom")
    assert heard[-1].result.nodes == ("n", "bad")

    async def main():
        stream = made(LOOP, {**actions, "make": making(1, 2)}).stream()
        return [event async for event in stream], stream.result

    events, result = asyncio.run(main())
    assert names_of(event for event in events if not isinstance(event, TokenEvent)) == EVENTS
    assert result is events[-1].result


WRITTEN = """
- name: write
  uses: reflection.loop
  with:
    generator: {action: llm.call, prompt: Write., model: writer}
    corrector: {action: llm.call, prompt: Say what is wrong., model: critic, apply: feedback}
    evaluator: {type: custom, run: "return 'tea' in output"}
- {name: after, uses: llm.call, with: {prompt: Thank., model: critic}, output: thanks}
"""


def test_a_stream_has_what_loops_write():
    models = {
        "writer": ScriptedModel(["A cup of coffee.", "A cup of tea."]),
        "critic": ScriptedModel(["No tea."] * 2),
    }

    async def main():
        return [event async for event in made(WRITTEN, models=models).stream()]

    events = [event for event in asyncio.run(main()) if isinstance(event, TokenEvent)]
    texts = {
        version: "".join(event.text for event in events if event.version == version) for version in (1, 2)
    }
    assert texts == {1: "A cup of coffee.", 2: "A cup of tea."}, "neither the critique nor other nodes"
    assert [event.role for event in events][:: len(events) - 1] == ["draft", "revision"]
    assert len(events) > 2, "piece by piece"


def test_leaving_the_stream_early_cancels_the_workflow():
    ended = []

    async def wait(state):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def main():
        async with made("- {name: n, uses: wait}", {"wait": wait}).stream() as events:
            async for event in events:
                assert isinstance(event, NodeStarted)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                break
        return len(ended)

    assert asyncio.run(main()) == 1


def test_a_stream_raises_what_the_workflow_raises():
    async def main():
        return [event async for event in made("- {name: n, uses: fail}", {"fail": failing}).stream()]

    with pytest.raises(ValueError, match="boom"):
        asyncio.run(main())


def test_one_workflow_serves_concurrent_runs():
    async def double(state):
        await asyncio.sleep(0)
        return {"x": state["x"] * 2}

    workflow = made(
        "- {name: n, uses: double, max_visits: 3}\n- {name: m, run: return 0, goto: n}", {"double": double}
    )

    async def main():
        return await asyncio.gather(*(workflow.run({"x": number}) for number in range(20)))

    assert [result.state["x"] for result in asyncio.run(main())] == [8 * number for number in range(20)]


def test_run_sync_works_inside_a_running_event_loop():
    async def main():
        return ran("- {name: n, run: return 1}").state

    assert asyncio.run(main()) == {"n": 1}


def test_an_error_after_a_node_names_its_place():
    with pytest.raises(WorkflowError, match=r"line 3, node 'n'.*nothing"):
        ran("- {name: n, run: return 1, goto: [{if: state.nothing.at_all, to: end}]}")


@pytest.mark.parametrize(
    ("run", "language", "line"),
    [
        ("|\n      x = 1\n      return {}[x]", "python", 7),
        ("|\n\n      return {}[1]", "python", 7),
        ("return {}[1]", "python", 5),
        ('"x = 1\\nreturn {}[x]"', "python", 5),
        (">\n      x = 1\n\n      return {}[x]", "python", 5),
        ("|\n      local x = 1\n      error('no')", "lua", 7),
    ],
)
def test_an_error_in_code_names_the_line_of_the_file(run, language, line):
    text = f"name: x\nnodes:\n  - name: a\n    language: {language}\n    run: {run}\n"
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text(text, keep=False).run_sync()
    assert (caught.value.line, caught.value.node, caught.value.key) == (line, "a", "run")
    assert f"script, line {caught.value.__cause__.line}," in str(caught.value)


def test_a_suggestion_ends_with_a_question_mark():
    text = "name: x\nnodes:\n  - {name: a, uses: llm.call, with: {prompt: hi}}\n"
    with pytest.raises(WorkflowError, match=r"Did you mean 'openai:gpt-4o'\?$"):
        Workflow.from_text(text, keep=False).run_sync({"model": "opnai:gpt-4o"})


@pytest.mark.parametrize(("head", "name"), [("", "greeting"), ("name: other\n", "other")])
def test_the_default_name_is_the_name_of_the_file(tmp_path, head, name):
    file = tmp_path / "greeting.yaml"
    file.write_text(f"{head}nodes:\n- {{name: n, run: return 1}}\n")
    assert Workflow.from_file(file).spec.name == name
    assert Workflow.from_text("nodes:\n- {name: n, run: return 1}\n").spec.name == "workflow"
