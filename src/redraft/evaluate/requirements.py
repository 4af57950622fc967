"""Requirements: what criteria ask for, as sentences for the writer, without data of any run."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from operator import methodcaller
from typing import TYPE_CHECKING, Any, cast, get_args, get_type_hints

from redraft._pointers import path_of
from redraft._texts import counted, limits_in_words, listed
from redraft.evaluate.checks import function_of
from redraft.evaluate.criteria import names_criterion, needs_model, required
from redraft.evaluate.function_words import messages_in, messages_of
from redraft.evaluate.regex_words import NUMBERS, as_json, phrase_of
from redraft.types import COUNTS, Issue, in_one_line, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.evaluate.function_words import FunctionMessage
    from redraft.evaluate.python_checks import PythonCheck
    from redraft.types import QualityCriterion

LONGEST = 240
"""The most characters of a sentence; longer sentences are left out, because they say too much."""
MOST_KEYS = 12
"""For an object with more keys, only the keys that an issue names become requirements."""
MOST_OPTIONS, MOST_ASSERTS = 12, 3
DEEPEST, MOST_PLACES, MOST_READINGS = 6, 200, 2
"""Limits on reading a schema: its depth, the number of places, and the readings of a part inside itself."""
ITEM, VALUE, OTHER = "*", "**", "***"
"""In a place: each item of a list, each key of an object, and each key that its schema does not name."""
EACH = {ITEM: "each item", VALUE: "each value", OTHER: "each other value"}

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement of a criterion."""

    text: str
    is_missed: Callable[[Issue], bool]
    """Whether an issue of the criterion is about this requirement."""
    is_test: bool = False
    """Whether it holds the expected value of a call: a writer that knew it before a failure would write for
    the tests."""


RUBRIC = "Your answer must meet these requirements:"

MOST_LINES = 40
"""The most requirements in a prompt."""


def rubric_of(criteria: Iterable[QualityCriterion]) -> str:
    """Render the requirements of criteria for the first draft; empty if none can be put into words."""
    return rubric_text(requirement_lines(criteria))


def rubric_text(requirements: Iterable[str], heading: str = RUBRIC) -> str:
    """Render requirements as a list without duplicates, which counts those beyond `MOST_LINES`."""
    lines = [f"- {line}" for line in dict.fromkeys(requirements)]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"- and {counted(len(lines) - MOST_LINES, 'more requirement')}"]
    return "\n".join([heading, *lines]) if lines else ""


def requirement_lines(criteria: Iterable[QualityCriterion]) -> Iterator[str]:
    """Yield the requirements of criteria that a writer may know before a draft has failed.

    Each criterion's description comes first, then the requirements in its configuration. Expected values of
    tests are left out, and so is everything that `QualityCriterion.shown` withholds.
    """
    for criterion in criteria:
        if criterion.shown and (_purpose(criterion) or needs_model(criterion)):
            yield _in_words(criterion)
        yield from (requirement.text for requirement in _configured(criterion) if not requirement.is_test)


def answer_schema(criteria: Iterable[QualityCriterion]) -> dict[str, Any] | None:
    """The JSON Schema of a whole answer, for providers that accept one; None unless there is exactly one.

    Only the schema of a criterion that is shown counts, with an object at the top, as providers require.
    """
    schemas = [
        schema
        for criterion in criteria
        if criterion.evaluator == "schema"
        and criterion.shown is True
        and not criterion.evaluator_config.get("path")
        for schema in [_schema_of(criterion)]
    ]
    return schemas[0] if len(schemas) == 1 and schemas[0].get("type") == "object" else None


def _purpose(criterion: QualityCriterion) -> str:
    if criterion.evaluator == "generated_tests" and not criterion.description:
        return "passes tests that somebody else wrote for this task"
    return criterion.description


def _in_words(criterion: QualityCriterion) -> str:
    name, description = criterion.name, _purpose(criterion)
    if not description or description.startswith(name.removesuffix("...")):  # a sentence names itself
        return description or name
    return f"{name}: {description}"


def requirements_of(criterion: QualityCriterion) -> list[Requirement]:
    """The requirements of a criterion, worded from its description and configuration alone.

    Leaves out criteria that a model judges, tests that a model wrote, and everything that the writer may not
    know (`QualityCriterion.shown`).
    """
    if criterion.shown is False or criterion.origin == "generated" or needs_model(criterion):
        return []
    configured, described = _configured(criterion), _sentence(unwrapped(criterion.description))
    if not criterion.description or len(described) > LONGEST:
        return configured
    return [Requirement(described, _always), *configured]


def _configured(criterion: QualityCriterion) -> list[Requirement]:
    """The requirements in the configuration of a check that its description does not mention."""
    if criterion.shown is not True or criterion.origin == "generated":
        return []
    read, described = _READERS.get(criterion.evaluator), _content(criterion.description)
    return [
        requirement
        for requirement in (read(criterion) if read else [])
        if len(requirement.text) <= LONGEST
        and not (criterion.description and _content(requirement.text) <= described)
    ]


def missed_requirements(criteria: Iterable[QualityCriterion], issues: Iterable[Issue]) -> list[str]:
    """The requirements of criteria that issues report as missed, without duplicates."""
    issues = list(issues)
    return list(
        dict.fromkeys(
            requirement.text
            for criterion in criteria
            for requirement in requirements_of(criterion)
            if any(issue.criterion == criterion.name and requirement.is_missed(issue) for issue in issues)
        )
    )


def _always(_issue: Issue) -> bool:
    return True


_ENDS = ("!", "?", ";", ":")


def _sentence(text: str) -> str:
    text = in_one_line(text).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(_ENDS) else '.'}"


_WORD = re.compile(r"[^\W_]+")
_FILLERS = frozenset(
    re.findall(
        r"\w+",
        "a an and answer are as at be by each exactly for has have holds in is it its key least most of one "
        "only or output required text that the this to with",
    )
)
_DIGITS = {word: str(number) for number, word in enumerate(NUMBERS)}


def _content(text: str) -> set[str]:
    """The names, numbers and nouns of a text."""
    words: list[str] = _WORD.findall(text.casefold())
    return {_DIGITS.get(word, word.removesuffix("s")) for word in words if word not in _FILLERS}


def _part(criterion: QualityCriterion) -> Place:
    """The part of a structured output to which a check applies."""
    path = criterion.evaluator_config.get("path")
    return path_of(path) if isinstance(path, str) else ()


def _subject(criterion: QualityCriterion) -> str:
    """The subject of a sentence about the checked part."""
    return _name(_part(criterion)) or "the text"


# Limits.


def _of_count(criterion: QualityCriterion) -> list[Requirement]:
    config, units = criterion.evaluator_config, criterion.evaluator
    least, most = config.get("at_least") or None, config.get("at_most")
    how = ', each a line that begins with "- "' if units == "bullets" and most != 0 else ""
    amount = _amount(least, most, units.removesuffix("s"))
    return [Requirement(_sentence(f"{_subject(criterion)} has {amount}{how}"), _always)]


def _amount(least: Any, most: Any, unit: str) -> str:
    """Limits with a unit, such as `at most 5 words`."""
    return f"{limits_in_words(least, most)} {unit}{'' if (least if most is None else most) == 1 else 's'}"


def _of_pattern(criterion: QualityCriterion) -> list[Requirement]:
    config = criterion.evaluator_config
    about = f"{criterion.name} {criterion.description}"
    phrase = phrase_of(required(criterion, "pattern"), str(config.get("flags", "")), about)
    least, most = config.get("min_matches"), config.get("max_matches")
    is_forbidden = config.get("must_match") is False or most == 0
    if criterion.description and (is_forbidden or not phrase.is_in_words):
        return []  # a person's own words say it better
    does = phrase.denied if is_forbidden else phrase.affirmed
    if not is_forbidden and (least or 1, most) != (1, None):
        does += f" {_amount(least or None, most, 'time')}"
    return [Requirement(_sentence(f"{_subject(criterion)} {does}"), _always)]


# Functions and tests.


def _of_function(criterion: QualityCriterion) -> list[Requirement]:
    if criterion.description:
        return []
    return _of_messages(messages_of(function_of(criterion)))


def _of_messages(messages: Iterable[FunctionMessage]) -> list[Requirement]:
    return [
        Requirement(_sentence(asked), message.is_said_by) for message in messages if (asked := message.asked)
    ]


@lru_cache(maxsize=256)
def requirements_in(code: str) -> tuple[str, ...]:
    """The requirements in the body of a check in Python: the fixed words of its messages."""
    return tuple(dict.fromkeys(_sentence(message.asked) for message in messages_in(code) if message.asked))


@names_criterion
def _of_command(criterion: QualityCriterion) -> list[Requirement]:
    from redraft.evaluate.command import runs_program  # noqa: PLC0415 (few criteria are commands)
    from redraft.evaluate.python_checks import read_calls, read_tests, tests_of  # noqa: PLC0415 (as above)

    config = criterion.evaluator_config
    if "calls" in config:
        return _of_checks(read_calls(config["calls"]))
    if "tests" in config and not runs_program(criterion):
        return _of_checks(read_tests(tests_of(config["tests"])))
    return []


def _of_checks(checks: list[PythonCheck]) -> list[Requirement]:
    asserted = dict(pair for check in checks if (pair := _asserted_in(check.source)) is not None)
    requirements: list[Requirement] = []
    for check in checks:
        if not check.counts:
            continue
        name = check.label.partition("(")[0].rpartition(".")[2]
        if check.expects_value:
            text = f"`{check.source}` is {check.expected!r}"
        elif name in asserted:
            text = f"The test {name} passes: {asserted[name]}"
        elif check.source.startswith("assert "):
            text = f"This holds: {unwrapped(check.source).removeprefix('assert ')}"
        else:
            continue
        requirements.append(
            Requirement(_sentence(text), methodcaller("startswith", check.label), is_test=True)
        )
    return requirements


def _asserted_in(source: str) -> tuple[str, str] | None:
    """The name of the test function in a source, and its docstring or top-level assertions."""
    [statement, *_] = ast.parse(source).body or [None]
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    docstring = ast.get_docstring(statement)
    asserts = [f"`{ast.unparse(node.test)}`" for node in statement.body if isinstance(node, ast.Assert)]
    text = docstring.splitlines()[0] if docstring else ", ".join(asserts[:MOST_ASSERTS])
    return (statement.name, text) if text else None


# Schemas.


def _of_schema(criterion: QualityCriterion) -> list[Requirement]:
    stated = _SchemaReader(_schema_of(criterion)).requirements(_part(criterion))
    for validate in _cached(_validators_of, required(criterion, "schema")):
        stated += _of_messages(messages_of(validate, returned=False))
    return stated


def _schema_of(criterion: QualityCriterion) -> dict[str, Any]:
    """The JSON Schema of a criterion; empty if there is none, or it allows anything."""
    from pydantic import PydanticUserError  # noqa: PLC0415 (its criterion has loaded it)

    schema = required(criterion, "schema")
    if not isinstance(schema, dict | bool):
        try:
            schema = _cached(_schema_of_class, schema)
        except PydanticUserError:  # the class has no JSON Schema
            return {}
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}


def _cached(read: Any, kind: Any) -> Any:
    """Call a cached function with a class, or with a schema or a type that can't be hashed."""
    try:
        return read(kind)
    except TypeError:
        return read.__wrapped__(kind)


@lru_cache(maxsize=64)  # programs often make a pattern for each run
def _schema_of_class(kind: Any) -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 (as above)

    return TypeAdapter[Any](kind).json_schema()


@lru_cache(maxsize=64)
def _validators_of(kind: Any) -> tuple[Callable[..., Any], ...]:
    """The functions with which a class, and the classes of its fields, refuse values."""
    pending, seen, found = deque[Any]([kind]), set[Any](), list[Callable[..., Any]]()
    while pending:
        part: Any = pending.popleft()
        pending += get_args(part)
        if isinstance(part, type) and part not in seen:
            seen.add(part)
            if (validators := getattr(part, "__pydantic_decorators__", None)) is not None:
                for group in (validators.field_validators, validators.model_validators):
                    found += [validator.func for validator in group.values()]
            if is_dataclass(part) and (validate := getattr(part, "__post_init__", None)) is not None:
                found.append(validate)
            with suppress(NameError, TypeError):  # the names of types that can't be found
                pending += get_type_hints(cast("Any", part), include_extras=True).values()
        elif type(annotated := cast("Any", part)).__name__ in ANNOTATED_VALIDATORS:
            found.append(annotated.func)
    return tuple(found)


@dataclass(slots=True)
class _SchemaReader:
    """Reads the requirements of a schema, place by place."""

    root: dict[str, Any]
    places: int = 0

    def requirements(self, part: Place) -> list[Requirement]:
        """The requirements for the whole output, or for the part to which the schema applies."""
        by_text = {requirement.text: requirement for requirement in self.read(self.root, part)}
        if part:
            text = _key(part, self.form(self._resolved(self.root)), required=True)
            by_text = {text: Requirement(text, _is_at(part)), **by_text}
        return list(by_text.values())

    def read(
        self, schema: Any, place: Place, depth: int = 0, around: tuple[str, ...] = ()
    ) -> Iterator[Requirement]:
        """Yield the requirements at a place and below it: its form, and for an object its keys.

        `around` has the references to the schema and to those that hold it.
        """
        if reference := _objects(schema).get("$ref"):
            around = (*around, str(reference))
        schema, self.places = self._resolved(schema), self.places + 1
        if depth > DEEPEST or self.places > MOST_PLACES or around.count(str(reference)) > MOST_READINGS:
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
        others = _objects(schema.get("patternProperties"))
        if properties and not others and schema.get("additionalProperties") is False:
            subject = f"{_name(place)} has" if place else "It has"
            keys = listed([_quoted(key) for key in properties])
            yield Requirement(_sentence(f"{subject} only the keys {keys}"), _is_at(place))
        below = list(properties.items())
        if "prefixItems" not in schema:
            below.append((ITEM, schema.get("items")))
        below.append((OTHER if properties or others else VALUE, schema.get("additionalProperties")))
        for key, inner in below:
            if isinstance(inner, dict) and (key in EACH or self._resolved(inner).keys() & HOLDING):
                yield from self.read(inner, (*place, key), depth + 1, around)
        options = [option for option in _options(schema) if _may_be_object(self._resolved(option))]
        for option in options:
            if not self._resolved(option).get("properties"):
                continue
            if len(options) == 1:
                yield from self.read(option, place, depth + 1, around)
            else:
                yield self._possible(self._resolved(option), place)

    def _possible(self, schema: dict[str, Any], place: Place) -> Requirement:
        """One of the forms that an object may have, in one sentence: a key is not required in the others."""
        text = self._possible_object(schema, place, briefly=False)
        if len(text) > LONGEST:
            text = self._possible_object(schema, place, briefly=True)
        return Requirement(text, _is_at(place, or_below=True))

    def _possible_object(self, schema: dict[str, Any], place: Place, *, briefly: bool) -> str:
        properties, required = _objects(schema.get("properties")), schema.get("required", ())
        keys: list[str] = []
        for key in dict.fromkeys([*required, *properties]):
            value = self._resolved(properties.get(key, {}))
            form = self.form(value, key) if "const" in value or not briefly else ""
            about = ", ".join(filter(None, (form, "" if key in required else "optional")))
            keys.append(_quoted(key) + (f" ({about})" if about else ""))
        subject = _name(place) or "it"
        verb = "hold" if subject.startswith("the key") else "be"
        only = "only " if schema.get("additionalProperties") is False else ""
        keys_in_order = f"the key{'s' * (len(keys) > 1)} {listed(keys)}"
        return _sentence(f"{subject} may {verb} an object with {only}{keys_in_order}")

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """A schema merged with its `$ref` and `allOf`; empty for true and false."""
        merged: dict[str, Any] = dict(cast("dict[str, Any]", schema)) if isinstance(schema, dict) else {}
        for _ in range(DEEPEST):
            reference = merged.pop("$ref", None)
            parts = merged.pop("allOf", ())
            if reference is None and not parts:
                break
            for part in map(_objects, (self._target(reference), *parts)):
                both = {
                    "properties": {**_objects(part.get("properties")), **_objects(merged.get("properties"))},
                    "required": [*merged.get("required", ()), *part.get("required", ())],
                }
                merged = {**part, **merged, **{key: value for key, value in both.items() if value}}
        return merged

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        target: Any = self.root
        for key in path_of(reference[1:]):
            target = cast("dict[str, Any]", target).get(key) if isinstance(target, dict) else None
        return target

    def form(self, schema: dict[str, Any], key: str = "", within: frozenset[int] = frozenset()) -> str:
        """The form of a value in words, here of the value of `key`; empty if anything is allowed.

        `within` has the ids of the alternatives around the schema, to which it may refer again.
        """
        if "const" in schema:
            return as_json(schema["const"])
        if isinstance(options := schema.get("enum"), list) and options:
            texts = [as_json(option) for option in cast("list[Any]", options)]
            more = [f"{len(texts) - MOST_OPTIONS} others"] if len(texts) > MOST_OPTIONS else []
            return f"one of {', '.join(texts[:MOST_OPTIONS] + more)}"
        if options := _options(schema):
            if id(options) in within:
                return ""
            inside = within | {id(options)}
            forms = [self.form(self._resolved(option), key, inside) for option in options]
            return " or ".join(dict.fromkeys(forms)) if all(forms) else ""
        implied = (name for name, keys in _IMPLIED if schema.keys() & set(keys))
        types = schema.get("type") or next(implied, "")
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
            parts += [words.format(schema[key]) for key, words in NUMBER_LIMITS.items() if key in schema]
        elif name == "array":
            parts += _bounds(schema, "minItems", "maxItems", "item")
            parts += ["without repetitions"] if schema.get("uniqueItems") is True else []
        return " ".join(parts)


HOLDING = frozenset(("properties", "items", "additionalProperties", "anyOf", "oneOf"))
"""The keywords of a schema that describe the inside of a value."""
ANNOTATED_VALIDATORS = frozenset(("AfterValidator", "BeforeValidator", "PlainValidator", "WrapValidator"))
"""The classes of pydantic, which need not be imported, for functions in `Annotated`."""
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
    "duration": "a duration (ISO 8601)",
    "email": "an e-mail address",
    "uri": "a URL",
    "uuid": "a UUID",
    "hostname": "a host name",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
}
NUMBER_LIMITS = {
    "exclusiveMinimum": "(above {})",
    "exclusiveMaximum": "(below {})",
    "multipleOf": "that is a multiple of {}",
}
_IMPLIED = (
    ("string", ("pattern", "format", "minLength", "maxLength")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ("object", ("properties", "required", "additionalProperties")),
    ("array", ("items", "minItems", "maxItems", "uniqueItems")),
)


def _options(schema: dict[str, Any]) -> list[Any]:
    options = schema.get("anyOf") or schema.get("oneOf")
    return cast("list[Any]", options) if isinstance(options, list) else []


def _may_be_object(schema: dict[str, Any]) -> bool:
    return "object" in schema.get("type", "object") and not schema.keys() & {"const", "enum"}


def _objects(properties: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}


def _bounds(schema: dict[str, Any], low: str, high: str, unit: str = "") -> list[str]:
    least, most = schema.get(low), schema.get(high)
    least = None if unit and least == 0 else least  # which every text and list has
    if least is None and most is None:
        return []
    return [f"({_amount(least, most, unit) if unit else limits_in_words(least, most)})"]


def _quoted(key: str) -> str:
    return f'"{key}"'


def _key(place: Place, form: str, *, required: bool) -> str:
    """Say what a key holds; empty for an optional key of any form."""
    if required:
        return _sentence(f"{_name(place)} is required{form and ' and holds '}{form}")
    return _sentence(f"{_name(place)} holds {form}") if form else ""


def _name(place: Place) -> str:
    """A place in words, such as `the key "price" of each item of "lines"`; empty for the whole."""
    if not place:
        return ""
    name = _short(place)
    return name if place[-1] in EACH or place[-1].isdecimal() else f"the key {name}"


def _short(place: Place) -> str:
    last, holder = place[-1], place[:-1]
    name = EACH.get(last) or (f"item {last}" if last.isdecimal() else _quoted(last))
    return f"{name} of {_short(holder)}" if holder else name


def _is_at(place: Place, *, or_below: bool = False) -> Callable[[Issue], bool]:
    """A test of whether an issue is about a place, or a place in it."""

    def is_missed(issue: Issue) -> bool:
        path = path_of(issue.path or "")
        path = path[: len(place)] if or_below else path
        return len(path) == len(place) and all(
            key == actual or key in EACH for key, actual in zip(place, path, strict=True)
        )

    return is_missed


def _misses(
    place: Place, key: str, about_key: Callable[[Issue], bool], *, few: bool
) -> Callable[[Issue], bool]:
    """A test of whether an issue is about a required key: the key itself, or the object without it.

    The issue of an object names the missing key. With `few` keys, it counts for the other keys, too.
    """
    about_object = _is_at(place)
    return lambda issue: about_key(issue) or (about_object(issue) and (few or repr(key) in issue))


_READERS: dict[str, Callable[[QualityCriterion], list[Requirement]]] = {
    "schema": _of_schema,
    "regex": _of_pattern,
    "function": _of_function,
    "command": _of_command,
    **dict.fromkeys(COUNTS, _of_count),
}
