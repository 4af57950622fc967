"""The graph of a workflow: its nodes in the order of the file, and the edges between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from redraft._texts import shortened
from redraft.workflow.spec import CONTINUE, END, RAISE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.workflow.spec import Node, WorkflowSpec

LONGEST_LABEL = 40


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of the graph."""

    name: str
    does: str
    """Its action, or the language of its code."""
    bounds: tuple[str, ...] = ()
    """Its `map`, `when` and `max_visits`, in words."""


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An edge from one node to another."""

    start: int
    """Index of the node that the edge leaves."""
    to: int
    """Index of the node that it leads to; the index after the last node is the end."""
    kind: Literal["next", "goto", "error"] = "next"
    """`next` for the order of the file, `error` for the edge taken after a failure."""
    label: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowGraph:
    """A workflow as a graph."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    @classmethod
    def of(cls, spec: WorkflowSpec) -> WorkflowGraph:
        """Build the graph of a workflow that has been checked."""
        indices = {node.name: index for index, node in reversed(list(enumerate(spec.nodes)))}
        indices[END] = len(spec.nodes)
        nodes = (
            GraphNode(node.name, node.uses or f"{node.language} code", tuple(_bounds(node)))
            for node in spec.nodes
        )
        edges = (edge for index, node in enumerate(spec.nodes) for edge in _edges(index, node, indices, spec))
        return cls(tuple(nodes), tuple(edges))

    def mermaid(self) -> str:
        """Render the graph as a Mermaid flowchart."""
        lines = ["flowchart TD"]
        for index, node in enumerate(self.nodes):
            label = "<br/>".join(map(_escaped, (node.name, node.does, *node.bounds)))
            lines.append(f'    n{index}["{label}"]')
        lines.append(f"    n{len(self.nodes)}([end])")
        for edge in self.edges:
            arrow = "-.->" if edge.kind == "error" else "-->"
            label = f'|"{_escaped(edge.label)}"|' if edge.label else ""
            lines.append(f"    n{edge.start} {arrow}{label} n{edge.to}")
        return "\n".join(lines)


def _bounds(node: Node) -> Iterator[str]:
    if node.map is not None:
        items = f"{len(node.map)} items" if isinstance(node.map, list) else _condition(node.map)
        yield shortened(f"for each of {items}", LONGEST_LABEL)
    if node.when is not None:
        yield shortened(f"when {_condition(node.when)}", LONGEST_LABEL)
    if node.max_visits is not None:
        yield f"at most {node.max_visits} visits"


def _condition(condition: str | bool) -> str:
    return str(condition).lower() if isinstance(condition, bool) else " ".join(condition.strip("{} ").split())


def _edges(index: int, node: Node, indices: dict[str, int], spec: WorkflowSpec) -> Iterator[GraphEdge]:
    """Yield the edges that leave a node."""
    always_jumps = False
    for jump in node.jumps:
        label = "" if jump.if_ is None else shortened(_condition(jump.if_), LONGEST_LABEL)
        to = indices[jump.to]
        yield GraphEdge(index, to, "goto", label)
        # A goto to a node that has reached its `max_visits` is ignored.
        is_unbounded = to == len(spec.nodes) or spec.nodes[to].max_visits is None
        always_jumps = always_jumps or (jump.if_ is None and is_unbounded)
    if not always_jumps or node.when is not None:
        yield GraphEdge(index, index + 1)
    if node.on_error not in (RAISE, CONTINUE):
        yield GraphEdge(index, indices[node.on_error], "error", "on error")


def _escaped(text: str) -> str:
    """Escape text for a quoted Mermaid label, whose entities are `#` and a number."""
    return "".join(char if char.isalnum() or char in PLAIN else f"#{ord(char)};" for char in text)


PLAIN = " _.,:=!()[]'+-*/"
"""Characters that need no escape, besides letters and digits."""
