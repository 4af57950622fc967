"""The inputs and outputs that a workflow declares: their types, and the values that have them."""

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
"""The key, beside those of a JSON Schema, with the template that an output is rendered from."""
DEFAULT = "default"
"""The key of a JSON Schema with the value of an input that is left out."""


def schema_of(declared: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a declared type; raises `ConfigError` for an unknown one."""
    if not isinstance(declared, str):
        return {key: value for key, value in declared.items() if key != VALUE}
    name = declared.removesuffix("?")
    one = name.removesuffix("[]")
    if one not in TYPES:
        raise ConfigError(f"unknown type {declared!r}; {nearest(one, TYPES)}")
    schema = {} if one == "any" else {"type": one}
    return {"type": "array", "items": schema} if name.endswith("[]") else schema


def read_inputs(
    spec: WorkflowSpec,
    resources: Resources,
    values: Mapping[str, Any],
    unknown: Container[str] = (),
    hint: str = "pass it to run(), or on the command line use -v {name}=TEXT",
) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the inputs of a run, with their defaults, and what is wrong with them.

    Values are converted as by the evaluator `schema`. Mistakes have the place of the declaration; `hint` says
    how to give a value that is missing. The values of names in `unknown` are not known yet, and not checked.
    A workflow that declares no inputs takes any.
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
                wrong.append((("inputs", name), f"the input {name!r} is missing: {hint.format(name=name)}"))
        elif name not in unknown:
            value = values[name] if name in values else keys[DEFAULT]
            try:
                found = _converted(value, declared, resources)
            except ConfigError:  # the check of the file reports a wrong type
                continue
            inputs[name] = found.value
            if not found.valid and name in values:  # likewise a wrong default
                what = f"the input {name!r} is invalid: {problems_of(declared, value, found)}"
                wrong.append((("inputs", name), what))
    return inputs, wrong


def read_outputs(
    spec: WorkflowSpec, source: WorkflowFile, resources: Resources, scope: Scope
) -> dict[str, Any]:
    """Return the declared outputs of a finished run, from its state.

    Raises `OutputError` for those that are wrong, with their places in the file.
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
        found = _converted(value, declared, resources)
        if not found.valid:
            what = f"the output {name!r} is invalid: {problems_of(declared, value, found)}"
            wrong.append(str(source.error(("outputs", name), what)))
        outputs[name] = found.value
    if wrong:
        raise OutputError("\n".join(wrong))
    return outputs


def _converted(value: Any, declared: str | Mapping[str, Any], resources: Resources) -> SchemaResult:
    """Check a value, converted as by the evaluator `schema`; a text that is valid stays as it is."""
    if not (schema := schema_of(declared)):
        return SchemaResult(valid=True, score=1.0, value=value)
    compiled = resources.schema(schema)
    found = compiled.check(value)
    # A text that is valid as it is was not meant as JSON, even if it looks like it.
    is_text = found.valid and isinstance(value, str) and isinstance(found.value, str)
    return replace(found, value=value) if is_text and compiled.is_valid(value) else found


def problems_of(declared: str | Mapping[str, Any], value: Any, found: SchemaResult) -> str:
    """Say what is wrong with a value of a declared type."""
    kind = declared if isinstance(declared, str) else declared.get("type")
    if found.wrong_type and isinstance(kind, str):
        return f"expected {kind}, got {short_repr(value, 60)}"
    return joined(problem.message for problem in found.errors)
