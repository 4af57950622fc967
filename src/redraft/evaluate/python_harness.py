"""Run a Python draft and its checks inside the jail."""

# The source of this module is what the jail executes, so it imports nothing but the standard library.

from __future__ import annotations

import ast
import builtins
import json
import math
import os
import re
import sys
from importlib.machinery import FileFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from types import CodeType, FrameType
    from typing import Any

DRAFT, STEP = "<draft>", "redraft-step:"
"""The name of the draft's file, and the prefix of a line on stderr that announces a step."""
_LONG, _VALUE, _MESSAGE = 10_000, 100, 500  # characters of a value, of one in an assertion, of a message
_VALUES = 5  # of variables and calls that a failed assertion names
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object in memory, which differs from run to run
_DIGITS = 2000  # bits of a number that is still written in decimal


def run_steps(inputs: dict[str, Any]) -> dict[str, Any]:
    """Execute `draft`, then `setup`, then take the `steps`: (how, source) each, in one namespace.

    That namespace is the module `module`; with `folder`, modules can be imported from there, too. Returns
    `{"outcomes": [...]}`, one for each step: `{"value": ..., "shown": ...}` for an expression (`eval`) or a
    statement that went through (`exec`), else what `_raised` says of the error. Where the draft or the setup
    itself raises, returns only that outcome, with `part`.

    A failed assertion of the setup, the steps or the folder has a message that says which one it is, with its
    values.
    """
    module = ModuleType(inputs["module"])
    module.__file__ = f"{module.__name__}.py"
    sys.modules[module.__name__] = module
    names = vars(module)
    setattr(builtins, _EXPLAIN, _explain)
    if folder := inputs["folder"]:
        sys.path.insert(0, folder)
        sys.path_importer_cache[folder] = FileFinder(folder, (_Loader, [".py"]))
    for part in ("draft", "setup"):
        outcome = _take("exec", inputs[part], names, f"<{part}>")
        if "raised" in outcome:
            return {**outcome, "part": part}
    outcomes: list[dict[str, Any]] = []
    for at, (how, source) in enumerate(inputs["steps"]):
        os.write(2, f"\n{STEP}{at}\n".encode())
        outcomes.append(_take(how, source, names, f"<check {at}>"))
    return {"outcomes": outcomes}


def _take(how: str, source: str, names: dict[str, Any], file: str) -> dict[str, Any]:
    try:
        code = compile(source, file, how) if file == DRAFT else _explaining(source, file, how)
        value = eval(code, names)  # noqa: S307 (this is what the jail is for; of a module's code it gives None)
        return {"value": plain(value), "shown": _shown(value, _LONG)}
    except BaseException as error:  # noqa: BLE001 (any error of the draft is an outcome)
        return _raised(error, names["__name__"])


_lines: dict[str, list[str]] = {}
"""The source lines of all compiled code but the draft, by file name."""


def _explaining(source: str, file: str, how: str = "exec") -> CodeType:
    """Compile source so that its failed assertions explain themselves."""
    _lines[file] = source.splitlines()
    return compile(_ExplainAsserts().visit(ast.parse(source, file, how)), file, how, dont_inherit=True)


class _Loader(SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, **_options: Any) -> CodeType:
        return _explaining(bytes(data).decode(), path)


def _raised(error: BaseException, module: str) -> dict[str, Any]:
    """Say what was raised: the error's type as `raised`, its `message`, and where it came through.

    That is a `line` of the draft, and the statements of the check that led there, as `at`. `missing` is a
    module that a check could not import; what the draft can't import, or does not define, is its own fault.
    """
    statements: list[str] = []
    line, file, frame = None, "", error.__traceback__
    if isinstance(error, SyntaxError) and error.filename == DRAFT:
        line = error.lineno
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if file == DRAFT:
            line = frame.tb_lineno
        elif file in _lines and frame.tb_lineno <= len(_lines[file]):
            if statements or len(_lines[file]) > 1:  # a one-line check is already named
                statements.append(_statement(_lines[file][frame.tb_lineno - 1].strip(), frame.tb_frame))
            else:
                statements.append("")
        frame = frame.tb_next
    if isinstance(error, AssertionError) and file in _lines and statements:
        del statements[-1]  # the message says it
    message = error.msg if isinstance(error, SyntaxError) else _text(error)
    outcome = {"raised": type(error).__name__, "message": _clip(message, _MESSAGE), "line": line}
    if inner := [statement for statement in statements if statement]:
        outcome["at"] = ": ".join(dict.fromkeys((inner[0], inner[-1])))
    if isinstance(error, ImportError) and line is None and error.name != module:
        outcome["missing"] = _clip(str(error.name), _VALUE)
    return outcome


def _statement(line: str, frame: FrameType) -> str:
    try:
        return f"{_clip(line, _VALUE)}{_variables(ast.parse(line), frame, frozenset(), {})}"
    except SyntaxError:  # the head of a block
        return _clip(line, _VALUE)


def _text(message: Any) -> str:
    try:
        return _ADDRESS.sub("", str(message))
    except BaseException:  # noqa: BLE001 (the draft's own __str__)
        return "its message can't be shown"


def _shown(value: Any, limit: int) -> str:
    try:
        text = _repr_of_set(value) if type(value) in (set, frozenset) else repr(value)
    except BaseException as error:  # noqa: BLE001 (the draft's own __repr__)
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return _clip(_ADDRESS.sub("", text), limit)


def _repr_of_set(value: AbstractSet[Any]) -> str:
    """Represent a set in order: the order of texts in a set differs from run to run."""
    items = ", ".join(sorted(map(repr, value)))
    if isinstance(value, frozenset):
        return f"frozenset({{{items}}})" if items else "frozenset()"
    return f"{{{items}}}" if items else "set()"


def difference(first: str, second: str, limit: int) -> tuple[str, str]:
    """Clip two texts to `limit` characters around the place where they begin to differ."""
    pairs = enumerate(zip(first, second, strict=False))
    same = next((at for at, (left, right) in pairs if left != right), min(len(first), len(second)))
    start = max(0, same - limit // 2) if max(len(first), len(second)) > limit else 0
    dots = "..." if start else ""
    return _clip(dots + first[start:], limit), _clip(dots + second[start:], limit)


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


# Assertions that explain themselves.

_EXPLAIN, _LEFT, _RIGHT = "__explain__", "__left__", "__right__"


class _ExplainAsserts(ast.NodeTransformer):
    """Give each assert a message with its values; each value is still evaluated once.

    `assert f(g(n)) == 2, m` becomes `assert (__left__ := f((__0__ := g(n)))) == (__right__ := 2),
    __explain__("f(g(n)) == 2", [__left__, __right__], {"g(n)": __0__}, m)`. The operands of `and`, and the
    pairs of `0 < n < 9`, become separate asserts, so that the message is about the part that failed.
    """

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        made = [_explained(node, *part) for test in _joined(node.test) for part in _parts(test)]
        return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in made]


def _joined(test: ast.expr) -> list[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in _joined(value)]
    return [test]


def _parts(test: ast.expr) -> list[tuple[str, ast.expr, list[str], dict[str, str]]]:
    """Each part of a test: its source, how to evaluate it, and the names of its values and calls."""
    calls = _InnerCalls()
    if not isinstance(test, ast.Compare):
        source = ast.unparse(test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            stored = ast.UnaryOp(test.op, _stored(_LEFT, calls.inside(test.operand)))
        else:
            stored = _stored(_LEFT, calls.inside(test))
        return [(source, stored, [_LEFT], calls.names)]
    pairs = list(zip((test.left, *test.comparators), test.ops, test.comparators, strict=False))
    sources = [ast.unparse(ast.Compare(left, [op], [right])) for left, op, right in pairs]
    parts: list[tuple[str, ast.expr, list[str], dict[str, str]]] = []
    left = calls.inside(test.left)
    for source, (_, op, right) in zip(sources, pairs, strict=True):
        stored = ast.Compare(_stored(_LEFT, left), [op], [_stored(_RIGHT, calls.inside(right))])
        parts.append((source, stored, [_LEFT, _RIGHT], dict(calls.names)))
        left = ast.Name(_RIGHT, ast.Load())  # evaluated once, for the pair on either side of it
    return parts


class _InnerCalls(ast.NodeTransformer):
    """Store the return values of the calls inside an expression, with `names` from source to name.

    Only calls that are always evaluated with the expression, and no calls of builtins.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def visit(self, node: ast.AST) -> Any:
        """Skip nodes that may be evaluated several times, or not at all."""
        return node if isinstance(node, _NOT_ALWAYS_ONCE) else super().visit(node)

    def inside(self, side: ast.expr) -> ast.expr:
        """Store the calls inside a side of an assertion; the value of the side itself is stored anyway."""
        if isinstance(side, ast.Await | ast.Call):
            self.generic_visit(side.value if isinstance(side, ast.Await) else side)
            return side
        return self.visit(side)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        source = ast.unparse(node)
        self.generic_visit(node)
        is_builtin = isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id)
        if is_builtin or source in self.names or len(self.names) == _VALUES:
            return node
        self.names[source] = f"__{len(self.names)}__"
        return _stored(self.names[source], node)

    def visit_Await(self, node: ast.Await) -> ast.Await:
        self.generic_visit(node.value)
        return node


_NOT_ALWAYS_ONCE = (
    ast.BoolOp, ast.IfExp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


def _explained(
    node: ast.Assert, source: str, test: ast.expr, values: list[str], calls: dict[str, str]
) -> ast.Assert:
    listed = ast.List([ast.Name(name, ast.Load()) for name in values], ast.Load())
    called = ast.Dict(
        [ast.Constant(call) for call in calls], [ast.Name(name, ast.Load()) for name in calls.values()]
    )
    arguments: list[ast.expr] = [ast.Constant(source), listed, called, node.msg or ast.Constant("")]
    return ast.Assert(test, ast.Call(ast.Name(_EXPLAIN, ast.Load()), arguments, []))


def _stored(name: str, value: ast.expr) -> ast.expr:
    return ast.NamedExpr(ast.Name(name, ast.Store()), value)


def _explain(source: str, values: list[Any], calls: dict[str, Any], message: Any) -> str:
    """Explain a failed assertion: the values it compared, and the variables and calls in it."""
    test = ast.parse(source, mode="eval").body
    results = [(test, values[0])]
    sides, actual = results, ""
    if isinstance(test, ast.Compare):
        results = list(zip((test.left, test.comparators[0]), values, strict=True))
        if _is_literal(test.left):
            results.reverse()
        if isinstance(test.ops[0], ast.Eq | ast.Is):
            sides = results[:1]
            first, second = (_shown(value, _LONG) for _, value in results)
            actual, expected = difference(first, second, _VALUE)
        else:
            sides, expected = [side for side in results if not _is_literal(side[0])], None
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        sides, expected = [(test.operand, values[0])], "False" if values[0] is True else "something false"
    else:
        expected = "True" if values[0] is False else "something true"
    text = ", ".join(_result(side, actual or _shown(value, _VALUE)) for side, value in sides)
    text = f"{_clip(source, _VALUE)} is false: {text}" if expected is None else f"{text}, expected {expected}"
    names = _names_in(test)
    seen = {side.id for side, _ in sides if isinstance(side, ast.Name)}
    seen |= {side.id for side, _ in results if isinstance(side, ast.Name) and names.count(side.id) == 1}
    caller = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] (where the assert is)
    suffix = "" if isinstance(message, str) and not message else f"; {_text(message)}"
    return f"{text}{_variables(test, caller, seen, calls)}{suffix}"


def _result(side: ast.expr, shown: str) -> str:
    verb = "returned" if isinstance(side, ast.Await | ast.Call) else "is"
    return f"{_clip(ast.unparse(side), _VALUE)} {verb} {shown}"


def _variables(node: ast.AST, frame: FrameType, seen: AbstractSet[str], calls: Mapping[str, Any]) -> str:
    """The variables in a piece of source that are not in `seen` yet, and its calls."""
    scope = {**frame.f_globals, **frame.f_locals}
    names = [name for name in _names_in(node) if name in scope and name not in seen]
    variables = {
        name: value
        for name in names
        if not callable(value := scope[name]) and not isinstance(value, ModuleType)
    }
    variables |= {_clip(call, _VALUE): value for call, value in calls.items()}
    listed = [f"{name} = {_shown(value, _VALUE)}" for name, value in list(variables.items())[:_VALUES]]
    return f" (with {', '.join(listed)})" if listed else ""


def _names_in(node: ast.AST) -> list[str]:
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    return [part.id for part in sorted(names, key=lambda part: (part.lineno, part.col_offset))]


def _is_literal(side: ast.expr) -> bool:
    try:
        ast.literal_eval(side)
    except (ValueError, TypeError):
        return False
    return True


def plain(value: Any) -> Any:
    """Make JSON of a value, so that equal values are equal JSON.

    Tuples become lists. Values without a JSON form become an object with one key that names their type:
    sets (sorted), bytes, complex and very large numbers, floats that are not finite, dicts with keys that are
    not text. Anything else is `{"__other__": its repr}`, which equals nothing.
    """
    try:
        return _plain(value)
    except RecursionError:
        return {"__other__": "a value nested too deeply"}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() < _DIGITS else {"__int__": hex(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"__float__": repr(float(value))}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType] (anything)
    return _plain_object(value)


def _plain_object(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return {"__set__": sorted((_plain(item) for item in value), key=_order)}  # pyright: ignore[reportUnknownVariableType] (anything)
    if isinstance(value, dict):
        pairs = [[_plain(key), _plain(item)] for key, item in value.items()]  # pyright: ignore[reportUnknownVariableType] (anything)
        if all(isinstance(key, str) and not key.startswith("__") for key, _ in pairs):
            return dict(pairs)
        return {"__dict__": sorted(pairs, key=_order)}
    if isinstance(value, bytes | bytearray):
        return {"__bytes__": value.hex()}
    if isinstance(value, complex):
        return {"__complex__": [_plain(value.real), _plain(value.imag)]}
    return {"__other__": _shown(value, _VALUE)}


def _order(item: Any) -> str:
    return json.dumps(item, sort_keys=True)
