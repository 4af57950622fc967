"""OutputType: the type of an agent's outputs, which reads, stores and restores them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_origin
from urllib.parse import unquote

from redraft._pointers import path_of
from redraft._texts import as_text, remember_source, short_repr, source_of, type_name
from redraft.errors import ConfigError, OutputError, StoreError
from redraft.evaluate.checks import warn_of_ineffective_keywords
from redraft.text.replies import json_of
from redraft.text.schema import Schema
from redraft.text.schema_errors import MOST_ISSUES, validated, value_at
from redraft.types import Draft, Issue, OutputT, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from redraft.protocols import Evaluator, Preference, RunContext, Step
    from redraft.types import Output, QualityCriterion

R = TypeVar("R")

CRITERION = "output_type"
"""The criterion that fails for an output of another type."""
LIST_KEY = "items"
"""The key of a list in a reply, since providers accept only objects."""
ASK = "The answer is one JSON value that fits this JSON Schema:"


@dataclass(frozen=True, slots=True, eq=False)
class OutputType(Generic[OutputT]):
    """The type of an output: a class that pydantic can validate, or a JSON Schema.

    The source of an output is the JSON data from which it was validated. Prompts, edits and checks use the
    source, and the store has it: a stored output is validated from its source again, by the same rules. An
    output of another type stays the text that the model wrote, so nothing paid for is lost.
    """

    name: str
    kind: Any
    """The type as the caller passed it."""
    schema: Mapping[str, Any]
    """Its JSON Schema, with an object or an array at the top."""
    adapter: Any = None  # a TypeAdapter; pydantic is slow to import
    validator: Schema | None = None

    @property
    def record(self) -> dict[str, Any]:
        """The type in the record of a run; a run with another type is another run."""
        return {"name": self.name, "schema": dict(self.schema)}

    @property
    def is_list(self) -> bool:
        """Whether an output is a list."""
        return self.schema["type"] == "array"

    @property
    def reply_schema(self) -> dict[str, Any]:
        """The JSON Schema of a model's reply, with an object at the top, as providers require."""
        if not self.is_list:
            return dict(self.schema)
        shared = {key: self.schema[key] for key in ("$defs", "definitions") if key in self.schema}
        items = {key: value for key, value in self.schema.items() if key not in shared}
        required = {"properties": {LIST_KEY: items}, "required": [LIST_KEY], "additionalProperties": False}
        return {"type": "object", **required, **shared}

    def prompt(self, system_prompt: str) -> str:
        """Add the schema to a system prompt: not every provider shows it to the model."""
        instruction = f"{ASK}\n{json.dumps(self.reply_schema, ensure_ascii=False)}"
        return f"{system_prompt}\n\n{instruction}" if system_prompt else instruction

    def read(self, text: str) -> tuple[OutputT | str, tuple[Issue, ...]]:
        """Read the output in a model's reply; a reply of another type is returned with its issues."""
        try:
            value = json_of(text)
        except OutputError as error:
            return text, (Issue(str(error).rstrip("."), CRITERION),)
        if self.is_list and isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
            value = cast("dict[str, Any]", value).get(LIST_KEY, value)
        return self._checked(value, text)

    def take(self, value: Any) -> OutputT | str:
        """Convert a value of the caller's to an output; a value of another type becomes a text."""
        if isinstance(value, str):
            return self.read(value)[0]
        if self.adapter is not None:
            with suppress(
                Exception, SystemExit
            ):  # JSON data may still fit; otherwise validating it gives the reason
                output = self.adapter.validate_python(value)
                self._remember(output, value)
                return output
        return self._checked(value, as_text(value))[0]

    def remember_reply(self, output: OutputT, reply: str) -> None:
        """Remember the source of an output that a framework validated from a model's reply."""
        try:
            source = json_of(reply)
        except OutputError:
            source = None
        if isinstance(source, dict) and len(cast("dict[str, Any]", source)) == 1:
            self._remember(output, source, *cast("dict[str, Any]", source).values())  # a list in an object
        else:
            self._remember(output, source)

    def _remember(self, output: OutputT, *sources: Any) -> None:
        """Remember the first source, or else the first dump, that validates to an equal output.

        Without one, the output is stored by its attributes.
        """
        if self.adapter is None:
            return
        for source in (*sources, *self._dumps(output)):
            value, issues = validated(self.adapter, source, self.name, CRITERION)
            if not issues and _is_same(value, output):
                remember_source(output, source)
                return

    def _dumps(self, output: OutputT) -> Iterator[Any]:
        for by_alias in (True, False):
            with suppress(Exception):  # a serialiser of the user's
                yield self.adapter.dump_python(
                    output, mode="json", by_alias=by_alias, round_trip=True, warnings=False
                )

    def restore(self, stored: Any) -> OutputT | str:
        """Validate a stored output again; raises `StoreError` if it is no longer valid."""
        if isinstance(stored, str):
            return self.read(stored)[0]
        if self.adapter is None or not isinstance(
            stored, dict | list
        ):  # stored as it is, or restored already
            return stored
        value, issues = validated(self.adapter, stored, self.name, CRITERION)
        if not issues:
            remember_source(value, stored)
            return value
        with suppress(Exception):  # a container of restored values
            if _is_same(value := self.adapter.validate_python(stored), stored):
                return value
        raise StoreError(
            f"A stored output is no longer a valid {self.name}: {issues[0]}. Restore the class as it was "
            "when the run began, or start a new run."
        )

    def _checked(self, value: Any, text: str) -> tuple[OutputT | str, tuple[Issue, ...]]:
        if self.adapter is None:
            issues = self._schema_issues(value)
            return (text, issues) if issues else (value, ())
        output, issues = validated(self.adapter, value, self.name, CRITERION)
        if issues:
            return text, issues
        self._remember(output, value)
        return output, ()

    def _schema_issues(self, value: Any) -> tuple[Issue, ...]:
        if self.validator is None:
            raise AssertionError("an output type has an adapter or a validator")
        errors = self.validator.check(value, coerce=False).errors
        return tuple(Issue(error.placed, CRITERION, error.pointer or None) for error in errors[:MOST_ISSUES])

    def dump(self, output: OutputT | str) -> Any:
        """The stored form of an output: its source, from which `restore` validates it again."""
        source = source_of(output)
        return output if source is None else source

    def evaluator(self, evaluate: Evaluator, criteria: Sequence[QualityCriterion]) -> Evaluator:
        """Judge only outputs of the type; any other output fails, as at a gate, at no cost."""
        unknown = {CRITERION: 0.0} | dict.fromkeys(criterion.name for criterion in criteria)

        async def evaluate_if_typed(output: Output, run: RunContext, /) -> ReflectionEvaluation:
            if not isinstance(output, str):
                return await evaluate(output, run)
            _, issues = self.read(output)
            return ReflectionEvaluation(
                0.0, unknown, issues=issues, gates_passed=False, failed_gates=(CRITERION,)
            )

        return evaluate_if_typed

    def preference(self, prefer: Preference) -> Preference:
        """Compare only outputs of the type; any other comparison is undecided, at no cost."""

        async def prefer_if_typed(output: Output, other: Output, run: RunContext, /) -> ReflectionEvaluation:
            if isinstance(output, str) or isinstance(other, str):
                return ReflectionEvaluation(None)
            return await prefer(output, other, run)

        return prefer_if_typed

    async def recorded(
        self, step: Step, name: str, returns: type[R], fn: Callable[..., Awaitable[R]], /, *args: Any
    ) -> R:
        """Carry out an effect by a step that stores outputs as their sources; replays validate them."""
        if returns is not Draft:
            return await step(name, returns, fn, *args)
        made: tuple[Any, Any] = None, None

        async def dumped(*args: Any) -> Any:
            nonlocal made
            draft: Any = await fn(*args)
            made = draft, draft.converted(self.dump)
            return made[1]

        draft: Any = await step(name, returns, dumped, *args)
        # Validating again could change a value, so an output made in this process stays as it is.
        return made[0] if draft is made[1] else draft.converted(self.restore)


def output_type_of(kind: Any) -> OutputType[Any] | None:
    """Read an agent's output type; None for `str`, an agent's plain text.

    Raises `ConfigError` for anything but a pydantic model, a data class, a TypedDict, a list of these, or a
    JSON Schema with an object or an array at the top.
    """
    if kind is str:
        return None
    if isinstance(kind, Mapping):
        given_schema = dict(cast("Mapping[str, Any]", kind))
        try:
            validator = Schema(given_schema)
        except ConfigError as error:
            raise ConfigError(f"output_type: {str(error).removesuffix('.')}.") from error
        warn_of_ineffective_keywords(validator, "output_type")
        schema = _rooted(given_schema, "the JSON Schema", IN_SCHEMA)
        name = str(schema.get("title") or "value of the JSON Schema")
        return OutputType(
            name, kind, schema, validator=validator if schema is given_schema else Schema(schema)
        )
    name = type_name(kind)
    if isinstance(kind, str) or (not isinstance(kind, type) and get_origin(kind) is None):
        raise ConfigError(f"output_type must be a type, or a JSON Schema as a dict; got {short_repr(kind)}.")
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter  # noqa: PLC0415 (slow)

    try:
        adapter = TypeAdapter[Any](kind)
        schema = adapter.json_schema()
        adapter.json_schema(mode="serialization")
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        reason = str(error).split("\n", 1)[0].rstrip(".")
        raise ConfigError(
            f"output_type: {name} can't be read from JSON and written as JSON: {reason}."
        ) from error
    return OutputType(name, kind, _rooted(schema, name, IN_CLASS), adapter)


IN_SCHEMA = "make it a property of an object, or leave output_type out if a plain text is wanted"
IN_CLASS = "make it a field of a pydantic model, a data class or a TypedDict"


def _rooted(schema: dict[str, Any], name: str, advice: str) -> dict[str, Any]:
    """A schema with its type at the top; raises `ConfigError` unless that is an object or an array."""
    root = _dereferenced(schema, schema)
    kind = _kind_of(root, schema)
    if kind in ("object", "array"):
        return schema if root is schema and schema.get("type") == kind else {**root, "type": kind}
    if "anyOf" in root or "oneOf" in root or isinstance(root.get("type"), list):
        what = "is a choice between types"
    elif kind or advice is IN_CLASS:
        what = "is neither an object nor a list"
    else:
        what, advice = "does not say whether it is an object or a list", 'add "type": "object"'
    raise ConfigError(f"output_type: {name} {what}; {advice}.")


def _dereferenced(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Replace a reference at the top of a part of a schema by its target.

    A reference to another document, or to itself, stays.
    """
    seen: set[str] = set()
    while isinstance(target := part.get("$ref"), str) and target.startswith("#/") and target not in seen:
        seen.add(target)
        try:
            target_schema = value_at(schema, path_of(unquote(target[1:])))
        except (KeyError, TypeError):
            break
        if not isinstance(target_schema, dict):
            break
        part = {**cast("dict[str, Any]", target_schema), **{key: part[key] for key in part if key != "$ref"}}
    return part


KEYWORDS = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
}
"""The keywords that imply the type of a schema without a `type`."""


def _kind_of(part: dict[str, Any], schema: dict[str, Any], depth: int = 0) -> str:
    """The type of a part of a schema; empty if there is no single type."""
    kinds: Any = part.get("type", [])
    if isinstance(kinds, str):
        return kinds
    if kinds:
        return str(kinds[0]) if len(kinds) == 1 else ""
    for member in part.get("allOf", ()):
        if depth < MAX_NESTING and isinstance(member, dict):
            inner = _dereferenced(cast("dict[str, Any]", member), schema)
            if kind := _kind_of(inner, schema, depth + 1):
                return kind
    return next((kind for kind, keys in KEYWORDS.items() if any(key in part for key in keys)), "")


MAX_NESTING = 10
"""Levels of `allOf` that are searched for a type."""


def _is_same(value: Any, other: Any) -> bool:
    try:
        return value.__class__ is other.__class__ and bool(value == other)
    except Exception:  # noqa: BLE001 (a comparison of the user's)
        return False
