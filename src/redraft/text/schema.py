"""Schema: a JSON Schema, compiled once, that coerces, grades and says what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError, OutputError
from redraft.text.json_reply import json_of
from redraft.text.schema_coerce import coerced
from redraft.text.schema_cost import MAX_CHECKS, MAX_COPIED, MAX_DEPTH, MAX_EXPLAINED, Cost, Size, size_of
from redraft.text.schema_problem import SchemaProblem, detail_of, pointer, problem_of, shown
from redraft.text.schema_score import Score
from redraft.text.schema_tree import ROOT, SchemaTree

if TYPE_CHECKING:
    from pathlib import Path

MAX_PROBLEMS = 100
MAX_BRANCHING = 10_000
BACKTRACKS = 100_000


@dataclass(frozen=True, slots=True)
class SchemaResult:
    """Say whether a value fits: `value` is it, parsed and coerced; `omitted` problems are not listed.

    `wrong_type` says that the value as a whole has a type that the schema does not allow: a list where it
    wants an object, or a text that holds no JSON.
    """

    valid: bool
    score: float
    value: Any
    errors: tuple[SchemaProblem, ...] = ()
    omitted: int = 0
    wrong_type: bool = False

    @property
    def suggestions(self) -> tuple[str, ...]:
        """What to do about the errors, each once."""
        return tuple(dict.fromkeys(error.suggestion for error in self.errors))


class Schema:
    """Check values against a JSON Schema of the draft that its `$schema` names, else of 2020-12.

    `$ref` reaches the schema's own parts, and files beneath `folder` where one is given; nothing is ever
    fetched. Raises `ConfigError` for a schema that is not valid, too large, or branches without bound.
    `format` is a note, as the standard says, but for drafts before 2019-09.
    """

    def __init__(self, given: dict[str, Any] | bool, folder: Path | None = None) -> None:
        import jsonschema_rs  # noqa: PLC0415 (only who has a schema pays for it)

        if not isinstance(given, dict | bool):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
            raise ConfigError(f"a schema must be an object, true or false, got {given!r}")
        self._tree = SchemaTree(given, folder)
        try:
            self._validator = jsonschema_rs.validator_for(
                given,
                retriever=self._tree.retrieve,
                base_uri=ROOT,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS),
            )
        except ValueError as error:  # jsonschema_rs.ValidationError is one
            if self._tree.refusal is not None:
                raise self._tree.refusal from error
            reason = str(error).split("\n", 1)[0]
            raise ConfigError(f"the schema is not valid: {reason}") from error
        self._cost = Cost(self._tree)
        self._score: Score | None = None
        self._takes_text = self._tree.speaks_of_text()
        if self._cost.explained(0) > MAX_BRANCHING:
            raise ConfigError(f"the schema has more than {MAX_BRANCHING:,} branches for one place")

    def is_valid(self, value: Any) -> bool:
        """Say whether a JSON value fits as it is; raises `ValueError` for what is no JSON, or too much."""
        self._affordable(value)
        return self._validator.is_valid(value)

    def check(self, output: Any, *, coerce: bool = True) -> SchemaResult:
        """Return whether an output fits, how much of it does, and what to do.

        A text is read as JSON first, fenced or bare; where the schema speaks of texts, as `type: string` and
        `pattern` do, it may be one as it is.
        With `coerce`, texts that hold nothing but a number or a truth value become one where the schema wants
        it.
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
                return _refused(
                    output, broken, "a JSON value", "Answer with one JSON value, and nothing else."
                )
            return self._explained(value, coerce=coerce)
        except (ValueError, TypeError) as error:  # what JSON can't hold, or too much
            message = f"The output is not a JSON value that can be checked: {error}."
            return _refused(value, message, "a JSON value", "Answer with a smaller, plain JSON value.")

    def faults_of(self, text: str, most: int) -> list[tuple[str, str]] | None:
        """Return what is wrong with a JSON text: the validator's own words, and where as a JSON pointer.

        The quick way, for those who want neither a grade nor a value: None says that `check` has to look.
        """
        if self._takes_text or len(text) > self._quickly:
            return None
        try:
            value = json_of(text)
        except OutputError:
            return None
        return [
            (detail_of(error), pointer(error.instance_path))
            for error in islice(self._validator.iter_errors(value), most)
        ]

    @cached_property
    def _quickly(self) -> int:
        """The length of a text of which nothing can cost too much, whatever it holds."""
        looks = self._cost.explained(MAX_DEPTH)
        self._score = self._score or Score(self._tree)
        return min(
            MAX_CHECKS // max(1, self._cost.verdict),
            MAX_EXPLAINED // max(1, looks),
            MAX_COPIED // max(1, looks + self._score.total),
        )

    def _affordable(self, value: Any) -> Size:
        size = size_of(value)
        if size.nodes * self._cost.verdict > MAX_CHECKS:
            raise ValueError(f"{size.nodes:,} values are too many for a schema with so many branches")
        return size

    def _explained(self, value: Any, *, coerce: bool) -> SchemaResult:
        size = size_of(value)
        self._score = self._score or Score(self._tree)
        looks = self._cost.explained(size.depth)
        # Each error holds a copy of the value that it is about.
        copied = size.characters * (looks + self._score.total)
        if looks * size.nodes > MAX_EXPLAINED or copied > MAX_COPIED:
            return self._first(value, size)
        errors = list(self._validator.iter_errors(value))
        if coerce:
            value, errors = coerced(value, errors, lambda new: list(self._validator.iter_errors(new)))
        problems = tuple(problem_of(error, value) for error in errors[:MAX_PROBLEMS])
        return SchemaResult(
            not errors,
            self._score.of(errors),
            value,
            problems,
            max(0, len(errors) - MAX_PROBLEMS),
            any(map(_is_of_root_type, errors)),
        )

    def _first(self, value: Any, size: Size) -> SchemaResult:
        """Name only the first error of a value for which finding them all would take too long."""
        large = f"{size.nodes:,} values and {size.characters:,} characters"
        what = f"{large} are too much to find every error"
        problem = _whole(f"The value: {what}.", "a smaller value", what, "Make the value smaller.")
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


def _refused(value: Any, message: str, expected: str, suggestion: str) -> SchemaResult:
    got = shown(value) if isinstance(value, str) else f"a {type(value).__name__}"
    problem = _whole(message, expected, got, suggestion)
    return SchemaResult(valid=False, score=0.0, value=value, errors=(problem,), wrong_type=True)


def _is_of_root_type(error: Any) -> bool:
    """Say whether an error of the validator is that the value as a whole has the wrong type."""
    return error.kind.name == "type" and not error.instance_path


def _whole(message: str, expected: str, got: str, suggestion: str) -> SchemaProblem:
    """Make the problem of a value as a whole, which no rule of the schema names."""
    return SchemaProblem("", message, "", expected, got, suggestion, detail=message)
