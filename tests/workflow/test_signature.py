"""What a workflow declares to take and to return, and workflows that are nodes of others."""

import asyncio
import textwrap

import pytest

from redraft import MemoryStore, TokenUsage
from redraft.errors import OutputError, UnfinishedError, WorkflowError
from redraft.protocols import ChatReply
from redraft.workflow import Workflow, Workflows
from support.workflows import making

INPUTS = """
name: t
inputs:
  name: string
  age: integer?
  tags: {type: array, items: {type: string}, default: [none]}
  anything: any?
variables: {tone: kind}
nodes:
  - {name: n, uses: work}
"""


def made(text, work=None, keep=False, **options):
    actions = {"work": work or making(1)}
    return Workflow.from_text(textwrap.dedent(text), actions=actions, keep=keep, **options)


@pytest.mark.parametrize(
    ("inputs", "state"),
    [
        ({"name": "Ada"}, {"name": "Ada", "tags": ["none"]}),
        ({"name": "Ada", "age": " 36"}, {"name": "Ada", "age": 36, "tags": ["none"]}),
        ({"name": '"quoted"'}, {"name": '"quoted"', "tags": ["none"]}),
        ({"name": "36", "tags": '["a"]'}, {"name": "36", "tags": ["a"]}),
        ({"name": "a", "tags": [], "anything": "[1]"}, {"name": "a", "tags": [], "anything": "[1]"}),
        (
            {"name": "a", "tone": "x", "model": "m"},
            {"name": "a", "tone": "x", "model": "m", "tags": ["none"]},
        ),
    ],
)
def test_inputs_have_their_types_and_defaults(inputs, state):
    assert made(INPUTS).run_sync(inputs).state == state | {"n": 1}


@pytest.mark.parametrize(
    ("inputs", "line", "key", "message"),
    [
        (
            {},
            4,
            "inputs.name",
            "'name' is missing: put it into the initial state (`redraft run -v name=TEXT`)",
        ),
        ({"name": 5}, 4, "inputs.name", "'name' is invalid: expected string, got 5"),
        ({"name": "a", "age": "old"}, 5, "inputs.age", "'age' is invalid: expected integer?, got 'old'"),
        ({"name": "a", "tags": [1]}, 6, "inputs.tags", "'tags' is invalid: "),
        ({"name": "a", "agee": 1}, 3, "inputs", "there is no input 'agee'; did you mean 'age'?"),
    ],
)
def test_wrong_inputs_spend_nothing(inputs, line, key, message):
    work = making(1)
    workflow = made(INPUTS, work)
    for begin in (workflow.check, workflow.run_sync):
        with pytest.raises(WorkflowError) as caught:
            begin(inputs)
        assert message in str(caught.value)
        assert (caught.value.line, caught.value.key) == (line, key)
    assert work.seen == []


def test_a_missing_list_is_asked_for_as_json():
    with pytest.raises(WorkflowError, match=r"redraft run -v tags:=JSON"):
        made("inputs: {tags: 'string[]'}\nnodes:\n- {name: n, uses: work}").check({})


def test_a_default_is_converted_as_a_value_is():
    text = "inputs: {n: {type: integer, default: '5'}}\nnodes:\n- {name: n, uses: work}"
    work = making(1)
    made(text, work).run_sync()
    assert work.seen == [({"n": 5}, {})]


def test_all_wrong_inputs_are_reported_at_once():
    with pytest.raises(WorkflowError) as caught:
        made(INPUTS).run_sync({"age": "old"})
    assert [problem.key for problem in caught.value.problems] == ["inputs.name", "inputs.age"]


OUTPUTS = """
name: t
outputs:
  n: {type: object, required: [a]}
  sum: {type: integer, value: "{{ state.n.a + 1 }}"}
  more: string?
nodes:
  - {name: work, uses: work, output: n}
"""


def test_outputs_are_taken_from_the_state():
    result = made(OUTPUTS, making({"a": 1})).run_sync()
    assert result.outputs == {"n": {"a": 1}, "sum": 2}


@pytest.mark.parametrize(
    ("made_by_node", "message"),
    [
        (
            {"a": "x"},
            "workflow, line 5, outputs.sum.value: the output 'sum' can't be rendered: line 1: can only",
        ),
        ({}, "workflow, line 4, outputs.n: the output 'n' is invalid"),
        ([1], "line 4, outputs.n: the output 'n' is invalid: expected object, got"),
    ],
)
def test_a_wrong_output_is_an_error_and_loses_nothing(made_by_node, message):
    store = MemoryStore()
    workflow = made(OUTPUTS, making(made_by_node), keep=store)
    with pytest.raises(OutputError, match=message):
        workflow.run_sync(run_id="r")
    record = asyncio.run(Workflows(store).get("r")).record
    assert (record.status, record.state) == ("failed", {"n": made_by_node})


def test_all_wrong_outputs_are_reported_at_once():
    with pytest.raises(OutputError) as caught:
        made(OUTPUTS, making({})).run_sync()
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        "workflow, line 4, outputs.n",
        "workflow, line 5, outputs.sum.value",
    ]


def test_a_missing_output():
    with pytest.raises(OutputError, match=r"'n' is missing: no node has set state\.n"):
        made(OUTPUTS.replace("output: n", "output: m")).run_sync()


@pytest.fixture
def files(tmp_path):
    def write(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.yaml").write_text(textwrap.dedent(text))
        return tmp_path / "outer.yaml"

    return write


INNER = """
    name: inner
    inputs: {x: string, n: {type: integer, default: 1}}
    outputs: {said: string}
    nodes:
      - {name: ask, uses: llm.call, with: {prompt: "Say {{ state.x }}"}, output: said}
      - {name: more, uses: work}
"""
OUTER = """
    name: outer
    nodes:
      - {name: first, uses: ./inner.yaml, with: {x: "{{ state.x }}"}, output: first}
      - {name: second, uses: ./inner.yaml, with: {x: b, n: 2}, output: second}
"""


class Model:
    def __init__(self, usage=TokenUsage(3, 2, requests=1)):  # noqa: B008 (it is immutable)
        self.asked = []
        self.usage = usage

    async def __call__(self, request):
        self.asked.append(request.messages[-1].content)
        return ChatReply(f"{self.asked[-1]}!", usage=self.usage)


def opened(path, model, work=None, keep=False, name="m"):
    return Workflow.from_file(path, models={name: model}, actions={"work": work or making(1)}, keep=keep)


def test_a_file_is_a_node_of_another(files):
    model, path = Model(), files(inner=INNER, outer=OUTER)
    result = opened(path, model).run_sync({"x": "a", "model": "m"})
    assert result.state == {"x": "a", "model": "m", "first": {"said": "Say a!"}, "second": {"said": "Say b!"}}
    assert result.usage.total_tokens == 10


@pytest.mark.parametrize("named", ["model: m", "inner", "state"])
def test_the_model_of_an_inner_file(files, named):
    outer = f"model: m\n{textwrap.dedent(OUTER)}" if named == "model: m" else OUTER
    inner = f"model: m\n{textwrap.dedent(INNER)}" if named == "inner" else INNER
    model = Model()
    state = {"x": "a"} | ({"model": "m"} if named == "state" else {})
    workflow = opened(files(inner=inner, outer=outer), model)
    workflow.check(state)
    assert workflow.run_sync(state).state["first"] == {"said": "Say a!"}


@pytest.mark.parametrize(
    ("inputs", "given", "output"),
    [
        ("{}", "1", "made"),
        ("{x: integer}", "'1'", "made"),  # not the input, although it is converted
        ("{}", "1", "x"),  # also if the input has the same value
        ("{x: any, n: {type: integer, default: 3}}", "1", "made"),
    ],
)
def test_a_file_without_outputs_returns_what_its_nodes_put_into_the_state(files, inputs, given, output):
    inner = f"inputs: {inputs}\nnodes:\n- {{name: n, uses: work, output: {output}}}"
    outer = f"nodes:\n- {{name: n, uses: ./inner.yaml, with: {{x: {given}}}, output: o}}"
    assert opened(files(inner=inner, outer=outer), None).run_sync().state == {"o": {output: 1}}


MISTAKES = {
    "an input that is missing": (
        "with: {n: 2}",
        "outer.yaml, line 3, node 'n', with: the input 'x' is missing",
    ),
    "an input of another type": (
        "with: {x: a, n: b}",
        "node 'n', with.n: the input 'n' is invalid: expected integer",
    ),
    "an unknown input": ("with: {x: a, y: b}", "there is no input 'y'; expected one of 'x', 'n'"),
    "a template that does not parse": ("with: {x: '{{ state. }}'}", "with.x: invalid template"),
}


@pytest.mark.parametrize(("params", "message"), MISTAKES.values(), ids=MISTAKES)
def test_parameters_are_checked_against_the_inputs_of_the_file(files, params, message):
    path = files(inner=INNER, outer=f"nodes:\n- name: n\n  {params}\n  uses: ./inner.yaml")
    with pytest.raises(WorkflowError) as caught:
        opened(path, Model())
    assert message in str(caught.value)


def test_mistakes_in_an_inner_file_have_their_place_in_it(files):
    inner = "nodes:\n- name: a\n  run: x =\n- name: b\n  uses: llm.cal"
    path = files(inner=inner, outer="nodes:\n- {name: n, uses: ./inner.yaml}\n- {name: m, uses: llm.cal}")
    with pytest.raises(WorkflowError) as caught:
        opened(path, Model())
    places = {(problem.file.rpartition("/")[2], problem.line) for problem in caught.value.problems}
    assert places == {("inner.yaml", 3), ("inner.yaml", 5), ("outer.yaml", 3)}


def test_a_file_that_runs_itself(files):
    path = files(
        inner="nodes:\n- {name: n, uses: ./outer.yaml}", outer="nodes:\n- {name: n, uses: ./inner.yaml}"
    )
    with pytest.raises(
        WorkflowError, match=r"inner.yaml, line 2, node 'n', uses: './outer.yaml' runs this file, so"
    ):
        opened(path, Model())


def test_a_value_that_turns_out_wrong_stops_the_inner_run_before_it_spends(files):
    model = Model()
    outer = "nodes:\n- {name: a, uses: work}\n- {name: n, uses: ./inner.yaml, with: {x: '{{ state.a }}'}}"
    with pytest.raises(WorkflowError, match="the input 'x' is invalid: expected string, got 5") as caught:
        opened(files(inner=INNER, outer=outer), model, making(5)).run_sync({"model": "m"})
    assert model.asked == []
    assert caught.value.__notes__[0].endswith("line 3, node 'n'")


def test_a_resumed_run_resumes_the_run_inside_it(files):
    store, model, path = MemoryStore(), Model(), files(inner=INNER, outer=OUTER)
    work = making(1, ValueError("no"), 2)
    with pytest.raises(ValueError, match="no"):
        opened(path, model, work, store).run_sync({"x": "a", "model": "m"}, run_id="r")
    result = opened(path, model, work, store).run_sync({"x": "a", "model": "m"}, run_id="r")
    assert result.state["second"] == {"said": "Say b!"}
    assert model.asked == ["Say a", "Say b"]
    assert len(work.seen) == 3

    async def listed():
        workflows = Workflows(store)
        inner = await store.find("workflow inside")
        kept = await workflows.get(inner[0].key)
        return [stored.record.run_id for stored in await workflows.find()], len(inner), kept.record

    names, count, record = asyncio.run(listed())
    assert (names, count) == (["r"], 2)
    assert (record.name, record.parent, record.outputs) == ("inner", "r", {"said": "Say a!"})


def test_an_inner_run_shares_the_budget(files):
    model = Model(TokenUsage(20, 15, requests=1))
    path = files(inner=INNER, outer="budget: {tokens: 36}\n" + textwrap.dedent(OUTER))
    result = opened(path, model).run_sync({"x": "a", "model": "m"})
    assert (result.status, result.nodes, model.asked) == ("stopped", ("first",), ["Say a"])


def test_a_budget_of_an_inner_file_is_its_own(files):
    inner = "budget: {tokens: 1}\n" + textwrap.dedent(INNER).replace("Say", "Say {{ state.x }} {{ state.x }}")
    with pytest.raises(UnfinishedError, match=r"budget.tokens"):
        opened(files(inner=inner, outer=OUTER), Model()).run_sync({"x": "a", "model": "m"})
