"""Requirements: what criteria ask for, as sentences for the next writer, without data of any run."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from textwrap import dedent
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

from redraft._texts import listed
from redraft.evaluate.checks import function_of
from redraft.evaluate.command import runs_program
from redraft.evaluate.criteria import needs_model
from redraft.evaluate.patterns import as_json, limits_in_words, phrase_of
from redraft.evaluate.python_checks import read_calls, read_tests, tests_of
from redraft.types import COUNTS, Issue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from redraft.evaluate.python_checks import PythonCheck
    from redraft.types import QualityCriterion

LONGEST = 240
"""The most characters of a sentence; a longer one says too much to be remembered."""
MOST_KEYS = 12
"""Of an object with more keys, only those are required in words that an issue names."""
MOST_OPTIONS, MOST_ASSERTS = 12, 3
DEEPEST, MOST_PLACES = 6, 200
"""How deep a schema is read, and how many places of it."""
ITEM, VALUE = "*", "**"
"""Stand in a place for each item of a list, and for each key that a schema does not name."""
EACH = {ITEM: "each item", VALUE: "each value"}

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that a criterion asks for, and how to tell whether an issue of that criterion is about it."""

    text: str
    is_missed: Callable[[Issue], bool]


def requirements_of(criterion: QualityCriterion) -> list[Requirement]:
    """Return what a criterion asks for, in words of its configuration and description alone.

    Nothing is said of a criterion that a model judges, of tests that a model wrote, and of what the writer
    may not know (`QualityCriterion.shown`).
    """
    if criterion.shown is False or criterion.origin == "generated" or needs_model(criterion):
        return []
    if criterion.shown == "description":
        texts = [Requirement(_described(criterion), _always)] if criterion.description else []
    elif criterion.evaluator == "schema":
        texts = _of_schema(criterion)
    elif criterion.evaluator in COUNTS:
        texts = [Requirement(_limit(criterion), _always)]
    elif criterion.evaluator == "regex":
        texts = [Requirement(_matching(criterion), _always)]
    elif criterion.evaluator == "function":
        texts = _of_function(criterion)
    elif criterion.evaluator == "command":
        texts = _of_command(criterion)
    else:
        texts = [Requirement(_described(criterion), _always)] if criterion.description else []
    return [one for one in texts if len(one.text) <= LONGEST]


def missed_requirements(criteria: Iterable[QualityCriterion], issues: Iterable[Issue]) -> list[str]:
    """Return what criteria ask for that issues say is missing, each once."""
    issues = list(issues)
    return list(
        dict.fromkeys(
            requirement.text
            for criterion in criteria
            for requirement in requirements_of(criterion)
            if any(one.criterion == criterion.name and requirement.is_missed(one) for one in issues)
        )
    )


def _always(_issue: Issue) -> bool:
    return True


_ENDS = ("!", "?", ";", ":")


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(_ENDS) else '.'}"


def _described(criterion: QualityCriterion, form: str = "") -> str:
    """Return the description of a criterion, or its name, with the form that it asks for."""
    parts = (criterion.description or (criterion.name if form else ""), form)
    return _sentence(": ".join(part.strip().rstrip(".") for part in parts if part))


def _part(criterion: QualityCriterion) -> Place:
    """Return the part of a structured output that a check is about."""
    path = criterion.evaluator_config.get("path")
    return _place(path) if isinstance(path, str) else ()


def _place(path: str | None) -> Place:
    parts = (path or "").split("/")[1:]
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


# Limits.


def _limit(criterion: QualityCriterion) -> str:
    config, unit = criterion.evaluator_config, criterion.evaluator
    subject = _name(_part(criterion)) or "the text"
    least, most = config.get("at_least") or None, config.get("at_most")
    unit = unit.removesuffix("s") if (least if most is None else most) == 1 else unit
    how = ', each a line that begins with "- "' if criterion.evaluator == "bullets" and most != 0 else ""
    return _sentence(f"{subject} has {limits_in_words(least, most)} {unit}{how}")


def _matching(criterion: QualityCriterion) -> str:
    config = criterion.evaluator_config
    about = f"{criterion.name} {criterion.description}"
    phrase = phrase_of(config["pattern"], str(config.get("flags", "")), about)
    subject = _name(_part(criterion)) or "the text"
    least, most = config.get("min_matches"), config.get("max_matches")
    is_forbidden = config.get("must_match") is False or most == 0
    if is_forbidden:
        form = f"{subject} {phrase.denied}"
    elif least is None and most is None:
        form = f"{subject} {phrase.affirmed}"
    else:
        form = f"{subject} {phrase.affirmed} {limits_in_words(least or None, most)} times"
    if not criterion.description:
        return _sentence(form)
    # What must not be there is clear from a person's own words.
    return _described(criterion, form if phrase.is_in_words and not is_forbidden else "")


# Functions and tests.


def _of_function(criterion: QualityCriterion) -> list[Requirement]:
    if criterion.description:
        return [Requirement(_described(criterion), _always)]
    return [
        Requirement(_sentence(message.asked), message.is_said_by)
        for message in _messages_of(function_of(criterion))
        if message.asked
    ]


@dataclass(frozen=True, slots=True)
class _Message:
    """A message that a check function may return: its fixed words, and None for each value of the output.

    Fixed words, such as "Use at most five words.", hold no data of a run; so do constants of the module.
    """

    parts: tuple[str | None, ...]

    @property
    def asked(self) -> str:
        """Return what it asks for: its words before the clause with the first value, if there are several."""
        first = self.parts[0] or ""
        if self.parts == (first,):
            return first if " " in first.strip() else ""
        ends = list(_CLAUSE_END.finditer(first))
        return first[: ends[-1].start()] if ends else ""

    def is_said_by(self, issue: Issue) -> bool:
        words = "".join(".*" if part is None else re.escape(part) for part in self.parts)
        return re.fullmatch(words, issue.message, re.DOTALL) is not None


_CLAUSE_END = re.compile(r"[;.!?]\s|, (?=but |not |got )")
"""Between what a message asks for and what it says of an output: `Use at most 2 links; there are ...`."""


@lru_cache(maxsize=256)
def _messages_of(function: Callable[..., Any]) -> tuple[_Message, ...]:
    """Return the texts in a function that could be its messages, each once, in their order."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None:
        return ()
    try:
        tree = ast.parse(dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):  # typed at a prompt, or a lambda that is a part of a statement
        return tuple(_Message((text,)) for text in dict.fromkeys(_constants_of(code)))
    nodes = list(ast.walk(tree))
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inner |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    texts = [
        node
        for node in nodes
        if isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner)
    ]
    constants = {
        name: value
        for name, value in getattr(function, "__globals__", {}).items()
        if isinstance(value, str | int | float) and name not in code.co_varnames
    }
    in_order = sorted(texts, key=lambda node: (node.lineno, node.col_offset))
    return tuple(dict.fromkeys(_message(node, constants) for node in in_order))


def _message(text: ast.expr, constants: Mapping[str, object]) -> _Message:
    """Read a string or an f-string, in which the values of `constants` are known."""
    parts: list[str | None] = [""]
    for node in text.values if isinstance(text, ast.JoinedStr) else [text]:
        part = _fixed(node, constants)
        if part is None or parts[-1] is None:
            parts.append(part)
        else:
            parts[-1] += part
    return _Message(tuple(parts))


def _fixed(node: ast.expr, constants: Mapping[str, object]) -> str | None:
    """Return what a part of an f-string says always, or None if that depends on the output."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name) and not node.format_spec:
        value = constants.get(node.value.id)
        if value is not None and node.conversion in (-1, ord("s"), ord("r")):
            return repr(value) if node.conversion == ord("r") else str(value)
    return None


def _constants_of(code: CodeType) -> Iterator[str]:
    """Yield the texts that are constants of a function."""
    for constant in code.co_consts:
        if isinstance(constant, tuple):
            yield from (one for one in cast("tuple[object, ...]", constant) if isinstance(one, str))
        elif isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _constants_of(constant)


def _begins_with(text: str) -> Callable[[Issue], bool]:
    return lambda issue: issue.startswith(text)


def _of_command(criterion: QualityCriterion) -> list[Requirement]:
    config = criterion.evaluator_config
    found = [Requirement(_described(criterion), _always)] if criterion.description else []
    if "calls" in config:
        return found + _of_checks(read_calls(criterion, config["calls"]))
    if "tests" in config and not runs_program(criterion):
        return found + _of_checks(read_tests(criterion, tests_of(criterion, config["tests"])))
    return found


def _of_checks(checks: list[PythonCheck]) -> list[Requirement]:
    asserted = dict(pair for check in checks if (pair := _asserted_in(check.source)) is not None)
    found: list[Requirement] = []
    for check in checks:
        if not check.counts:
            continue
        name = check.shown.partition("(")[0].rpartition(".")[2]
        if check.expects_value:
            text = f"`{check.source}` is {check.expected!r}"
        elif name in asserted:
            text = f"The test {name} passes: {asserted[name]}"
        elif check.source.startswith("assert "):
            text = f"This holds: {check.source.removeprefix('assert ')}"
        else:
            continue
        found.append(Requirement(_sentence(text), _begins_with(check.shown)))
    return found


def _asserted_in(source: str) -> tuple[str, str] | None:
    """Return the name of the test function that a source defines, and what it asserts outside of loops."""
    [statement, *_] = ast.parse(source).body or [None]
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    said = ast.get_docstring(statement)
    asserts = [f"`{ast.unparse(one.test)}`" for one in statement.body if isinstance(one, ast.Assert)]
    text = said.splitlines()[0] if said else ", ".join(asserts[:MOST_ASSERTS])
    return (statement.name, text) if text else None


# Schemas.


def _of_schema(criterion: QualityCriterion) -> list[Requirement]:
    schema = criterion.evaluator_config["schema"]
    if not isinstance(schema, dict | bool):  # a class
        from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415 (its criterion has loaded it)

        try:
            schema = TypeAdapter[Any](schema).json_schema()
        except PydanticUserError:  # it has no JSON Schema
            return []
    if not isinstance(schema, dict):
        return []
    return _SchemaReader(cast("dict[str, Any]", schema)).requirements(_part(criterion))


@dataclass(slots=True)
class _SchemaReader:
    """Reads the requirements of a schema, place by place."""

    root: dict[str, Any]
    places: int = 0

    def requirements(self, part: Place) -> list[Requirement]:
        """Return what is required of a whole output, or of the part of it that the schema is about."""
        found = {one.text: one for one in self.read(self.root, part)}
        if part:
            text = _key(part, self.form(self._resolved(self.root)), required=True)
            found = {text: Requirement(text, _is_at(part)), **found}
        return list(found.values())

    def read(self, schema: Any, place: Place, depth: int = 0) -> Iterator[Requirement]:
        """Yield what is required at a place and below it: its form, and for an object its keys."""
        schema, self.places = self._resolved(schema), self.places + 1
        if depth > DEEPEST or self.places > MOST_PLACES:
            return
        form = self.form(schema)
        if not place and form:
            whole = form.replace("an object", "one JSON object", 1).replace("a list", "one JSON list", 1)
            yield Requirement(_sentence(whole), _is_at(place))
        elif place and place[-1] in EACH and form:
            yield Requirement(_sentence(f"{_name(place)} is {form}"), _is_at(place))
        properties, required = _objects(schema.get("properties")), schema.get("required", ())
        for key in dict.fromkeys([*required, *properties]):
            inner = (*place, key)
            text = _key(
                inner, self.form(self._resolved(properties.get(key, {})), key), required=key in required
            )
            if text:
                about_key, few = _is_at(inner), len(required) <= MOST_KEYS
                missed = _misses(place, key, about_key, few=few) if key in required else about_key
                yield Requirement(text, missed)
        if properties and schema.get("additionalProperties") is False:
            subject = f"{_name(place)} has" if place else "It has"
            keys = listed([_quoted(key) for key in properties])
            yield Requirement(_sentence(f"{subject} only the keys {keys}"), _is_at(place))
        below = [(key, properties[key]) for key in properties]
        below += [(ITEM, schema.get("items")), (VALUE, schema.get("additionalProperties"))]
        for key, inner in below:
            if isinstance(inner, dict):
                yield from self._below(cast("dict[str, Any]", inner), (*place, key), depth + 1)
        for option in _options(schema):
            if self._resolved(option).get("properties"):
                yield from self.read(option, place, depth + 1)

    def _below(self, schema: dict[str, Any], place: Place, depth: int) -> Iterator[Requirement]:
        resolved = self._resolved(schema)
        if place[-1] in EACH or resolved.keys() & HOLDING:
            yield from self.read(resolved, place, depth)

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Return a schema with what it refers to, and all that `allOf` adds; empty for true and false."""
        found: dict[str, Any] = dict(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else {}
        for _ in range(DEEPEST):
            reference = found.pop("$ref", None)
            parts = found.pop("allOf", ())
            if reference is None and not parts:
                break
            for part in (self._target(reference), *parts):
                if isinstance(part, dict):
                    found = {**cast("dict[str, Any]", part), **found}
        return found

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        target: Any = self.root
        for key in _place(reference[1:]):
            target = cast("dict[str, Any]", target).get(key) if isinstance(target, dict) else None
        return target

    def form(self, schema: dict[str, Any], key: str = "") -> str:
        """Return the form of a value in words, that of a key if it has one; empty if anything is allowed."""
        if "const" in schema:
            return as_json(schema["const"])
        if isinstance(options := schema.get("enum"), list):
            shown = [as_json(option) for option in cast("list[Any]", options)]
            more = [f"{len(shown) - MOST_OPTIONS} others"] if len(shown) > MOST_OPTIONS else []
            return f"one of {', '.join(shown[:MOST_OPTIONS] + more)}"
        if options := _options(schema):
            forms = [self.form(self._resolved(option), key) for option in options]
            return " or ".join(dict.fromkeys(forms)) if all(forms) else ""
        types = schema.get("type") or _implied_type(schema)
        names = cast("list[str]", types) if isinstance(types, list) else [types] if types else []
        return " or ".join(self._of_type(name, schema, key) for name in names if name in TYPES)

    def _of_type(self, name: str, schema: dict[str, Any], key: str) -> str:
        parts = [TYPES[name]]
        if name == "string":
            parts = [FORMATS.get(str(schema.get("format")), TYPES[name])]
            if pattern := schema.get("pattern"):
                phrase = phrase_of(str(pattern), about=f"{key} {schema.get('description', '')}")
                parts = [phrase.rest] if phrase.base == "be" else [*parts, phrase.relative]
            parts += _bounds(schema, "minLength", "maxLength", "character")
        elif name in ("integer", "number"):
            parts += _bounds(schema, "minimum", "maximum")
            parts += [f"(above {schema[key]})" for key in ("exclusiveMinimum",) if key in schema]
            parts += [f"(below {schema[key]})" for key in ("exclusiveMaximum",) if key in schema]
            parts += [f"that is a multiple of {schema[key]}" for key in ("multipleOf",) if key in schema]
        elif name == "array":
            parts += _bounds(schema, "minItems", "maxItems", "item")
            parts += ["without repetitions"] if schema.get("uniqueItems") is True else []
        return " ".join(parts)


HOLDING = frozenset(("properties", "items", "additionalProperties", "anyOf", "oneOf"))
"""The keywords of a schema for what is inside a value."""
TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
FORMATS = {
    "date": "a date (YYYY-MM-DD)",
    "date-time": "a date and time (ISO 8601)",
    "time": "a time (hh:mm:ss)",
    "email": "an e-mail address",
    "uri": "a URL",
    "uuid": "a UUID",
}
_IMPLIED = (
    ("string", ("pattern", "format", "minLength", "maxLength")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ("object", ("properties", "required", "additionalProperties")),
    ("array", ("items", "minItems", "maxItems", "uniqueItems")),
)


def _implied_type(schema: dict[str, Any]) -> str:
    return next((name for name, keys in _IMPLIED if schema.keys() & set(keys)), "")


def _options(schema: dict[str, Any]) -> list[Any]:
    options = schema.get("anyOf") or schema.get("oneOf")
    return cast("list[Any]", options) if isinstance(options, list) else []


def _objects(properties: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}


def _bounds(schema: dict[str, Any], low: str, high: str, unit: str = "") -> list[str]:
    least, most = schema.get(low), schema.get(high)
    if least is None and most is None:
        return []
    plural, limits = "" if (least if most is None else most) == 1 else "s", limits_in_words(least, most)
    return [f"({limits} {unit}{plural})" if unit else f"({limits})"]


def _quoted(key: str) -> str:
    return f'"{key}"'


def _key(place: Place, form: str, *, required: bool) -> str:
    """Say what a key holds; empty for an optional key of any form."""
    if required:
        return _sentence(f"{_name(place)} is required{form and ' and holds '}{form}")
    return _sentence(f"{_name(place)} holds {form}") if form else ""


def _name(place: Place) -> str:
    """Return what to call a place, such as `the key "price" of each item of "lines"`; empty for the whole."""
    if not place:
        return ""
    name = _short(place)
    return name if place[-1] in EACH or place[-1].isdecimal() else f"the key {name}"


def _short(place: Place) -> str:
    last, holder = place[-1], place[:-1]
    name = EACH.get(last) or (f"item {last}" if last.isdecimal() else _quoted(last))
    return f"{name} of {_short(holder)}" if holder else name


def _is_at(place: Place) -> Callable[[Issue], bool]:
    """Return what tells whether an issue is about a place."""

    def is_missed(issue: Issue) -> bool:
        found = _place(issue.path)
        return len(found) == len(place) and all(
            wanted == part or wanted in EACH for wanted, part in zip(place, found, strict=True)
        )

    return is_missed


def _misses(
    place: Place, key: str, about_key: Callable[[Issue], bool], *, few: bool
) -> Callable[[Issue], bool]:
    """Return what tells whether an issue is about a required key: the key, or the object without it.

    The issue of an object names the key that is missing; of `few` keys, the others are worth a word, too.
    """
    about_object = _is_at(place)
    return lambda issue: about_key(issue) or (about_object(issue) and (few or repr(key) in issue))
