"""The criterion that a JSON Schema decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.core.errors import OutputError
from redraft.core.evaluation import Issue, ReflectionEvaluation, issue_of
from redraft.evaluate.config import check_keys, required, wrong
from redraft.evaluate.verdict import PASSED, failed
from redraft.text.json_reply import json_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.context import RunContext
    from redraft.core.criterion import QualityCriterion
    from redraft.core.protocols import Evaluator
    from redraft.core.version import Output

MAX_ISSUES = 20
MAX_MESSAGE = 300


def schema(criterion: QualityCriterion) -> Evaluator:
    """Check an output against a JSON Schema: 1.0 when it is valid, else 0.0 with an issue for each error.

    Configuration: `schema`, a JSON Schema as a dict or bool, or a pydantic model class. A text is read as
    JSON first. The issues, at most 20, carry a JSON pointer. Raises `ConfigError` for a schema that is not
    valid or that refers to another file or address: nothing is ever fetched.
    """
    check_keys(criterion, "schema")
    validator = _compiled(criterion, required(criterion, "schema"))
    name = criterion.name

    async def check(output: Output, _run: RunContext, /) -> ReflectionEvaluation:
        try:
            value = _value_of(output)
            return PASSED if validator.is_valid(value) else failed(*_issues(validator, value, name))
        except OutputError as error:
            return failed(Issue(str(error), name))
        except (ValueError, TypeError) as error:  # what JSON can't hold: an object, a lone surrogate
            return failed(Issue(f"The output is not a JSON value: {error}", name))

    return check


def _compiled(criterion: QualityCriterion, given: Any) -> Any:
    import jsonschema_rs  # noqa: PLC0415 (only who has a schema pays for it)

    if hasattr(given, "model_json_schema"):  # a pydantic model, recognised without importing pydantic
        given = given.model_json_schema()
    if not isinstance(given, dict | bool):
        raise wrong(criterion, f"schema must be a dict, a bool or a pydantic model class, got {given!r}.")
    try:
        return jsonschema_rs.validator_for(given, retriever=_deny)  # pyright: ignore[reportUnknownArgumentType] (any JSON)
    except ValueError as error:  # jsonschema_rs.ValidationError is one
        reason = str(error).split("\n", 1)[0]
        raise wrong(criterion, f"the schema is not valid: {reason}.") from error


def _deny(uri: str) -> Any:
    raise ValueError(f"{uri!r} is not fetched; put what it refers to under '$defs'")


def _value_of(output: Output) -> Any:
    if isinstance(output, str):
        return json_of(output)
    return output.model_dump(mode="json") if hasattr(output, "model_dump") else output


def _issues(validator: Any, value: Any, name: str) -> list[Issue]:
    issues: list[Issue] = []
    for error in validator.iter_errors(value):
        if len(issues) == MAX_ISSUES:
            break
        message: str = error.message
        if len(message) > MAX_MESSAGE:
            message = f"{message[:MAX_MESSAGE]}..."
        issues.append(issue_of(message, name, _pointer(error.instance_path)))
    return issues


def _pointer(path: Sequence[str | int]) -> str | None:
    """Render a path as a JSON pointer (RFC 6901); None for the whole value."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path) or None
