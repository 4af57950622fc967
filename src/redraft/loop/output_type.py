"""OutputType: the type of an agent's output, how values are read into it, and how they are stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, get_args, get_origin

from redraft._texts import as_text, short_repr
from redraft.errors import ConfigError, OutputError
from redraft.text.replies import json_of
from redraft.text.schema import Schema
from redraft.text.schema_errors import pointer
from redraft.types import Draft, Issue, OutputT, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redraft.protocols import Evaluator, Preference, RunContext, Step
    from redraft.types import Output, QualityCriterion

P = ParamSpec("P")
R = TypeVar("R")

CRITERION = "output_type"
"""The criterion that an output fails which is not of the type."""
LIST_KEY = "items"
"""The key of a list in a reply, since providers take only objects."""
MOST_ISSUES = 20
ASK = "The answer is one JSON value that fits this JSON Schema:"


@dataclass(frozen=True, slots=True, eq=False)
class OutputType(Generic[OutputT]):
    """The type of an output: a class that pydantic can validate, or a JSON Schema.

    `kind` is the type as the caller gave it. `schema` is its JSON Schema, an object or an array at the top.
    An output that is not of the type stays the text that the model wrote, so nothing paid for is lost.
    """

    name: str
    kind: Any
    schema: Mapping[str, Any]
    adapter: Any = None  # a TypeAdapter; pydantic is slow to import
    validator: Schema | None = None

    @property
    def record(self) -> dict[str, Any]:
        """The type as a run's record has it: another one makes it another run."""
        return {"name": self.name, "schema": dict(self.schema)}

    @property
    def is_list(self) -> bool:
        """Whether an output is a list."""
        return self.schema["type"] == "array"

    @property
    def reply_schema(self) -> dict[str, Any]:
        """The JSON Schema of a model's reply: an object at the top, as providers want it."""
        if not self.is_list:
            return dict(self.schema)
        shared = {key: self.schema[key] for key in ("$defs", "definitions") if key in self.schema}
        items = {key: value for key, value in self.schema.items() if key not in shared}
        required = {"properties": {LIST_KEY: items}, "required": [LIST_KEY], "additionalProperties": False}
        return {"type": "object", **required, **shared}

    def prompt(self, system_prompt: str) -> str:
        """Add the schema to a system prompt: not every provider shows it to the model."""
        asked = f"{ASK}\n{json.dumps(self.reply_schema, ensure_ascii=False)}"
        return f"{system_prompt}\n\n{asked}" if system_prompt else asked

    def read(self, text: str) -> tuple[OutputT | str, tuple[Issue, ...]]:
        """Return the output in a model's reply; or the reply itself, and why it is not of the type."""
        try:
            value = json_of(text)
        except OutputError as error:
            return text, (Issue(str(error).rstrip("."), CRITERION),)
        if self.is_list and isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
            value = cast("dict[str, Any]", value).get(LIST_KEY, value)
        return self._checked(value, text)

    def take(self, value: Any) -> OutputT | str:
        """Return a value of the caller's or of a record as an output; as a text if it is not of the type."""
        if isinstance(value, str):
            return self.read(value)[0]
        if self.adapter is not None:
            try:
                return self.adapter.validate_python(value)
            except ValueError:  # pydantic's ValidationError is one; JSON data may still fit, below
                pass
        return self._checked(value, as_text(value))[0]

    def _checked(self, value: Any, text: str) -> tuple[OutputT | str, tuple[Issue, ...]]:
        if self.adapter is None:
            issues = self._schema_issues(value)
            return (text, issues) if issues else (value, ())
        from pydantic import ValidationError  # noqa: PLC0415 (an output type has loaded it)

        try:
            # As JSON, in which strict models take the times and enumerations that they write.
            return self.adapter.validate_json(json.dumps(value)), ()
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)[:MOST_ISSUES]
            return text, tuple(_issue(one["msg"], one["loc"], one["input"]) for one in found)
        except (TypeError, ValueError) as error:  # the caller's value has no JSON form
            return text, (Issue(f"It is not a valid {self.name}: {error}", CRITERION),)

    def _schema_issues(self, value: Any) -> tuple[Issue, ...]:
        if self.validator is None:
            raise AssertionError("an output type has an adapter or a validator")
        errors = self.validator.check(value, coerce=False).errors
        return tuple(Issue(error.placed, CRITERION, error.pointer or None) for error in errors[:MOST_ISSUES])

    def dump(self, output: OutputT | str) -> Any:
        """Return an output as JSON data, from which `take` restores it."""
        if isinstance(output, str) or self.adapter is None:
            return output
        return self.adapter.dump_python(output, mode="json", by_alias=True, round_trip=True)

    def evaluator(self, evaluate: Evaluator, criteria: Sequence[QualityCriterion]) -> Evaluator:
        """Judge outputs of the type; any other fails, as at a gate, and nothing is spent on judging it."""
        unknown = {CRITERION: 0.0} | dict.fromkeys(criterion.name for criterion in criteria)

        async def evaluate_if_typed(output: Output, run: RunContext, /) -> ReflectionEvaluation:
            if not isinstance(output, str):
                return await evaluate(output, run)
            _, issues = self.read(output)
            return ReflectionEvaluation(0.0, unknown, issues=issues, gates_passed=False)

        return evaluate_if_typed

    def preference(self, prefer: Preference) -> Preference:
        """Compare outputs of the type; any other is undecided, and nothing is spent on comparing it."""

        async def prefer_if_typed(output: Output, other: Output, run: RunContext, /) -> ReflectionEvaluation:
            if isinstance(output, str) or isinstance(other, str):
                return ReflectionEvaluation(None)
            return await prefer(output, other, run)

        return prefer_if_typed

    def recorded(self, step: Step) -> Step:
        """Wrap a step so that outputs pass through it as JSON data, and are validated when they come back."""

        @wraps(step, (), ())
        async def as_data(
            name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
        ) -> R:
            if returns is not Draft:
                return await step(name, returns, fn, *args, **kwargs)

            async def dumped(*args: P.args, **kwargs: P.kwargs) -> Any:
                draft: Any = await fn(*args, **kwargs)
                return draft.converted(self.dump)

            draft: Any = await step(name, returns, dumped, *args, **kwargs)
            return draft.converted(self.take)

        return as_data


def output_type_of(kind: Any) -> OutputType[Any] | None:
    """Return an agent's output type; None for `str`, an agent's plain text.

    Raises `ConfigError` for anything but a pydantic model, a data class, a TypedDict, a list of these, or a
    JSON Schema with an object or an array at the top.
    """
    if kind is str:
        return None
    if isinstance(kind, Mapping):
        schema = dict(cast("Mapping[str, Any]", kind))
        try:
            validator = Schema(schema)
        except ConfigError as error:
            raise ConfigError(f"output_type: {str(error).removesuffix('.')}.") from error
        name = str(schema.get("title") or "value of the JSON Schema")
        return OutputType(name, kind, _rooted(schema, "the JSON Schema", IN_SCHEMA), validator=validator)
    name = _name_of(kind)
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
    """Return a schema with its type at the top; raises `ConfigError` unless that is an object or an array."""
    if (target := schema.get("$ref", "")).startswith("#/$defs/"):  # a type that contains itself
        schema = {**schema["$defs"][target.removeprefix("#/$defs/")], "$defs": schema["$defs"]}
    if schema.get("type") in ("object", "array"):
        return schema
    is_choice = "anyOf" in schema or "oneOf" in schema
    what = "is a choice between types" if is_choice else "is neither an object nor a list"
    raise ConfigError(f"output_type: {name} {what}; {advice}.")


def _name_of(kind: Any) -> str:
    base = getattr(get_origin(kind) or kind, "__name__", None) or short_repr(kind)
    inner = ", ".join(map(_name_of, get_args(kind)))
    return f"{base}[{inner}]" if inner else base


def _issue(message: str, place: Sequence[int | str], value: Any) -> Issue:
    """Return pydantic's complaint about a value at a place as an issue."""
    got = "" if isinstance(value, dict | list) else f", got {short_repr(value)}"
    return Issue(f"{message}{got}", CRITERION, pointer(place) or None)
