"""Read a workflow file: YAML text to a typed spec, with errors that point at file, line, node and key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError

from redraft.core.errors import ConfigError, WorkflowError
from redraft.core.nearest import nearest
from redraft.text.yaml import Way, line_of, line_within, load_yaml
from redraft.workflow.spec import WorkflowSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

M = TypeVar("M", bound=BaseModel)

EXTRA, MISSING = "extra_forbidden", "missing"
EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
}
"""What was expected, in the words of a file, by the kind of an error of pydantic's."""


@dataclass(frozen=True, slots=True)
class Source:
    """Hold the text of a workflow file and its name, and say where in it something is wrong."""

    text: str
    file: str = "workflow"

    def document(self) -> dict[str, Any]:
        """Return the document as plain data; raises `WorkflowError` for what is no mapping, or no YAML."""
        try:
            document = load_yaml(self.text, self.file)
        except ConfigError as error:
            line = re.match(r", line (\d+)", str(error).removeprefix(self.file))
            raise WorkflowError(str(error), file=self.file, line=int(line[1]) if line else None) from error
        if not isinstance(document, dict):
            self.fail((), f"a workflow is a mapping with 'name' and 'nodes', got {_short(document)}")
        return cast("dict[str, Any]", document)

    def parse(self, kind: type[M], data: object, way: Way = ()) -> M:
        """Return `data`, which stands at `way`, as a `kind`; raises `WorkflowError` for its first mistake."""
        try:
            return kind.model_validate(data)
        except ValidationError as error:
            # A key that is misspelt explains one that is missing, and the deepest mistake the ones around it.
            first = max(
                error.errors(include_url=False),
                key=lambda one: (one["type"] == EXTRA, len(one["loc"]), one["type"] != MISSING),
            )
            inside = first["loc"]
            missing = inside[-1:] if first["type"] == MISSING else ()
            self.fail((*way, *_written(data, inside), *missing), _said(kind, inside, first))

    def fail(self, way: Way, what: str, *, within: int | None = None) -> NoReturn:
        """Raise the `WorkflowError` that says what is wrong, and where; `within` is a line of that code."""
        raise self.error(way, what, within=within)

    def error(self, way: Way, what: str, *, within: int | None = None) -> WorkflowError:
        """Return the `WorkflowError` that says what is wrong, and where, as `fail` does."""
        line = line_within(self.text, way, within) if within else None
        line = line or line_of(self.text, way)
        node = self._node(way)
        inside = way[2:] if node else way
        key = ".".join(map(str, inside))
        place = [f"{self.file}, line {line}", f"node {node!r}" if node else "", key]
        end = "" if what.endswith(("?", "!")) else "."
        message = f"{', '.join(part for part in place if part)}: {what.rstrip('.')}{end}"
        return WorkflowError(message, file=self.file, line=line, node=node, key=key or None)

    def _node(self, way: Way) -> str | None:
        if len(way) < 2 or way[0] != "nodes" or not isinstance(way[1], int):  # noqa: PLR2004 (`nodes`, a number)
            return None
        nodes: Any = load_yaml(self.text, self.file).get("nodes")
        node: Any = cast("list[Any]", nodes)[way[1]] if isinstance(nodes, list) else None
        name = cast("dict[str, Any]", node).get("name") if isinstance(node, dict) else None
        return str(name) if name else f"number {way[1] + 1}"


def read(source: Source) -> WorkflowSpec:
    """Return the spec of a workflow file; raises `WorkflowError` for what does not follow the format."""
    return source.parse(WorkflowSpec, source.document())


def _said(kind: type[BaseModel], way: Way, error: Any) -> str:
    what, given = error["type"], _short(error.get("input"))
    if what == EXTRA:
        return f"unknown key {way[-1]!r}; {nearest(str(way[-1]), _keys_at(kind, way[:-1]))}"
    if what == MISSING:
        return f"{way[-1]!r} is missing"
    expected = EXPECTED.get(what) or error["msg"].removeprefix("Input should be ").removesuffix(".")
    return f"expected {expected}, got {given}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 (what fits into a line)


def _written(data: Any, way: Way) -> Way:
    """Return the way as it stands in the data: the branches of unions, which pydantic names, are left out."""
    written: list[str | int] = []
    for part in way:
        try:
            data = data[part]
        except (LookupError, TypeError):
            continue
        written.append(part)
    return tuple(written)


def _keys_at(kind: type[BaseModel], way: Way) -> list[str]:
    current: type[BaseModel] | None = kind
    for part in way:
        if isinstance(part, str) and current is not None:
            current = _fields(current).get(part, current)
    return [] if current is None else list(_fields(current))


def _fields(kind: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Return the keys of a model, each with the model of its values, where they have one."""
    return {
        field.alias or name: next(_models_in(field.annotation), None)
        for name, field in kind.model_fields.items()
    }


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
