"""Python: inline in monty (a warm interpreter for a subset of the language), or in a jailed process."""

# Both run inside the jail, and each script of the latter starts a new process: importing typing would cost
# each run 7 ms, hence the constant below, and the imports in functions.

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import sys
import traceback
from itertools import accumulate
from keyword import iskeyword

from redraft.sandbox.answers import MAX_MESSAGE, failure, out_of_memory, success, timed_out, too_much_output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from pydantic_monty import Monty, MontyError, MontySession, ResourceLimits

    from redraft.sandbox.answers import Answer
    from redraft.sandbox.worker import ShutIn


# --- inline, in monty ---

_MODULES = ("json", "re")
_RECURSION = 500
_MAX_LOOKUPS = 1_000_000
_ADDRESS_SPACE = 2 << 30
"""Address space in which this process reads results from monty, which has its own limit."""

_DESCRIPTORS = 1 << 16


def start(options: dict[str, Any], shut_in: ShutIn) -> Callable[[dict[str, Any]], Answer]:
    """Start monty behind the jail's walls and shut this process in; return the function that answers orders.

    This process separates monty from the host: if a script broke out of monty, it could forge monty's
    messages, so they are decoded inside the jail. Once shut in, this process can't start another monty; if
    monty dies, it runs no more scripts.
    """
    from pydantic_monty import Monty  # noqa: PLC0415

    pool = Monty(binary_path=_monty_program(options), max_processes=1, feed_duration_limit_grace=None)
    pool.__enter__()
    _check_alive(pool)
    shut_in(address_space=_ADDRESS_SPACE, jailed_child=True)
    return lambda order: _run_inline(pool, order)


def _monty_program(options: dict[str, Any]) -> str:
    """The path of a program that raises the walls and then turns into monty.

    monty's pool starts the program with one argument and no environment. The program is a shell script in
    memory, which exists as long as this process.
    """
    from redraft.sandbox import walls  # noqa: PLC0415

    program: str = options["program"]
    try:
        walls.check()
    except walls.MissingWallError:
        return program
    import shlex  # noqa: PLC0415

    start = (
        "import sys; sys.path.insert(0, sys.argv[1]); import redraft.sandbox.python as p; p.become_monty()"
    )
    words = [*options["interpreter"], "-c", start, options["packages"], program, str(os.getpid())]
    script = os.memfd_create("monty", 0)
    os.write(script, f"#!/bin/sh\nexec {shlex.join(words)}\n".encode())
    return f"/proc/self/fd/{script}"


def become_monty() -> NoReturn:
    """Raise the walls around this process and turn into the program in `sys.argv`."""
    from redraft.sandbox.worker import shut_in  # noqa: PLC0415

    _, _, program, parent = sys.argv
    os.closerange(3, _DESCRIPTORS)
    shut_in(int(parent), becomes=program)
    os.execve(program, [program, "subprocess"], {})  # noqa: S606 (deliberately without a shell)


class _Output:
    """Counts the output of a script, and ends the script once the output is too long."""

    def __init__(self, limit: int) -> None:
        self.overflowed = False
        self._left = limit

    def add(self, _stream: str, text: str) -> None:
        self._left -= len(text)
        self.overflowed = self._left < 0
        if self.overflowed:
            raise ValueError


def _run_inline(pool: Monty, order: dict[str, Any]) -> Answer:
    from pydantic_monty import MontyError  # noqa: PLC0415

    try:
        _check_alive(pool)
    except (MontyError, RuntimeError):
        return {"not_run": "monty has died"}
    limits = order["limits"]
    output = _Output(limits["output_chars"])
    bounds: ResourceLimits = {
        "max_feed_duration_secs": limits["seconds"],
        "max_memory": limits["memory_mb"] << 20,
        "max_recursion_depth": _RECURSION,
        "max_suspensions": _MAX_LOOKUPS,
    }
    session = pool.checkout(limits=bounds, os_policy={"sleep": "zero"}, assert_message_annotations=False)
    try:
        with session:
            return _inline_answer(session, order, output)
    except MontyError as error:
        return too_much_output(limits) if output.overflowed else _failure(error, limits)


def _check_alive(pool: Monty) -> None:
    """Raise `MontyError` if monty does not run, or `RuntimeError` if the pool can't start it."""
    with pool.checkout() as session:
        session.feed_run("None")


def _inline_answer(session: MontySession, order: dict[str, Any], output: _Output) -> Answer:
    """Answer with the script's return value, else its variable `result`, else its last expression.

    The value is serialised inside monty, since it may change on the way out: a function becomes a string.
    Raises `MontyError`.
    """
    from pydantic_monty import MontyRuntimeError  # noqa: PLC0415

    limits = order["limits"]
    source, returns = _capture_value(order["source"])
    session.feed_run(f"import {', '.join(_MODULES)}\n{_VALUE} = None")
    names = {
        name: value for name, value in order["names"].items() if name not in _MODULES and not iskeyword(name)
    }
    value = session.feed_run(source, inputs=names, print_callback=output.add)
    inputs = {} if value is None else {_VALUE: value}
    try:
        text = session.feed_run(_WRITE_RETURNED if returns else _WRITE_ASSIGNED, inputs=inputs)
    except MontyRuntimeError as error:
        if _is_limit(raised := error.exception()):
            return _failure(error, limits)
        return failure("script", f"returned a value that can't be written as JSON: {raised}")
    limit = limits["result_chars"]
    if len(text) > limit:
        return failure(
            "script",
            f"returned a value that is too large: {len(text):,} characters of JSON; the limit is {limit:,}",
        )
    return {"value": text}


_VALUE = "__value__"
_WRITE = f"""
try:
    {_VALUE} = %s
except NameError:
    pass
import json
json.dumps({_VALUE}, ensure_ascii=False, allow_nan=False)
"""
_WRITE_ASSIGNED = _WRITE % "result"
_WRITE_RETURNED = _WRITE % f"result if {_VALUE} is None else {_VALUE}"


def _capture_value(source: str) -> tuple[str, bool]:
    """Rewrite a script so that it assigns its value to `__value__`; also returns whether it has a `return`.

    Line numbers stay the same. The value is the return value, or else the last expression. Code that only
    monty can parse stays as it is: its value leaves monty and is passed in again.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source, False
    returned = [node for node in _top_level_nodes(tree) if isinstance(node, ast.Return)]
    values: list[ast.stmt] = [node for node in returned if node.value]
    if not returned:
        values = [node for node in tree.body[-1:] if isinstance(node, ast.Expr)]
    code = source.encode()
    starts = [0, *accumulate(map(len, code.splitlines(keepends=True)))]
    assigned = f"{_VALUE} = (".encode()
    for node in sorted(values, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        statement = code[start:end]
        if isinstance(node, ast.Return):
            statement = assigned + statement.removeprefix(b"return") + b"); return"
        else:
            statement = assigned + statement + b")"
        code = code[:start] + statement + code[end:]
    return code.decode(), bool(returned)


def _failure(error: MontyError, limits: dict[str, Any]) -> Answer:
    from pydantic_monty import MontyRuntimeError, MontySyntaxError  # noqa: PLC0415

    if not isinstance(error, MontyRuntimeError | MontySyntaxError):
        return failure("script", f"ended its interpreter: {error}")
    raised = error.exception()
    lines = [frame.line for frame in error.traceback() if frame.filename != "<string>"]
    line = max(lines[-1], 1) if lines else None
    if _is_limit(raised):
        return timed_out(limits) if isinstance(raised, TimeoutError) else out_of_memory(limits, line)
    message = str(raised)[:MAX_MESSAGE]
    what = f"raised {type(raised).__name__}{f': {message}' if message else ''}"
    if _reaches_out(raised, message):
        reached = "a script has no access to files, environment, network or other processes"
        return failure("forbidden", f"{what} ({reached})", line)
    if missing := _missing_feature(raised, message):
        return failure("script", f"{what} (inline Python has no {missing}: use `sandbox: process`)", line)
    return failure("script", what, line)


_LIMITS = ("feed time limit", "memory limit", "the worker exceeded its memory limit")
_MISSING_NAME = re.compile(r"name '(\w+)' is not defined")
_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")
_MISSING_ATTRIBUTE = re.compile(r"module '(os|sys|posix|io|pathlib)' has no attribute '\w+'")
_OUTWARD_MODULES = {
    *("_ctypes", "_posixsubprocess", "_socket", "ctypes", "fcntl", "ftplib", "gc", "http", "imaplib"),
    *("importlib", "inspect", "mmap", "multiprocessing", "poplib", "posix", "pty", "resource", "select"),
    *("shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess"),
    *("tempfile", "threading", "urllib", "webbrowser", "xmlrpc"),
}
"""Modules that a script needs only to get out; `sandbox: process` has them, behind its walls."""


def _is_limit(raised: BaseException) -> bool:
    return isinstance(raised, TimeoutError | MemoryError) and str(raised).startswith(_LIMITS)


def _reaches_out(raised: BaseException, message: str) -> bool:
    if isinstance(raised, PermissionError) or message.endswith("is not supported in this environment"):
        return True
    if isinstance(raised, ModuleNotFoundError) and (module := _MISSING_MODULE.search(message)):
        return module[1].split(".")[0] in _OUTWARD_MODULES
    return isinstance(raised, AttributeError) and _MISSING_ATTRIBUTE.search(message) is not None


def _missing_feature(raised: BaseException, message: str) -> str | None:
    """The feature of Python that monty lacks, if its absence made the script fail."""
    if "not yet support" in message:
        return (
            message.rpartition("support ")[2].removeprefix("the ") if message.count("support ") else message
        )
    if message.startswith("Wildcard imports"):
        return "wildcard imports"
    if isinstance(raised, ImportError) and (module := _MISSING_MODULE.search(message)):
        return f"module {module[1]!r}" if module[1].split(".")[0] in sys.stdlib_module_names else None
    if isinstance(raised, NameError) and (name := _MISSING_NAME.search(message)):
        return f"{name[1]}()" if name[1] in {*vars(builtins), "exit", "quit", "help"} else None
    if isinstance(raised, AttributeError) or message.startswith("cannot import name"):
        return _missing_attribute(message)
    for pattern, feature in _MISSING:
        if re.match(pattern, message):
            return feature
    return None


_MISSING = (
    ("cannot create 'property' instances", "properties"),
    ("cannot create 'object' instances", "object()"),
    (r"'list' object is not an iterator", "generators and iterators apart from iter()"),
    (r"object of type '\w+' has no len\(\)", "special methods such as __len__"),
    (r"cannot convert '\w+' object to bytes", "bytes() of a list"),
    (r"callable replacement is not", "functions as replacements in re.sub()"),
    (r"Internal error in monty: exceptions can only", "exceptions with other arguments than one text"),
)
"""Messages of monty where it lacks a feature, and the feature."""
_NO_ATTRIBUTE = re.compile(r"(?:type object )?(?:(module) )?'([\w.]+)'(?: object)? has no attribute '(\w+)'")
_NO_IMPORT = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def _missing_attribute(message: str) -> str | None:
    """The attribute of a module or a builtin type that Python has and monty lacks."""
    if match := _NO_IMPORT.match(message):
        is_module, owner, name = "module", match[2], match[1]
    elif match := _NO_ATTRIBUTE.match(message):
        is_module, owner, name = match.groups()
    else:
        return None
    if not is_module:
        if owner == "list" and name in ("send", "throw", "close"):
            return "generators"
        return f"{owner}.{name}()" if hasattr(vars(builtins).get(owner), name) else None
    exists_in_python = owner.split(".")[0] in sys.stdlib_module_names and (
        owner not in sys.modules or hasattr(sys.modules[owner], name)
    )
    return f"{owner}.{name}" if exists_in_python else None


def unsupported_features(tree: ast.Module) -> list[tuple[str, int]]:
    """The features in a script that inline Python lacks, each with its first line."""
    features: dict[str, int] = {}
    assigned: dict[str, list[bool]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    assigned.setdefault(target.id, []).append(_is_iterator(node.value, set()))
    generators = {name for name, kinds in assigned.items() if all(kinds)}
    for node in ast.walk(tree):
        feature = _feature(node, generators)
        if feature is not None:
            line = getattr(node, "lineno", 1)
            features[feature] = min(line, features.get(feature, line))
    return sorted(features.items(), key=lambda item: item[1])


def _feature(node: ast.AST, generators: set[str]) -> str | None:
    """The feature that a node needs and inline Python lacks."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next":
        return "next() of a generator" if node.args and _is_iterator(node.args[0], generators) else None
    if isinstance(node, ast.ClassDef):
        is_derived = node.keywords or any(getattr(base, "id", "") != "object" for base in node.bases)
        decorated = any(isinstance(item, ast.FunctionDef) and item.decorator_list for item in node.body)
        return "class inheritance" if is_derived else "method decorators" if decorated else None
    return _LACKING.get(type(node).__name__)


def _is_iterator(node: ast.expr, generators: set[str]) -> bool:
    """Whether an expression is an iterator in Python and a list in monty."""
    makers = ("map", "filter", "zip", "enumerate", "reversed")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in makers
    return isinstance(node, ast.GeneratorExp) or (isinstance(node, ast.Name) and node.id in generators)


_LACKING = {
    "AsyncFor": "async for loops",
    "AsyncWith": "async with",
    "Delete": "'del' statement",
    "TryStar": "exception groups",
    "TypeAlias": "type aliases",
    "Yield": "yield expressions",
    "YieldFrom": "yield from expressions",
}
"""Nodes of Python's syntax that monty does not run, by the names of their classes."""


# --- in a jailed process ---

_FILE = "<script>"


def run(order: dict[str, Any]) -> Answer:
    """Answer with the script's return value, else its variable `result`, else its last expression.

    The script shares the process with this function, so it can change its own answer, which is harmless.
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
        return out_of_memory(limits, _line(error))
    except PermissionError as error:
        return failure("forbidden", f"raised {type(error).__name__}{_message(error)}", _line(error))
    except BaseException as error:  # noqa: BLE001 (the host reports any exception)
        return failure("script", f"raised {type(error).__name__}{_message(error)}", _line(error))
    return success(value, "", limits)


def _evaluate(tree: ast.Module, names: dict[str, Any]) -> Any:
    if any(isinstance(node, ast.Return) for node in _top_level_nodes(tree)):
        value = _call_as_function(tree, names)
        return names.get("result") if value is None else value
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, _FILE, "exec"), names)  # noqa: S102 (the purpose of the jail)
    value = None
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), _FILE, "eval"), names)  # noqa: S307 (as above)
    return names.get("result", value)


def _call_as_function(tree: ast.Module, names: dict[str, Any]) -> Any:
    """Run a script that has a `return` as the body of a function whose variables are all global."""
    main = ast.parse("def __script__(): pass")
    function = main.body[0]
    if not isinstance(function, ast.FunctionDef):  # never true; for type checkers
        raise TypeError
    for node in _top_level_nodes(tree):  # `x: int = 1` cannot be global, `x = 1` can
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, list(map(_without_annotation, value)))  # pyright: ignore[reportUnknownArgumentType] (nodes, most of them)
    function.body = tree.body
    code = next(c for c in compile(main, _FILE, "exec").co_consts if hasattr(c, "co_varnames"))
    if assigned := [*code.co_varnames, *code.co_cellvars]:
        function.body.insert(0, ast.fix_missing_locations(ast.Global([*dict.fromkeys(assigned)])))
    exec(compile(main, _FILE, "exec"), names)  # noqa: S102 (as above)
    return names.pop("__script__")()


def _without_annotation(node: Any) -> Any:
    if not isinstance(node, ast.AnnAssign):
        return node
    if node.value is None:
        return ast.copy_location(ast.Pass(), node)
    return ast.copy_location(ast.Assign([node.target], node.value), node)


def _top_level_nodes(tree: ast.AST) -> list[ast.AST]:
    """The nodes of a script outside of its functions and classes."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # the list grows during the iteration
        nodes += [child for child in ast.iter_child_nodes(node) if not isinstance(child, scopes)]
    return nodes


def _message(error: BaseException) -> str:
    try:
        message = str(error)
    except BaseException as second:  # noqa: BLE001 (the script may define the exception's `__str__`)
        return f", whose message can't be read ({type(second).__name__})"
    return f": {message}" if message else ""


def _line(error: BaseException) -> int | None:
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == _FILE]
    return lines[-1] if lines else None
