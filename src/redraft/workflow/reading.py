"""Read a workflow file: YAML text to a typed spec, with errors that point at file, line, node and key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from redraft.core.errors import WorkflowError
from redraft.text.spec_file import SpecFile
from redraft.text.yaml import Way, load_yaml
from redraft.workflow.spec import WorkflowSpec

STDIN = "-"
"""The file that is none: standard input."""


@dataclass(frozen=True, slots=True)
class Source(SpecFile):
    """Hold the text of a workflow file and its name, and say where in it something is wrong."""

    file: str = "workflow"

    expected: ClassVar[str] = "a workflow is a mapping with 'nodes'"

    def error(self, way: Way, what: str, *, within: int | None = None) -> WorkflowError:
        """Return the `WorkflowError` that says what is wrong, and where; `within` is a line of that code."""
        line = self.line(way, within)
        node = self._node(way)
        key = ".".join(map(str, way[2:] if node else way))
        message = self.said(line, (f"node {node!r}" if node else "", key), what)
        return WorkflowError(message, file=self.file, line=line, node=node, key=key or None)

    def broken(self, message: str, line: int | None) -> WorkflowError:
        """Return the `WorkflowError` of a text that is no YAML."""
        return WorkflowError(message, file=self.file, line=line)

    def _node(self, way: Way) -> str | None:
        if len(way) < 2 or way[0] != "nodes" or not isinstance(way[1], int):  # noqa: PLR2004 (`nodes`, a number)
            return None
        nodes: Any = load_yaml(self.text, self.file).get("nodes")
        node: Any = cast("list[Any]", nodes)[way[1]] if isinstance(nodes, list) else None
        name = cast("dict[str, Any]", node).get("name") if isinstance(node, dict) else None
        return str(name) if name else f"number {way[1] + 1}"


def read(source: Source) -> WorkflowSpec:
    """Return the spec of a workflow file; raises `WorkflowError` for what does not follow the format."""
    spec = source.parse(WorkflowSpec, source.document())
    if spec.name:
        return spec
    name = "workflow" if source.file == STDIN else Path(source.file).stem
    return spec.model_copy(update={"name": name})
