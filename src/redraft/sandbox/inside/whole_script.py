"""A script in whole Python: its names, its value, and what went wrong as an answer."""

from __future__ import annotations

import ast
import json
import re
import sys
import traceback

from redraft.sandbox.inside.answer import failure, success, too_big

TYPE_CHECKING = False  # typing itself would cost each run 7 ms
if TYPE_CHECKING:
    from typing import Any

_FILE = "<script>"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Run a script and return its answer: what it returned, `result` if it was assigned, its last expression.

    It shares the process with this function: what it can do to its own answer gains it nothing.
    """
    limits = order["limits"]
    names = vars(sys.modules["__main__"])
    names.clear()
    names.update(
        {"__name__": "__main__", "__builtins__": __builtins__, "json": json, "re": re, **order["names"]}
    )
    try:
        value = _evaluate(ast.parse(order["source"], _FILE), names)
    except SyntaxError as error:
        return failure("script", f"raised {type(error).__name__}: {error.msg}", error.lineno)
    except MemoryError as error:
        return too_big(limits, _line(error))
    except PermissionError as error:
        return failure("forbidden", f"raised {type(error).__name__}: {error}", _line(error))
    except BaseException as error:  # noqa: BLE001 (whatever it raises, the host is told)
        return failure("script", f"raised {type(error).__name__}{_said(error)}", _line(error))
    return success(value, "", limits)


def returns(tree: ast.Module) -> bool:
    """Say whether a script may return, itself rather than a function in it."""
    return any(isinstance(node, ast.Return) for node in _outside_of_scopes(tree))


def _evaluate(tree: ast.Module, names: dict[str, Any]) -> Any:
    if returns(tree):
        value = _returned(tree, names)
        return names.get("result") if value is None else value
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, _FILE, "exec"), names)  # noqa: S102 (this is what the jail is for)
    value = None
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), _FILE, "eval"), names)  # noqa: S307 (the jail is for this, too)
    return names.get("result", value)


def _returned(tree: ast.Module, names: dict[str, Any]) -> Any:
    """Run a script that returns as the body of a function whose variables are all global."""
    main = ast.parse("def __script__(): pass")
    function = main.body[0]
    if not isinstance(function, ast.FunctionDef):  # the type of what was just parsed
        raise TypeError
    for node in _outside_of_scopes(tree):  # `x: int = 1` cannot be global, `x = 1` can
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, list(map(_without_annotation, value)))  # pyright: ignore[reportUnknownArgumentType] (nodes, most of them)
    function.body = tree.body
    code = next(c for c in compile(main, _FILE, "exec").co_consts if hasattr(c, "co_varnames"))
    if assigned := [*code.co_varnames, *code.co_cellvars]:
        function.body.insert(0, ast.fix_missing_locations(ast.Global([*dict.fromkeys(assigned)])))
    exec(compile(main, _FILE, "exec"), names)  # noqa: S102 (likewise)
    return names.pop("__script__")()


def _without_annotation(node: Any) -> Any:
    if not isinstance(node, ast.AnnAssign):
        return node
    if node.value is None:
        return ast.copy_location(ast.Pass(), node)
    return ast.copy_location(ast.Assign([node.target], node.value), node)


def _outside_of_scopes(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes of a tree that are in no function or class of its own."""
    found: list[ast.AST] = [tree]
    for node in found:
        found += [child for child in ast.iter_child_nodes(node) if not isinstance(child, _SCOPES)]
    return found


def _said(error: BaseException) -> str:
    try:
        said = str(error)
    except BaseException as second:  # noqa: BLE001 (an exception's text is code of the script, too)
        return f", whose message cannot be read ({type(second).__name__})"
    return f": {said}" if said else ""


def _line(error: BaseException) -> int | None:
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == _FILE
    ]
    return lines[-1] if lines else None
