"""SpecFile: a YAML file that follows a typed spec, and where in it something is wrong."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.text.yaml import Way, line_of, line_within, load_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

M = TypeVar("M", bound=BaseModel)

TEMPLATED = "May hold {{ templates }}, which are rendered when it runs."
"""What a spec says of every text that may hold templates."""

EXTRA, MISSING = "extra_forbidden", "missing"
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
}
"""What was expected, in the words of a file, by the kind of an error of pydantic's."""


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
            # A key that is misspelt explains one that is missing, and the deepest mistake the ones around it.
            first = max(
                error.errors(include_url=False),
                key=lambda one: (one["type"] == EXTRA, len(one["loc"]), one["type"] != MISSING),
            )
            inside = first["loc"]
            missing = inside[-1:] if first["type"] == MISSING else ()
            if first["type"] in (TAGLESS, MISTAGGED):
                missing = ("type",)
            self.fail((*way, *_written(data, inside), *missing), _said(kind, inside, first))

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


def _said(kind: type[BaseModel], way: Way, error: Any) -> str:
    what, given = error["type"], _short(error.get("input"))
    if what == EXTRA:
        return f"unknown key {way[-1]!r}; {nearest(str(way[-1]), _keys_at(kind, way[:-1]))}"
    if what == MISSING:
        return f"{way[-1]!r} is missing"
    if what == TAGLESS:
        return "'type' is missing"
    if what == MISTAGGED:
        tags = [tag.strip(" '") for tag in error["ctx"]["expected_tags"].split(",")]
        return f"unknown type {error['ctx']['tag']!r}; {nearest(error['ctx']['tag'], tags)}"
    expected = EXPECTED.get(what) or error["msg"].removeprefix("Input should be ").removesuffix(".")
    return f"expected {expected}, got {given}"


def _short(value: object) -> str:
    text = repr(value)
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
