"""What `runs` and `show` say of a kept workflow: a row of its own, its nodes in order, its loops' runs."""

import pytest

from cli_commands import document, redraft

TWO = """\
name: two nodes
nodes:
  - name: draft
    uses: reflection.loop
    with:
      generator: {run: "return {'n': state.get('reflection_iteration', 1)}"}
      evaluator: {type: schema, schema: {properties: {n: {minimum: 2}}}}
  - name: skipped
    when: state.n > 100
    run: "return {'never': 1}"
  - name: shaky
    run: "return {}[1]"
    on_error: continue
  - name: use
    run: "return {'words': LAST}"
"""


@pytest.fixture
def workflow(project):
    """Run the workflow, whose last node is an expression, and return its id."""

    def workflow(last="state['n'] + 1", code=0):
        (project / "w.yaml").write_text(TWO.replace("LAST", last))
        assert redraft("run", "w.yaml", "-v", "who=Ada").exit_code == code
        return rows("--name", "two nodes", kind="workflow")[0]["run_id"]

    return workflow


def rows(*words, kind):
    return [row for row in document(redraft("runs", *words, "--json"))["runs"] if row["kind"] == kind]


def test_a_workflow_is_a_row_beside_the_runs_of_its_loops(workflow):
    run_id = workflow()
    (row,) = rows(kind="workflow")
    assert (row["name"], row["status"], row["nodes"], row["error"]) == ("two nodes", "finished", 3, "")
    assert row["usage"]["cost_usd"] == 0
    assert [run["parent"] for run in rows(kind="run")] == [run_id]
    listed = redraft("runs").stdout
    assert "two nodes, a workflow of 3 nodes" in listed
    assert f"{run_id}." in listed


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (("--status", "finished"), {"workflow", "run"}),
        (("--status", "failed"), set()),
        (("--name", "two nodes"), {"workflow", "run"}),
        (("--name", "another"), set()),
        (("--reason", "quality_met"), {"run"}),
        (("--limit", "1"), {"run"}),
    ],
)
def test_filters_apply_to_workflows_too(workflow, words, kinds):
    workflow()
    assert {row["kind"] for row in document(redraft("runs", *words, "--json"))["runs"]} == kinds


@pytest.mark.parametrize("last", [True, False])
def test_its_nodes_are_shown_in_order_with_what_each_came_to(workflow, last):
    run_id = workflow()
    shown = redraft("show", "last" if last else run_id).stdout
    lines = [
        "workflow two nodes (w.yaml)",
        '{"who": "Ada"}',
        "State: finished",
        "valid after 2 attempts, best score 1.00",
        f"{run_id}.",
        "KeyError",
        '{"words": 3}',
        "Used: 0 tokens",
    ]
    places = [shown.index(line) for line in lines]
    assert places == sorted(places)
    assert "skipped" not in shown


def test_the_document_has_everything(workflow):
    told = document(redraft("show", workflow(), "--json"))
    assert (told["kind"], told["file"], told["given"]) == ("workflow", "w.yaml", {"who": "Ada"})
    assert told["state"]["words"] == 3
    assert [(node["node"], len(node["runs"])) for node in told["nodes"]] == [
        ("draft", 1),
        ("shaky", 0),
        ("use", 0),
    ]
    assert told["nodes"][0]["runs"][0]["best_score"] == 1.0
    assert "KeyError" in told["nodes"][1]["error"]


def test_one_that_failed_says_why_and_in_which_node(workflow):
    run_id = workflow("state['nothing']", code=2)
    (row,) = rows("--status", "failed", kind="workflow")
    assert (row["run_id"], row["nodes"]) == (run_id, 3)
    shown = redraft("show", run_id).stdout
    assert "State: failed" in shown
    assert "node 'use'" in shown


def test_a_loop_in_it_is_shown_as_a_run(workflow):
    workflow()
    (run,) = rows(kind="run")
    assert "inside" in redraft("show", run["run_id"]).stdout


ONE_LOOP = """
  - name: NAME
    uses: reflection.loop
    with: {generator: {run: return 1}, evaluator: {type: custom, run: return True}}
"""


@pytest.fixture
def kept(project):
    """Run a workflow of these nodes, and return its id."""

    def kept(nodes):
        (project / "w.yaml").write_text(f"name: w\nnodes:{nodes}")
        assert redraft("run", "w.yaml").exit_code == 0
        return rows(kind="workflow")[0]["run_id"]

    return kept


@pytest.mark.parametrize("command", ["why", "diff", "export"])
def test_of_a_workflow_the_run_of_its_loop_is_meant(kept, command):
    run_id = kept(ONE_LOOP)
    for word in ("last", run_id, run_id[:-3]):
        assert document(redraft(command, word, "--json"))["run_id"].startswith(f"{run_id}.")
    run_id = kept(ONE_LOOP + ONE_LOOP.replace("NAME", "other"))
    refused = redraft(command, run_id, "--json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"The workflow '{run_id}' has 2 loops: {run_id}." in refused.stderr
    run_id = kept("\n  - {name: n, run: return 1}\n")
    for word in ("last", run_id):
        refused = redraft(command, word, "--json")
        assert f"No loop of the workflow '{run_id}' ran; `redraft show {run_id}`" in refused.stderr


@pytest.mark.parametrize("words", [("--version", "best"), ("--prompts",)])
def test_versions_and_prompts_are_those_of_its_loops(workflow, words):
    run_id = workflow()
    result = redraft("show", run_id, *words)
    assert result.exit_code == 2
    assert f"{words[0]} is for runs; give one of its loops: {run_id}." in " ".join(result.stderr.split())


def test_secrets_are_withheld(workflow):
    token = "ghp_" + "a1B2" * 9
    run_id = workflow(repr(token))
    for words in ((), ("--json",)):
        shown = redraft("show", run_id, *words).stdout
        assert token not in shown
        assert "words" in shown
