"""The declared inputs and outputs of a workflow: their types, and how values are validated and converted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft._texts import short_repr
from redraft._validation import nearest
from redraft.errors import ConfigError, OutputError
from redraft.text.schema import SchemaResult
from redraft.text.spec_file import Mistake
from redraft.text.templates import TemplateError
from redraft.types import joined
from redraft.workflow.runtime import MODEL

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from redraft.workflow.runtime import Resources, Scope
    from redraft.workflow.spec import WorkflowFile, WorkflowSpec

TYPES = ("string", "integer", "number", "boolean", "object", "array", "any")
"""The short types; `TYPE[]` is a list of them, and an input of the type `TYPE?` may be left out."""
VALUE = "value"
"""The key with the template of an output; it is not a keyword of JSON Schema."""
DEFAULT = "default"
"""The keyword of JSON Schema with the value of an input that is left out."""


def schema_of(declared: str | Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a declared type; raises `ConfigError` for an unknown type."""
    if not isinstance(declared, str):
        return {key: value for key, value in declared.items() if key != VALUE}
    name = declared.removesuffix("?")
    item_type = name.removesuffix("[]")
    if item_type not in TYPES:
        raise ConfigError(f"unknown type {declared!r}; {nearest(item_type, TYPES)}")
    schema = {} if item_type == "any" else {"type": item_type}
    return {"type": "array", "items": schema} if name.endswith("[]") else schema


def read_inputs(
    spec: WorkflowSpec,
    resources: Resources,
    values: Mapping[str, Any],
    unknown: Container[str] = (),
    hint: str = "put it into the initial state (`redraft run -v {value}`)",
) -> tuple[dict[str, Any], list[Mistake]]:
    """Validate the inputs of a run and add defaults; returns the inputs and the mistakes in them.

    Values are converted as by the evaluator `schema`. A mistake has the path of the declaration, and `hint`
    says how to give a missing value. Inputs named in `unknown` have no value yet and are not checked. A
    workflow that declares no inputs takes any.
    """
    inputs, wrong = dict(values), list[Mistake]()
    if not spec.inputs:
        return inputs, wrong
    wrong += [
        (("inputs",), f"there is no input {name!r}; {nearest(name, spec.inputs)}")
        for name in values
        if name not in spec.inputs and name not in spec.variables and name != MODEL
    ]
    for name, declared in spec.inputs.items():
        keys = {} if isinstance(declared, str) else declared
        if name not in values and DEFAULT not in keys:
            if not (isinstance(declared, str) and declared.endswith("?")):
                kind = (declared if isinstance(declared, str) else str(keys.get("type"))).removesuffix("?")
                value = f"{name}=TEXT" if kind == "string" else f"{name}:=JSON"
                wrong.append((("inputs", name), f"the input {name!r} is missing: {hint.format(value=value)}"))
        elif name not in unknown:
            value = values[name] if name in values else keys[DEFAULT]
            try:
                checked = _converted(value, declared, resources)
            except ConfigError:  # an invalid type, which the check of the file reports
                continue
            inputs[name] = checked.value
            if not checked.valid and name in values:  # the check of the file reports an invalid default, too
                what = f"the input {name!r} is invalid: {describe_problems(declared, value, checked)}"
                wrong.append((("inputs", name), what))
    return inputs, wrong


def read_outputs(
    spec: WorkflowSpec, source: WorkflowFile, resources: Resources, scope: Scope
) -> dict[str, Any]:
    """The declared outputs of a finished run, from its state.

    Raises `OutputError` for all invalid outputs, with their lines in the file.
    """
    outputs: dict[str, Any] = {}
    wrong: list[str] = []
    for name, declared in spec.outputs.items():
        template = None if isinstance(declared, str) else declared.get(VALUE)
        if template is None and name not in scope.state:
            if not (isinstance(declared, str) and declared.endswith("?")):
                what = f"the output {name!r} is missing: no node has set state.{name}"
                wrong.append(str(source.error(("outputs", name), what)))
            continue
        try:
            value = scope.state[name] if template is None else scope.render(template)
        except TemplateError as error:
            what = f"the output {name!r} can't be rendered: {error}"
            wrong.append(str(source.error(("outputs", name, VALUE), what)))
            continue
        checked = _converted(value, declared, resources)
        if not checked.valid:
            what = f"the output {name!r} is invalid: {describe_problems(declared, value, checked)}"
            wrong.append(str(source.error(("outputs", name), what)))
        outputs[name] = checked.value
    if wrong:
        raise OutputError("\n".join(wrong))
    return outputs


def _converted(value: Any, declared: str | Mapping[str, Any], resources: Resources) -> SchemaResult:
    """Validate a value, converted as by the evaluator `schema`; a valid string is not converted."""
    if not (schema := schema_of(declared)):
        return SchemaResult(valid=True, score=1.0, value=value)
    compiled = resources.schema(schema)
    checked = compiled.check(value)
    # A string that is valid as it is was not meant as JSON, even if it looks like JSON.
    is_text = checked.valid and isinstance(value, str) and isinstance(checked.value, str)
    return replace(checked, value=value) if is_text and compiled.is_valid(value) else checked


def describe_problems(declared: str | Mapping[str, Any], value: Any, checked: SchemaResult) -> str:
    """Describe why a value does not have its declared type."""
    kind = declared if isinstance(declared, str) else declared.get("type")
    if checked.wrong_type and isinstance(kind, str):
        return f"expected {kind}, got {short_repr(value, 60)}"
    return joined(problem.message for problem in checked.errors)
