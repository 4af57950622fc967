"""Check, coerce and score values against a JSON Schema."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from redraft.errors import ConfigError, OutputError
from redraft.text.replies import json_of
from redraft.text.schema_source import (
    MAX_CHECKS,
    MAX_COPIED,
    MAX_DEPTH,
    MAX_EXPLAINED,
    REFERENCES,
    ROOT,
    Cost,
    SchemaTree,
    Size,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


MAX_PROBLEMS = 100
MAX_BRANCHING = 10_000
BACKTRACKS = 100_000


@dataclass(frozen=True, slots=True)
class SchemaResult:
    """The outcome of a check: `value` is parsed and coerced; `omitted` counts problems that are not listed.

    `wrong_type` is True if the value as a whole has a type that the schema does not allow: a list instead of
    an object, say, or a string that holds no JSON.
    """

    valid: bool
    score: float
    value: Any
    errors: tuple[SchemaProblem, ...] = ()
    omitted: int = 0
    wrong_type: bool = False

    @property
    def suggestions(self) -> tuple[str, ...]:
        """What to do about the errors, without repetition."""
        return tuple(dict.fromkeys(error.suggestion for error in self.errors))


class Schema:
    """Check values against a JSON Schema of the draft that its `$schema` names, else of 2020-12.

    `$ref` can name parts of the schema and, with a `folder`, files inside it; nothing is ever fetched. As the
    standard has it, `format` is checked only for drafts before 2019-09. Raises `ConfigError` for a schema
    that is invalid, too large, or branches too much.
    """

    def __init__(self, given: dict[str, Any] | bool, folder: Path | None = None) -> None:
        import jsonschema_rs  # noqa: PLC0415 (on first use)

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
        self._takes_text = self._tree.allows_strings()
        if self._cost.explained(0) > MAX_BRANCHING:
            raise ConfigError(f"the schema has more than {MAX_BRANCHING:,} branches for one place")

    def is_valid(self, value: Any) -> bool:
        """Say whether a JSON value fits as it is; raises `ValueError` if it is no JSON, or too large."""
        self._affordable_size(value)
        return self._validator.is_valid(value)

    def check(self, output: Any, *, coerce: bool = True) -> SchemaResult:
        """Check an output: whether it fits, to what degree, and what to change.

        A string is read as JSON first, fenced or bare; if the schema allows strings (`type: string`,
        `pattern`), it may also be the value itself. With `coerce`, strings that hold just a number or a
        boolean are converted where the schema wants one.
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
        except (ValueError, TypeError) as error:  # not JSON, or too large to check
            message = f"The output is not a JSON value that can be checked: {error}."
            return _refused(value, message, "a JSON value", "Answer with a smaller, plain JSON value.")

    def faults_of(self, text: str, most: int) -> list[tuple[str, str]] | None:
        """Return the validator's messages for a JSON text, at most `most`, each with a JSON pointer.

        A fast path for callers that need neither a score nor the value; None means that `check` must be used.
        """
        if self._takes_text or len(text) > self._cheap_length:
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
    def _cheap_length(self) -> int:
        """The length up to which any text is cheap enough to check, whatever it holds."""
        looks = self._cost.explained(MAX_DEPTH)
        self._score = self._score or Score(self._tree)
        return min(
            MAX_CHECKS // max(1, self._cost.verdict),
            MAX_EXPLAINED // max(1, looks),
            MAX_COPIED // max(1, looks + self._score.total),
        )

    def _affordable_size(self, value: Any) -> Size:
        size = size_of(value)
        if size.nodes * self._cost.verdict > MAX_CHECKS:
            raise ValueError(f"{size.nodes:,} values are too many for a schema with so many branches")
        return size

    def _explained(self, value: Any, *, coerce: bool) -> SchemaResult:
        size = size_of(value)
        self._score = self._score or Score(self._tree)
        looks = self._cost.explained(size.depth)
        # Each error holds a copy of the value that it describes.
        copied = size.characters * (looks + self._score.total)
        if looks * size.nodes > MAX_EXPLAINED or copied > MAX_COPIED:
            return self._first_error_of(value, size)
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


def _refused(value: Any, message: str, expected: str, suggestion: str) -> SchemaResult:
    got = shown(value) if isinstance(value, str) else f"a {type(value).__name__}"
    problem = _problem_with_value(message, expected, got, suggestion)
    return SchemaResult(valid=False, score=0.0, value=value, errors=(problem,), wrong_type=True)


def _is_of_root_type(error: Any) -> bool:
    """Say whether an error is that the value as a whole has the wrong type."""
    return error.kind.name == "type" and not error.instance_path


def _problem_with_value(message: str, expected: str, got: str, suggestion: str) -> SchemaProblem:
    """Return a problem with the value as a whole, for which no rule of the schema stands."""
    return SchemaProblem("", message, "", expected, got, suggestion, detail=message)


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """One place where a value does not fit its schema: what was expected, what was found, and what to do.

    `path` is dotted, such as `a.1`, and empty for the whole value; `pointer` is the same place as a JSON
    pointer; `schema_path` points to the rule in the schema; `detail` is the validator's own message.
    """

    path: str
    message: str
    schema_path: str
    expected: str
    got: str
    suggestion: str
    detail: str
    pointer: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the problem as documented: path, message, schema_path, expected, got."""
        return {
            "path": self.path,
            "message": self.message,
            "schema_path": self.schema_path,
            "expected": self.expected,
            "got": self.got,
        }


MAX_ROUNDS = 6
MAX_DIGITS = 300
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""The strings that count as booleans, in lower case."""

Place = tuple[str | int, ...]
Key = tuple[Place, Place]
"""Identifies an error: its rule in the schema, and its place in the value."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_NOTHING = object()


def coerced(value: Any, errors: list[Any], errors_of: Callable[[Any], list[Any]]) -> tuple[Any, list[Any]]:
    """Convert strings to the types that the schema wants; return the new value and the errors that remain.

    A string is converted only if its type is an error, and if it holds nothing but the value and white space:
    `"12"`, `" -3"`, `"1.5"`, `"true"`, `"False"`, `"yes"`, `"no"`, `"1"`, `"0"`; never to null. Of `anyOf`
    and `oneOf`, the first branch that becomes valid is taken. The given value is not changed.
    """
    tried: set[Place] = set()
    branches: Counter[Key] = Counter()
    for _ in range(MAX_ROUNDS):
        changes = {place: new for place, new in _changes(errors, value) if place not in tried}
        tried |= set(changes)
        if changes:
            value, errors = _coerce_types(value, changes, errors_of)
            continue
        asked = {_key(error): _next_branch(error, value, branches) for error in errors if _is_choice(error)}
        asked = {key: changes for key, changes in asked.items() if changes}
        if not asked:
            break
        value, errors = _coerce_branches(value, asked, errors_of)
    return value, errors


def _coerce_types(
    value: Any, changes: dict[Place, Any], errors_of: Callable[[Any], list[Any]]
) -> tuple[Any, list[Any]]:
    """Change some places of a value, except where another part of the schema wants the string."""
    changed = _with(value, changes)
    errors = errors_of(changed)
    types = [error for error in errors if error.kind.name == "type" and "string" in error.kind.value]
    refused = {tuple(error.instance_path) for error in types} & set(changes)
    if not refused:
        return changed, errors
    changed = _with(value, {place: new for place, new in changes.items() if place not in refused})
    return changed, errors_of(changed)


def _coerce_branches(
    value: Any, asked: dict[Key, dict[Place, Any]], errors_of: Callable[[Any], list[Any]]
) -> tuple[Any, list[Any]]:
    """Change a value as branches ask for, and undo the changes that did not fix their error."""
    changed = _with(value, {place: new for changes in asked.values() for place, new in changes.items()})
    errors = errors_of(changed)
    failed = {_key(error) for error in errors} & set(asked)
    if not failed:
        return changed, errors
    mended = [changes for key, changes in asked.items() if key not in failed]
    changed = _with(value, {place: new for changes in mended for place, new in changes.items()})
    return changed, errors_of(changed)


def _next_branch(error: Any, value: Any, branches: Counter[Key]) -> dict[Place, Any]:
    """Return the changes that the next branch of an error asks for, skipping those that ask for none."""
    key = _key(error)
    while branches[key] < len(error.kind.value):
        branches[key] += 1
        changes = dict(_nested(error.kind.value[branches[key] - 1], value))
        if changes:
            return changes
    return {}


def _is_choice(error: Any) -> bool:
    return error.kind.name in ("anyOf", "oneOf")


def _nested(errors: Iterable[Any], value: Any) -> Iterable[tuple[Place, Any]]:
    """Yield the changes that the errors of a branch ask for; of nested branches, the first with any."""
    errors = list(errors)
    yield from _changes(errors, value)
    for error in errors:
        if _is_choice(error):
            for branch in error.kind.value:
                if asked := list(_nested(branch, value)):
                    yield from asked
                    break


def _key(error: Any) -> Key:
    return tuple(error.evaluation_path), tuple(error.instance_path)


def _changes(errors: Iterable[Any], value: Any) -> Iterable[tuple[Place, Any]]:
    for error in errors:
        if error.kind.name == "type":
            place: Place = tuple(error.instance_path)
            text = _at(value, place)
            new = as_type(text, error.kind.value) if isinstance(text, str) else _NOTHING
            if new is not _NOTHING:
                yield place, new


def as_type(text: str, types: Sequence[str]) -> Any:
    """Read a string as a value of one of the types; `_NOTHING` if it is none.

    Numbers take precedence over booleans: `"1"` is 1 if both are allowed.
    """
    text = text.strip()
    if len(text) > MAX_DIGITS:
        return _NOTHING
    if ("integer" in types or "number" in types) and _INTEGER.match(text):
        return int(text)
    if "number" in types and _NUMBER.match(text) and isfinite(float(text)):
        return float(text)
    return TRUTH.get(text.lower(), _NOTHING) if "boolean" in types else _NOTHING


def _at(value: Any, place: Place) -> Any:
    for key in place:
        value = value[key]
    return value


def _with(value: Any, changes: dict[Place, Any]) -> Any:
    """Return the value with some places changed; only the containers on the way to them are copied."""
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


_LEAVES = frozenset(
    """
type enum const minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern
minItems maxItems uniqueItems minProperties maxProperties contains minContains maxContains not format
contentEncoding contentMediaType if dependentRequired dependentSchemas dependencies
""".split()  # noqa: SIM905 (a list of quoted words is no easier to read)
)
_MANY = (
    *("items", "additionalItems", "additionalProperties", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_ALL = ("allOf", "prefixItems")
_CONDITIONAL = frozenset(("if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"))


class Score:
    """Score a value by the share of a schema's checks that it passes.

    Each assertion of a schema is one check, and so is each required key; those of every property and item
    that it describes are added.

    - A wrong type fails every check beneath it, and so does a missing required key.
    - Checks of an optional part that is absent pass.
    - The checks of items, additional and pattern properties count once for all of them: with a weight w and
      f failures among the items, w * f / (w + f) is lost.
    - Of `anyOf` and `oneOf`, the branch that comes nearest counts; `oneOf` is one check more.
    - What a condition asks for (`then`, `else`, `dependent...`) is one check.

    So the total depends on the schema alone, and fixing an error never lowers the score unless that reveals
    new ones. Only a value without errors scores 1.0.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self.tree = tree
        self._weights: dict[int, int] = {}
        self.total = max(1, self._weight(tree.root, ROOT))

    def of(self, errors: Iterable[Any]) -> float:
        """Return the score, from 0.0 to 1.0, of a value for which the validator found these errors."""
        lost = self._loss_of(errors)
        if not lost:
            return 1.0
        return min(max(0.0, 1.0 - lost / self.total), 1.0 - 1e-9)

    def _loss_of(self, errors: Iterable[Any]) -> float:
        lost = 0.0
        groups: dict[tuple[Any, ...], list[float]] = {}
        for error in errors:
            group, weight, loss = self._locate(error)
            if group is None:
                lost += loss
            else:
                groups.setdefault(group, [weight, 0.0])[1] += loss
        return lost + sum(weight * failed / (weight + failed) for weight, failed in groups.values())

    def _locate(self, error: Any) -> tuple[tuple[Any, ...] | None, float, float]:
        """Return the group of items that an error belongs to, if any, the group's weight, and the loss."""
        path: Sequence[Any] = error.evaluation_path
        node, base = self.tree.root, ROOT
        holder: Any = node
        group: tuple[Any, ...] | None = None
        weight = 1.0
        above = {id(node)}
        for place, key in enumerate(path):
            holder = node  # after the loop: the schema that holds the keyword that failed
            found = self._step(node, key, base)
            again = found is not None and key in REFERENCES and id(found[0]) in above
            if group is None and (key in _MANY or key in _CONDITIONAL or key == "patternProperties" or again):
                group = tuple(path[: place + 1])
                weight = 1.0 if again or found is None or key in _CONDITIONAL else self._least(*found)
            node, base = found or (None, base)
            above.add(id(node))
        return group, weight, self._loss(error, path[-1] if path else "", holder, base)

    def _step(self, node: Any, key: Any, base: str) -> tuple[Any, str] | None:
        if isinstance(node, dict) and key in node:
            inner = cast("dict[Any, Any]", node)[key]
            return (self.tree.target(inner, base)) if key in REFERENCES else (inner, base)
        if isinstance(node, list) and isinstance(key, int) and key < len(cast("list[Any]", node)):
            return cast("list[Any]", node)[key], base
        return None

    def _loss(self, error: Any, keyword: Any, holder: Any, base: str) -> float:
        schema = cast("dict[str, Any]", holder) if isinstance(holder, dict) else {}
        kind, value = error.kind.name, error.kind.value
        if kind == "type":
            return self._least(schema, base)
        if kind == "required" and keyword == "required":
            described = schema.get("properties", {})
            return 1 + (self._weight(described[value], base) if value in described else 0)
        if kind in ("anyOf", "oneOf") and isinstance(schema.get(kind), list):
            nearest = min(
                (self._share(schema[kind], place, context, base) for place, context in enumerate(value))
            )
            return (kind == "oneOf") + nearest * self._nearest(schema[kind], base)
        if kind in ("additionalProperties", "unevaluatedProperties", "unevaluatedItems") and value:
            return len(value)
        return 1

    def _share(self, branches: list[Any], place: int, context: list[Any], base: str) -> float:
        """Return the share of a branch that is lost."""
        weight = self._least(branches[place], base) if place < len(branches) else 1
        return min(1.0, self._loss_of(context) / weight)

    def _nearest(self, branches: list[Any], base: str) -> int:
        return max((self._least(branch, base) for branch in branches), default=1)

    def _least(self, schema: Any, base: str) -> int:
        return max(1, self._weight(schema, base))

    def _weight(self, schema: Any, base: str) -> int:
        if not isinstance(schema, dict):
            return 1 if schema is False else 0
        node = cast("dict[str, Any]", schema)
        if id(node) not in self._weights:
            self._weights[id(node)] = 1  # a schema inside itself counts as one check
            self._weights[id(node)] = min(
                sum(self._checks_of(key, value, base) for key, value in node.items()), 10**9
            )
        return self._weights[id(node)]

    def _checks_of(self, key: str, value: Any, base: str) -> int:
        """Return how many checks a keyword makes."""
        if key in _LEAVES:
            return 1
        if key in REFERENCES:
            found = self.tree.target(value, base)
            return 1 if found is None else self._weight(*found)
        if key in _MANY:
            return self._least(value, base) if value is not True else 0
        if isinstance(value, list):
            return self._checks_of_list(key, cast("list[Any]", value), base)
        if key in ("properties", "patternProperties") and isinstance(value, dict):
            inner = cast("dict[str, Any]", value).values()
            return sum(self._weight(one, base) or (key != "properties") for one in inner)
        return 0

    def _checks_of_list(self, key: str, value: list[Any], base: str) -> int:
        if key in ("anyOf", "oneOf"):
            return (key == "oneOf") + self._nearest(value, base)
        if key in _ALL:
            return sum(self._weight(inner, base) for inner in value)
        return len(value) if key == "required" else 0


MAX_SHOWN = 80
MAX_DETAIL = 300
MAX_OPTIONS = 12
MAX_BRANCHES = 5


def problem_of(error: Any, value: Any) -> SchemaProblem:
    """Describe an error of the validator; `value` is the whole value that was checked."""
    place: Place = tuple(error.instance_path)
    at = ".".join(map(str, place))
    got = shown(_at(value, place))
    kind = error.kind.name
    expected, suggestion = _WORDS.get(kind, _other)(error, f"{at!r}" if at else "the value")
    where = at or "The value"
    message = f"{where}: expected {expected}, got {got}" if kind not in _BARE else f"{where}: {expected}"
    rule = pointer(error.schema_path)
    return SchemaProblem(at, message, rule, expected, got, suggestion, detail_of(error), pointer(place))


def detail_of(error: Any) -> str:
    """Return the validator's own message, shortened."""
    words: str = error.message
    return words if len(words) <= MAX_DETAIL else f"{words[:MAX_DETAIL]}..."


def shown(value: Any) -> str:
    """Return a value as JSON, shortened; a large list or object only as its size."""
    if isinstance(value, str):
        short = value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 3] + "..."
        return json.dumps(short, ensure_ascii=False)
    if isinstance(value, list | tuple | dict):
        return _shown_holder(cast("list[Any] | dict[str, Any]", value))
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _shown_holder(holder: list[Any] | dict[str, Any]) -> str:
    inside = list(holder.values()) if isinstance(holder, dict) else holder
    if len(inside) <= MAX_OPTIONS and not any(isinstance(inner, list | dict) for inner in inside):
        # Cut before encoding, so that a large value is never written out in full.
        text = json.dumps(
            {_cut(key): _cut(inner) for key, inner in holder.items()}
            if isinstance(holder, dict)
            else [_cut(inner) for inner in inside],
            ensure_ascii=False,
        )
        if len(text) <= MAX_SHOWN:
            return text
    return f"{'an object' if isinstance(holder, dict) else 'a list'} of {len(inside)}"


def _cut(value: Any) -> Any:
    return value[:MAX_SHOWN] if isinstance(value, str) else value


def pointer(path: Sequence[str | int]) -> str:
    """Render a path as a JSON pointer (RFC 6901)."""
    if not path:
        return ""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


Words = tuple[str, str]
"""What was expected, and what to do."""

_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


def _type(error: Any, at: str) -> Words:
    names: list[str] = error.kind.value
    expected = " or ".join(_TYPES[name] for name in names)
    return expected, f"Make {at} {expected}."


def _required(error: Any, at: str) -> Words:
    name = error.kind.value
    return f"the key {name!r} is required, and missing", f"Add the key {name!r} to {at}."


def _options(error: Any, at: str) -> Words:
    options: list[Any] = error.kind.value
    listed = ", ".join(shown(option) for option in options[:MAX_OPTIONS])
    more = f" or {len(options) - MAX_OPTIONS} others" if len(options) > MAX_OPTIONS else ""
    return f"one of {listed}{more}", f"Set {at} to one of {listed}{more}."


def _constant(error: Any, at: str) -> Words:
    return shown(error.kind.value), f"Set {at} to {shown(error.kind.value)}."


def _limit(words: str) -> Callable[[Any, str], Words]:
    def put(error: Any, at: str) -> Words:
        expected = words.format(error.kind.value)
        return expected, f"Make {at} {expected}."

    return put


def _count(words: str, thing: str, advice: str) -> Callable[[Any, str], Words]:
    def put(error: Any, at: str) -> Words:
        count = error.kind.value
        noun = thing if count == 1 else {"property": "properties"}.get(thing, thing + "s")
        return f"{words} {count} {noun}", f"{advice} {at}: it needs {words} {count} {noun}."

    return put


def _pattern(error: Any, at: str) -> Words:
    if type(error.kind).__name__ != "Pattern":  # the engine gave up
        return "a text that its pattern can be tried on in time", f"Shorten {at}, or simplify its pattern."
    return f"a text that matches {error.kind.value}", f"Rewrite {at} so that it matches {error.kind.value}."


def _format(error: Any, at: str) -> Words:
    return f"a text in the format {error.kind.value!r}", f"Write {at} in the format {error.kind.value!r}."


def _unique(_error: Any, at: str) -> Words:
    return "items that all differ", f"Remove the items of {at} that repeat others."


def _contains(error: Any, at: str) -> Words:
    if error.schema_path[-1:] == ["maxContains"]:
        return "fewer items of the kind that 'contains' describes", f"Remove matching items from {at}."
    return "more items of the kind that 'contains' describes", f"Add a matching item to {at}."


def _unexpected(error: Any, at: str) -> Words:
    names: list[str] = error.kind.value
    listed = ", ".join(shown(name) for name in names[:MAX_OPTIONS])
    return f"nothing else, and {listed} is not allowed", f"Remove {listed} from {at}."


def _too_many(error: Any, at: str) -> Words:
    count = error.kind.value
    return f"at most {count} items", f"Remove items from {at}: at most {count} are allowed."


def _false(error: Any, at: str) -> Words:
    if error.schema_path[-1:] == [
        "additionalProperties"
    ]:  # how the validator reports keys that are not allowed
        return "an object without other keys", f"Remove the keys of {at} that the schema does not name."
    return "nothing here", f"Remove {at}: it is not allowed."


def _not(error: Any, at: str) -> Words:
    denied = shown(error.kind.value)
    return f"a value that does not fit {denied}", f"Change {at} so that it does not fit {denied}."


def _name(error: Any, at: str) -> Words:
    inner = error.kind.value
    expected, _ = _WORDS.get(inner.kind.name, _other)(inner, "the name")
    name = shown(inner.instance)
    return f"names of keys that are {expected}, and {name} is not", f"Rename the key {name} of {at}."


def _branches(error: Any, at: str) -> Words:
    branches: list[list[Any]] = error.kind.value
    if not all(branches):
        return "a value that fits exactly one of the alternatives", f"Make {at} fit only one alternative."
    depth = len(error.instance_path)
    ways = "; or ".join(dict.fromkeys(_first(branch, depth) for branch in branches[:MAX_BRANCHES]))
    return f"one of these alternatives: {ways}", f"Make {at} fit one of the alternatives: {ways}."


def _first(branch: list[Any], depth: int) -> str:
    error = branch[0]
    if error.kind.name in ("anyOf", "oneOf"):  # alternatives of alternatives would only confuse
        return "another set of alternatives"
    expected, _ = _WORDS.get(error.kind.name, _other)(error, "it")
    inside = ".".join(map(str, error.instance_path[depth:]))
    return f"{inside}: {expected}" if inside else expected


def _other(error: Any, at: str) -> Words:
    message = str(error.message)[: 2 * MAX_SHOWN]
    return f"what {error.kind.name!r} asks for ({message})", f"Change {at} as {error.kind.name!r} asks."


_BARE = frozenset(
    ("required", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames")
)
"""Kinds whose message does not show the value, which is often large and would add nothing."""

_WORDS: dict[str, Callable[[Any, str], Words]] = {
    "type": _type,
    "required": _required,
    "enum": _options,
    "const": _constant,
    "minimum": _limit("at least {}"),
    "maximum": _limit("at most {}"),
    "exclusiveMinimum": _limit("greater than {}"),
    "exclusiveMaximum": _limit("less than {}"),
    "multipleOf": _limit("a multiple of {}"),
    "minLength": _count("at least", "character", "Lengthen"),
    "maxLength": _count("at most", "character", "Shorten"),
    "minItems": _count("at least", "item", "Add items to"),
    "maxItems": _count("at most", "item", "Remove items from"),
    "minProperties": _count("at least", "property", "Add keys to"),
    "maxProperties": _count("at most", "property", "Remove keys from"),
    "pattern": _pattern,
    "format": _format,
    "uniqueItems": _unique,
    "contains": _contains,
    "additionalProperties": _unexpected,
    "unevaluatedProperties": _unexpected,
    "unevaluatedItems": _unexpected,
    "additionalItems": _too_many,
    "falseSchema": _false,
    "not": _not,
    "propertyNames": _name,
    "anyOf": _branches,
    "oneOf": _branches,
}
