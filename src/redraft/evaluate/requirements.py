"""Requirements: what criteria ask for, as sentences for the writer, without data of any run."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from textwrap import indent
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._pointers import path_of
from redraft._texts import listed
from redraft.evaluate.checks import function_of
from redraft.evaluate.command import runs_program
from redraft.evaluate.criteria import needs_model, required
from redraft.evaluate.patterns import NUMBERS, as_json, limits_in_words, phrase_of
from redraft.evaluate.python_checks import read_calls, read_tests, tests_of
from redraft.types import COUNTS, Issue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import CodeType

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
    """One thing that a criterion asks for, and how to tell whether an issue of that criterion is about it.

    `is_test` says that it holds the expected value of a call: a writer that knew it before its draft has
    failed would write for the tests.
    """

    text: str
    is_missed: Callable[[Issue], bool]
    is_test: bool = False


RUBRIC = "Your answer must meet these requirements:"

MOST_LINES = 40
"""How many requirements a prompt lists at most."""


def rubric_of(criteria: Iterable[QualityCriterion]) -> str:
    """Render what criteria ask for, for the first draft; empty if they ask for nothing in words."""
    return rubric_text(requirement_lines(criteria))


def rubric_text(requirements: Iterable[str], heading: str = RUBRIC) -> str:
    """Render requirements as a list, each once; empty without any."""
    lines = [f"- {line}" for line in dict.fromkeys(requirements)]
    return "\n".join([heading, *lines[:MOST_LINES]]) if lines else ""


def requirement_lines(criteria: Iterable[QualityCriterion]) -> Iterator[str]:
    """Yield what criteria ask for, as far as a writer may know it before a draft has failed.

    Each criterion's description comes first, then what its configuration asks for besides. Expected values of
    tests are left out, and so is what `QualityCriterion.shown` withholds.
    """
    for criterion in criteria:
        if criterion.shown and (_purpose(criterion) or needs_model(criterion)):
            yield _in_words(criterion)
        yield from (one.text for one in _configured(criterion) if not one.is_test)


def answer_schema(criteria: Iterable[QualityCriterion]) -> dict[str, Any] | None:
    """Return the JSON Schema of a whole answer, for providers that take it; None unless there is exactly one.

    It belongs to a criterion that is shown, and has an object at the top, which is what providers take.
    """
    found = [
        schema
        for one in criteria
        if one.evaluator == "schema" and one.shown is True and not one.evaluator_config.get("path")
        for schema in [_schema_of(one)]
    ]
    return found[0] if len(found) == 1 and found[0].get("type") == "object" else None


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
    """Return what a criterion asks for, in words of its description and configuration alone.

    Nothing is said of a criterion that a model judges, of tests that a model wrote, and of what the writer
    may not know (`QualityCriterion.shown`).
    """
    if criterion.shown is False or criterion.origin == "generated" or needs_model(criterion):
        return []
    configured, described = _configured(criterion), _sentence(criterion.description)
    if not criterion.description or len(described) > LONGEST:
        return configured
    return [Requirement(described, _always), *configured]


def _configured(criterion: QualityCriterion) -> list[Requirement]:
    """Return what the configuration of a check asks for and its description does not say."""
    if criterion.shown is not True or criterion.origin == "generated":
        return []
    read = _READERS.get(criterion.evaluator)
    return [
        requirement
        for requirement in (read(criterion) if read else [])
        if len(requirement.text) <= LONGEST and not _repeats(requirement.text, criterion.description)
    ]


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


_WORD = re.compile(r"[^\W_]+")
_FILLERS = frozenset(
    re.findall(
        r"\w+",
        "a an and answer are as at be by each exactly for has have holds in is it its key least most of one "
        "only or output required text that the this to with",
    )
)
_DIGITS = {word: str(number) for number, word in enumerate(NUMBERS)}


def _repeats(text: str, description: str) -> bool:
    """Return whether a description says all that a sentence says: its names, numbers and nouns."""
    return bool(description) and _content(text) <= _content(description)


def _content(text: str) -> set[str]:
    words: list[str] = _WORD.findall(text.casefold())
    return {_DIGITS.get(word, word.removesuffix("s")) for word in words if word not in _FILLERS}


def _part(criterion: QualityCriterion) -> Place:
    """Return the part of a structured output that a check is about."""
    path = criterion.evaluator_config.get("path")
    return path_of(path) if isinstance(path, str) else ()


def _subject(criterion: QualityCriterion) -> str:
    """Return the subject of a sentence about what a check is about."""
    return _name(_part(criterion)) or "the text"


# Limits.


def _of_count(criterion: QualityCriterion) -> list[Requirement]:
    config, units = criterion.evaluator_config, criterion.evaluator
    least, most = config.get("at_least") or None, config.get("at_most")
    how = ', each a line that begins with "- "' if units == "bullets" and most != 0 else ""
    amount = _amount(least, most, units.removesuffix("s"))
    return [Requirement(_sentence(f"{_subject(criterion)} has {amount}{how}"), _always)]


def _amount(least: Any, most: Any, unit: str) -> str:
    """Return how many of a unit there are within limits, such as `at most 5 words`."""
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
    if not is_forbidden and (least, most) != (None, None):
        does += f" {limits_in_words(least or None, most)} times"
    return [Requirement(_sentence(f"{_subject(criterion)} {does}"), _always)]


# Functions and tests.


def _of_function(criterion: QualityCriterion) -> list[Requirement]:
    if criterion.description:
        return []
    return [
        Requirement(_sentence(message.asked), message.is_said_by)
        for message in _messages_of(function_of(criterion))
        if message.asked
    ]


@dataclass(frozen=True, slots=True)
class _Message:
    """A message that a check function may return: its fixed words, and None for each value of the output.

    Fixed words, such as "Use at most five words.", hold no data of a run; so do constants.
    """

    parts: tuple[str | None, ...]

    @property
    def asked(self) -> str:
        """Return what it asks for: its words before the clause with the first value, if there are several."""
        first = self.parts[0] or ""
        if self.parts != (first,):
            ends = list(_CLAUSE_END.finditer(first))
            first = first[: ends[-1].start()] if ends else ""
        if " " not in first.strip():
            return ""
        return f"Avoid this: {first}" if _COMPLAINT.search(first) else first

    def is_said_by(self, issue: Issue) -> bool:
        words = "".join(".*" if part is None else re.escape(part) for part in self.parts)
        return re.fullmatch(words, issue.message, re.DOTALL) is not None


_CLAUSE_END = re.compile(r"[;.!?]\s|, (?=but |not |got )")
"""Between what a message asks for and what it says of an output: `Use at most 2 links; there are ...`."""
_COMPLAINT = re.compile(
    r"^(?:there (?:is|are|was|were)\b|too |missing |not |found )|\b(?:is|are|has|have|was|were|does|do|did)"
    r"(?: not\b|n't\b| no\b| too\b| missing\b| empty\b| invalid\b| wrong\b)|\b(?:lacks?|missing)\W*$",
    re.IGNORECASE,
)
"""In a message that says what is wrong rather than what to do."""


RESULT = "result"
"""The name that an evaluator's code may give its verdict, rather than to return it."""


@lru_cache(maxsize=256)
def requirements_in(code: str) -> tuple[str, ...]:
    """Return what the body of a check in Python asks for: the fixed words of its messages."""
    try:
        body = ast.parse(f"def check():\n{indent(code, ' ')}").body[0]
    except (SyntaxError, ValueError, RecursionError):
        return ()
    reader = _ReasonReader(cast("ast.FunctionDef", body))
    messages = (_message(text, {}) for text in reader.reasons(RESULT))
    return tuple(dict.fromkeys(_sentence(one.asked) for one in messages if one.asked))


def _messages_of(function: Callable[..., Any]) -> tuple[_Message, ...]:
    """Return the texts that a check function may return as its reason, each once, in their order."""
    if not isinstance(function, FunctionType | MethodType | partial):
        return ()  # an object of the user's, which need not be hashable
    return _read_messages(cast("Callable[..., Any]", function))


@lru_cache(maxsize=256)
def _read_messages(function: Callable[..., Any]) -> tuple[_Message, ...]:
    node, constants = _source_of(function)
    if node is None:
        return ()
    reader = _ReasonReader(node)
    constants = {
        name: value for name, value in constants.items() if name not in reader.compared | reader.assigned
    }
    texts = {id(text): text for text in reader.reasons()}.values()
    in_order = sorted(texts, key=lambda text: (text.lineno, text.col_offset))
    return tuple(dict.fromkeys(_message(text, constants) for text in in_order))


_Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda"


def _source_of(function: Callable[..., Any]) -> tuple[_Function | None, dict[str, object]]:
    """Return the syntax tree of a function, None if there is none, and the constants that it can see."""
    given: dict[str, object] = {}
    while isinstance(function, partial):
        given = {**function.keywords, **given}
        function = cast("Callable[..., Any]", function.func)
    if not isinstance(function, FunctionType | MethodType):
        return None, {}
    function = inspect.unwrap(function)
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None:
        return None, {}
    nodes = [
        node
        for node in _functions_in("".join(linecache.getlines(code.co_filename)))
        if getattr(node, "name", "<lambda>") == code.co_name
        and code.co_firstlineno == min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
    ]
    if len(nodes) != 1:  # typed at a prompt, or one of several on a line
        return None, {}
    parameters = inspect.signature(function).parameters.values()
    seen = inspect.getclosurevars(function)
    constants = {
        **{name: one for name, one in seen.globals.items() if name not in code.co_varnames},
        **seen.nonlocals,
        **{one.name: one.default for one in parameters},
        **given,
    }
    return nodes[0], {
        name: one
        for name, one in constants.items()
        if isinstance(one, str | int | float) and not isinstance(one, bool)
    }


@lru_cache(maxsize=32)
def _functions_in(source: str) -> list[_Function]:
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]


REASONS = frozenset(("message", "reason", "errors", "issues", "suggestions"))
"""The keys of a verdict, and the keywords of its classes, that hold messages."""


class _ReasonReader:
    """Finds the texts that a check function gives as reasons: no other text in it is a message."""

    def __init__(self, function: _Function) -> None:
        is_lambda = isinstance(function, ast.Lambda)
        body: Sequence[ast.AST] = [function.body] if is_lambda else function.body
        inside = [node for part in body for node in _walk_own(part)]
        self._verdicts = [function.body] if is_lambda else []
        self._verdicts += [
            node.value for node in inside if isinstance(node, ast.Return | ast.Yield) and node.value
        ]
        self._failures = [node for node in inside if isinstance(node, ast.Raise | ast.Assert)]
        self._values = _values_in(inside)
        self.compared = {
            one.id
            for node in inside
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
            for one in (node.left, *node.comparators)
            if isinstance(one, ast.Name) and not any(map(self._is_count, (node.left, *node.comparators)))
        }
        """Names that something else than a count has to equal: maybe the expected value of a test."""
        self.assigned = {
            node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def _is_count(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="len" | "sum")) | ast.Call(func=ast.Attribute(attr="count")):
                return True
            case ast.Name(id=name):
                values = self._values.get(name, [])
                return bool(values) and all(
                    isinstance(one, ast.Call) and self._is_count(one) for one in values
                )
            case _:
                return False

    def reasons(self, result: str = "") -> Iterator[ast.expr]:
        """Yield the strings and f-strings in places where a message is expected.

        `result` names the variable that holds the verdict in code that need not return it.
        """
        for verdict in (*self._verdicts, *self._values.get(result, ())):
            yield from self._in_verdict(verdict, frozenset())
        for node in self._failures:
            if isinstance(node, ast.Assert):
                yield from self._in_reason(node.msg, frozenset())
            elif isinstance(node.exc, ast.Call):
                for argument in node.exc.args:
                    yield from self._in_reason(argument, frozenset())

    def _in_verdict(self, node: ast.expr | None, seen: frozenset[str]) -> Iterator[ast.expr]:
        match node:
            case ast.Tuple(elts=[_, *reasons]):
                for reason in reasons:
                    yield from self._in_reason(reason, seen)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in REASONS:
                        yield from self._in_reason(value, seen)
            case ast.Call(keywords=keywords):
                for keyword in keywords:
                    if keyword.arg in REASONS:
                        yield from self._in_reason(keyword.value, seen)
            case _:
                yield from self._in_parts(node, seen, self._in_verdict)

    def _in_reason(self, node: ast.expr | None, seen: frozenset[str]) -> Iterator[ast.expr]:
        match node:
            case ast.Constant(value=str()) | ast.JoinedStr():
                yield node
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                for part in parts:
                    yield from self._in_reason(part, seen)
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part) | ast.Starred(value=part):
                yield from self._in_reason(part, seen)
            case ast.Call(func=ast.Name(id="Issue"), args=[message, *_]):
                yield from self._in_reason(message, seen)
            case ast.Dict():
                yield from self._in_verdict(node, seen)
            case _:
                yield from self._in_parts(node, seen, self._in_reason)

    def _in_parts(
        self,
        node: ast.expr | None,
        seen: frozenset[str],
        read: Callable[[ast.expr, frozenset[str]], Iterator[ast.expr]],
    ) -> Iterator[ast.expr]:
        """Read the expressions of which a value is one."""
        match node:
            case ast.IfExp(body=one, orelse=other):
                parts = [one, other]
            case ast.BoolOp(values=parts):
                pass
            case ast.NamedExpr(value=part):
                parts = [part]
            case ast.Name(id=name) if name not in seen:
                parts, seen = self._values.get(name, []), seen | {name}
            case _:
                parts = []
        for part in parts:
            yield from read(part, seen)


def _values_in(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return the values that are assigned, added or appended to each name."""
    values: dict[str, list[ast.expr]] = {}
    for node in nodes:
        match node:
            case (
                ast.Assign(targets=[ast.Name(name)], value=value)
                | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
                | ast.AugAssign(target=ast.Name(name), value=value)
                | ast.Call(ast.Attribute(ast.Name(name), "append" | "extend" | "add"), args=[value])
            ):
                values.setdefault(name, []).append(value)
            case _:
                pass
    return values


def _walk_own(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without the functions inside it."""
    pending = deque([node])
    while pending:
        node = pending.popleft()
        yield node
        pending += (
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
        )


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


def _begins_with(text: str) -> Callable[[Issue], bool]:
    return lambda issue: issue.startswith(text)


def _of_command(criterion: QualityCriterion) -> list[Requirement]:
    config = criterion.evaluator_config
    if "calls" in config:
        return _of_checks(read_calls(criterion, config["calls"]))
    if "tests" in config and not runs_program(criterion):
        return _of_checks(read_tests(criterion, tests_of(criterion, config["tests"])))
    return []


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
        found.append(Requirement(_sentence(text), _begins_with(check.shown), is_test=True))
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
    return _SchemaReader(_schema_of(criterion)).requirements(_part(criterion))


def _schema_of(criterion: QualityCriterion) -> dict[str, Any]:
    """Return the JSON Schema of a criterion; empty if there is none, or anything is allowed."""
    schema = required(criterion, "schema")
    if not isinstance(schema, dict | bool):
        schema = _schema_of_class(schema)
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}


def _schema_of_class(kind: Any) -> dict[str, Any]:
    from pydantic import PydanticUserError  # noqa: PLC0415 (its criterion has loaded it)

    try:
        hash(kind)
    except TypeError:  # a type with data of its own
        made = _made_schema.__wrapped__
    else:
        made = _made_schema
    try:
        return made(kind)
    except PydanticUserError:  # it has no JSON Schema
        return {}


@lru_cache(maxsize=64)  # a pattern is often made for each run
def _made_schema(kind: Any) -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 (as above)

    return TypeAdapter[Any](kind).json_schema()


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
        below = [*properties.items(), (ITEM, schema.get("items"))]
        below += [(VALUE, schema.get("additionalProperties"))]
        for key, inner in below:
            resolved = self._resolved(inner)
            if isinstance(inner, dict) and (key in EACH or resolved.keys() & HOLDING):
                yield from self.read(resolved, (*place, key), depth + 1)
        for option in _options(schema):
            if self._resolved(option).get("properties"):
                yield from self.read(option, place, depth + 1)

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
        for key in path_of(reference[1:]):
            target = cast("dict[str, Any]", target).get(key) if isinstance(target, dict) else None
        return target

    def form(self, schema: dict[str, Any], key: str = "", within: frozenset[int] = frozenset()) -> str:
        """Return the form of a value in words, that of a key if it has one; empty if anything is allowed.

        `within` holds the alternatives, by identity, that the schema is part of and may refer to again.
        """
        if "const" in schema:
            return as_json(schema["const"])
        if isinstance(options := schema.get("enum"), list):
            shown = [as_json(option) for option in cast("list[Any]", options)]
            more = [f"{len(shown) - MOST_OPTIONS} others"] if len(shown) > MOST_OPTIONS else []
            return f"one of {', '.join(shown[:MOST_OPTIONS] + more)}"
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


def _objects(properties: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}


def _bounds(schema: dict[str, Any], low: str, high: str, unit: str = "") -> list[str]:
    least, most = schema.get(low), schema.get(high)
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
        found = path_of(issue.path or "")
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


_READERS: dict[str, Callable[[QualityCriterion], list[Requirement]]] = {
    "schema": _of_schema,
    "regex": _of_pattern,
    "function": _of_function,
    "command": _of_command,
    **dict.fromkeys(COUNTS, _of_count),
}
