"""schema: an evaluator that checks JSON against a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError
from redraft.core.evaluation import Issue, ReflectionEvaluation
from redraft.evaluate.config import check_keys, raw_of, required, wrong
from redraft.evaluate.verdict import PASSED, failed
from redraft.text.code import unfenced
from redraft.text.schema import Schema

if TYPE_CHECKING:
    from redraft.core.context import RunContext
    from redraft.core.criterion import QualityCriterion
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.protocols import Evaluator
    from redraft.core.version import Output

MAX_ISSUES = 20


def schema(criterion: QualityCriterion) -> Evaluator:
    """Check an output against a JSON Schema: 1.0 when it is valid, else 0.0 with an issue for each error.

    Configuration: `schema`, a JSON Schema as a dict or bool, or a pydantic model class; `raw`, True to refuse
    JSON in a Markdown fence. A text is read as JSON first. The issues, at most 20, carry a JSON pointer.
    Raises `ConfigError` for a schema that is not valid or that refers to another file or address: nothing is
    ever fetched.
    """
    check_keys(criterion, "schema", "raw")
    is_raw = raw_of(criterion)
    compiled = _compiled(criterion, required(criterion, "schema"))
    name = criterion.name

    async def check(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        if is_raw and isinstance(output, str) and unfenced(output)[1] > 1:
            return failed(Issue("The JSON stands in a Markdown fence; expected nothing but JSON.", name))
        faults = compiled.faults_of(output, MAX_ISSUES) if isinstance(output, str) else None
        if faults is not None:
            if not faults:
                return PASSED
            return failed(*[Issue(what, name, where or None) for what, where in faults])
        # An evaluator can't change the output: what only fits after coercion does not fit.
        result = compiled.check(_plain(output), coerce=False)
        if result.valid:
            return PASSED
        return failed(
            *(Issue(error.detail, name, error.pointer or None) for error in result.errors[:MAX_ISSUES])
        )

    return check


def _compiled(criterion: QualityCriterion, given: Any) -> Schema:
    if hasattr(given, "model_json_schema"):  # a pydantic model, recognised without importing pydantic
        given = given.model_json_schema()
    if not isinstance(given, dict | bool):
        raise wrong(criterion, f"schema must be a dict, a bool or a pydantic model class, got {given!r}.")
    try:
        return Schema(given)  # pyright: ignore[reportUnknownArgumentType] (any JSON)
    except ConfigError as error:
        raise wrong(criterion, f"{error}.") from error


def _plain(output: Output) -> Any:
    return output.model_dump(mode="json") if hasattr(output, "model_dump") else output
