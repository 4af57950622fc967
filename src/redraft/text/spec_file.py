"""YAML files that follow a Pydantic model: errors with line numbers, and their JSON Schema."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
)

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import PydanticCustomError, to_jsonable_python

from redraft._texts import short_repr
from redraft._validation import checked_path, nearest
from redraft.errors import ConfigError, SpecFileError
from redraft.settings import joined_names
from redraft.text.yaml import KeyPath, line_of, line_within, load_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Self

E = TypeVar("E", bound=SpecFileError)

Mistake: TypeAlias = tuple[KeyPath, str]
"""A place in a file, and the problem there."""

TEMPLATED = "May hold {{ templates }}, which are rendered when it runs."
"""The description of every text that may hold templates."""

_NAME = {"type": "string"}
ModelName = Annotated[
    str,
    BeforeValidator(joined_names),
    WithJsonSchema({"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1}]}),
]
"""The name of a model, or a list of names, which are tried in order; read as a text with commas."""

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _check_variable(name: str) -> str:
    if re.fullmatch(VARIABLE, name, re.ASCII) is None:
        raise PydanticCustomError("variable_type", "Input should be the name of an environment variable")
    return name


Variable = Annotated[
    str, AfterValidator(_check_variable), WithJsonSchema({"type": "string", "pattern": VARIABLE})
]
"""The name of an environment variable."""

UNKNOWN_KEY = "unknown key"
"""The beginning of the message about an unknown key."""
EXTRA, MISSING, KEY = "extra_forbidden", "missing", "invalid_key"
REMOVED = "removed"
"""The type of the error for a key or a type that an earlier version had; see `removed_error`."""
TAGLESS, MISTAGGED = "union_tag_not_found", "union_tag_invalid"
EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_too_short": "a non-empty string",
    "string_type": "a string",
    "template_type": "a template",
    "too_short": "a list that is not empty",
    "variable_type": "the name of an environment variable",
}
"""The expected value in terms of the file, by the type of Pydantic's error."""
PLAIN_WORDS = {
    "less than or equal to": "at most",
    "greater than or equal to": "at least",
    "String should have": "a string of",
    "String should match pattern": "a string that matches the pattern",
}
"""Words for parts of Pydantic's messages."""


def removed_error(advice: str, *key: str) -> PydanticCustomError:
    """Validation error for a key or type of an earlier version; `advice` names its replacement.

    It is reported at the line of `key` in the part of the file that the validator received, or at that part.
    """
    return PydanticCustomError(REMOVED, "{advice}", {"advice": advice, "key": key})


class Condition(NamedTuple):
    """A condition on the keys of a part of a file, for its check and for the JSON Schema that editors use."""

    schema: dict[str, Any]
    """The condition, as a JSON Schema of the part."""
    problem: str
    """The problem of a part that does not meet the condition; `{key}` is the key that the schema rejects."""
    key: str = ""
    """The key at which the problem is reported; by default, the part itself."""


def exactly_one(*keys: str) -> dict[str, Any]:
    """The schema of a part with one of these keys."""
    return {"oneOf": [{"required": [key]} for key in keys]}


def _add_conditions(schema: dict[str, Any], kind: type[Any]) -> None:
    if kind.conditions:
        schema["allOf"] = [condition.schema for condition in kind.conditions]


class Strict(BaseModel):
    """A part of a file that rejects unknown keys, and values of another type than declared."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, json_schema_extra=_add_conditions)

    conditions: ClassVar[tuple[Condition, ...]] = ()
    """Conditions on the keys, which `unmet_conditions` checks once their values are valid."""


@dataclass(frozen=True, slots=True)
class SpecFile(ABC, Generic[E]):
    """The text and name of a file, with errors that name the place of a mistake.

    A subclass sets the description of such a file (`expected`) and the exception to raise.
    """

    text: str
    file: str

    expected: ClassVar[str]
    error_type: ClassVar[type[E]]  # pyright: ignore[reportGeneralTypeIssues] (each subclass has its own)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file; raises an `error_type` if it can't be read."""
        path = checked_path("path", path)
        try:
            return cls(path.read_text("utf-8"), str(path))
        except UnicodeDecodeError as error:
            raise cls.error_type(f"{str(path)!r} is not UTF-8 text.", file=str(path)) from error
        except OSError as error:
            message = f"{str(path)!r} cannot be read: {error.strerror}."
            raise cls.error_type(message, file=str(path)) from error

    @abstractmethod
    def location(self, path: KeyPath, /) -> dict[str, str | None]:
        """The part of the file at a path, as the fields of an error; `key` is the last field."""

    def path_in_text(self, path: KeyPath, /) -> KeyPath:
        """Convert a path in the document to a path in the text."""
        return path

    def loaded(self) -> Any:
        """Parse the text as plain data; raises an `error_type` if it is not YAML."""
        try:
            return load_yaml(self.text, self.file)
        except ConfigError as error:
            line = re.match(r", line (\d+)", str(error).removeprefix(self.file))
            number = int(line[1]) if line else None
            raise self.error_type(str(error), file=self.file, line=number) from error

    def document(self) -> dict[str, Any]:
        """The document as plain data; raises an `error_type` for anything but a mapping in YAML."""
        if not isinstance(document := self.loaded(), dict):
            raise self.error((), f"{self.expected}, got {_short(document)}")
        return cast("dict[str, Any]", document)

    def mistakes_in(self, kind: type[BaseModel], data: object, path: KeyPath = ()) -> list[Mistake]:
        """All mistakes in `data`, at `path` in the document, as a `kind`; empty if it is valid."""
        try:
            kind.model_validate(data)
        except ValidationError as error:
            return [((*path, *place), what) for place, what in mistakes(kind, data, error)]
        return []

    def error(self, path: KeyPath, what: str, *, within: int | None = None) -> E:
        """Create the error for a problem at `path`; `within` counts lines of the text there."""
        place = self.path_in_text(path)
        line = (line_within(self.text, place, within) if within else None) or line_of(self.text, place)
        location = self.location(path)
        message = located(f"{self.file}, line {line}", location, what)
        return self.error_type(message, file=self.file, line=line, **location)


def located(beginning: str, location: Mapping[str, str | None], what: str) -> str:
    """Format a message with a location: "agent.yaml, line 5, stage 'reason', substages: it is empty."."""
    places = [value if name == "key" else f"{name} {value!r}" for name, value in location.items() if value]
    end = "" if what.endswith(("?", "!")) else "."
    return f"{', '.join((beginning, *places))}: {what.rstrip('.')}{end}"


def unmet_conditions(part: object, path: KeyPath = ()) -> Iterator[Mistake]:
    """Yield the unmet conditions of a part of a file and of the parts within it."""
    if isinstance(part, list):
        items = enumerate(cast("list[object]", part))
    elif isinstance(part, dict):
        items = cast("dict[str, object]", part).items()
    elif isinstance(part, BaseModel):
        fields = type(part).model_fields
        items = ((fields[name].alias or name, getattr(part, name)) for name in fields)
    else:
        return
    if isinstance(part, Strict) and part.conditions:
        keys = part.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
        data = to_jsonable_python(keys, bytes_mode="base64", fallback=str)
        for condition in part.conditions:
            for error in _validator(json.dumps(condition.schema)).iter_errors(data):
                at = error.instance_path
                place = (*path, condition.key) if condition.key else path
                yield place, condition.problem.format(key=at[-1] if at else condition.key)
    for key, value in items:
        yield from unmet_conditions(value, (*path, key))


@cache
def _validator(schema: str) -> Any:
    import jsonschema_rs  # noqa: PLC0415 (9 ms, on first use)

    return jsonschema_rs.validator_for(json.loads(schema))


def mistakes(kind: type[BaseModel], data: object, error: ValidationError) -> list[Mistake]:
    """All mistakes in `data`, which is not a valid `kind`.

    A misspelled or misplaced key explains a missing key, and the deepest mistake explains the mistakes
    around it.
    """
    details: list[Any] = list(error.errors(include_url=False))
    details.sort(
        key=lambda detail: (detail["type"] == EXTRA, len(detail["loc"]), detail["type"] != MISSING),
        reverse=True,
    )
    found: list[Mistake] = []
    for detail in details:
        place, what = _mistake(kind, data, detail, details)
        is_around = any(other[: len(place)] == place for other, _ in found)
        is_explained = detail["type"] == MISSING and any(
            other[:-1] == place[:-1]
            and (f"did you mean {place[-1]!r}" in why or belongs_under(place[-1]) in why)
            for other, why in found
        )
        if not is_around and not is_explained:
            found.append((place, what))
    return found


def _mistake(
    kind: type[BaseModel], data: object, detail: dict[str, Any], details: list[dict[str, Any]]
) -> Mistake:
    """Convert one of Pydantic's error details to a mistake."""
    path, what, got = detail["loc"], detail["type"], _short(detail["input"])
    place = _in_document(data, path)
    if what == KEY or path[-1:] == ("[key]",):
        key = "null" if detail["input"] is None else str(detail["input"]).lower()
        holder = _in_document(data, path[:-1] if what == KEY else path[:-2])
        return (*holder, key), f"the key {key} is not a string; put it in quotes"
    if what == EXTRA:
        return place, f"{UNKNOWN_KEY} {path[-1]!r}; {_advice(kind, path)}"
    if what == MISSING:
        return (*place, path[-1]), f"{path[-1]!r} is missing"
    if what == TAGLESS:
        return (*place, "type"), "'type' is missing"
    if what == MISTAGGED:
        tag = detail["ctx"]["tag"]
        tags = [expected_tag.strip(" '") for expected_tag in detail["ctx"]["expected_tags"].split(",")]
        return (*place, "type"), f"unknown type {tag!r}; {nearest(tag, tags)}"
    if what == REMOVED:
        return (*place, *detail["ctx"]["key"]), detail["ctx"]["advice"]
    same_place = [
        other for other in details if what in EXPECTED and _in_document(data, other["loc"]) == place
    ]
    types = [other["type"] for other in same_place]
    expected = " or ".join(dict.fromkeys(EXPECTED[name] for name in types if name in EXPECTED))
    return place, f"expected {expected or _expected(detail['msg'])}, got {got}"


def _expected(message: str) -> str:
    """Extract the expected value from a message of Pydantic."""
    expected = message.removeprefix("Input should be ").removesuffix(".")
    for words, plain_words in PLAIN_WORDS.items():
        expected = expected.replace(words, plain_words)
    return expected


def _short(value: object) -> str:
    return "nothing" if value is None else short_repr(value, 60)


def _in_document(data: Any, path: KeyPath) -> KeyPath:
    """Remove the names of union branches, which Pydantic adds, from a path.

    The `type` of an item names its branch in the path, even if it is also a key of the item.
    """
    present: list[str | int] = []
    for before, part in zip((None, *path), path, strict=False):
        try:
            if isinstance(before, int) and "type" in data and data["type"] == part:
                continue
            data = data[part]
        except (LookupError, TypeError):
            continue
        present.append(part)
    return tuple(present)


def _advice(kind: type[BaseModel], path: KeyPath) -> str:
    """Advice on the unknown key at the end of a path."""
    parents, key = [kind], str(path[-1])
    for part in path[:-1]:
        if isinstance(part, str):
            parents = [child for parent in parents for child in _at(parent, part)] or parents
    keys = {name: models for parent in parents for name, models in _fields(parent).items()}
    holders = [name for name, models in keys.items() if any(key in _fields(model) for model in models)]
    return belongs_under(holders[0]) if len(holders) == 1 else nearest(key, list(keys))


def belongs_under(holder: str | int) -> str:
    """Advice on a key that `holder` has, not the part that holds it."""
    return f"it belongs under {holder!r}"


def _at(kind: type[BaseModel], part: str) -> list[type[BaseModel]]:
    """The models of the values under a key; for the tag of a union, the model with that tag."""
    tag = kind.model_fields.get("type")
    if tag is not None and part in get_args(tag.annotation):
        return [kind]
    return _fields(kind).get(part, [])


def _fields(kind: type[BaseModel]) -> dict[str, list[type[BaseModel]]]:
    """The keys of a model, each with the possible models of its values."""
    return {
        field.alias or name: list(_models_in(field.annotation)) for name, field in kind.model_fields.items()
    }


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def parts_of(kinds: Iterable[type[BaseModel]], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Schemas of models and of all models in them, by name.

    `descriptions` describe keys anywhere, unless the model describes them itself.
    """
    _, document = models_json_schema([(kind, "validation") for kind in kinds], schema_generator=_Generator)
    parts: dict[str, Any] = document["$defs"]
    for part in parts.values():
        part["description"] = part["description"].replace("\n", " ").replace("  ", "\n\n")
        for key, value in part["properties"].items():
            _tidy(value, descriptions.get(key, ""))
    return parts


class _Generator(GenerateJsonSchema):
    """Generate schemas without titles, which would only repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 (pydantic's signature)
        return False


def _tidy(value: dict[str, Any], description: str) -> None:
    """Describe a key, and remove null from its types."""
    branches: list[Any] = [branch for branch in value.get("anyOf", ()) if branch != {"type": "null"}]
    if value.get("default", ...) is None:
        del value["default"]
    if len(branches) == 1:
        del value["anyOf"]
        value |= {**branches[0], **value}
    elif branches:
        value["anyOf"] = branches
    own = value.get("description", "")
    if description and own in ("", TEMPLATED):
        value["description"] = f"{description} {own}".rstrip()
