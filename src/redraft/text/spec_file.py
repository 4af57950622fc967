"""A YAML file that follows a typed specification, and its JSON Schema."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.text.yaml import Way, line_of, line_within, load_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

M = TypeVar("M", bound=BaseModel)

TEMPLATED = "May hold {{ templates }}, which are rendered when it runs."
"""What a spec says of every text that may hold templates."""

EXTRA, MISSING, KEY = "extra_forbidden", "missing", "invalid_key"
TAGLESS, MISTAGGED = "union_tag_not_found", "union_tag_invalid"
EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "too_short": "a list that is not empty",
}
"""What was expected, in the words of a file, by the kind of an error of pydantic's."""
BOUNDS = {"less than or equal to": "at most", "greater than or equal to": "at least"}


@dataclass(frozen=True, slots=True)
class SpecFile(ABC):
    """Hold the text of a file and its name, and say where in it something is wrong.

    A kind of file says with `expected` what the whole of one is, and how errors in it are called.
    """

    text: str
    file: str

    expected: ClassVar[str]

    @abstractmethod
    def error(self, way: Way, what: str, *, within: int | None = None) -> Exception:
        """Return the error that says what is wrong, and where; `within` is a line of that text, from 1."""

    @abstractmethod
    def broken(self, message: str, line: int | None) -> Exception:
        """Return the error of a text that is no YAML."""

    def document(self) -> dict[str, Any]:
        """Return the document as plain data; raises `error` for what is no mapping, or no YAML."""
        try:
            document = load_yaml(self.text, self.file)
        except ConfigError as error:
            line = re.match(r", line (\d+)", str(error).removeprefix(self.file))
            raise self.broken(str(error), int(line[1]) if line else None) from error
        if not isinstance(document, dict):
            self.fail((), f"{self.expected}, got {_short(document)}")
        return cast("dict[str, Any]", document)

    def parse(self, kind: type[M], data: object, way: Way = ()) -> M:
        """Return `data`, which stands at `way`, as a `kind`; raises `error` for its first mistake."""
        try:
            return kind.model_validate(data)
        except ValidationError as error:
            place, said = explained(kind, data, error)
            self.fail((*way, *place), said)

    def fail(self, way: Way, what: str, *, within: int | None = None) -> NoReturn:
        """Raise the error that says what is wrong, and where."""
        raise self.error(way, what, within=within)

    def line(self, way: Way, within: int | None = None) -> int:
        """Return the line of what stands at `way`, or of line `within` of the text that stands there."""
        inner = line_within(self.text, way, within) if within else None
        return inner or line_of(self.text, way)

    def said(self, line: int, places: tuple[str, ...], what: str) -> str:
        """Return a message: the file, the line, further places that are not empty, and what is wrong."""
        end = "" if what.endswith(("?", "!")) else "."
        where = ", ".join(part for part in (f"{self.file}, line {line}", *places) if part)
        return f"{where}: {what.rstrip('.')}{end}"


def explained(kind: type[BaseModel], data: object, error: ValidationError) -> tuple[Way, str]:
    """Return where in `data`, which is no `kind`, its first mistake is, and what is wrong there."""
    wrong: list[Any] = list(error.errors(include_url=False))
    # A key that is misspelt explains one that is missing, and the deepest mistake the ones around it.
    first = max(wrong, key=lambda one: (one["type"] == EXTRA, len(one["loc"]), one["type"] != MISSING))
    way, what, given = first["loc"], first["type"], _short(first["input"])
    place = _written(data, way)
    if what == KEY or way[-1:] == ("[key]",):
        key = "null" if first["input"] is None else str(first["input"]).lower()
        holder = _written(data, way[:-1] if what == KEY else way[:-2])
        return (*holder, key), f"the key {key} is no text; put it into quotes"
    if what == EXTRA:
        return place, f"unknown key {way[-1]!r}; {nearest(str(way[-1]), _keys_at(kind, way[:-1]))}"
    if what == MISSING:
        return (*place, way[-1]), f"{way[-1]!r} is missing"
    if what == TAGLESS:
        return (*place, "type"), "'type' is missing"
    if what == MISTAGGED:
        tag = first["ctx"]["tag"]
        tags = [one.strip(" '") for one in first["ctx"]["expected_tags"].split(",")]
        return (*place, "type"), f"unknown type {tag!r}; {nearest(tag, tags)}"
    kinds = [one["type"] for one in wrong if what in EXPECTED and _written(data, one["loc"]) == place]
    expected = " or ".join(dict.fromkeys(EXPECTED[one] for one in kinds if one in EXPECTED))
    return place, f"expected {expected or _expected(first['msg'])}, got {given}"


def _expected(message: str) -> str:
    """Return what was expected by a message of pydantic's."""
    said = message.removeprefix("Input should be ").removesuffix(".")
    for bound, plainly in BOUNDS.items():
        said = said.replace(bound, plainly)
    return said


def _short(value: object) -> str:
    text = "nothing" if value is None else repr(value)
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
    current = [kind]
    for part in way:
        if isinstance(part, str):
            current = [one for each in current for one in _at(each, part)] or current
    return list(dict.fromkeys(key for each in current for key in _fields(each)))


def _at(kind: type[BaseModel], part: str) -> list[type[BaseModel]]:
    """Return the models of what stands under a key; for the tag of a union, the one that has it."""
    tag = kind.model_fields.get("type")
    if tag is not None and part in get_args(tag.annotation):
        return [kind]
    return _fields(kind).get(part, [])


def _fields(kind: type[BaseModel]) -> dict[str, list[type[BaseModel]]]:
    """Return the keys of a model, each with the models of its values, where they have any."""
    return {
        field.alias or name: list(_models_in(field.annotation)) for name, field in kind.model_fields.items()
    }


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def parts_of(kinds: Iterable[type[BaseModel]], says: Mapping[str, str]) -> dict[str, Any]:
    """Return the schemas of models and of all that is in them, by their names.

    `says` tells what a key is for, wherever it stands, unless the spec says more of it there.
    """
    _, made = models_json_schema([(kind, "validation") for kind in kinds], schema_generator=_Generator)
    parts: dict[str, Any] = made["$defs"]
    for part in parts.values():
        part["description"] = part["description"].replace("\n", " ").replace("  ", "\n\n")
        for key, value in part["properties"].items():
            _tidy(value, says.get(key, ""))
    return parts


class _Generator(GenerateJsonSchema):
    """Leave out titles that only repeat the key."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 (pydantic's signature)
        return False


def _tidy(value: dict[str, Any], says: str) -> None:
    """Say what a key is for, and take away that it may be null."""
    branches: list[Any] = [one for one in value.get("anyOf", ()) if one != {"type": "null"}]
    if value.get("default", ...) is None:
        del value["default"]
    if len(branches) == 1:
        del value["anyOf"]
        value |= {**branches[0], **value}
    elif branches:
        value["anyOf"] = branches
    said = value.get("description", "")
    if says and said in ("", TEMPLATED):
        value["description"] = f"{says} {said}".rstrip()
