"""The graph of a workflow as a Mermaid flowchart."""

import json
from pathlib import Path

import pytest

from redraft.workflow import Workflow
from support.commands import redraft

TEXT = """\
name: inbox
nodes:
  - {name: begin, run: return 1}
  - name: sort
    uses: mine
    max_visits: 3
    on_error: person
  - name: answer
    when: '{{ state.kind == "question" }}'
    run: return 2
    goto: end
  - name: each
    run: return item
    map: state.messages
    goto:
      - {if: state.more, to: sort}
      - {to: person}
  - name: person
    run: return 3
    language: lua
"""
MERMAID = """\
flowchart TD
    n0["begin<br/>python code"]
    n1["sort<br/>mine<br/>at most 3 visits"]
    n2["answer<br/>python code<br/>when state.kind == #34;question#34;"]
    n3["each<br/>python code<br/>for each of state.messages"]
    n4["person<br/>lua code"]
    n5([end])
    n0 --> n1
    n1 --> n2
    n1 -.->|"on error"| n4
    n2 --> n5
    n2 --> n3
    n3 -->|"state.more"| n1
    n3 --> n4
    n4 --> n5"""


@pytest.fixture
def workflow():
    return Workflow.from_text(TEXT, actions={"mine": lambda state: None}, keep=False)


def test_a_workflow_is_a_mermaid_flowchart(workflow):
    assert workflow.graph.mermaid() == MERMAID


def test_the_command_prints_the_graph_and_runs_nothing(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(TEXT.replace("uses: mine", "run: return 9"))
    printed = redraft("run", str(path), "--graph")
    assert printed.stdout.strip() == MERMAID.replace("sort<br/>mine", "sort<br/>python code")
    document = json.loads(redraft("run", str(path), "--graph", "--json").stdout)
    assert document["nodes"][1] == {"name": "sort", "does": "python code", "bounds": ["at most 3 visits"]}
    assert {"start": 1, "to": 4, "kind": "error", "label": "on error"} in document["edges"]
    assert not list(Path(tmp_path).glob("**/*.db"))


@pytest.mark.parametrize("name", ['a"] --> x', "<script>", "a|b", "end", "a;b#c"])
def test_names_and_conditions_stay_labels(name):
    text = f"nodes:\n- {{name: {json.dumps('n' + name)}, run: return 1}}\n"
    _, node, *_ = Workflow.from_text(text, keep=False).graph.mermaid().splitlines()
    assert node.startswith('    n0["n')
    inside = node.removeprefix('    n0["').removesuffix('<br/>python code"]')
    assert not set(inside) & set('"<>|`')
