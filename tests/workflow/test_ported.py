"""Files that were written for the_edge_agent: what is taken over, and notes on what differs."""

# ruff: noqa: E501 (a table: a case a line where it fits)
import pytest

from redraft import ScriptedModel
from redraft.errors import WorkflowError
from redraft.workflow import Workflow
from support.workflow_specification import COMPLETE_EXAMPLE
from support.workflows import run, under

COUNTER = """\
name: counter
state_schema: {count: int}
config: {raise_exceptions: true}
nodes:
  - name: one
    run: |
      return {"count": state["count"] + 1}
  - name: two
    run: |
      return {"count": state["count"] * 2}
    goto:
      - {if: state.count > 5, to: __end__}
  - name: three
    run: |
      return {"count": 0}
edges:
  - {from: __start__, to: one}
  - {from: one, to: two}
  - {from: two, to: three}
  - {from: three, to: __end__}
"""


def test_a_file_with_a_schema_of_the_state_and_edges_in_order_runs():
    assert run(COUNTER, state={"count": 3})[0]["count"] == 8
    assert run(COUNTER, state={"count": 1})[0]["count"] == 0


def test_actions_have_the_names_of_the_registry():
    file = """
        name: t
        nodes:
          - name: n
            uses: actions.reflection_evaluate
            with: {data: {a: 1}, schema: {required: [a]}}
            output: found
        """
    assert run(file)[0]["found"]["valid"] is True


def notes(text, **options):
    file = Workflow.from_text(text, models={"gpt-4": ScriptedModel([])}, keep=False)
    return [(note.line, note.node, note.key, str(note)) for note in file.check(options).notes]


def test_what_is_ignored_is_noted_at_its_line():
    assert [(line, key) for line, _, key, _ in notes(COUNTER, count=1)] == [
        (2, "state_schema"), (3, "config"), (16, "edges"),
    ]  # fmt: skip


def test_a_configuration_without_interrupts_is_ignored():
    [note] = notes("nodes: [{name: n, run: pass}]\nconfig: {interrupt_before: []}")
    assert note[2] == "config"


def test_keys_for_readers_are_ignored():
    text = "name: t\nversion: '1.0'\nauthor: Ada\nmetadata: {a: 1}\nnodes: [{name: n, run: return 1}]"
    assert {(line, key) for line, _, key, _ in notes(text)} == {
        (2, "version"),
        (3, "author"),
        (4, "metadata"),
    }


@pytest.mark.parametrize(
    ("text", "line", "instead"),
    [
        ("settings: {llm: {}}\nnodes: [{name: n, run: return 1}]", 1, "under 'model' and 'models'"),
        ("model: ollama/llama3\nnodes: [{name: n, uses: llm.call, with: {prompt: x}}]", 1, "'ollama:llama3' here"),
        ("nodes:\n- name: n\n  uses: llm.call\n  with:\n    prompt: x\n    model: openai/gpt-4", 6, "'openai:gpt-4' here"),
        ("models: {a: gemini/pro}\nnodes: [{name: n, uses: llm.call, with: {prompt: x, model: a}}]", 2, "'google:pro' here"),
        ("nodes:\n- name: n\n  uses: llm.call\n  with:\n    model: [ollama/a, b]\n    prompt: x", 5, "'ollama:a' here"),
        ("nodes:\n- name: n\n  uses: llm.call\n  with:\n    prompt: x\n    provider: ollama", 6, "part of the model's name"),
        ("nodes:\n- name: n\n  uses: llm.call\n  with:\n    prompt: x\n    api_base: x", 6, "OLLAMA_BASE_URL"),
        ("nodes:\n- name: n\n  uses: llm.call\n  with:\n    prompt: x\n    timeout: 5", 6, "'timeout' on the node"),
        ("nodes:\n- name: n\n  run: pass\n  next: m", 4, "under 'goto'"),
        ("nodes:\n- name: n\n  run: pass\n  interrupt: before", 4, "'uses: human.approve'"),
        ("nodes:\n- {name: n, run: pass}\nconfig:\n  interrupt_after: [n]", 4, "'uses: human.approve'"),
        ("nodes:\n- {name: n, run: pass}\ninterrupt_before: [n]", 3, "'uses: human.approve'"),
        ("initial_state: {a: 1}\nnodes:\n- {name: n, run: pass}", 1, "under 'inputs'"),
    ],
)  # fmt: skip
def test_what_the_original_engine_has_gets_advice_at_its_line(text, line, instead):
    with pytest.raises(WorkflowError) as caught:
        Workflow.from_text(text, keep=False).check()
    assert [problem.line for problem in caught.value.problems if instead in str(problem)] == [line]


def loop(text):
    return f"name: t\nnodes:\n- name: n\n  uses: reflection.loop\n  with:\n{under(text, 4)}\n"


CODE = "generator: {run: return 1}\n"
JUDGE = "evaluator: {type: custom, run: return True}\n"
ASK = "corrector:\n  action: llm.call\n  model: gpt-4\n  prompt: x"

DIFFERS = {
    "code that only assigns output": (
        loop("generator:\n  run: |\n    x = 1\n    output = x\n" + JUDGE), 9, "with.generator.run", "assign to 'result'",
    ),
    "a judge that only assigns output": (
        loop(CODE + "evaluator:\n  type: custom\n  run: output = 1"), 9, "with.evaluator.run", "assign to 'result'",
    ),
    "dependencies of draft 7": (
        loop(CODE + "evaluator:\n  type: schema\n  schema:\n    dependencies: {a: [b]}"),
        10, "with.evaluator.schema.dependencies", "'dependentRequired'",
    ),
    "a misspelled keyword of a schema": (
        loop(CODE + "evaluator:\n  type: schema\n  schema:\n    type: object\n    requird: [a]"),
        11, "with.evaluator.schema.requird", "no keyword 'requird', so it has no effect; did you mean 'required'?",
    ),
    "a misspelled keyword within a schema": (
        loop(CODE + "evaluator:\n  type: schema\n  schema:\n    properties:\n      a: {enumm: [b]}"),
        11, "with.evaluator.schema.properties.a.enumm", "did you mean 'enum'?",
    ),
    "a misspelled keyword of a part that a reference names": (
        loop(CODE + "evaluator:\n  type: schema\n  schema:\n    $ref: '#/parts/a'\n    parts: {a: {requird: [b]}}"),
        11, "with.evaluator.schema.parts.a.requird", "did you mean 'required'?",
    ),
    "a misspelled keyword of a reply": (
        "name: t\nnodes:\n- name: n\n  uses: llm.call\n  with: {model: gpt-4, prompt: x, schema: {anyOf: [{min_length: 3}]}}",
        5, "with.schema.anyOf.0.min_length", "did you mean 'minLength'?",
    ),
}  # fmt: skip


ONLY_IF_PORTED = {
    "a corrector that replies with text": (loop(CODE + JUDGE + ASK), "with.corrector", "the generator again"),
    "a verdict that is a number": (
        loop(CODE + "evaluator:\n  type: custom\n  run: |\n    n = 1\n    return n / 2"), "with.evaluator.run", "from 0.5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", ["config: {}\n", "  goto: __end__\n", "  goto: [{to: __end__}]\n"])
@pytest.mark.parametrize("case", ONLY_IF_PORTED.values(), ids=ONLY_IF_PORTED)
def test_what_is_as_documented_is_noted_only_in_a_file_that_was_ported(case, text):
    file, key, message = case
    assert notes(file) == []
    [note] = [note for _, _, place, note in notes(file + text) if place == key]
    assert message in note
    assert "the_edge_agent" not in note


@pytest.mark.parametrize("case", DIFFERS.values(), ids=DIFFERS)
def test_what_works_differently_is_noted_at_its_line(case):
    text, line, key, message = case
    [(found, node, place, note)] = notes(text)
    assert (found, node, place) == (line, "n", key)
    assert message in note
    assert "the_edge_agent" not in note


@pytest.mark.parametrize(
    "text",
    [
        loop(CODE + JUDGE + ASK + "\n  apply: replace"),
        loop(CODE + JUDGE + ASK + "\n  schema: {type: object}"),
        loop(CODE + "evaluator: {type: custom, run: return 1 / 2, threshold: 0.5}"),
        loop(CODE + "evaluator: {type: custom, run: 'return {\"valid\": True}'}"),
        loop(
            "generator:\n  run: |\n    if True:\n      output = 1\n    result = dict(\n      output=1)\n"
            + JUDGE
        ),
        loop(CODE + "evaluator: {type: custom, run: 'return len(str(output)) > 5'}") + "  goto: __end__\n",
        loop(CODE + "evaluator: {type: schema, schema: {properties: {dependencies: {type: object}}}}"),
        loop("generator: {run: 'output = 1; return output'}\n" + JUDGE),
        loop(CODE + "evaluator: {type: schema, schema: {properties: {requird: {x-enumm: 1, unit: m}}}}"),
        loop(CODE + "evaluator: {type: schema, schema: {const: {requird: 1}, example: 1, id: a}}"),
    ],
)
def test_a_file_that_says_what_it_means_gets_no_note(text):
    assert notes(text) == []


@pytest.mark.parametrize(
    ("keyword", "meant"), [("minimun: 1", "minimum"), ("dependencies: {a: [b]}", "dependentRequired")]
)
def test_an_ineffective_keyword_of_an_input_is_noted(keyword, meant):
    text = f"name: t\ninputs:\n  a:\n    type: integer\n    {keyword}\nnodes:\n- {{name: n, run: pass}}"
    [(line, _, key, note)] = notes(text, a=1)
    assert (line, key) == (5, f"inputs.a.{keyword.partition(':')[0]}")
    assert f"'{meant}'" in note


@pytest.mark.parametrize(
    ("reference", "content", "inside"),
    [
        ("a.json", '{"requird": ["b"]}', "requird"),
        ("a.json#/parts/b", '{"parts": {"b": {"requird": ["b"]}}}', "parts.b.requird"),
        ("a.json", '{"properties": {"b": {"$ref": "a.json#/parts/b"}}, "parts": {"b": {"requird": []}}}',
         "parts.b.requird"),
    ],
)  # fmt: skip
def test_a_misspelled_keyword_of_a_file_is_noted_at_the_reference(tmp_path, reference, content, inside):
    (tmp_path / "a.json").write_text(content)
    file = tmp_path / "w.yaml"
    file.write_text(loop(CODE + f"evaluator:\n  type: schema\n  schema:\n    items: {{$ref: '{reference}'}}"))
    [note] = Workflow.from_file(str(file), keep=False).check({}).notes
    assert (note.line, note.key) == (10, "with.evaluator.schema.items.$ref")
    assert f"in 'a.json': {inside}: JSON Schema has no keyword 'requird'" in str(note)


@pytest.mark.parametrize(
    "node",
    [
        '{name: b, run: \'return state["a"]["content"]\'}',
        '{name: b, run: \'return state.get("a", {}).get("content")\'}',
        "{name: b, uses: llm.call, with: {model: gpt-4, prompt: '{{ state.a.content }}'}}",
        '{name: b, run: \'return state.get("a", dict()).get("content", "")\'}',
        "{name: b, uses: llm.call, with: {model: gpt-4, prompt: '{{ state[\"a\"].content }}'}}",
        "{name: b, when: state.a.content, run: pass}",
    ],
)
def test_the_text_of_a_model_has_no_content(node):
    text = f"name: t\nnodes:\n- {{name: a, uses: llm.call, with: {{model: gpt-4, prompt: x}}}}\n- {node}\n"
    [(line, _, _, note)] = notes(text)
    assert line == 4
    assert "has no 'content'" in note


@pytest.mark.parametrize(
    "node",
    [
        '{name: b, run: \'return state["b"]["content"]\'}',
        '{name: b, run: \'return [state["a"], state["b"]["content"]]\'}',
        '{name: b, run: \'return state["a"] + [{"content": 1}][0]["content"]\'}',
        "{name: b, when: state.a.contents is defined, run: pass}",
        '{name: b, run: \'output = {"content": state["a"]}; return output["content"]\'}',
    ],
)
def test_content_of_something_else_gets_no_note(node):
    text = f"name: t\nnodes:\n- {{name: a, uses: llm.call, with: {{model: gpt-4, prompt: x}}}}\n- {node}\n"
    assert notes(text, b={"content": 1}) == []


def test_the_complete_example_of_the_specification_has_a_note_if_it_was_ported():
    assert notes(COMPLETE_EXAMPLE, request="a user") == []
    found = notes(f"{COMPLETE_EXAMPLE}\nconfig: {{}}\n", request="a user")
    assert [(node, key) for _, node, key, _ in found][1:] == [("generate_profile", "with.corrector")]
