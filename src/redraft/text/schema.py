"""Check, coerce and score values against a JSON Schema."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from redraft._validation import nearest
from redraft.errors import ConfigError, InvalidSchemaError, OutputError
from redraft.text.json import Size, size_of
from redraft.text.replies import json_of
from redraft.text.schema_errors import SchemaProblem, place_of, problem_of, shown, value_at
from redraft.text.schema_tree import (
    MAX_CHECKS,
    MAX_COPIED,
    MAX_EXPLAINED,
    ROOT,
    Cost,
    Place,
    SchemaTree,
    Score,
    check_references,
    ineffective_keywords,
    name_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

MAX_PROBLEMS = 100
MAX_BRANCHING = 10_000
BACKTRACKS = 100_000


@dataclass(frozen=True, slots=True)
class SchemaResult:
    """The result of a check."""

    valid: bool
    score: float
    value: Any
    """The parsed and coerced value."""
    errors: tuple[SchemaProblem, ...] = ()
    wrong_type: bool = False
    """Whether the value as a whole has a type that the schema does not allow, such as a list instead of an
    object, or a string without JSON."""

    @property
    def suggestions(self) -> tuple[str, ...]:
        """Distinct suggestions of the errors."""
        return tuple(dict.fromkeys(error.suggestion for error in self.errors))


class Schema:
    """Check values against a JSON Schema of the draft in its `$schema`, by default 2020-12.

    `$ref` can name parts of the schema and, with a `folder`, files inside it; nothing is ever fetched.
    According to the standard, `format` is checked only for drafts before 2019-09. Raises
    `InvalidSchemaError`, with the place of each mistake, for an invalid schema, and `ConfigError` for a
    schema that branches too much.
    """

    def __init__(self, schema: dict[str, Any] | bool, folder: Path | None = None) -> None:
        if not isinstance(schema, dict | bool):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
            what = f"a schema must be an object, true or false, got {schema!r}"
            raise InvalidSchemaError(what, [((), what)])
        self._tree, self._validator = _compiled(schema, folder)
        self._cost = Cost(self._tree)
        self._score: Score | None = None
        self._takes_text = self._tree.allows_strings()
        if self._cost.explained(0) > MAX_BRANCHING:
            raise ConfigError(f"the schema has more than {MAX_BRANCHING:,} branches for one place")

    def ineffective_keywords(self) -> Iterator[tuple[Place, str]]:
        """Yield the places of keywords that have no effect, each with what was probably meant.

        A keyword in a file is at the place of the reference to the file.
        """
        return ineffective_keywords(self._tree)

    def is_valid(self, value: Any) -> bool:
        """Whether a JSON value is valid as it is; raises `ValueError` if it is not JSON, or too large."""
        nodes = size_of(value).nodes
        if nodes * self._cost.verdict > MAX_CHECKS:
            raise ValueError(f"{nodes:,} values are too many for a schema with so many branches")
        return self._validator.is_valid(value)

    def check(self, output: Any, *, coerce: bool = True) -> SchemaResult:
        """Check an output, score it, and suggest changes.

        A string is read as JSON first, fenced or bare; if the schema allows strings (`type: string`,
        `pattern`), it may also be the value itself. With `coerce`, strings that hold only a number or a
        boolean are converted where the schema requires that type.
        """
        value, broken = output, None
        if isinstance(output, str):
            try:
                value = json_of(output)
            except OutputError as error:
                broken = str(error)
        try:
            if (broken is None or self._takes_text) and self.is_valid(value):
                return SchemaResult(valid=True, score=1.0, value=value)
            if isinstance(output, str) and self._takes_text and self._validator.is_valid(output):
                return SchemaResult(valid=True, score=1.0, value=output)
            if broken is not None and not self._takes_text:
                return _refused(output, broken, "Answer with one JSON value, and nothing else.")
            return self._explain(value, coerce=coerce)
        except (ValueError, TypeError) as error:  # not JSON, or too large to check
            message = f"The output is not a JSON value that can be checked: {error}."
            return _refused(value, message, "Answer with a smaller, plain JSON value.")

    def _explain(self, value: Any, *, coerce: bool) -> SchemaResult:
        size = size_of(value)
        self._score = self._score or Score(self._tree)
        looks = self._cost.explained(size.depth)
        # Each error holds a copy of the value that it describes.
        copied = size.characters * (looks + self._score.total)
        if looks * size.nodes > MAX_EXPLAINED or copied > MAX_COPIED:
            return self._first_error_of(value, size)
        errors = list(self._validator.iter_errors(value))
        if coerce:
            value, errors = _coerce(value, errors, lambda new: list(self._validator.iter_errors(new)))
        problems = tuple(problem_of(error, value) for error in errors[:MAX_PROBLEMS])
        return SchemaResult(
            not errors,
            self._score.of(errors),
            value,
            problems,
            any(map(_is_of_root_type, errors)),
        )

    def _first_error_of(self, value: Any, size: Size) -> SchemaResult:
        """Report only the first error, for a value in which finding them all would take too long."""
        large = f"{size.nodes:,} values and {size.characters:,} characters"
        what = f"{large} are too much to find every error"
        problem = _problem_with_value(
            f"The value: {what}.", "a smaller value", what, "Make the value smaller."
        )
        looks = self._cost.explained(size.depth)
        if looks > MAX_BRANCHING or looks * size.characters > 4 * MAX_COPIED:
            return SchemaResult(valid=False, score=0.0, value=value, errors=(problem,))
        try:
            self._validator.validate(value)
        except ValueError as error:  # jsonschema_rs.ValidationError is one
            problems = (problem_of(error, value), problem)
            wrong = _is_of_root_type(error)
            return SchemaResult(valid=False, score=0.0, value=value, errors=problems, wrong_type=wrong)
        raise AssertionError("a value that does not fit has an error")


@lru_cache(maxsize=256)
def compiled_schema(schema: str) -> Schema:
    """Compile a schema from JSON; cached."""
    return Schema(json.loads(schema))


def _compiled(schema: dict[str, Any] | bool, folder: Path | None) -> tuple[SchemaTree, Any]:
    """Compile a schema; raises `InvalidSchemaError` for all its mistakes."""
    import jsonschema_rs  # noqa: PLC0415 (on first use)

    tree = SchemaTree(schema, folder)
    try:
        check_references(schema)
        return tree, jsonschema_rs.validator_for(
            schema,
            retriever=tree.retrieve,
            base_uri=ROOT,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS),
        )
    except (ConfigError, ValueError) as error:  # jsonschema_rs.ValidationError is a ValueError
        what = str(tree.refusal or f"the schema is not valid: {str(error).splitlines()[0]}")
        problems = list(_problems_of(tree)) or [(tuple(getattr(error, "instance_path", ())), what)]
        raise InvalidSchemaError(problems[0][1] if tree.refusal is None else what, problems) from error


def _problems_of(tree: SchemaTree) -> Iterator[tuple[Place, str]]:
    """Yield the mistakes in a schema, and in the files that it refers to at the place of the reference."""
    checked = set[str]()
    for part in tree.parts():
        if part.base not in checked:
            checked.add(part.base)
            for inside, what in _mistakes(tree.documents[part.base], tree):
                if part.base == ROOT:
                    yield inside, f"the schema is not valid: {what}"
                else:
                    where = ".".join(map(str, inside)) or "the root"
                    yield part.place, f"{name_of(part.base)!r} is not a valid schema: {where}: {what}"
        yield from tree.wrong_references(part)


def _mistakes(schema: dict[str, Any] | bool, tree: SchemaTree) -> list[tuple[Place, str]]:
    """Violations of its meta-schema in a schema, each with its place."""
    import jsonschema_rs  # noqa: PLC0415 (loaded by now)

    draft = schema.get("$schema", DRAFT) if isinstance(schema, dict) else DRAFT
    try:
        validator = jsonschema_rs.validator_for(
            {"$schema": str(draft), "$ref": str(draft)}, validate_formats=True, retriever=tree.retrieve
        )
    except ValueError:  # an unknown draft
        return []
    return [(tuple(error.instance_path), _wrong_with(error)) for error in validator.iter_errors(schema)]


def _wrong_with(error: Any) -> str:
    """The message for a violation of a meta-schema."""
    keyword, got = (error.instance_path or [""])[-1], error.instance
    if keyword == "type":
        names = cast("list[Any]", got) if isinstance(got, list) else [got]
        if unknown := [name for name in names if isinstance(name, str) and name not in TYPES]:
            return f"unknown type {unknown[0]!r}; {nearest(unknown[0], TYPES)}"
    return str(error.message)


DRAFT = "https://json-schema.org/draft/2020-12/schema"
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def _refused(value: Any, message: str, suggestion: str) -> SchemaResult:
    got = shown(value) if isinstance(value, str) else f"a {type(value).__name__}"
    problem = _problem_with_value(message, "a JSON value", got, suggestion)
    return SchemaResult(valid=False, score=0.0, value=value, errors=(problem,), wrong_type=True)


def _is_of_root_type(error: Any) -> bool:
    """Whether an error says that the value as a whole has the wrong type."""
    return error.kind.name == "type" and not error.instance_path


def _problem_with_value(message: str, expected: str, got: str, suggestion: str) -> SchemaProblem:
    """A problem with the value as a whole that no rule of the schema describes."""
    return SchemaProblem("", message, "", expected, got, suggestion)


# Coercion: strings that hold a value of the required type.

MAX_ROUNDS = 6
MAX_DIGITS = 300
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""The strings that count as booleans, in lower case."""

Key = tuple[Place, Place]
"""Identifies an error: its rule in the schema, and its place in the value."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_NOTHING = object()


def _coerce(value: Any, errors: list[Any], errors_of: Callable[[Any], list[Any]]) -> tuple[Any, list[Any]]:
    """Convert strings to the types that the schema requires; return the new value and the errors that remain.

    A string is converted only if its type is an error, and if it holds nothing but the value and white space:
    `"12"`, `" -3"`, `"1.5"`, `"true"`, `"False"`, `"yes"`, `"no"`, `"1"`, `"0"`; never to null. Of `anyOf`
    and `oneOf`, the first branch that becomes valid is taken. The original value is not changed.
    """
    tried: Counter[Key] = Counter()
    for _ in range(MAX_ROUNDS):
        attempts: dict[Key, dict[Place, Any]] = {}
        for error in errors:
            repairs = islice(_repairs(error, value), tried[_key(error)], None)
            attempts |= {_key(error): changes for changes in islice(repairs, 1)}
        if not attempts:
            break
        tried.update(attempts.keys())
        changed = _changed(value, attempts.values())
        remaining = errors_of(changed)
        failed = set(map(_key, remaining))
        # Another part of the schema may require the string.
        types = [error for error in remaining if error.kind.name == "type" and "string" in error.kind.value]
        texts = {place_of(error, changed) for error in types}
        successful = [
            changes for key, changes in attempts.items() if key not in failed and texts.isdisjoint(changes)
        ]
        if len(successful) < len(attempts):
            changed = _changed(value, successful)
            remaining = errors_of(changed)
        value, errors = changed, remaining
    return value, errors


def _repairs(error: Any, value: Any) -> Iterator[dict[Place, Any]]:
    """Yield the changes to a value that may fix an error: for a choice, the changes of each branch."""
    if error.kind.name == "type":
        place = place_of(error, value)
        text = value_at(value, place)
        if isinstance(text, str) and (new := _as_type(text, error.kind.value)) is not _NOTHING:
            yield {place: new}
    elif error.kind.name in ("anyOf", "oneOf"):
        for branch in error.kind.value:
            changes: dict[Place, Any] = {}
            for inner in branch:
                changes |= next(_repairs(inner, value), dict[Place, Any]())
            if changes:
                yield changes


def _key(error: Any) -> Key:
    return tuple(error.evaluation_path), tuple(error.instance_path)


def _as_type(text: str, types: Sequence[str]) -> Any:
    """Convert a string to a value of one of the types; `_NOTHING` if none fits.

    Numbers take precedence over booleans: `"1"` is 1 if both are allowed.
    """
    text = text.strip()
    if len(text) > MAX_DIGITS:
        return _NOTHING
    if ("integer" in types or "number" in types) and _INTEGER.match(text):
        return int(text)
    if "number" in types and _NUMBER.match(text) and isfinite(float(text)):
        return float(text)
    return _BOOLEANS.get(text.lower(), _NOTHING) if "boolean" in types else _NOTHING


def _changed(value: Any, repairs: Iterable[dict[Place, Any]]) -> Any:
    """Copy the value with some places changed; only the containers on the way to them are copied."""
    changes = {place: new for changes in repairs for place, new in changes.items()}
    if not changes or () in changes:
        return changes.get((), value)
    copies: dict[Place, Any] = {(): _copy(value)}
    for place, new in changes.items():
        for end in range(1, len(place)):
            if place[:end] not in copies:
                holder = copies[place[: end - 1]]
                copies[place[:end]] = holder[place[end - 1]] = _copy(holder[place[end - 1]])
        copies[place[:-1]][place[-1]] = new
    return copies[()]


def _copy(value: Any) -> Any:
    return dict(cast("dict[Any, Any]", value)) if isinstance(value, dict) else list(value)
