"""The steps that run beside a Python draft inside the jail."""

from __future__ import annotations

import ast
import json
import math
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

DRAFT = "<draft>"
_SHOWN, _VALUE, _MESSAGE = 200, 100, 500  # characters of a value, of one in an assertion, of a message
_DIGITS = 2000  # bits of a number that is still written in decimal


def run_steps(inputs: dict[str, Any]) -> dict[str, Any]:
    """Execute `draft`, then `setup`, then take the `steps`: (how, source) each, in one namespace.

    Returns `{"outcomes": [...]}`, one for each step: `{"value": ..., "shown": ...}` for an expression
    (`eval`) or a statement that went through (`exec`), else `{"raised": ..., "line": ...}`, where `line` is
    that of the draft. Where the draft or the setup itself raises, returns that alone, with `part`.

    A failed assertion of the setup or the steps has a message that says which one it is, with its values.
    """
    module = ModuleType("draft")
    sys.modules["draft"] = module
    names = vars(module)
    names[_EXPLAIN] = _explain
    for part in ("draft", "setup"):
        outcome = _take("exec", inputs[part], names, f"<{part}>")
        if "raised" in outcome:
            return {**outcome, "part": part}
    return {"outcomes": [_take(how, source, names, "<check>") for how, source in inputs["steps"]]}


def _take(how: str, source: str, names: dict[str, Any], file: str) -> dict[str, Any]:
    try:
        tree = source if file == DRAFT else _ExplainAsserts().visit(ast.parse(source, file, how))
        code = compile(tree, file, how)
        value = eval(code, names)  # noqa: S307 (this is what the jail is for; of a module's code it gives None)
        return {"value": plain(value), "shown": _shown(value)}
    except BaseException as error:  # noqa: BLE001 (whatever the draft raises is an outcome)
        return {"raised": type(error).__name__, "message": _message(error), "line": _line(error)}


def _line(error: BaseException) -> int | None:
    """Give the last line of the draft that the error came through."""
    if isinstance(error, SyntaxError) and error.filename == DRAFT:
        return error.lineno
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == DRAFT:
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def _message(error: BaseException) -> str:
    return _clip(error.msg if isinstance(error, SyntaxError) else _text(error), _MESSAGE)


def _text(message: Any) -> str:
    try:
        return str(message)
    except BaseException:  # noqa: BLE001 (the draft's own __str__)
        return "its message can't be shown"


def _shown(value: Any, limit: int = _SHOWN) -> str:
    try:
        text = repr(value)
    except BaseException as error:  # noqa: BLE001 (the draft's own __repr__)
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return _clip(text, limit)


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


_EXPLAIN, _LEFT, _RIGHT = "__explain__", "__left__", "__right__"


class _ExplainAsserts(ast.NodeTransformer):
    """Give each assert a message with the values that it compared, each of which is still evaluated once.

    `assert f(n) == 2, m` becomes `assert (__left__ := f(n)) == (__right__ := 2), __explain__(...)`.
    """

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        test, message = node.test, node.msg or ast.Constant("")
        source = ast.Constant(ast.unparse(test))
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            stored, names = ast.Compare(_stored(_LEFT, test.left), test.ops, []), [_LEFT, _RIGHT]
            stored.comparators.append(_stored(_RIGHT, test.comparators[0]))
        else:
            stored, names = _stored(_LEFT, test), [_LEFT]
        values = ast.List([ast.Name(name, ast.Load()) for name in names], ast.Load())
        explained = ast.Call(ast.Name(_EXPLAIN, ast.Load()), [source, values, message], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Assert(stored, explained), node))


def _stored(name: str, value: ast.expr) -> ast.expr:
    return ast.NamedExpr(ast.Name(name, ast.Store()), value)


def _explain(source: str, values: list[Any], message: Any) -> str:
    """Say what a failed assertion compared and what came of it, with the variables that it read."""
    test = ast.parse(source, mode="eval").body
    if isinstance(test, ast.Compare) and len(values) > 1:
        sides = [(test.left, values[0]), (test.comparators[0], values[1])]
        if _is_literal(test.left):
            sides.reverse()
        if isinstance(test.ops[0], ast.Eq):
            text = f"{_result(*sides[0])}, expected {_shown(sides[1][1], _VALUE)}"
        else:
            results = [_result(*side) for side in sides if not _is_literal(side[0])]
            text = f"{_clip(source, _VALUE)} is false: {', '.join(results)}"
    else:
        text = _result(test, values[0])
    caller = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] (where the assert is)
    scope = {**caller.f_globals, **caller.f_locals}
    names = dict.fromkeys(node.id for node in ast.walk(test) if isinstance(node, ast.Name))
    known = [
        f"{name} = {_shown(scope[name], _VALUE)}" for name in names if name in scope and _is_data(scope[name])
    ]
    where = f" (with {', '.join(known)})" if known else ""
    said = "" if isinstance(message, str) and not message else f"; {_text(message)}"
    return f"{text}{where}{said}"


def _result(side: ast.expr, value: Any) -> str:
    verb = "returned" if isinstance(side, ast.Call) else "is"
    return f"{_clip(ast.unparse(side), _VALUE)} {verb} {_shown(value, _VALUE)}"


def _is_literal(side: ast.expr) -> bool:
    try:
        ast.literal_eval(side)
    except (ValueError, TypeError):
        return False
    return True


def _is_data(value: Any) -> bool:
    return not callable(value) and not isinstance(value, ModuleType)


def plain(value: Any) -> Any:
    """Make JSON of a value, so that equal values are equal JSON.

    Tuples become lists. What JSON does not know is an object with one key that says what it was: sets
    (sorted), bytes, complex and very large numbers, floats that are not finite, dicts whose keys are not
    all texts. Anything else is `{"__other__": its repr}`, which equals nothing.
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
    return {"__other__": _shown(value)}


def _order(item: Any) -> str:
    return json.dumps(item, sort_keys=True)
