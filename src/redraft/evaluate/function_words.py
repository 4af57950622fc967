"""Functions in words: the messages of a check that can be read from its source."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections import deque
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from textwrap import indent
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import CodeType

    from redraft.types import Issue


VALUE = "\0"
"""Stands for a value of the output in a message."""


@dataclass(frozen=True, slots=True)
class FunctionMessage:
    """A message that a check function may return."""

    text: str
    """Fixed words, and `VALUE` for each value of the output.

    Fixed words, such as "Use at most five words.", and constants contain no data of a run.
    """

    @property
    def asked(self) -> str:
        """The requirement in the message: the words before the clause with the first value."""
        first, value, _ = self.text.partition(VALUE)
        if value:
            ends = list(_CLAUSE_END.finditer(first))
            first = first[: ends[-1].start()] if ends else ""
        # A first part that begins with punctuation continues a value: ". There is: a, b".
        if " " not in first.strip() or _CONTINUES.match(first):
            return ""
        return f"Avoid this: {first}" if _COMPLAINT.search(first) else first

    def is_said_by(self, issue: Issue) -> bool:
        """Whether an issue has this message, perhaps among others."""
        words = ".*".join(map(re.escape, self.text.split(VALUE)))
        return re.search(words, issue.message, re.DOTALL) is not None

    def names(self, answers: Iterable[str]) -> bool:
        """Whether it names an expected answer."""
        words = self.text.replace(VALUE, " ").casefold()
        return any(re.search(rf"(?<!\w){re.escape(answer.casefold())}(?!\w)", words) for answer in answers)


_CONTINUES = re.compile(r"\s*[.,;:)\]}!?]|\s*(?:and|but|or)\b")
_CLAUSE_END = re.compile(r"[;.!?]\s|, (?=but |not |got )")
"""Between the requirement and the statement about an output: `Use at most 2 links; there are ...`."""
_COMPLAINT = re.compile(
    r"^(?:there (?:is|are|was|were)\b|too |missing |not |found )|\b(?:is|are|has|have|was|were|does|do|did)"
    r"(?: not\b|n't\b| no\b| too\b| missing\b| empty\b| invalid\b| wrong\b)|\b(?:lacks?|missing)\W*$",
    re.IGNORECASE,
)
"""Marks a message that says what is wrong rather than what to do."""


RESULT = "result"
"""The variable to which an evaluator's code may assign its verdict instead of returning it."""


def messages_of(function: Callable[..., Any], *, returned: bool = True) -> tuple[FunctionMessage, ...]:
    """The messages that a check function may raise or return, in source order, without duplicates.

    Without `returned`, only what it raises: what the validator of a class returns is a value.
    """
    if not isinstance(function, FunctionType | MethodType | partial):
        return ()  # other callables need not be hashable
    return _read_messages(cast("Callable[..., Any]", function), returned)


@lru_cache(maxsize=256)
def _read_messages(function: Callable[..., Any], returned: bool, /) -> tuple[FunctionMessage, ...]:
    node, constants = _source_of(function)
    if node is None:
        return ()
    reader = _ReasonReader(node)
    constants = {
        name: value for name, value in constants.items() if name not in reader.compared | reader.assigned
    }
    reasons = chain(reader.returned() if returned else (), reader.raised())
    texts = {id(text): text for text in reasons}.values()
    in_order = sorted(texts, key=lambda text: (text.lineno, text.col_offset))
    messages = dict.fromkeys(FunctionMessage(_words_of(text, constants)) for text in in_order)
    return tuple(message for message in messages if not message.names(reader.answers))


def messages_in(code: str) -> Iterator[FunctionMessage]:
    """Yield the messages in the body of a check in Python, which need not return its verdict."""
    try:
        body = ast.parse(f"def check():\n{indent(code, ' ')}").body[0]
    except (SyntaxError, ValueError, RecursionError):
        return
    reader = _ReasonReader(cast("ast.FunctionDef", body))
    for text in chain(reader.returned(RESULT), reader.raised()):
        if not (message := FunctionMessage(_words_of(text, {}))).names(reader.answers):
            yield message


_Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda"


def _source_of(function: Callable[..., Any]) -> tuple[_Function | None, dict[str, object]]:
    """The syntax tree of a function (None without source), and the constants in its scope."""
    arguments: dict[str, object] = {}
    while isinstance(function, partial):
        arguments = {**function.keywords, **arguments}
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
        and code.co_firstlineno == min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
    ]
    if len(nodes) != 1:  # entered at a prompt, or several functions on the same line
        return None, {}
    parameters = inspect.signature(function).parameters.values()
    seen = inspect.getclosurevars(function)
    constants = {
        **{name: value for name, value in seen.globals.items() if name not in code.co_varnames},
        **seen.nonlocals,
        **{parameter.name: parameter.default for parameter in parameters},
        **arguments,
    }
    return nodes[0], {
        name: value
        for name, value in constants.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
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
PASSED = frozenset(("valid", "pass", "passed", "score", "overall_score", "satisfactory"))
"""The keys and keywords that say whether an output passed."""


class _ReasonReader:
    """Finds the texts that a check function gives as reasons; its other texts are not messages."""

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
        self._praise = _said_of_passing(inside)
        comparisons = [
            (node.left, *node.comparators)
            for node in inside
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
        ]
        self.compared = {
            side.id
            for sides in comparisons
            for side in sides
            if isinstance(side, ast.Name) and not any(map(self._is_count, sides))
        }
        """Names that are compared with anything but a count: they may hold the expected value of a test."""
        self.assigned = {
            node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

        self.answers = {
            side.value
            for sides in comparisons
            if any(map(self._is_input, sides))
            for side in sides
            if isinstance(side, ast.Constant) and isinstance(side.value, str) and side.value.strip()
        }
        """Texts that the whole output is compared with: a writer that knew them would write for the test."""

    def _is_input(self, node: ast.expr) -> bool:
        """Whether an expression is a variable from outside, such as `text`, or `text.strip().lower()`."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            node = node.func.value
        return isinstance(node, ast.Name) and node.id not in self.assigned

    def _is_count(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="len" | "sum")) | ast.Call(func=ast.Attribute(attr="count")):
                return True
            case ast.Name(id=name):
                values = self._values.get(name, [])
                return bool(values) and all(
                    isinstance(value, ast.Call) and self._is_count(value) for value in values
                )
            case _:
                return False

    def returned(self, result: str = "") -> Iterator[ast.expr]:
        """Yield the strings and f-strings where a verdict has its reasons.

        `result` names the variable that holds the verdict in code that need not return it.
        """
        for verdict in (*self._verdicts, *self._values.get(result, ())):
            yield from self._reasons(verdict, in_verdict=True)

    def raised(self) -> Iterator[ast.expr]:
        """Yield the strings and f-strings in the exceptions and assertions."""
        for node in self._failures:
            if isinstance(node, ast.Assert):
                yield from self._reasons(node.msg)
            elif isinstance(node.exc, ast.Call):
                for argument in node.exc.args:
                    yield from self._reasons(argument)

    def _reasons(
        self, node: ast.expr | None, seen: frozenset[str] = frozenset(), *, in_verdict: bool = False
    ) -> Iterator[ast.expr]:
        """Yield the strings and f-strings of a reason, or of a verdict those where it has its reasons.

        `seen` has the variables whose values are being read.
        """
        match node:
            case ast.IfExp(body=first, orelse=second):
                parts = [first, second]
            case ast.BoolOp(values=parts):
                pass
            case ast.NamedExpr(value=part):
                parts = [part]
            case ast.Name(id=name) if name not in seen:
                parts, seen = self._values.get(name, []), seen | {name}
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                parts = [
                    value for key, value in pairs if isinstance(key, ast.Constant) and key.value in REASONS
                ]
                in_verdict = False
            case ast.Tuple(elts=[_, *parts]) if in_verdict:
                in_verdict = False
            case ast.Call(keywords=keywords) if in_verdict:
                parts = [keyword.value for keyword in keywords if keyword.arg in REASONS]
                in_verdict = False
            case ast.expr() if not in_verdict and _begins_with_text(node):
                parts = []
                if id(node) not in self._praise:
                    yield node
            case ast.BinOp(left=first, op=ast.Add(), right=second) if not in_verdict:
                parts = [first, second]
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="join"), args=[part]):
                parts = [part]
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts) if not in_verdict:
                pass
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part) | ast.Starred(value=part) if (
                not in_verdict
            ):
                parts = [part]
            case ast.Call(func=ast.Name(id="Issue"), args=[part, *_]):
                parts = [part]
            case _:
                parts = []
        for part in parts:
            yield from self._reasons(part, seen, in_verdict=in_verdict)


def _said_of_passing(nodes: Sequence[ast.AST]) -> set[int]:
    """The ids of the texts about an output that passed, such as "Well done." in `True, "Well done."`."""
    parts: list[ast.AST] = []
    passed: set[str] = set()
    for node in nodes:
        match _passed_in(node):
            case None:
                pass
            case ast.Constant(value=1):
                parts.append(node)
            case ast.IfExp(test=test, body=ast.Constant(value=1)):
                passed.add(ast.dump(test))
            case ast.IfExp(test=test, orelse=ast.Constant(value=1)):
                passed.add(ast.dump(ast.UnaryOp(ast.Not(), test)))
            case verdict:
                passed.add(ast.dump(verdict))
    for node in nodes:
        if isinstance(node, ast.If | ast.IfExp):
            match node.test:
                case ast.UnaryOp(op=ast.Not(), operand=opposite):
                    pass
                case test:
                    opposite = ast.UnaryOp(ast.Not(), test)
            if ast.dump(node.test) in passed:
                branch = node.body
            elif ast.dump(opposite) in passed:
                branch = node.orelse
            else:
                branch = []
            parts += branch if isinstance(branch, list) else [branch]
    return {id(inner) for part in parts for inner in ast.walk(part)}


def _passed_in(node: ast.AST) -> ast.expr | None:
    """The part of a verdict that says whether an output passed."""
    match node:
        case ast.Tuple(elts=[passed, _, *_]):
            return passed
        case ast.Dict(keys=keys, values=values):
            named = [
                value
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant) and key.value in PASSED
            ]
        case ast.Call(args=arguments, keywords=keywords) if any(word.arg in REASONS for word in keywords):
            named = [*arguments, *(word.value for word in keywords if word.arg in PASSED)]
        case _:
            named = []
    return next(iter(named), None)


def _values_in(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """The values that are assigned, added or appended to each name."""
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
    """Walk a tree without its nested functions and classes."""
    pending = deque([node])
    while pending:
        node = pending.popleft()
        yield node
        pending += (
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
        )


_PERCENT = re.compile(r"%(?:\(\w+\))?[-+#0-9.*]*[a-zA-Z]")
_BRACES = re.compile(r"\{[^{}]*\}")
"""The place of a value in a text that is formatted with `%` or `str.format`."""


def _begins_with_text(node: ast.expr) -> bool:
    """Whether an expression is a string, an f-string, or a formatted or added one."""
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
        case ast.BinOp(left=text, op=ast.Add() | ast.Mod()) | ast.Call(ast.Attribute(text, "format")):
            return _begins_with_text(text)
        case _:
            return False


def _words_of(text: ast.expr, constants: Mapping[str, object]) -> str:
    """The words of a text, with `constants` filled in, and `VALUE` for other values."""
    match text:
        case ast.JoinedStr(values=values):
            return "".join(_fixed(value, constants) for value in values)
        case ast.BinOp(left=first, op=ast.Add(), right=second):
            return _words_of(first, constants) + _words_of(second, constants)
        case ast.BinOp(left=first):
            return _PERCENT.sub(VALUE, _words_of(first, constants)).replace("%%", "%")
        case ast.Call(ast.Attribute(first, "format")):
            return _BRACES.sub(VALUE, _words_of(first, constants))
        case _:
            return _fixed(text, constants)


def _fixed(node: ast.expr, constants: Mapping[str, object]) -> str:
    """The fixed text of a part of an f-string; `VALUE` if it depends on the output."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name) and not node.format_spec:
        value = constants.get(node.value.id)
        if value is not None and node.conversion in (-1, ord("s"), ord("r")):
            return repr(value) if node.conversion == ord("r") else str(value)
    return VALUE
