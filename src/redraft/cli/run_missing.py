"""Values that a workflow reads and nothing gives it, as far as that can be known before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.text.condition import braced, template
from redraft.workflow.loop import FEEDBACK
from redraft.workflow.loop_state import DOCUMENTED
from redraft.workflow.names import LLM_CALL, LOOP, plain_name
from redraft.workflow.params import templates_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redraft.text.yaml import Way
    from redraft.workflow.spec import Node, WorkflowSpec


def first_missing(spec: WorkflowSpec, given: Mapping[str, Any]) -> tuple[Way, str] | None:
    """Return where a value is read that nothing gives, and its name such as `state.request`; None for none.

    Looks at the nodes that run in any case, until one whose keys in the state are not known beforehand.
    """
    state = {*given, *DOCUMENTED, FEEDBACK}
    known = {"state": state, "variables": {*spec.variables, *given}}
    for at, node in enumerate(spec.nodes):
        for text, way in _read_first(node, ("nodes", at)):
            for scope, *rest in template(text).required:
                if scope in known and rest and rest[0] not in known[str(scope)]:
                    return way, f"{scope}.{rest[0]}"
        if _may_go_elsewhere(node) or _gives_unknown_keys(node):
            return None
        state.add(node.output or node.name)
    return None


def _read_first(node: Node, way: Way) -> Iterator[tuple[str, Way]]:
    """Yield the templates that are rendered whatever happens in a node."""
    if node.when is not None:
        if isinstance(node.when, str):
            yield braced(node.when), (*way, "when")
        return
    params, inside = node.with_, (*way, "with")
    if plain_name(str(node.uses)) == LOOP:
        params, inside = params["generator"], (*inside, "generator")
    yield from templates_in(params, inside)


def _may_go_elsewhere(node: Node) -> bool:
    return node.when is not None or node.goto is not None or node.on_error != "raise"


def _gives_unknown_keys(node: Node) -> bool:
    action = plain_name(str(node.uses))
    gives_text = action == LLM_CALL and "schema" not in node.with_
    return action == LOOP or (node.output is None and not gives_text)
